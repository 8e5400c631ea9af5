package mysqlbackend

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/backend/batch"
	"github.com/dlock-go/dlock/backend/roster"
)

// The waiters of a driver in one roster share a watcher, which reads the roster for all of them. On
// MySQL it sleeps in the server. Its connection has a user-level lock, the bell, whose name comes
// from the driver and the key. Each entry of a waiter has the driver's part of that name. After a
// change that lets the waiter hold the lock, KILL QUERY ends the sleep of the connection that has
// the bell. On MariaDB the watcher polls; see pollUntilFree.

// maxTurnPoll is the longest pause of a watcher whose waiters are far from the front of a roster.
const maxTurnPoll = 500 * time.Millisecond

// version is a roster as it was after a change of its row.
type version struct {
	roster roster.Roster
	text   []byte
	token  int64
}

// newVersion returns a copy of r. The caller may change r afterwards, and the version stays as it
// is.
func newVersion(r roster.Roster, token int64) *version {
	return &version{roster: slices.Clone(r), text: r.Text(), token: token}
}

// turns are the waiters of a driver in rosters.
type turns struct {
	mu    sync.Mutex
	byKey map[string]*watcher
}

// watcher reads one roster for the waiters of a driver. turns.mu guards it. It stands in byKey
// until it has no waiter.
type watcher struct {
	key     string
	waiters map[string]chan error // by owner; each has room for the end of the wait
	seen    *version              // the newest version, without expired entries; nil: none yet
	nearest int                   // the smallest distance of a waiter
}

func newTurns() *turns { return &turns{byKey: make(map[string]*watcher)} }

// awaitTurn blocks until the waiter of req may hold the lock, or until it must refresh its entry.
// It returns after a third of the time of the entry at the latest, because the entry of a waiter
// that does not refresh it expires.
func (d *driver) awaitTurn(
	ctx context.Context, req *backend.Request, in inRoster, bound time.Duration,
) error {
	bound = min(bound, roster.Place(req.TTL)/3)
	timer := time.NewTimer(bound)
	defer timer.Stop()
	done := d.joinWatcher(req.Key, req.Owner, in.token)
	defer d.turns.leave(req.Key, req.Owner)
	select {
	case err := <-done:
		return err
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// joinWatcher lets the watcher of key, which it starts if necessary, wait for the turn of owner.
// token is the token of the row that contains its entry. The channel gets nil when the turn has
// come, or the error of a look.
func (d *driver) joinWatcher(key, owner string, token int64) <-chan error {
	d.turns.mu.Lock()
	defer d.turns.mu.Unlock()
	done := make(chan error, 1)
	w := d.turns.byKey[key]
	if w == nil {
		w = &watcher{key: key, waiters: make(map[string]chan error)}
		d.turns.byKey[key] = w
		if !d.background.Go(func() { d.watch(w) }) {
			done <- backend.ErrClosed
		}
	}
	w.waiters[owner] = done
	if w.seen != nil && w.seen.token >= token { // it may have been read before the waiter came
		w.advance(owner, done)
	}
	return done
}

// isWatched reports whether a waiter of the driver waits in the roster of key.
func (s *turns) isWatched(key string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.byKey[key] != nil
}

// leave removes a waiter.
func (s *turns) leave(key, owner string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if w := s.byKey[key]; w != nil {
		delete(w.waiters, owner)
	}
}

// report records a version of the roster, and wakes the waiters whose turn has come. It returns how
// many they are. turns.mu must be held.
func (w *watcher) report(v *version) (woken int) {
	w.seen, w.nearest = v, 0
	for owner, done := range w.waiters {
		distance := w.advance(owner, done)
		if distance == 0 {
			woken++
		} else if w.nearest == 0 || distance < w.nearest {
			w.nearest = distance
		}
	}
	return woken
}

// advance ends the wait of owner if its turn has come in w.seen. It returns how many entries must
// leave before. turns.mu must be held.
func (w *watcher) advance(owner string, done chan error) (distance int) {
	distance = w.seen.roster.Distance(owner)
	if distance == 0 {
		w.end(owner, done, nil)
	}
	return distance
}

// end ends the wait of owner. turns.mu must be held.
func (w *watcher) end(owner string, done chan error, err error) {
	delete(w.waiters, owner)
	select {
	case done <- err:
	default: // it has ended already
	}
}

// watch reads the roster of w until it has no waiters. It also ends when the driver is closed.
func (d *driver) watch(w *watcher) {
	s := d.newSleeper(w.key)
	defer s.close()
	for p := minRowPoll; ; p *= 2 {
		v, now, err := d.look(s, w)
		nearest, isNearer, more := d.observe(w, v, err)
		if !more {
			return
		}
		if isNearer {
			p = minRowPoll
		}
		p = min(p, maxRowPoll*time.Duration(max(nearest, 1)), maxTurnPoll)
		if s.sleep(v, now, p) != nil {
			return // Close ends the waits
		}
	}
}

// look reads the roster of w. It blocks for Options.Timeout at most. An error ends the waits of all
// its waiters, and the core makes another attempt for each.
func (d *driver) look(s *sleeper, w *watcher) (v *version, now int64, err error) {
	ctx, cancel := d.boundBackground()
	defer cancel()
	d.turns.mu.Lock()
	seen := w.seen
	d.turns.mu.Unlock()
	v, now, err = d.lookTwice(ctx, s.querier(), w.key, seen)
	if err != nil && ctx.Err() != nil { // the contexts of the waiters have not ended
		err = fmt.Errorf("%w: the roster was not read: %w",
			backend.ErrUnavailable, batch.ErrNoAnswer)
	}
	return v, now, err
}

// lookTwice is lookOnce, and reads again after an interruption: a KILL QUERY that was meant for the
// watcher's last sleep may come late.
func (d *driver) lookTwice(
	ctx context.Context, q querier, key string, seen *version,
) (v *version, now int64, err error) {
	v, now, err = d.lookOnce(ctx, q, key, seen)
	if hasNumber(err, errInterrupted) {
		return d.lookOnce(ctx, q, key, seen)
	}
	return v, now, err
}

// lookOnce reads the roster of key, and the server's time. seen is the version that was read last,
// or nil.
func (d *driver) lookOnce(
	ctx context.Context, q querier, key string, seen *version,
) (v *version, now int64, err error) {
	token := int64(-1) // none
	if seen != nil {
		token = seen.token
	}
	rows, err := query(ctx, q, scanLook, d.text.rosterLook, token, []byte(key))
	if err != nil {
		return nil, 0, err
	}
	if len(rows) == 0 || rows[0].owner != rosterOwner {
		return &version{token: -1}, 0, nil
	}
	row := rows[0]
	r := roster.Roster(nil)
	if row.token != token {
		if r, err = row.entries(); err != nil {
			return nil, 0, err
		}
	} else {
		r = slices.Clone(seen.roster)
		r.Expire(row.now)
	}
	return &version{roster: r, token: row.token}, row.now, nil
}

// observe gives the outcome of a look to the waiters. It returns the smallest distance of a waiter,
// whether it has become smaller, and false if the watcher ends because it has no waiter.
func (d *driver) observe(w *watcher, v *version, err error) (nearest int, isNearer, more bool) {
	d.turns.mu.Lock()
	defer d.turns.mu.Unlock()
	if err != nil {
		for owner, done := range w.waiters {
			w.end(owner, done, err)
		}
	} else {
		before := w.nearest
		woken := w.report(v)
		d.gather(w.key, woken)
		isNearer = woken > 0 || w.nearest < before
	}
	if len(w.waiters) == 0 {
		delete(d.turns.byKey, w.key)
		return 0, false, false
	}
	return w.nearest, isNearer, true
}

// passOn wakes the waiters that may hold the lock after a change of the roster of key. It does so
// in the background, because the caller whose change it was need not wait.
func (d *driver) passOn(key string, before, after *version) {
	for _, bell := range d.reached(key, before.roster, after) {
		d.background.Go(func() {
			ctx, cancel := d.boundWake()
			defer cancel()
			d.ring(ctx, key, bell)
		})
	}
}

// passOnNow reads the roster of key, and wakes all waiters that may hold the lock.
func (d *driver) passOnNow(key string) {
	ctx, cancel := d.boundWake()
	defer cancel()
	after, _, err := d.lookTwice(ctx, d.pools.control, key, nil)
	if err != nil {
		return // the waiters read the roster once a second
	}
	var rings sync.WaitGroup
	for _, bell := range d.reached(key, nil, after) {
		rings.Go(func() { d.ring(ctx, key, bell) })
	}
	rings.Wait()
}

// reached wakes the driver's own waiters that may hold the lock after a change of the roster of
// key. It returns the bells of the other drivers with such waiters.
func (d *driver) reached(key string, before roster.Roster, after *version) []string {
	d.turns.mu.Lock()
	if w := d.turns.byKey[key]; w != nil && (w.seen == nil || w.seen.token < after.token) {
		d.gather(key, w.report(after))
	}
	d.turns.mu.Unlock()
	if d.queue.polls {
		return nil
	}
	isOwn := func(bell string) bool { return bell == d.bell }
	return slices.DeleteFunc(after.roster.Reached(before), isOwn)
}

// ring wakes the watcher of key of the driver with that bell.
func (d *driver) ring(ctx context.Context, key, bell string) {
	d.wakeOwner(ctx, d.keys.bell(key, bell))
}

// wakeOwner wakes the connection that has a user-level lock.
func (d *driver) wakeOwner(ctx context.Context, name string) {
	found, err := query(ctx, d.pools.control, scanNullable, "SELECT IS_USED_LOCK(?)", name)
	if err == nil && len(found) == 1 && found[0].Valid {
		d.wake(ctx, found[0].Int64)
	}
}

// sleeper is how a watcher pauses between two reads.
type sleeper struct {
	d    *driver
	key  string
	conn *waitConn // has the bell; nil: it polls
}

// newSleeper returns a sleeper, which polls if it cannot sleep in the server.
func (d *driver) newSleeper(key string) *sleeper {
	s := &sleeper{d: d, key: key}
	if !d.caps.Notify || d.queue.polls {
		return s
	}
	ctx, cancel := d.boundBackground()
	defer cancel()
	w, err := d.queue.connect(ctx)
	if err != nil || w == nil {
		return s
	}
	bell := d.keys.bell(key, d.bell)
	got, err := query(ctx, w.conn, scanNullable, "SELECT GET_LOCK(?, 1)", bell)
	if err != nil || len(got) != 1 || got[0].Int64 != 1 { // the last watcher still has it
		d.queue.discard(w)
		return s
	}
	w.signal = bell
	s.conn = w
	return s
}

// querier returns the connection for reads.
func (s *sleeper) querier() querier {
	if s.conn != nil {
		return s.conn.conn
	}
	return s.d.pools.main
}

// sleep blocks until the roster may have changed. v is the version that was read, or nil after an
// error, and p the pause of a sleeper that polls. It returns an error if the driver is closed.
func (s *sleeper) sleep(v *version, now int64, p time.Duration) error {
	if s.conn == nil || v == nil {
		return pause(s.d.ctx, p)
	}
	left := maxSleep.Microseconds()
	for _, e := range v.roster {
		left = min(left, max(0, e.Expires-now))
	}
	ctx, cancel := context.WithTimeout(s.d.ctx, maxSleep+s.d.opts.Timeout)
	defer cancel()
	began := time.Now()
	_, err := query(
		ctx, s.conn.conn, scanNullable, s.d.text.turnSleep, left, []byte(s.key), v.token)
	switch {
	case hasNumber(err, errInterrupted):
	case err != nil: // it polls from now on
		s.d.queue.discard(s.conn)
		s.conn = nil
	case time.Since(began) < minRowPoll: // the roster keeps changing
		return pause(s.d.ctx, min(p, maxRowPoll))
	}
	return s.d.ctx.Err()
}

// close gives the connection back.
func (s *sleeper) close() {
	if s.conn == nil {
		return
	}
	ctx, cancel := s.d.boundBackground()
	defer cancel()
	s.d.queue.giveBack(ctx, s.conn)
}

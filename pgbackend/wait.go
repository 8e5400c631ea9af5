package pgbackend

import (
	"context"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/backend/kind"
	"github.com/dlock-go/dlock/backend/roster"
)

// A message is only a hint: it can be lost, and can reach a waiter that does not hold the lock yet.
// The row decides. So a waiter without a message is late, but never wrong.

// channel carries the owners of the waiters that may acquire their locks. All tables of a database
// share it, because owners are random and differ.
const channel = "dlock"

// The pauses between attempts to connect, and between signs of life of a silent connection.
const (
	minReconnect = 50 * time.Millisecond
	maxReconnect = 2 * time.Second
	pingInterval = 10 * time.Second
)

// Wait implements backend.Waiter. The waiter has an entry in the roster. The statement that removes
// the last entry in front of it makes it the holder, and sends its owner to all drivers, on one
// connection each. Wait returns in time for the attempt that keeps the waiter's place, also while
// the driver cannot listen. That attempt also removes dead waiters in front of it, for which there
// is no message.
func (d *driver) Wait(
	ctx context.Context, req *backend.Request, _ *backend.Busy,
) (*backend.Grant, error) {
	turn, cancel := context.WithTimeout(ctx, roster.Place(req.TTL)/3)
	defer cancel()
	g, err := d.awaitTurn(turn, req)
	if turn.Err() != nil && g == nil {
		err = ctx.Err()
	}
	return g, err
}

// awaitTurn waits for the message, or until an attempt would be granted. It first listens and then
// reads the row, so that a statement that changes the row in between is in the reading, or its
// message arrives.
func (d *driver) awaitTurn(ctx context.Context, req *backend.Request) (*backend.Grant, error) {
	woken, leave := d.listener.join(req.Key, req.Owner)
	defer leave()
	if err := d.listener.await(ctx); err != nil {
		return nil, err
	}
	g, distance, err := d.look(ctx, req) // what was sent before the driver listened is lost
	if g != nil || err != nil || distance == 0 {
		return g, err
	}
	select {
	case <-woken:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	g, _, err = d.look(ctx, req)
	return g, err
}

// look reads the row. It returns the grant of req if the row has it already, with the rest of its
// term, and otherwise how many entries must leave before, or 0 if an attempt has to show what has
// become of the request.
func (d *driver) look(
	ctx context.Context, req *backend.Request,
) (g *backend.Grant, distance int, err error) {
	r, err := d.read(ctx, d.main, req.Key)
	if err != nil {
		return nil, 0, err
	}
	entries, err := r.entries()
	if err != nil {
		return nil, 0, err
	}
	now, e := r.now.UnixMicro(), entries.Find(req.Owner)
	proves := r.isAlone && e != nil && e.Granted && e.Word == kind.Of(req) && e.Expires > now
	if !proves {
		return nil, entries.Distance(req.Owner), nil
	}
	g = d.granted(req, r.sent, e.Fence)
	rest := time.Duration(e.Expires-now) * time.Microsecond
	g.Term.TTL = min(rest, g.Term.TTL) // the clock may have been set back since the grant
	if r.roster != nil {
		g.State = crowded{}
	}
	return g, 0, nil
}

// listener has the connection on which the server wakes the waiters of this driver. The connection
// is made for the first of them, and stays until close. mu guards ready and waiters, and must not
// be held during I/O. A listener is safe for concurrent use.
type listener struct {
	base    origin
	timeout time.Duration
	ctx     context.Context // ends with the listener
	cancel  context.CancelFunc
	start   sync.Once
	done    sync.WaitGroup

	mu      sync.Mutex
	ready   chan struct{}     // closed while the connection listens
	waiters map[string]waiter // by owner
}

// waiter is a waiter of this driver for the lock of key.
type waiter struct {
	key    string
	signal chan struct{} // has room for one signal
}

func newListener(base origin, timeout time.Duration) *listener {
	l := &listener{
		base: base, timeout: timeout,
		ready: make(chan struct{}), waiters: make(map[string]waiter),
	}
	l.ctx, l.cancel = context.WithCancel(context.Background())
	return l
}

// close ends the connection, and returns after the goroutine has ended, which takes half of
// closeTimeout at most. Waiters that are still there wait until their contexts end.
func (l *listener) close() {
	l.start.Do(func() {}) // it begins no more
	l.cancel()
	l.done.Wait()
}

// join begins to listen for an owner that waits for the lock of key, until leave is called. The
// channel has room for one signal, so a message that comes before the waiter blocks is not lost.
func (l *listener) join(key, owner string) (woken <-chan struct{}, leave func()) {
	l.start.Do(func() { l.done.Go(l.run) })
	signal := make(chan struct{}, 1)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.waiters[owner] = waiter{key, signal}
	return signal, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.waiters[owner].signal == signal {
			delete(l.waiters, owner)
		}
	}
}

// await blocks until the connection listens.
func (l *listener) await(ctx context.Context) error {
	l.mu.Lock()
	ready := l.ready
	l.mu.Unlock()
	select {
	case <-ready:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// run keeps a connection until the listener is closed. It has a goroutine. The pauses between
// attempts double up to maxReconnect, because all drivers lose a server at the same time.
func (l *listener) run() {
	pause := minReconnect
	for l.ctx.Err() == nil {
		conn, err := l.connect()
		if err == nil {
			pause = minReconnect
			l.up()
			l.receive(conn)
			l.down()
		}
		if conn != nil {
			l.end(conn)
		}
		select {
		case <-time.After(pause):
		case <-l.ctx.Done():
		}
		pause = min(2*pause, maxReconnect)
	}
}

// connect makes a connection and listens. After an error the connection may be nil.
func (l *listener) connect() (*pgx.Conn, error) {
	ctx, cancel := context.WithTimeout(l.ctx, patienceOf(l.base, l.timeout))
	defer cancel()
	config, err := l.base.next(ctx)
	if err != nil {
		return nil, err
	}
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return nil, err
	}
	limited, cancelLimited := context.WithTimeout(ctx, l.timeout)
	defer cancelLimited()
	_, err = conn.Exec(limited, "LISTEN "+channel)
	return conn, err
}

// end closes the connection.
func (l *listener) end(conn *pgx.Conn) {
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout/2)
	defer cancel()
	_ = conn.Close(ctx)
	select {
	case <-conn.PgConn().CleanupDone():
	case <-ctx.Done():
	}
}

// receive wakes waiters until the connection or the listener ends. A silent connection is checked,
// because it does not end by itself if its host has left the network.
func (l *listener) receive(conn *pgx.Conn) {
	for {
		ctx, cancel := context.WithTimeout(l.ctx, pingInterval)
		note, err := conn.WaitForNotification(ctx)
		isSilent := ctx.Err() != nil
		cancel()
		switch {
		case err == nil:
			consumed(conn.PgConn().Conn())
			l.wake(note.Payload)
		case !isSilent || l.ctx.Err() != nil:
			return
		default:
			ctx, cancel := context.WithTimeout(l.ctx, l.timeout)
			err := checkWritable(ctx, conn)
			cancel()
			if err != nil {
				return
			}
		}
	}
}

// checkWritable returns an error if the connection is lost, or its server has become read-only: the
// host name may then refer to another server, which sends the messages.
func checkWritable(ctx context.Context, conn *pgx.Conn) error {
	var isReadOnly bool
	err := conn.QueryRow(ctx, "SELECT current_setting('transaction_read_only') = 'on'").
		Scan(&isReadOnly)
	if err == nil && isReadOnly {
		err = errReadOnly
	}
	return err
}

// up wakes all waiters, because what was sent before is lost.
func (l *listener) up() {
	l.mu.Lock()
	defer l.mu.Unlock()
	close(l.ready)
	for _, w := range l.waiters {
		notify(w.signal)
	}
}

// down makes further waiters wait for the next connection.
func (l *listener) down() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ready = make(chan struct{})
}

func (l *listener) wake(owners ...string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, owner := range owners {
		if w, ok := l.waiters[owner]; ok {
			notify(w.signal)
		}
	}
}

// wakeAll wakes all waiters of this driver for the lock of key.
func (l *listener) wakeAll(key string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, w := range l.waiters {
		if w.key == key {
			notify(w.signal)
		}
	}
}

// split returns the owners that wait with this driver, and the rest. A waiter that joins after
// split is in the rest. It gets a message, or reads the row after the change.
func (l *listener) split(owners []string) (near, far []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, owner := range owners {
		if _, ok := l.waiters[owner]; ok {
			near = append(near, owner)
		} else {
			far = append(far, owner)
		}
	}
	return near, far
}

// notify sends a signal that is not pending yet.
func notify(signal chan struct{}) {
	select {
	case signal <- struct{}{}:
	default:
	}
}

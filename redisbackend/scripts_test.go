package redisbackend

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/dlock-go/dlock/internal/testenv"
)

// TestScripts runs single scripts. It compares the state on the server after each script, and
// collects the published messages. The clock of the scripts stands still, so states are exact.

const (
	clock    = "1800000000 5007" // seconds and µs: a fence has zeros between them
	clockMS  = 1800000000005
	newFence = "1800000000005007" // fence of a grant at that time
	oldFence = "1700000000000000"
	hour     = 60 // minutes
	hourMS   = hour * 60_000
	termMS   = hourMS + 1 // how long a term of an hour is in the records of several holders
	entryMS  = 10_000     // the term of an entry of the queue
	unstable = "a lock of 1 ms"
)

// state is the server's data about one lock. Terms are in minutes, rounded up; -1 means no expiry.
type state struct {
	lock      string // value of an exclusive lock
	kind      string // of a lock with several holders, else ""
	first     int    // no holder's term ends before; in ms from now
	holders   []holding
	term      int
	fence     string // value of the fence
	queue     []waiting
	queueTerm int // term of both keys of the queue
}

// holding is one of several holders.
type holding struct {
	owner string
	fence string
	left  int // remaining time in ms
}

// waiting is an entry of the queue.
type waiting struct {
	owner   string
	place   int
	left    int // remaining time in ms
	attempt int
	kind    string
}

// value returns the value of a lock that owner has held since the Unix time since, in seconds and
// µs.
func value(owner, fence, since string) string {
	since = strings.ReplaceAll(since, " ", "\n")
	return "dlock1\n" + owner + "\n" + fence + "\n" + since + "\n" + tail(owner)
}

func granted(owner, fence string) string { return value(owner, fence, clock) }
func held(owner string) string           { return value(owner, oldFence, "1700000000 0") }
func tail(owner string) string           { return "client" + owner + "\nname\nmeta of " + owner }

// stage is a server with one lock.
type stage struct {
	testing.TB
	*redis.Client
	keys keys
	news *redis.PubSub
}

func TestScripts(t *testing.T) {
	t.Parallel()
	c := admin(t, testenv.NewRedis(t))
	for name, test := range map[string]func(s *stage){
		"acquire": testAcquire, "queue": testAcquireQueue, "foreign": testForeign,
		"grant": testGrant, "release": testRelease,
		"break": testBreak, "renew": testRenew, "inspect": testInspect, "readers": testReaders,
		"permits": testPermits, "expiry": testExpiry, "leave": testLeave,
		"downgrade": testDowngrade, "terms": testTerms,
	} {
		t.Run(name, func(t *testing.T) {
			s := &stage{TB: t, Client: c, keys: newKeys("name")}
			s.news = s.listen(s.PSubscribe(t.Context(), "*"))
			s.set(state{})
			test(s)
		})
	}
}

// listen waits until the server has confirmed the subscription, and returns it.
func (s *stage) listen(sub *redis.PubSub) *redis.PubSub {
	s.Helper()
	s.Cleanup(func() { _ = sub.Close() })
	if _, err := sub.Receive(s.Context()); err != nil {
		s.Fatal(err)
	}
	return sub
}

// do runs a command, which must succeed.
func (s *stage) do(args ...any) any {
	s.Helper()
	return do(s, s.Client, args...)
}

// set replaces the state on the server.
func (s *stage) set(now state) {
	s.Helper()
	s.do("flushall")
	if now.lock != "" {
		s.do("set", s.keys.lock, now.lock)
		s.expire(s.keys.lock, now.term)
	}
	if now.kind != "" {
		field := fmt.Sprintf("%s\n%d\nname", now.kind, clockMS+now.first)
		s.do("hset", s.keys.lock, "dlock1", field)
		for _, h := range now.holders {
			s.do("hset", s.keys.lock, h.owner, s.record(h))
		}
		s.expire(s.keys.lock, now.term)
	}
	if now.fence != "" {
		s.do("set", s.keys.fence, now.fence)
	}
	for _, w := range now.queue {
		s.do("zadd", s.keys.queue, w.place, w.owner)
		if w.attempt > 0 { // otherwise the entry is lost
			entry := fmt.Sprintf("%d\n%d\n%s\n%s",
				clockMS+w.left, w.attempt, w.kind, tail(w.owner))
			s.do("hset", s.keys.waiters, w.owner, entry)
		}
	}
	s.expire(s.keys.queue, now.queueTerm)
	s.expire(s.keys.waiters, now.queueTerm)
}

// record returns the record of one of several holders. A new fence was drawn now.
func (s *stage) record(h holding) string {
	since := "1700000000\n0"
	if h.fence >= newFence {
		since = strings.ReplaceAll(clock, " ", "\n")
	}
	return fmt.Sprintf("%d\n%s\n%s\n%s", clockMS+h.left, h.fence, since, tail(h.owner))
}

func (s *stage) expire(key string, minutes int) {
	s.Helper()
	if minutes > 0 {
		s.do("pexpire", key, minutes*60_000)
	}
}

// term returns the time until a key expires, in minutes.
func (s *stage) term(key string) int {
	s.Helper()
	return minutes(s.do("pttl", key).(int64))
}

func minutes(ms int64) int {
	if ms < 0 {
		return int(ms)
	}
	return int((ms + 59_999) / 60_000)
}

// get returns the state. A missing key has the term 0.
func (s *stage) get() (now state) {
	s.Helper()
	now.lock, _ = s.Get(s.Context(), s.keys.lock).Result()
	now.fence, _ = s.Get(s.Context(), s.keys.fence).Result()
	now.term = max(s.term(s.keys.lock), -1)
	s.getHolders(&now)
	if now.lock == "" && now.kind == "" {
		now.term = 0
	}
	for _, z := range s.ZRangeWithScores(s.Context(), s.keys.queue, 0, -1).Val() {
		w := waiting{owner: z.Member.(string), place: int(z.Score)}
		entry := strings.SplitN(s.HGet(s.Context(), s.keys.waiters, w.owner).Val(), "\n", 4)
		if len(entry) == 4 && entry[3] == tail(w.owner) {
			_, _ = fmt.Sscan(entry[0], &w.left)
			_, _ = fmt.Sscan(entry[1], &w.attempt)
			w.left, w.kind = w.left-clockMS, entry[2]
		}
		now.queue = append(now.queue, w)
	}
	if n := s.HLen(s.Context(), s.keys.waiters).Val(); int(n) != len(now.queue) {
		s.Errorf("%d entries of waiters, %d in the queue", n, len(now.queue))
	}
	if now.queueTerm = max(s.term(s.keys.queue), -1); len(now.queue) == 0 {
		now.queueTerm = 0
	} else if other := s.term(s.keys.waiters); other != now.queueTerm {
		s.Errorf("the queue expires in %d min, its entries in %d", now.queueTerm, other)
	}
	return now
}

// getHolders adds the holders of a lock with several, in the order of their names.
func (s *stage) getHolders(now *state) {
	s.Helper()
	fields := s.HGetAll(s.Context(), s.keys.lock).Val() // empty for a string
	head := strings.Split(fields["dlock1"], "\n")
	if len(head) != 3 || head[2] != "name" {
		return
	}
	now.kind = head[0]
	_, _ = fmt.Sscan(head[1], &now.first)
	now.first -= clockMS
	delete(fields, "dlock1")
	for _, owner := range slices.Sorted(maps.Keys(fields)) {
		h := holding{owner: owner, fence: strings.Split(fields[owner], "\n")[1]}
		_, _ = fmt.Sscan(fields[owner], &h.left)
		h.left -= clockMS
		if fields[owner] != s.record(h) {
			s.Errorf("the record of %s is %q", owner, fields[owner])
		}
		now.holders = append(now.holders, h)
	}
}

// run executes a script on the keys of the lock, with the clock at the time at. It returns the
// answer, or the first word of an error.
func (s *stage) run(source any, at string, args ...any) string {
	s.Helper()
	keys := []string{s.keys.lock, s.keys.fence, s.keys.queue, s.keys.waiters}
	return s.eval(source, at, keys, args...)
}

func (s *stage) eval(source any, at string, keys []string, args ...any) string {
	s.Helper()
	at = "{'" + strings.ReplaceAll(at, " ", "', '") + "'}"
	text := strings.ReplaceAll(source.(string), "redis.call('TIME')", at)
	return answered(s.Eval(s.Context(), text, keys, args...).Result())
}

// answered returns an answer as text. Numbers above 1,000 are milliseconds and are shown in
// minutes.
func answered(reply any, err error) string {
	if err != nil && !errors.Is(err, redis.Nil) {
		word, _, _ := strings.Cut(err.Error(), " ")
		return word
	}
	switch reply := reply.(type) {
	case []any:
		var parts []string
		for _, part := range reply {
			parts = append(parts, answered(part, nil))
		}
		return "[" + strings.Join(parts, ", ") + "]"
	case int64:
		if reply > 1000 {
			return fmt.Sprint(minutes(reply), " min")
		}
	}
	return fmt.Sprint(reply)
}

// published returns the messages that were published since the last call. A space separates channel
// and message.
func (s *stage) published() (all []string) {
	s.Helper()
	s.do("publish", "end", "")
	for {
		m, err := s.news.ReceiveMessage(s.Context())
		if err != nil {
			s.Fatal(err)
		}
		if m.Channel == "end" {
			return all
		}
		all = append(all, m.Channel+" "+strings.ReplaceAll(m.Payload, "\n", " "))
	}
}

// scriptTest is one run of a script.
type scriptTest struct {
	name   string
	at     string // clock if empty
	before state
	args   []any
	want   string
	after  state
	told   string // published messages
}

func (s *stage) test(source any, tests []scriptTest) {
	s.Helper()
	for _, tt := range tests {
		s.set(tt.before)
		if tt.at == "" {
			tt.at = clock
		}
		if got := s.run(source, tt.at, tt.args...); got != tt.want {
			s.Errorf("%s: the answer is %q, want %q", tt.name, got, tt.want)
		}
		got := s.get()
		if tt.after.lock == unstable {
			got.lock, got.term = unstable, 0
		}
		if got, want := fmt.Sprintf("%+v", got), fmt.Sprintf("%+v", tt.after); got != want {
			s.Errorf("%s: the state is\n%s, want\n%s", tt.name, got, want)
		}
		if got := strings.Join(s.published(), ", "); got != tt.told {
			s.Errorf("%s: published %q, want %q", tt.name, got, tt.told)
		}
	}
}

// attempt returns the arguments of an attempt of owner, for an hour. The number 0 means an attempt
// without a queue entry.
func attempt(owner string, number int) []any {
	return []any{owner, hourMS, tail(owner), number}
}

func grantMessage(owner, fence string, attempt int) string {
	return fmt.Sprintf("dlock:client:client%s granted %s %s %d", owner, owner, fence, attempt)
}

func testAcquire(s *stage) {
	heldByH := state{lock: held("h"), term: 10, fence: oldFence}
	a, b := waiting{"a", 1, 5000, 1, "w"}, waiting{"b", 5, 5000, 4, "w"}
	s.test(acquireScript().source, []scriptTest{
		{
			name: "a free lock", args: attempt("a", 0),
			want: newFence, after: state{lock: granted("a", newFence), term: hour, fence: newFence},
		},
		{
			name: "a free lock by a waiter", before: state{fence: oldFence}, args: attempt("a", 1),
			want: newFence, after: state{lock: granted("a", newFence), term: hour, fence: newFence},
		},
		{
			name: "a held lock", before: heldByH, args: attempt("a", 0),
			want: "[10 min, meta of h]", after: heldByH,
		},
		{
			name: "a held lock without its fence and without meta", args: attempt("a", 0),
			before: state{lock: strings.TrimSuffix(held("h"), "meta of h"), term: 10},
			want:   "[10 min, h]",
			after:  state{lock: strings.TrimSuffix(held("h"), "meta of h"), term: 10},
		},
		{
			name: "a held lock by the first waiter", before: heldByH, args: attempt("a", 1),
			want: "[10 min, meta of h]", after: state{
				lock: held("h"), term: 10, fence: oldFence,
				queue: []waiting{{"a", 1, entryMS, 1, "w"}}, queueTerm: 1,
			},
		},
		{
			name:   "a held lock by another waiter, whose entry expires last",
			before: state{lock: held("h"), term: 10, queue: []waiting{a, b}, queueTerm: 1},
			args:   attempt("c", 2), want: "[10 min, meta of h]", after: state{
				lock: held("h"), term: 10,
				queue: []waiting{a, b, {"c", 6, entryMS, 2, "w"}}, queueTerm: 1,
			},
		},
		{
			name:   "a held lock by a waiter again, whose entry does not expire last",
			before: state{lock: held("h"), term: 10, queue: []waiting{a, b}, queueTerm: 90},
			args:   attempt("a", 3), want: "[10 min, meta of h]", after: state{
				lock: held("h"), term: 10,
				queue: []waiting{{"a", 1, entryMS, 3, "w"}, b}, queueTerm: 90,
			},
		},
		{
			name:   "a lock that its owner acquires again",
			before: state{lock: held("a"), term: 10, fence: newFence}, args: attempt("a", 7),
			want: oldFence, after: state{lock: held("a"), term: hour, fence: newFence},
		},
	})
}

// testAcquireQueue checks an attempt for a free lock that has a queue.
func testAcquireQueue(s *stage) {
	a, b := waiting{"a", 1, 5000, 1, "w"}, waiting{"b", 5, 5000, 4, "w"}
	s.test(acquireScript().source, []scriptTest{
		{
			name:   "a free lock with a queue",
			before: state{queue: []waiting{a, b}, queueTerm: hour}, args: attempt("c", 0),
			want: "[1 min, meta of a]", told: grantMessage("a", newFence, 1), after: state{
				lock: granted("a", newFence), term: 1, fence: newFence,
				queue: []waiting{b}, queueTerm: hour,
			},
		},
		{
			name:   "a free lock with a queue by a waiter",
			before: state{queue: []waiting{a}, queueTerm: hour}, args: attempt("c", 2),
			want: "[1 min, meta of a]", told: grantMessage("a", newFence, 1), after: state{
				lock: granted("a", newFence), term: 1, fence: newFence,
				queue: []waiting{{"c", 2, entryMS, 2, "w"}}, queueTerm: hour,
			},
		},
		{
			name:   "a free lock by its first waiter",
			before: state{queue: []waiting{a, b}, queueTerm: hour},
			args:   attempt("a", 2), want: newFence, after: state{
				lock: granted("a", newFence), term: hour, fence: newFence,
				queue: []waiting{b}, queueTerm: hour,
			},
		},
		{
			name:   "a free lock by its first waiter, which no longer waits",
			before: state{queue: []waiting{a, b}, queueTerm: hour},
			args:   attempt("a", 0), want: newFence, after: state{
				lock: granted("a", newFence), term: hour, fence: newFence,
				queue: []waiting{b}, queueTerm: hour,
			},
		},
		{
			name:   "a free lock by its first waiter, whose entry has expired",
			before: state{queue: []waiting{{"a", 1, -1, 1, "w"}, b}, queueTerm: hour},
			args:   attempt("a", 2), want: newFence, after: state{
				lock: granted("a", newFence), term: hour, fence: newFence,
				queue: []waiting{b}, queueTerm: hour,
			},
		},
		{
			name: "a free lock with expired queue entries", before: state{
				queue: []waiting{
					{"b", 1, 0, 1, "w"}, {"c", 2, -1, 1, "w"}, {owner: "d", place: 3},
				},
				queueTerm: hour,
			},
			args: attempt("a", 0), want: newFence,
			after: state{lock: granted("a", newFence), term: hour, fence: newFence},
		},
	})
}

// testForeign checks that the scripts do not change a value of another program, or the lock of
// another name.
func testForeign(s *stage) {
	another := strings.Replace(held("h"), "\nname\n", "\nanother name\n", 1)
	b := waiting{"b", 1, 5000, 1, "w"}
	tests := []scriptTest{
		{name: "another name", before: state{lock: another, term: 10}, args: attempt("a", 0)},
		{
			name: "another name, by a waiter", before: state{lock: another, term: 10},
			args: attempt("a", 1),
		},
		{name: "text", before: state{lock: "text", term: 10}, args: attempt("a", 0)},
		{name: "a short fence", before: state{fence: "123"}, args: attempt("a", 0)},
		{name: "a long fence", before: state{fence: newFence + "0"}, args: attempt("a", 1)},
		{
			name: "a fence of letters", before: state{fence: "zzzzzzzzzzzzzzzz"},
			args: attempt("a", 0),
		},
		{
			name: "the maximum fence", before: state{fence: "4019025413685247"},
			args: attempt("a", 0),
		},
	}
	for i := range tests {
		tests[i].want, tests[i].after = "CONFLICT", tests[i].before
	}
	s.test(acquireScript().source, append(tests, scriptTest{
		name:   "a queue, and an invalid fence",
		before: state{fence: "x", queue: []waiting{b}, queueTerm: hour}, args: attempt("a", 0),
		want: "CONFLICT", after: state{fence: "x"},
	}, scriptTest{
		name: "a queue of two, and an invalid fence",
		before: state{
			fence: "x", queue: []waiting{b, {"c", 2, 5000, 1, "w"}}, queueTerm: hour,
		},
		args: attempt("a", 0), want: "CONFLICT", after: state{
			fence: "x", queue: []waiting{{"c", 2, 5000, 1, "w"}}, queueTerm: hour,
		},
	}, scriptTest{
		name: "a queue, and an invalid fence, by a waiter",
		before: state{
			fence: "x", queue: []waiting{b, {"c", 2, 5000, 1, "w"}}, queueTerm: hour,
		},
		args: attempt("a", 1), want: "CONFLICT", after: state{
			fence: "x", queue: []waiting{{"c", 2, 5000, 1, "w"}}, queueTerm: hour,
		},
	}))
	for _, key := range []string{s.keys.lock, s.keys.fence} {
		s.set(state{})
		s.do("rpush", key, "x")
		got := s.run(acquireScript().source, clock, attempt("a", 0)...)
		if got != "WRONGTYPE" {
			s.Errorf("acquire over the list %s: %s", key, got)
		}
	}
}

// testGrant checks that a fence is the time, or the last fence plus one if that is greater.
func testGrant(s *stage) {
	tests := []scriptTest{
		{name: "an older fence", before: state{fence: oldFence}, want: newFence},
		{name: "the same fence", before: state{fence: newFence}, want: "1800000000005008"},
		{name: "a newer fence", before: state{fence: "1900000000000099"}, want: "1900000000000100"},
		{
			name: "the last fence", before: state{fence: "4019025413685246"},
			want: "4019025413685247",
		},
		{name: "a clock before the epoch", at: "1767225599 999999", want: "1767225600000001"},
		{name: "a clock at the epoch", at: "1767225600 0", want: "1767225600000001"},
		{name: "a clock after the epoch", at: "1767225600 2", want: "1767225600000002"},
	}
	for i, tt := range tests {
		at := tt.at
		if at == "" {
			at = clock
		}
		tests[i].args = attempt("a", 0)
		tests[i].after = state{lock: value("a", tt.want, at), term: hour, fence: tt.want}
	}
	s.test(acquireScript().source, tests)
}

func testRelease(s *stage) {
	heldByH := state{lock: held("h"), term: 10, fence: oldFence}
	a, b := waiting{"a", 1, 5000, 1, "w"}, waiting{"b", 2, 30 * 60_000, 4, "w"}
	queued := state{
		lock: held("h"), term: 10, fence: oldFence,
		queue: []waiting{a, b}, queueTerm: hour,
	}
	s.test(releaseScript().source, []scriptTest{
		{
			name: "a lock", before: heldByH, args: []any{"h"},
			want: "1", after: state{fence: oldFence},
		},
		{
			name: "nothing", before: state{fence: oldFence}, args: []any{"h"},
			want: "0", after: state{fence: oldFence},
		},
		{
			name: "another owner's lock", before: heldByH, args: []any{"a"},
			want: "0", after: heldByH,
		},
		{
			name:   "a lock of an owner with the same prefix",
			before: state{lock: held("hh"), term: 10}, args: []any{"h"}, want: "0",
			after: state{lock: held("hh"), term: 10},
		},
		{
			name: "a lock with a queue", before: queued, args: []any{"h"},
			want: "1", told: grantMessage("a", newFence, 1), after: state{
				lock: granted("a", newFence), term: 1, fence: newFence,
				queue: []waiting{b}, queueTerm: hour,
			},
		},
		{
			name: "a lock with a queue whose first entry has expired", before: state{
				lock: held("h"), term: 10,
				queue: []waiting{{"a", 1, 0, 1, "w"}, b}, queueTerm: hour,
			},
			args: []any{"h"}, want: "1", told: grantMessage("b", newFence, 4),
			after: state{lock: granted("b", newFence), term: 1, fence: newFence},
		},
		{
			name: "a lock with a waiter that has 1 ms left", before: state{
				lock: held("h"), term: 10,
				queue: []waiting{{"a", 1, 1, 1, "w"}}, queueTerm: hour,
			},
			args: []any{"h"}, want: "1", told: grantMessage("a", newFence, 1),
			after: state{lock: unstable, fence: newFence},
		},
		{
			name: "a lock with expired queue entries", before: state{
				lock: held("h"), term: 10,
				queue: []waiting{{"a", 1, 0, 1, "w"}}, queueTerm: hour,
			},
			args: []any{"h"}, want: "1",
		},
		{
			name: "a lock with a queue, and an invalid fence", before: state{
				lock: held("h"), term: 10, fence: "x",
				queue: []waiting{a}, queueTerm: hour,
			},
			args: []any{"h"}, want: "1", after: state{fence: "x"},
		},
		{
			name: "a queue entry", before: queued, args: []any{"a"}, want: "1", after: state{
				lock: held("h"), term: 10, fence: oldFence,
				queue: []waiting{b}, queueTerm: hour,
			},
		},
		{
			name:   "a queue entry of a free lock",
			before: state{queue: []waiting{a, b}, queueTerm: hour}, args: []any{"a"},
			want: "1", told: grantMessage("b", newFence, 4),
			after: state{lock: granted("b", newFence), term: 1, fence: newFence},
		},
		{
			name:   "the last queue entry of a free lock",
			before: state{queue: []waiting{a}, queueTerm: hour}, args: []any{"a"},
			want: "1",
		},
	})
}

func testBreak(s *stage) {
	heldByH := state{lock: held("h"), term: 10, fence: oldFence}
	text := state{lock: "text", term: 10}
	a := waiting{"a", 1, 5000, 1, "w"}
	lost := "dlock:client:clienth lost h " + oldFence
	s.test(breakScript().source, []scriptTest{
		{name: "a free lock", args: []any{""}, want: "0"},
		{
			name: "its holder", before: heldByH, args: []any{"h"}, want: "1",
			after: state{fence: oldFence}, told: lost,
		},
		{
			name: "any holder", before: heldByH, args: []any{""}, want: "1",
			after: state{fence: oldFence}, told: lost,
		},
		{name: "another holder", before: heldByH, args: []any{"a"}, want: "0", after: heldByH},
		{
			name: "a value of another program", before: text,
			args: []any{""}, want: "CONFLICT", after: text,
		},
		{
			name:   "a lock with a queue",
			before: state{lock: held("h"), term: 10, queue: []waiting{a}, queueTerm: hour},
			args:   []any{"h"}, want: "1", told: lost + ", " + grantMessage("a", newFence, 1),
			after: state{lock: granted("a", newFence), term: 1, fence: newFence},
		},
	})
}

// testRenew checks that a renewal answers for each lock. It prolongs a lock only if the owner still
// holds it by the same grant.
func testRenew(s *stage) {
	own, others, list, later, free := "own", "others", "list", "later", "free"
	for lock, value := range map[string]string{
		own: held("a"), others: held("h"), later: granted("a", newFence),
	} {
		s.do("set", lock, value, "px", 10*60_000)
	}
	s.do("rpush", list, "x")
	s.do("pexpire", list, 10*60_000)
	locks := []string{others, own, list, later, free, own}
	var args []any
	for i := range locks {
		args = append(args, "a", oldFence, (30+i)*60_000)
	}
	got := s.eval(renewScript().source, clock, locks, args...)
	if want := "[0, 1, 0, 0, 0, 1]"; got != want {
		s.Errorf("the answer is %s, want %s", got, want)
	}
	for lock, want := range map[string]int{own: 35, others: 10, list: 10, later: 10} {
		if got := s.term(lock); got != want {
			s.Errorf("%s expires in %d min, want %d", lock, got, want)
		}
	}
}

// testInspect checks that an inspection counts the live entries of the queue, and shows the live
// holders.
func testInspect(s *stage) {
	s.do("set", "held", "value", "px", 10*60_000)
	s.do("rpush", "list", "x")
	s.do("hset", "hash", "field", "x")
	for owner, left := range map[string]int{"a": 0, "b": 1, "c": 5000} {
		s.do("hset", "held:waiters", owner,
			fmt.Sprintf("%d\n1\nr\nme\nname\nmeta", clockMS+left))
	}
	s.do("hset", "held:waiters", "d", "no entry")
	s.do("hset", "shared", "dlock1", fmt.Sprintf("r\n%d\nname", clockMS))
	s.do("hset", "over", "dlock1", fmt.Sprintf("p3\n%d\nname", clockMS))
	for owner, left := range map[string]int{"a": 0, "b": 1000} {
		s.do("hset", "shared", owner, fmt.Sprintf("%d\nrest", clockMS+left))
	}
	s.do("hset", "over", "a", fmt.Sprintf("%d\nrest", clockMS))
	var keys []string
	for _, lock := range []string{"free", "list", "hash", "held", "shared", "over"} {
		keys = append(keys, lock, lock+":waiters")
	}
	got := s.eval(inspectScript().source, clock, keys)
	want := "[[0, -2, 0, , ], [], [], [value, 10 min, 2, name, r], " +
		"[[r, dlock1\nb\nrest, 1000], -1, 0, , ], [0, -1, 0, , ]]"
	if got != want {
		s.Errorf("the answer is %q, want %q", got, want)
	}
}

// attemptAs returns the arguments of an attempt of another kind.
func attemptAs(kind, owner string, number int) []any {
	return append(attempt(owner, number), kind)
}

// testReaders checks how readers and writers share and queue. The key of the readers lasts longer
// than the last term, as after the departure of a reader with a longer term.
func testReaders(s *stage) {
	a := holding{"a", oldFence, 5000}
	readers := func(term, first int, holders ...holding) state {
		return state{kind: "r", first: first, holders: holders, term: term, fence: newFence}
	}
	before := readers(10, 5000, a)
	before.fence = oldFence
	writer := waiting{"w", 1, 5000, 1, "w"}
	queued := before
	queued.queue, queued.queueTerm = []waiting{writer}, 1
	both := queued
	both.queue = []waiting{writer, {"c", 2, entryMS, 2, "r"}}
	s.test(acquireScript().source, []scriptTest{
		{
			name: "a free lock", args: attemptAs("r", "c", 0), want: newFence,
			after: readers(hour, termMS, holding{"c", newFence, termMS}),
		},
		{
			name: "a second reader", before: before, args: attemptAs("r", "c", 0), want: newFence,
			after: readers(hour, 5000, a, holding{"c", newFence, termMS}),
		},
		{
			name: "a reader again", before: before, args: attemptAs("r", "a", 7), want: oldFence,
			after: state{
				kind: "r", first: 5000, holders: []holding{{"a", oldFence, termMS}}, term: hour,
				fence: oldFence,
			},
		},
		{
			name: "a writer", before: before, args: attempt("w", 0), want: "[1 min, meta of a]",
			after: before,
		},
		{
			name: "a writer that waits", before: before, args: attempt("w", 1),
			want: "[1 min, meta of a]", after: state{
				kind: "r", first: 5000, holders: []holding{a}, term: 10, fence: oldFence,
				queue: []waiting{{"w", 1, entryMS, 1, "w"}}, queueTerm: 1,
			},
		},
		{
			name: "a reader behind a writer", before: queued, args: attemptAs("r", "c", 0),
			want: "[1 min, meta of a]", after: queued,
		},
		{
			name: "a reader that waits behind a writer", before: queued,
			args: attemptAs("r", "c", 2), want: "[1 min, meta of a]", after: both,
		},
		{
			name: "a reader of a held lock", before: state{lock: held("h"), term: 10},
			args: attemptAs("r", "c", 1), want: "[10 min, meta of h]", after: state{
				lock: held("h"), term: 10, queueTerm: 1,
				queue: []waiting{{"c", 1, entryMS, 1, "r"}},
			},
		},
		{
			name: "a writer after the last reader", args: attempt("w", 0), want: "1800000000005008",
			before: readers(10, 0, holding{"a", oldFence, 0}), after: state{
				lock: value("w", "1800000000005008", clock), term: hour, fence: "1800000000005008",
			},
		},
		{
			name: "a free lock with a reader at the front of its queue", before: state{
				queue: []waiting{{"b", 1, 5000, 3, "r"}, writer}, queueTerm: 1,
			},
			args: attempt("e", 0), want: "[1 min, meta of b]", told: grantMessage("b", newFence, 3),
			after: state{
				kind: "r", first: 5001, holders: []holding{{"b", newFence, 5001}}, term: 1,
				fence: newFence, queue: []waiting{writer}, queueTerm: 1,
			},
		},
	})
}

// testPermits checks that a semaphore has no more holders than its limit, and one kind.
func testPermits(s *stage) {
	a, b := holding{"a", oldFence, 5000}, holding{"b", oldFence, 7000}
	one := state{kind: "p2", first: 5000, holders: []holding{a}, term: 10, fence: oldFence}
	two := one
	two.holders = []holding{a, b}
	queued := two
	queued.queue, queued.queueTerm = []waiting{{"c", 1, entryMS, 3, "p2"}}, 1
	s.test(acquireScript().source, []scriptTest{
		{
			name: "a free semaphore", args: attemptAs("p2", "c", 1), want: newFence, after: state{
				kind: "p2", first: termMS, holders: []holding{{"c", newFence, termMS}}, term: hour,
				fence: newFence,
			},
		},
		{
			name: "the last permit", before: one, args: attemptAs("p2", "c", 0), want: newFence,
			after: state{
				kind: "p2", first: 5000, holders: []holding{a, {"c", newFence, termMS}}, term: hour,
				fence: newFence,
			},
		},
		{
			name: "no permit", before: two, args: attemptAs("p2", "a", 0), want: oldFence,
			after: state{
				kind: "p2", first: 5000, holders: []holding{{"a", oldFence, termMS}, b}, term: hour,
				fence: oldFence,
			},
		},
		{
			name: "another limit", before: one, args: attemptAs("p3", "c", 0),
			want: "CONFLICT", after: one,
		},
		{
			name: "another limit, by a waiter", before: two, args: attemptAs("p1", "c", 1),
			want: "CONFLICT", after: two,
		},
		{name: "a mutex", before: one, args: attempt("c", 1), want: "CONFLICT", after: one},
		{
			name: "a reader", before: one, args: attemptAs("r", "c", 0), want: "CONFLICT",
			after: one,
		},
		{
			name: "a permit of a mutex", before: state{lock: held("h"), term: 10},
			args: attemptAs("p2", "c", 1), want: "CONFLICT",
			after: state{lock: held("h"), term: 10},
		},
		{
			name:   "a mutex with a semaphore in its queue",
			before: state{queue: []waiting{{"c", 1, 5000, 3, "p2"}}, queueTerm: 1},
			args:   attempt("d", 1), want: "CONFLICT",
			after: state{queue: []waiting{{"c", 1, 5000, 3, "p2"}}, queueTerm: 1},
		},
	})
	s.set(two)
	for owner, want := range map[string][2]string{
		"c": {"[5000, meta of a]", "[5000, meta of b]"}, // either of them
	} {
		got := s.run(acquireScript().source, clock, attemptAs("p2", owner, 3)...)
		if got = strings.Replace(got, "1 min", "5000", 1); got != want[0] && got != want[1] {
			s.Errorf("no permit: the answer is %q", got)
		}
		if got := fmt.Sprintf("%+v", s.get()); got != fmt.Sprintf("%+v", queued) {
			s.Errorf("no permit: the state is\n%s, want\n%+v", got, queued)
		}
	}
}

// testExpiry checks that holders whose terms are over make room, and that the others keep theirs.
func testExpiry(s *stage) {
	over, live := holding{"a", oldFence, 0}, holding{"b", oldFence, 9000}
	state1 := func(kind string, first int, holders ...holding) state {
		return state{kind: kind, first: first, holders: holders, term: 10, fence: oldFence}
	}
	s.test(acquireScript().source, []scriptTest{
		{
			name: "a permit", before: state1("p2", 0, over, live), args: attemptAs("p2", "c", 0),
			want: newFence, after: state{
				kind: "p2", first: 9000, holders: []holding{live, {"c", newFence, termMS}},
				term: hour, fence: newFence,
			},
		},
		{
			name: "a bound that is too early", before: state1("p2", 0, live), args: attempt("c", 1),
			want: "CONFLICT", after: state1("p2", 9000, live),
		},
		{
			name: "the last reader", before: state1("s", 0, over), args: attemptAs("p2", "c", 0),
			want: newFence, after: state{
				kind: "p2", first: termMS, holders: []holding{{"c", newFence, termMS}}, term: hour,
				fence: newFence,
			},
		},
		{
			name: "a permit for which there is a queue", before: state{
				kind: "p1", holders: []holding{over}, term: 10, fence: oldFence,
				queue: []waiting{{"c", 1, 5000, 3, "p1"}}, queueTerm: 1,
			},
			args: attemptAs("p1", "d", 0), want: "[1 min, meta of c]",
			told: grantMessage("c", newFence, 3), after: state{
				kind: "p1", first: 5001, holders: []holding{{"c", newFence, 5001}}, term: 1,
				fence: newFence,
			},
		},
	})
}

// testLeave checks releases and breaks of locks with several holders.
func testLeave(s *stage) {
	a, b := holding{"a", oldFence, 5000}, holding{"b", oldFence, 9000}
	readers := func(holders ...holding) state {
		return state{kind: "r", first: 5000, holders: holders, term: 10, fence: oldFence}
	}
	queued := func(before state, queue ...waiting) state {
		before.queue, before.queueTerm = queue, 1
		return before
	}
	writer, reader := waiting{"w", 1, 5000, 1, "w"}, waiting{"r", 2, 6000, 4, "r"}
	granted := state{lock: granted("w", newFence), term: 1, fence: newFence}
	tests := []scriptTest{
		{
			name: "one of two", before: readers(a, b), args: []any{"a"}, want: "1",
			after: readers(b),
		},
		{
			name: "the last one", before: readers(a), args: []any{"a"}, want: "1",
			after: state{fence: oldFence},
		},
		{
			name: "the last one before a writer", before: queued(readers(a), writer),
			args: []any{"a"}, want: "1", told: grantMessage("w", newFence, 1), after: granted,
		},
		{
			name: "one of two before a writer", before: queued(readers(a, b), writer),
			args: []any{"a"}, want: "1", after: queued(readers(b), writer),
		},
		{
			name: "the last one before readers", args: []any{"a"}, want: "1",
			before: queued(readers(a), waiting{"q", 1, 5000, 1, "r"}, reader), after: state{
				kind: "r", first: 5001, term: 1, fence: "1800000000005008", holders: []holding{
					{"q", newFence, 5001}, {"r", "1800000000005008", 6001},
				},
			},
			told: grantMessage("q", newFence, 1) + ", " +
				grantMessage("r", "1800000000005008", 4),
		},
		{
			name: "no holder", before: readers(a), args: []any{"c"}, want: "0", after: readers(a),
		},
	}
	s.test(releaseScript().source, append(tests, scriptTest{
		name: "a writer that waits before a reader", before: queued(readers(a), writer, reader),
		args: []any{"w"}, want: "1", told: grantMessage("r", newFence, 4), after: state{
			kind: "r", first: 5000, holders: []holding{a, {"r", newFence, 6001}}, term: 10,
			fence: newFence,
		},
	}))
	lost := func(owners ...string) (told string) {
		for _, owner := range owners {
			told += ", dlock:client:client" + owner + " lost " + owner + " " + oldFence
		}
		return told
	}
	for i := range tests {
		if tests[i].want == "1" {
			tests[i].told = strings.TrimPrefix(lost("a")+", "+tests[i].told, ", ")
			tests[i].told = strings.TrimSuffix(tests[i].told, ", ")
		}
	}
	s.test(breakScript().source, append(tests, scriptTest{
		name: "all", before: queued(readers(a), writer), args: []any{""}, want: "1",
		told:  strings.TrimPrefix(lost("a"), ", ") + ", " + grantMessage("w", newFence, 1),
		after: granted,
	}, scriptTest{
		name: "the field that is no holder", before: readers(a), args: []any{"dlock1"}, want: "0",
		after: readers(a),
	}))
	s.set(readers(a, b))
	if got := s.run(breakScript().source, clock, ""); got != "1" || s.get().kind != "" {
		s.Errorf("break of two readers: %s, and the state is %+v", got, s.get())
	}
}

// testDowngrade checks that a writer becomes a reader with the same fence, and only the writer.
func testDowngrade(s *stage) {
	before := state{lock: held("a"), term: 10, fence: newFence}
	after := state{
		kind: "r", first: termMS, holders: []holding{{"a", oldFence, termMS}}, term: hour,
		fence: newFence,
	}
	args := []any{"a", oldFence, hourMS}
	queued := before
	queued.queue = []waiting{{"r", 1, 6000, 4, "r"}, {"w", 2, 5000, 1, "w"}}
	queued.queueTerm = 1
	next := "1800000000005008"
	s.test(downgradeScript().source, []scriptTest{
		{name: "a writer", before: before, args: args, want: "1", after: after},
		{name: "a reader", before: after, args: args, want: "1", after: after},
		{name: "nothing", args: args, want: "0"},
		{
			name: "another fence", before: before, args: []any{"a", newFence, hourMS}, want: "0",
			after: before,
		},
		{
			name: "another owner", before: before, args: []any{"b", oldFence, hourMS}, want: "0",
			after: before,
		},
		{
			name: "another reader", before: after, args: []any{"b", oldFence, hourMS}, want: "0",
			after: after,
		},
		{
			name: "a writer before a reader and a writer", before: queued, args: args, want: "1",
			told: grantMessage("r", next, 4), after: state{
				kind: "r", first: 6001, term: hour, fence: next,
				holders: []holding{{"a", oldFence, termMS}, {"r", next, 6001}},
				queue:   queued.queue[1:], queueTerm: 1,
			},
		},
	})
}

// testTerms checks that no term of several holders ends too early, and none too late.
func testTerms(s *stage) {
	const began, ended = "1800000000 5999", "1800003600 6000" // a term of an hour
	grants := map[string]func(){
		"acquire": func() {
			s.set(state{})
			s.run(acquireScript().source, began, attemptAs("r", "a", 0)...)
		},
		"renew": func() {
			s.set(state{
				kind: "r", holders: []holding{{"a", newFence, 5000}}, term: hour, fence: newFence,
			})
			s.renew(began, "a", newFence, hourMS)
		},
	}
	for name, grant := range grants {
		for at, want := range map[string]string{
			"1800003600 5998": "[1, meta of a]", ended: "1800003600006000",
		} {
			grant()
			if got := s.run(acquireScript().source, at, attempt("w", 0)...); got != want {
				s.Errorf("%s: the answer at %s is %s, want %s", name, at, got, want)
			}
		}
	}
	s.testClockThatWasSetBack()
}

// renew renews one of several holders.
func (s *stage) renew(at, owner, fence string, ttl int) {
	s.Helper()
	got := s.eval(renewScript().source, at, []string{s.keys.lock}, owner, fence, ttl)
	if got != "[1]" {
		s.Errorf("renew: %s", got)
	}
}

// testClockThatWasSetBack checks that a renewal after the clock was set back does not leave the end
// of the former term. Without a step, it keeps the time before which no term ends.
func (s *stage) testClockThatWasSetBack() {
	s.Helper()
	b := holding{"b", oldFence, 2 * hourMS}
	for first, want := range map[int]int{hourMS: 60_001, 5000: 5000} {
		before := state{
			kind: "r", first: first, holders: []holding{{"a", oldFence, hourMS}, b}, term: hour,
		}
		s.set(before)
		s.renew(clock, "a", oldFence, 60_000)
		before.first, before.holders[0].left = want, 60_001
		if got := s.get(); fmt.Sprint(got) != fmt.Sprint(before) {
			s.Errorf("after a step:\n%+v, want\n%+v", got, before)
		}
		s.renew(clock, "a", oldFence, hourMS)
		if got := s.get().first; got != want {
			s.Errorf("after another renewal, no term ends before %d ms, want %d", got, want)
		}
	}
}

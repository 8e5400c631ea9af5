package redisbackend

import (
	"errors"
	"fmt"
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
	unstable = "a lock of 1 ms"
)

// state is the server's data about one lock. Terms are in minutes, rounded up; -1 means no expiry.
type state struct {
	lock      string // value of the lock
	term      int
	fence     string // value of the fence
	queue     []waiting
	queueTerm int // term of both keys of the queue
}

// waiting is an entry of the queue.
type waiting struct {
	owner   string
	place   int
	left    int // remaining time in ms
	attempt int
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
		"acquire": testAcquire, "foreign": testForeign, "grant": testGrant, "release": testRelease,
		"sharded": testSharded, "break": testBreak, "renew": testRenew, "inspect": testInspect,
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
	if now.fence != "" {
		s.do("set", s.keys.fence, now.fence)
	}
	for _, w := range now.queue {
		s.do("zadd", s.keys.queue, w.place, w.owner)
		if w.attempt > 0 { // otherwise the entry is lost
			entry := fmt.Sprintf("%d\n%d\n%s", clockMS+w.left, w.attempt, tail(w.owner))
			s.do("hset", s.keys.waiters, w.owner, entry)
		}
	}
	s.expire(s.keys.queue, now.queueTerm)
	s.expire(s.keys.waiters, now.queueTerm)
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
	if now.lock == "" {
		now.term = 0
	}
	for _, z := range s.ZRangeWithScores(s.Context(), s.keys.queue, 0, -1).Val() {
		w := waiting{owner: z.Member.(string), place: int(z.Score)}
		entry := strings.SplitN(s.HGet(s.Context(), s.keys.waiters, w.owner).Val(), "\n", 3)
		if len(entry) == 3 && entry[2] == tail(w.owner) {
			_, _ = fmt.Sscan(entry[0], &w.left)
			_, _ = fmt.Sscan(entry[1], &w.attempt)
			w.left -= clockMS
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

// as returns the stage for a user without one right, such as "-publish".
func (s *stage) as(without string) *stage {
	s.Helper()
	if without == "" {
		return s
	}
	s.do("acl", "setuser", without, "on", "nopass", "~*", "&*", "+@all", without)
	c := redis.NewClient(&redis.Options{Addr: s.Options().Addr, Username: without, Password: "any"})
	s.Cleanup(func() { _ = c.Close() })
	return &stage{TB: s.TB, Client: c, keys: s.keys}
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

const freed = "dlock:{name}:free "

func grantMessage(owner, fence string, attempt int) string {
	return fmt.Sprintf("dlock:client:client%s granted %s %s %d", owner, owner, fence, attempt)
}

func testAcquire(s *stage) {
	heldByH := state{lock: held("h"), term: 10, fence: oldFence}
	a, b := waiting{"a", 1, 5000, 1}, waiting{"b", 5, 5000, 4}
	s.test(singleScripts.acquire.source, []scriptTest{
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
				queue: []waiting{{"a", 1, hourMS, 1}}, queueTerm: hour,
			},
		},
		{
			name:   "a held lock by another waiter, whose entry expires last",
			before: state{lock: held("h"), term: 10, queue: []waiting{a, b}, queueTerm: 1},
			args:   attempt("c", 2), want: "[10 min, meta of h]", after: state{
				lock: held("h"), term: 10,
				queue: []waiting{a, b, {"c", 6, hourMS, 2}}, queueTerm: hour,
			},
		},
		{
			name:   "a held lock by a waiter again, whose entry does not expire last",
			before: state{lock: held("h"), term: 10, queue: []waiting{a, b}, queueTerm: 90},
			args:   attempt("a", 3), want: "[10 min, meta of h]", after: state{
				lock: held("h"), term: 10,
				queue: []waiting{{"a", 1, hourMS, 3}, b}, queueTerm: 90,
			},
		},
		{
			name:   "a lock that its owner acquires again",
			before: state{lock: held("a"), term: 10, fence: newFence}, args: attempt("a", 7),
			want: oldFence, after: state{lock: held("a"), term: hour, fence: newFence},
		},
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
				queue: []waiting{{"c", 2, hourMS, 2}}, queueTerm: hour,
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
			before: state{queue: []waiting{{"a", 1, -1, 1}, b}, queueTerm: hour},
			args:   attempt("a", 2), want: newFence, after: state{
				lock: granted("a", newFence), term: hour, fence: newFence,
				queue: []waiting{b}, queueTerm: hour,
			},
		},
		{
			name: "a free lock with expired queue entries", before: state{
				queue:     []waiting{{"b", 1, 0, 1}, {"c", 2, -1, 1}, {owner: "d", place: 3}},
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
	b := waiting{"b", 1, 5000, 1}
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
	s.test(singleScripts.acquire.source, append(tests, scriptTest{
		name:   "a queue, and an invalid fence",
		before: state{fence: "x", queue: []waiting{b}, queueTerm: hour}, args: attempt("a", 0),
		want: "CONFLICT", after: state{fence: "x"},
	}))
	for _, key := range []string{s.keys.lock, s.keys.fence} {
		s.set(state{})
		s.do("rpush", key, "x")
		got := s.run(singleScripts.acquire.source, clock, attempt("a", 0)...)
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
	s.test(singleScripts.acquire.source, tests)
}

func testRelease(s *stage) {
	heldByH := state{lock: held("h"), term: 10, fence: oldFence}
	a, b := waiting{"a", 1, 5000, 1}, waiting{"b", 2, 30 * 60_000, 4}
	queued := state{
		lock: held("h"), term: 10, fence: oldFence,
		queue: []waiting{a, b}, queueTerm: hour,
	}
	s.test(singleScripts.release.source, []scriptTest{
		{
			name: "a lock", before: heldByH, args: []any{"h"},
			want: "1", after: state{fence: oldFence}, told: freed,
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
				queue: []waiting{{"a", 1, 0, 1}, b}, queueTerm: hour,
			},
			args: []any{"h"}, want: "1", told: grantMessage("b", newFence, 4),
			after: state{lock: granted("b", newFence), term: 30, fence: newFence},
		},
		{
			name: "a lock with a waiter that has 1 ms left", before: state{
				lock: held("h"), term: 10,
				queue: []waiting{{"a", 1, 1, 1}}, queueTerm: hour,
			},
			args: []any{"h"}, want: "1", told: grantMessage("a", newFence, 1),
			after: state{lock: unstable, fence: newFence},
		},
		{
			name: "a lock with expired queue entries", before: state{
				lock: held("h"), term: 10,
				queue: []waiting{{"a", 1, 0, 1}}, queueTerm: hour,
			},
			args: []any{"h"}, want: "1", told: freed,
		},
		{
			name: "a lock with a queue, and an invalid fence", before: state{
				lock: held("h"), term: 10, fence: "x",
				queue: []waiting{a}, queueTerm: hour,
			},
			args: []any{"h"}, want: "1", told: freed, after: state{fence: "x"},
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
			after: state{lock: granted("b", newFence), term: 30, fence: newFence},
		},
		{
			name:   "the last queue entry of a free lock",
			before: state{queue: []waiting{a}, queueTerm: hour}, args: []any{"a"},
			want: "1", told: freed,
		},
	})
}

func testBreak(s *stage) {
	heldByH := state{lock: held("h"), term: 10, fence: oldFence}
	text := state{lock: "text", term: 10}
	a := waiting{"a", 1, 5000, 1}
	lost := "dlock:client:clienth lost h " + oldFence
	s.test(singleScripts.breaks.source, []scriptTest{
		{name: "a free lock", args: []any{""}, want: "0"},
		{
			name: "its holder", before: heldByH, args: []any{"h"}, want: "1",
			after: state{fence: oldFence}, told: lost + ", " + freed,
		},
		{
			name: "any holder", before: heldByH, args: []any{""}, want: "1",
			after: state{fence: oldFence}, told: lost + ", " + freed,
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

// testSharded checks that the script publishes to a sharded channel in a cluster, for waiters
// without a queue entry. Without the right to publish there, the script publishes to the whole
// cluster.
func testSharded(s *stage) {
	news := s.listen(s.SSubscribe(s.Context(), s.keys.lock+freeSuffix))
	sharded := func() (n int) {
		s.do("spublish", s.keys.lock+freeSuffix, "end")
		for ; ; n++ {
			m, err := news.ReceiveMessage(s.Context())
			if err != nil {
				s.Fatal(err)
			}
			if m.Payload == "end" {
				return n
			}
		}
	}
	for _, user := range []string{"", "-spublish"} {
		s.set(state{lock: held("h"), term: 10})
		if got := s.as(user).run(clusterScripts.release.source, clock, "h"); got != "1" {
			s.Errorf("%s: the answer is %q", user, got)
		}
		want, wantSharded := "", 1
		if user != "" {
			want, wantSharded = freed, 0
		}
		if got := strings.Join(s.published(), ", "); got != want {
			s.Errorf("%s: published %q, want %q", user, got, want)
		}
		if n := sharded(); n != wantSharded {
			s.Errorf("%s: published %d times to the sharded channel, want %d", user, n, wantSharded)
		}
	}
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
	got := s.eval(singleScripts.renew.source, clock, locks, args...)
	if want := "[0, 1, 0, 0, 0, 1]"; got != want {
		s.Errorf("the answer is %s, want %s", got, want)
	}
	for lock, want := range map[string]int{own: 35, others: 10, list: 10, later: 10} {
		if got := s.term(lock); got != want {
			s.Errorf("%s expires in %d min, want %d", lock, got, want)
		}
	}
}

// testInspect checks that an inspection counts the live entries of the queue and the listeners.
func testInspect(s *stage) {
	s.do("set", "held", "value", "px", 10*60_000)
	s.do("rpush", "list", "x")
	for owner, left := range map[string]int{"a": 0, "b": 1, "c": 5000} {
		s.do("hset", "held:waiters", owner, fmt.Sprintf("%d\n1\nme\nname\nmeta", clockMS+left))
	}
	s.do("hset", "held:waiters", "d", "no entry")
	s.listen(s.Subscribe(s.Context(), "held:free"))
	s.listen(s.SSubscribe(s.Context(), "held:free"))
	keys := []string{"free", "free:waiters", "list", "list:waiters", "held", "held:waiters"}
	for user, listeners := range map[string][2]int{
		"": {2, 0}, "-pubsub|shardnumsub": {1, 0}, "-pubsub": {-1, -1},
	} {
		got := s.as(user).eval(singleScripts.inspect.source, clock, keys)
		want := fmt.Sprintf("[[0, -2, 0, %d, ], [], [value, 10 min, 2, %d, name]]",
			listeners[1], listeners[0])
		if got != want {
			s.Errorf("%s: the answer is %s, want %s", user, got, want)
		}
	}
}

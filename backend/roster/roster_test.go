package roster_test

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/backend/kind"
	"github.com/dlock-go/dlock/backend/roster"
)

const second = 1_000_000 // µs

// state writes a document as one word for each entry: its owner, its kind, and a ! for a grant.
func state(r roster.Roster) string {
	var words []string
	for _, e := range r {
		word := e.Owner + ":" + string(e.Word)
		if e.Granted {
			word += "!"
		}
		words = append(words, word)
	}
	return strings.Join(words, " ")
}

// request returns a request with a TTL of one minute. word is "w?" if it waits.
func request(owner, word string) *backend.Request {
	word, queue := strings.CutSuffix(word, "?")
	k := kind.Kind(word)
	return &backend.Request{
		Key: "k", Owner: owner, TTL: time.Minute, Mode: k.Mode(), Limit: k.Limit(), Queue: queue,
	}
}

// run executes steps of the form "what owner [word]", one second after each other. It returns the
// class of the last error.
func run(r *roster.Roster, steps ...string) (class string) {
	for i, step := range steps {
		now := int64(i+1) * second
		var what, owner, word string
		_, _ = fmt.Sscan(step, &what, &owner, &word)
		var err error
		switch r.Expire(now); what {
		case "acquire":
			_, err = r.Acquire(request(owner, word), uint64(now), now)
		case "renew":
			err = r.Renew(owner, time.Minute, now)
		case "release":
			err = r.Remove(owner)
		case "break":
			err = r.Break(strings.Trim(owner, "*"))
		case "downgrade":
			err = r.Downgrade(owner, time.Minute, now)
		case "export":
			err = r.Export(owner, word, time.Minute, now)
		case "adopt":
			former, secret, _ := strings.Cut(word, ".")
			_, err = r.Adopt(former, secret, request(owner, string((*r)[0].Word)), now)
		case "late": // executes nothing, long after
			r.Expire(now + 15*second)
		default:
			panic(step)
		}
		class = classOf(err)
	}
	return class
}

func classOf(err error) string {
	for name, target := range map[string]error{
		"busy": backend.ErrNotAcquired, "conflict": backend.ErrConflict,
		"lost": backend.ErrLost, "not held": backend.ErrNotHeld,
	} {
		if errors.Is(err, target) {
			return name
		}
	}
	return fmt.Sprint(err)
}

func TestRules(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, steps, class, state string
	}{
		{"a writer", "acquire a w", "<nil>", "a:w!"},
		{"an attempt leaves no entry", "acquire a w, acquire b w", "busy", "a:w!"},
		{"a waiter leaves one", "acquire a w, acquire b r?", "busy", "a:w! b:r"},
		{"readers share", "acquire a r, acquire b r", "<nil>", "a:r! b:r!"},
		{
			"a reader stands behind a waiting writer", "acquire a r, acquire b w?, acquire c r?",
			"busy", "a:r! b:w c:r",
		},
		{
			"the front is granted", "acquire a w, acquire b r?, release a, acquire b r?", "<nil>",
			"b:r!",
		},
		{
			"the front stays", "acquire a w, acquire b w?, release a, acquire c w", "busy",
			"b:w",
		},
		{
			"a waiter that gives up", "acquire a r, acquire b w?, release b, acquire c r", "<nil>",
			"a:r! c:r!",
		},
		{"a dead waiter loses its place", "acquire a r, acquire b w?, late a", "<nil>", "a:r!"},
		{"permits", "acquire a p2, acquire b p2, acquire c p2?", "busy", "a:p2! b:p2! c:p2"},
		{
			"a permit returns",
			"acquire a p2, acquire b p2, acquire c p2?, release a, acquire c p2", "<nil>",
			"b:p2! c:p2!",
		},
		{"another limit", "acquire a p2, acquire b p3?", "conflict", "a:p2!"},
		{"another kind", "acquire a p2, acquire b w?", "conflict", "a:p2!"},
		{"a repeated attempt", "acquire a w, acquire a w", "<nil>", "a:w!"},
		{
			"a waiter has nothing to renew", "acquire a w, acquire b w?, renew b", "lost",
			"a:w! b:w",
		},
		{"a stranger's release", "acquire a w, release b", "not held", "a:w!"},
		{"break of all", "acquire a r, acquire b r, acquire c w?, break *", "<nil>", "c:w"},
		{"break of one", "acquire a r, acquire b r, break a", "<nil>", "b:r!"},
		{"a waiter is not broken", "acquire a r, acquire b w?, break b", "not held", "a:r! b:w"},
		{
			"downgrade", "acquire a w, acquire b r?, downgrade a, acquire b r", "<nil>",
			"a:r! b:r!",
		},
		{
			"a late request of the former writer", "acquire a w, downgrade a, acquire a w", "busy",
			"a:r!",
		},
		{"a repeated downgrade", "acquire a w, downgrade a, downgrade a", "<nil>", "a:r!"},
		{"a permit is not downgraded", "acquire a p2, downgrade a", "lost", "a:p2!"},
		{
			"a waiter is not downgraded", "acquire a w, acquire b w?, downgrade b", "lost",
			"a:w! b:w",
		},
		{"adopt", "acquire a w, export a s, adopt b a.s", "<nil>", "b:w!"},
		{
			"a repeated adoption", "acquire a w, export a s, adopt b a.s, adopt b a.s", "<nil>",
			"b:w!",
		},
		{
			"a second adoption", "acquire a w, export a s, adopt b a.s, adopt c a.s", "lost",
			"b:w!",
		},
		{"adopt with another secret", "acquire a w, export a s, adopt b a.t", "lost", "a:w!"},
		{"adopt without an export", "acquire a w, adopt b a.", "lost", "a:w!"},
		{"export of a waiter", "acquire a w, acquire b w?, export b s", "lost", "a:w! b:w"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var r roster.Roster
			class := run(&r, strings.Split(tt.steps, ", ")...)
			if class != tt.class || state(r) != tt.state {
				t.Errorf("%s: %s, %s; want %s, %s", tt.steps, class, state(r), tt.class, tt.state)
			}
		})
	}
}

// TestTerms checks the ends of terms: a grant has its TTL, a waiter keeps its place for MaxPlace,
// and no late request shortens a term.
func TestTerms(t *testing.T) {
	t.Parallel()
	var r roster.Roster
	run(&r, "acquire a w", "acquire b w?", "renew a")
	if a, b := r[0].Expires, r[1].Expires; a != 63*second || b != 12*second {
		t.Errorf("the terms end at %d and %d", a, b)
	}
	if err := r.Renew("a", time.Minute, second); err != nil || r[0].Expires != 63*second {
		t.Errorf("after a late renewal: %v, %d", err, r[0].Expires)
	}
	if r.End() != 63*second || roster.Micros(time.Microsecond+1) != 2 {
		t.Errorf("the last end is %d", r.End())
	}
}

// TestLongestTerm grants a lock for the longest duration that there is.
func TestLongestTerm(t *testing.T) {
	t.Parallel()
	now, req := time.Now().UnixMicro(), &backend.Request{Owner: "a", TTL: math.MaxInt64}
	var r roster.Roster
	if _, err := r.Acquire(req, 1, now); err != nil {
		t.Fatal(err)
	}
	if r.Expire(now + 1); r.Find("a") == nil {
		t.Error("the longest term has ended at once")
	}
	busy := &backend.Busy{}
	_, err := r.Acquire(&backend.Request{Owner: "b", TTL: time.Second}, 2, now)
	if !errors.As(err, &busy) || busy.RetryAfter < math.MaxInt64-time.Microsecond {
		t.Errorf("%v, with %v left", err, busy.RetryAfter)
	}
}

// TestPlaces checks that a waiter that asks again and again changes the document now and then, and
// never loses its place.
func TestPlaces(t *testing.T) {
	t.Parallel()
	var r roster.Roster
	run(&r, "acquire a w", "acquire b w?")
	changes := 0
	for now := int64(2 * second); now < 30*second; now += second / 2 {
		before := r[1].Expires
		_, _ = r.Acquire(request("b", "w?"), 1, now)
		if r.Expire(now); len(r) < 2 {
			t.Fatalf("the place is lost at %d", now)
		}
		if r[1].Expires != before {
			changes++
		}
	}
	if changes == 0 || changes > 10 {
		t.Errorf("56 attempts have changed the document %d times", changes)
	}
}

// TestPollersKeepTheirPlaces repeats the request of a waiter as a core does that polls rarely: just
// after RetryAfter. The waiter never loses its place.
func TestPollersKeepTheirPlaces(t *testing.T) {
	t.Parallel()
	for _, ttl := range []time.Duration{100 * time.Millisecond, 3 * time.Second, time.Minute} {
		var r roster.Roster
		holder, poller := request("a", "w"), request("b", "w?")
		holder.TTL, poller.TTL = time.Hour, ttl
		_, _ = r.Acquire(holder, 1, second)
		for now := int64(second); now < 60*second; {
			_, err := r.Acquire(poller, 2, now)
			b, ok := errors.AsType[*backend.Busy](err)
			if !ok || b.RetryAfter <= 0 {
				t.Fatalf("a TTL of %v: %+v", ttl, err)
			}
			now += roster.Micros(b.RetryAfter + 20*time.Millisecond)
			if r.Expire(now); r.Find("b") == nil {
				t.Fatalf("a TTL of %v: the place is lost at %d", ttl, now)
			}
		}
	}
}

// TestClockThatWasSetBack checks that waiters lose their places after the clock was set back by an
// hour, and keep them after a small step. A holder keeps its lock in both cases.
func TestClockThatWasSetBack(t *testing.T) {
	t.Parallel()
	const hour = 3600 * second
	for now, want := range map[int64]string{
		hour + 2*second: "a:w! b:w", hour - 5*second: "a:w! b:w", 2 * second: "a:w!",
	} {
		var r roster.Roster
		_, _ = r.Acquire(request("a", "w"), 1, hour)
		_, _ = r.Acquire(request("b", "w?"), 1, hour)
		if r.Expire(now); state(r) != want {
			t.Errorf("at %d the entries are %s, want %s", now, state(r), want)
		}
	}
}

// TestDistances checks how many entries stand between each entry and the lock.
func TestDistances(t *testing.T) {
	t.Parallel()
	for queue, want := range map[string][]int{
		"w w w":          {0, 1, 2},
		"r r w r r":      {0, 0, 2, 1, 1},
		"p2 p2 p2 p2":    {0, 0, 1, 2},
		"p3 p3 p3 p3 p3": {0, 0, 0, 1, 2},
	} {
		var r roster.Roster
		for i, word := range strings.Fields(queue) {
			_, _ = r.Acquire(request(fmt.Sprint(i), word+"?"), 1, second)
			if got := r.Distance(fmt.Sprint(i)); got != want[i] {
				t.Errorf("%s: the distance of entry %d is %d, want %d", queue, i, got, want[i])
			}
		}
	}
	if d := (roster.Roster{}).Distance("x"); d != 0 {
		t.Errorf("without an entry the distance is %d", d)
	}
}

// TestRefusals checks when a refused request may succeed at the latest.
func TestRefusals(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		owners, word string
		want         time.Duration
	}{
		{"r r r", "w", 59 * time.Second},
		{"p3 p3 p3", "p3", 57 * time.Second},
		{"w w? w?", "r", 57 * time.Second},
	} {
		var r roster.Roster
		for i, word := range strings.Fields(tt.owners) {
			now := int64(i + 1)
			_, _ = r.Acquire(request(fmt.Sprint("o", i), word), uint64(now), now*second)
		}
		_, err := r.Acquire(request("x", tt.word), 9, 4*second)
		b, ok := errors.AsType[*backend.Busy](err)
		if !ok || b.RetryAfter != tt.want || b.Holder != "o0" || b.Fence != 1 || b.Queued {
			t.Errorf("%s behind %s: %+v", tt.word, tt.owners, err)
		}
	}
}

// TestFences checks that a grant keeps its fence, whatever changes its owner or its kind.
func TestFences(t *testing.T) {
	t.Parallel()
	var r roster.Roster
	run(&r, "acquire a w", "acquire a w", "downgrade a", "export a s", "adopt b a.s")
	if r[0].Fence != second || r[0].Since != second {
		t.Errorf("%+v, want the first fence", r[0])
	}
}

func TestText(t *testing.T) {
	t.Parallel()
	var r roster.Roster
	run(&r, "acquire a p2", "acquire b p2", "acquire c p2?", "export a s")
	again, err := roster.Parse(r.Text())
	if err != nil || !slices.Equal(again, r) {
		t.Errorf("%s became %v, %v", r.Text(), again, err)
	}
	if _, err := roster.Parse([]byte("other text")); err == nil {
		t.Error("other text is a document")
	}
}

func TestInfo(t *testing.T) {
	t.Parallel()
	var r roster.Roster
	run(&r, "acquire a p2", "acquire b p2", "acquire c p2?", "export a sesame")
	info := r.Info("k", 5*second)
	if info.Mode != backend.Permit || info.Limit != 2 || info.Waiters != 1 ||
		len(info.Holders) != 2 || info.Holders[1].TTL != 57*time.Second ||
		info.Holders[1].Fence != 2*second<<12 || info.Holders[1].Owner != "b" {
		t.Errorf("%+v", info)
	}
	if text := fmt.Sprintf("%+v", info); strings.Contains(text, "sesame") {
		t.Errorf("%s shows a secret", text)
	}
	if info := r.Info("k", 90*second); len(info.Holders) > 0 || info.Waiters > 0 {
		t.Errorf("%+v after all terms", info)
	}
}

// TestReached checks that a change names the drivers whose waiters may hold the lock by it, each of
// them once, and no driver with waiters that could hold it before.
func TestReached(t *testing.T) {
	t.Parallel()
	var before roster.Roster
	run(&before, "acquire a p2", "acquire b p2", "acquire c p2?", "acquire d p2?", "acquire e p2?")
	for owner, bell := range map[string]string{"c": "one", "d": "one", "e": "two"} {
		before.Find(owner).Bell = bell
	}
	after := slices.Clone(before)
	_, _ = after.Remove("a"), after.Remove("b")
	if bells := after.Reached(before); !slices.Equal(bells, []string{"one"}) {
		t.Errorf("a and b left, and the bells are %v", bells)
	}
	last := slices.Clone(after)
	_ = last.Remove("c")
	if bells := last.Reached(after); !slices.Equal(bells, []string{"two"}) {
		t.Errorf("c left, and the bells are %v", bells)
	}
}

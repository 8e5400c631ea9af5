//go:build unix

package campaign

import (
	"cmp"
	"fmt"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

const ms = Instant(time.Millisecond)

// script parses the short form of a history. Each line is a time in ms, an Op, a worker and the
// arguments of the Op. An Op with a number, such as ask@1, is of another loop of the worker.
func script(t *testing.T, class Class, lines string) *History {
	t.Helper()
	h := &History{
		Settings: Settings{
			Server: "script", TTL: time.Second, Expiry: time.Second, Faults: map[Kind]Class{},
		},
		Plan: Plan{Rounds: []Round{{Class: class}}},
	}
	faults, tries := 0, make(map[[2]int]int) // by worker and loop
	for line := range strings.SplitSeq(strings.TrimSpace(lines), "\n") {
		f := strings.Fields(line)
		var at, worker int64
		if _, err := fmt.Sscan(f[0], &at); err != nil {
			t.Fatal(err)
		}
		if _, err := fmt.Sscan(f[2], &worker); err != nil {
			t.Fatal(err)
		}
		e := Event{At: Instant(at) * ms, Op: Op(f[1]), Worker: int(worker), Name: "lock"}
		rest := strings.Join(f[3:], " ")
		op, _, _ := strings.Cut(f[1], "/") // see scriptOf
		if name, loop, ok := strings.Cut(op, "@"); ok {
			op, e.Op = name, Op(name)
			_, _ = fmt.Sscan(loop, &e.Loop)
		}
		if e.Op == Ask {
			tries[[2]int{e.Worker, e.Loop}]++
		}
		e.Try = tries[[2]int{e.Worker, e.Loop}]
		switch Op(op) {
		case Granted, Read, Write:
			_, _ = fmt.Sscan(rest, &e.Fence, &e.Accepted, &e.Fenced)
			e.Plain = e.Fenced
		case Unlocked, Refused, Downgraded:
			e.Error = rest
		case Ask:
			e.Handle = rest
		case Exported:
			e.Handle, e.Error, _ = strings.Cut(rest, " ")
		case Begin, Done, End:
			if e.Op == Begin {
				faults++
			}
			e.Kind, e.Fault = Kind(rest), faults
		case Lag, Chain, Answer:
			_, _ = fmt.Sscan(rest, &e.Late)
			e.Late *= time.Millisecond
		}
		h.Events = append(h.Events, e)
		h.Ended = max(h.Ended, e.At)
	}
	slices.SortStableFunc(h.Events, func(a, b Event) int { return cmp.Compare(a.At, b.At) })
	return h
}

// histories are the shortest histories with a breach of each rule, and correct ones.
var histories = []struct {
	name  string
	class Class
	lines string
	want  string // the rules that are violated
}{
	{"two holders in turn", X, `
		0 ask 0
		1 granted 0 10
		2 ask 1
		9 unlock 0
		10 unlocked 0
		11 granted 1 11
		12 unlock 1
		13 unlocked 1`, ""},
	{"two holders at once", X, `
		0 ask 0
		1 granted 0 10
		2 ask 1
		9 granted 1 11
		19 unlock 0
		20 unlocked 0 lost
		22 unlock 1
		23 unlocked 1`, "a e k"},
	{"a hand-off that is late", X, `
		0 ask 0
		1 granted 0 10
		2 ask 1
		3000 unlock 0
		3001 unlocked 0
		3301 granted 1 11
		3302 unlock 1
		3303 unlocked 1`, "d"},
	{"a hand-off that is late while the goroutines of a process stall", X, `
		0 ask 0
		1 granted 0 10
		2 ask 1
		3000 unlock 0
		3001 unlocked 0
		3300 chain 1 100
		3301 granted 1 11
		3302 unlock 1
		3303 unlocked 1`, ""},
	{"two holders at once in class F", F, `
		0 ask 0
		1 granted 0 10
		2 ask 1
		9 granted 1 11
		19 unlock 0
		20 unlocked 0 lost
		22 unlock 1
		23 unlocked 1`, ""},
	{"a fence that goes back", F, `
		0 ask 0
		1 granted 0 10
		2 unlock 0
		3 unlocked 0
		4 ask 1
		5 granted 1 9
		6 unlock 1
		7 unlocked 1`, "b"},
	{"the same fence twice", F, `
		0 ask 0
		0 ask 1
		1 granted 0 10
		1 granted 1 10
		2 unlock 0
		2 unlock 1
		3 unlocked 0
		3 unlocked 1`, "b"},
	{"a hand-off of a grant that is lost and not yet known to be", F, `
		0 ask 0
		1 granted 0 4096
		2 ask 1
		3 granted 1 8192
		4 unlock 1
		5 unlocked 1
		6 unlock 0
		7 unlocked 0
		8 ask 0
		9 granted 0 4097
		10 unlock 0
		11 unlocked 0 lost`, ""},
	{"an order of fences that is not known", F, `
		0 ask 0
		0 ask 1
		1 granted 0 10
		2 granted 1 9
		3 unlock 0
		3 unlock 1
		4 unlocked 0
		4 unlocked 1`, ""},
	{"an update that is lost", X, `
		0 ask 0
		1 granted 0 10
		2 read 0 10 true
		3 write 0 10 true 2
		4 unlock 0
		5 unlocked 0`, "c"},
	{"a valid write that is refused", X, `
		0 ask 0
		1 granted 0 10
		3 write 0 10 false 1
		4 unlock 0
		5 unlocked 0`, "c"},
	{"a stale write that is refused", X, `
		0 ask 0
		1 granted 0 10
		2 begin 0 stop
		2 done 0 stop
		900 ask 1
		1010 granted 1 11
		1011 write 1 11 true 1
		1020 unlock 1
		1021 unlocked 1
		3000 end 0 stop
		3001 write 0 10 false 1
		3002 lost 0
		3003 unlock 0
		3004 unlocked 0 lost`, ""},
	{"a stale write that is accepted", X, `
		0 ask 0
		1 granted 0 10
		2 begin 0 stop
		2 done 0 stop
		900 ask 1
		1010 granted 1 11
		1011 write 1 11 true 1
		1020 unlock 1
		1021 unlocked 1
		3000 end 0 stop
		3001 write 0 10 true 2
		3002 lost 0
		3003 unlock 0
		3004 unlocked 0 lost`, "c"},
	{"a stopped process without a report", X, `
		0 ask 0
		1 granted 0 10
		2 begin 0 stop
		2 done 0 stop
		3000 end 0 stop
		3100 lost 0
		3101 unlock 0
		3101 unlocked 0 lost`, "a"},
	{"a stopped process with a late report on a slow machine", X, `
		0 ask 0
		1 granted 0 10
		2 begin 0 stop
		2 done 0 stop
		3000 end 0 stop
		3095 lag 0 90
		3100 lost 0
		3101 unlock 0
		3101 unlocked 0 lost`, ""},
	{"a broken lock whose holder gets no report", F, `
		0 ask 0
		1 granted 0 10
		2 begin -1 break
		3 done -1 break
		3 end -1 break
		1000 unlock 0
		1001 unlocked 0`, "a"},
	{"a broken lock whose holder gets a report", F, `
		0 ask 0
		1 granted 0 10
		2 begin -1 break
		3 done -1 break
		3 end -1 break
		300 lost 0
		1000 unlock 0
		1001 unlocked 0 lost`, ""},
	{"a broken lock whose holder gets a report when the server is back", F, `
		0 ask 0
		1 granted 0 10
		2 begin -1 break
		3 done -1 break
		3 end -1 break
		4 begin -1 restart
		5 done -1 restart
		1400 end -1 restart
		1700 lost 0
		1800 unlock 0
		1801 unlocked 0 lost`, ""},
	{"a broken lock whose holder gets no report when the server is back", F, `
		0 ask 0
		1 granted 0 10
		2 begin -1 break
		3 done -1 break
		3 end -1 break
		4 begin -1 restart
		5 done -1 restart
		1400 end -1 restart
		2400 unlock 0
		2401 unlocked 0`, "a"},
	{"a free lock that is not granted", X, `
		0 ask 0
		1 granted 0 10
		2 ask 1
		3 killed 0
		4 exited 0
		2000 granted 1 11
		2001 unlock 1
		2002 unlocked 1`, "d"},
	{"a free lock that is granted in time", X, `
		0 ask 0
		1 granted 0 10
		2 ask 1
		3 killed 0
		4 exited 0
		1000 granted 1 11
		1001 unlock 1
		1002 unlocked 1`, ""},
	{"a wake-up that is lost", X, `
		0 ask 0
		1 granted 0 10
		2 ask 1
		5 unlock 0
		6 unlocked 0
		990 granted 1 11
		991 unlock 1
		992 unlocked 1`, "d"},
	{"an Unlock that is nil too late", X, `
		0 ask 0
		1 granted 0 10
		2 begin 0 cut
		2 done 0 cut
		3 ask 1
		1000 lost 0
		1001 granted 1 11
		1002 unlock 1
		1003 unlocked 1
		1004 end 0 cut`, ""},
	{"an Unlock that is nil after the next grant", X, `
		0 ask 0
		1 granted 0 10
		2 begin 0 stop
		2 done 0 stop
		3 ask 1
		1002 granted 1 11
		1003 unlock 1
		1004 unlocked 1
		3002 end 0 stop
		3003 unlock 0
		3004 unlocked 0`, "e f"},
	{"a lease that is lost without a fault", X, `
		0 ask 0
		1 granted 0 10
		900 lost 0
		910 unlock 0
		911 unlocked 0 lost`, "k"},
	{"a lease that a reset costs", X, `
		0 ask 0
		1 granted 0 10
		100 begin 0 reset
		101 end 0 reset
		900 lost 0`, "k"},
	{"a lease that the death of another process costs", X, `
		0 ask 0
		1 granted 0 10
		100 begin 0 kill-waiter
		101 end 0 kill-waiter
		900 lost 0`, "k"},
	{"a lease that a cut costs", X, `
		0 ask 0
		1 granted 0 10
		100 begin 0 cut
		700 end 0 cut
		900 lost 0`, ""},
	{"a loss that is detected after the next grant", X, `
		0 ask 0
		1 granted 0 10
		100 begin 0 cut
		500 ask 1
		700 end 0 cut
		892 granted 1 11
		900 lost 0
		910 unlock 1
		911 unlocked 1`, "a e"},
	{"a loss that is detected after the next grant, because a chain was late", X, `
		0 ask 0
		1 granted 0 10
		100 begin 0 cut
		500 ask 1
		700 end 0 cut
		892 granted 1 11
		898 chain 0 4
		900 lost 0
		910 unlock 1
		911 unlocked 1`, ""},
	{"a successor that has ended when the loss is detected", X, `
		0 ask 0
		1 granted 0 10
		100 begin 0 cut
		500 ask 1
		700 end 0 cut
		880 granted 1 11
		882 unlock 1
		883 unlocked 1
		900 lost 0`, "a e"},
	{"a loss that is detected late while two delays follow each other", X, `
		0 ask 0
		1 granted 0 10
		100 begin 0 cut
		500 ask 1
		700 end 0 cut
		883 granted 1 11
		891 chain 0 8
		903 chain 0 8
		900 lost 0
		910 unlock 1
		911 unlocked 1`, ""},
	{"a loss that is detected long after the last delay", X, `
		0 ask 0
		1 granted 0 10
		100 begin 0 cut
		500 ask 1
		700 end 0 cut
		880 granted 1 11
		894 chain 0 100
		900 lost 0
		910 unlock 1
		911 unlocked 1`, "a e"},
	{"a loss that Unlock detects while goroutines are late", X, `
		0 ask 0
		1 granted 0 10
		100 begin 0 cut
		500 ask 1
		700 end 0 cut
		896 chain 0 16
		897 granted 1 11
		900 unlock 0
		901 unlocked 0 lost
		910 unlock 1
		911 unlocked 1`, ""},
	{"a stopped process that is late for longer than the limit", X, `
		0 ask 0
		1 granted 0 10
		2 begin 0 stop
		2 done 0 stop
		900 ask 1
		1020 granted 1 11
		3000 end 0 stop
		3060 lag 0 50
		3110 lag 0 46
		3130 lost 0
		3135 unlock 0
		3136 unlocked 0 lost
		3140 unlock 1
		3141 unlocked 1`, ""},
	{"a lease that a slow server costs", X, `
		0 ask 0
		1 granted 0 10
		700 answer -1 400
		900 lost 0`, ""},
	{"a lease that a short pause costs", X, `
		0 ask 0
		1 granted 0 10
		100 begin -1 pause-short
		110 done -1 pause-short
		620 end -1 pause-short
		900 lost 0`, "k"},
	{"a lease that a short pause costs, which a slow machine prolongs", X, `
		0 ask 0
		1 granted 0 10
		100 begin -1 pause-short
		110 done -1 pause-short
		900 lost 0
		1200 end -1 pause-short`, ""},
	{"an attempt that is refused without a fault", X, `
		0 ask 0
		100 refused 0 unavailable
		200 ask 1
		201 granted 1 10
		202 unlock 1
		203 unlocked 1`, "k"},
	{"an attempt that is refused because of a fault", X, `
		0 ask 0
		1 begin -1 restart
		100 end -1 restart
		110 refused 0 unavailable
		200 ask 1
		201 granted 1 10
		202 unlock 1
		203 unlocked 1`, ""},
	{"an attempt whose context ends", X, `
		0 ask 0
		100 refused 0 canceled
		200 ask 1
		201 granted 1 10
		202 unlock 1
		203 unlocked 1`, ""},
	{"a lease that a short stop costs", X, `
		0 ask 0
		1 granted 0 10
		2 begin 0 stop-short
		2 done 0 stop-short
		300 end 0 stop-short
		900 lost 0
		910 unlock 0
		911 unlocked 0 lost`, "k"},
	{"nothing is granted", X, `
		0 ask 0
		400 refused 0 unavailable`, "d k"},
	{"what the engine has found", X, `
		0 ask 0
		1 granted 0 10
		9 unlock 0
		10 unlocked 0
		20 finding -1`, "?"},
}

// TestJudge checks that each rule detects its breach in the shortest history that has one, and that
// no rule reports a breach in a correct history.
func TestJudge(t *testing.T) {
	for _, c := range histories {
		t.Run(c.name, func(t *testing.T) {
			h := script(t, c.class, c.lines)
			for i, e := range h.Events {
				if e.Op == Finding {
					h.Events[i].Rule = "?"
				}
			}
			judged(t, h, c.want)
		})
	}
}

// judged checks that a history violates the rules that want lists, and no other rule.
func judged(t *testing.T, h *History, want string) {
	t.Helper()
	violated := make(map[Rule]bool)
	v := Judge(h)
	for _, x := range v.Violations {
		violated[x.Rule] = true
	}
	var got []string
	for r := range violated {
		got = append(got, string(r))
	}
	slices.Sort(got)
	if strings.Join(got, " ") != want {
		t.Errorf("the violated rules are %v, want %q: %v", got, want, v.Violations)
	}
}

// scriptOf is script for a kind of lock. Of an RW lock, "true" after the fence marks the
// grant of a writer. In a set, an Op with a number, such as granted/1, is for another name.
func scriptOf(t *testing.T, k LockKind, lines string) *History {
	t.Helper()
	h := script(t, X, lines)
	h.Plan.Rounds[0].Kind = k
	readers := make(map[attempt]bool)
	for i := range h.Events {
		e := &h.Events[i]
		if op, part, ok := strings.Cut(string(e.Op), "/"); ok {
			e.Op, e.Name = Op(op), "lock-"+part
			_, _ = fmt.Sscan(part, &e.Part)
		}
		if e.Op == Granted && k == Readers && !e.Accepted {
			readers[e.attempt()] = true
		}
		e.Reader = readers[e.attempt()]
	}
	return h
}

// kindHistories are histories of the rules that differ between the kinds of locks.
var kindHistories = []struct {
	name  string
	kind  LockKind
	lines string
	want  string
}{
	{"readers at once, then a writer", Readers, `
		0 ask 0
		0 ask 1
		0 ask 2
		1 granted 0 10
		2 read 0 10 true
		3 granted 1 10
		4 read 1 10 true
		8 unlock 0
		9 unlocked 0
		10 unlock 1
		11 unlocked 1
		12 granted 2 11 true
		13 read 2 11 true
		14 write 2 11 true 1
		15 unlock 2
		16 unlocked 2`, ""},
	{"a writer in addition to a reader", Readers, `
		0 ask 0
		0 ask 1
		1 granted 0 10
		3 granted 1 11 true
		8 unlock 0
		9 unlocked 0 deadline
		10 unlock 1
		11 unlocked 1`, "a e"},
	{"two writers at once", Readers, `
		0 ask 0
		0 ask 1
		1 granted 0 10 true
		3 granted 1 11 true
		8 unlock 0
		9 unlocked 0 deadline
		10 unlock 1
		11 unlocked 1`, "a e"},
	{"a writer with the fence of a reader", Readers, `
		0 ask 0
		1 granted 0 10
		2 unlock 0
		3 unlocked 0
		4 ask 1
		5 granted 1 10 true
		6 unlock 1
		7 unlocked 1`, "b e"},
	{"a reader with a lower fence than a writer", Readers, `
		0 ask 0
		1 granted 0 10 true
		2 unlock 0
		3 unlocked 0
		4 ask 1
		5 granted 1 9
		6 unlock 1
		7 unlocked 1`, "b e"},
	{"a free lock that no reader gets", Readers, `
		0 ask 0
		1 granted 0 10 true
		2 ask 1
		3 killed 0
		4 exited 0
		2000 granted 1 11
		2001 unlock 1
		2002 unlocked 1`, "d"},
	{"two permits at once, in any order", Permits, `
		0 ask 0
		0 ask 1
		0 ask 2
		1 granted 0 11
		2 granted 1 10
		8 unlock 0
		9 unlocked 0
		10 granted 2 12
		11 unlock 1
		12 unlocked 1
		13 unlock 2
		14 unlocked 2`, ""},
	{"a permit too many", Permits, `
		0 ask 0
		0 ask 1
		0 ask 2
		1 granted 0 10
		2 granted 1 11
		5 granted 2 12
		8 unlock 0
		9 unlocked 0
		11 unlock 1
		12 unlocked 1
		13 unlock 2
		14 unlocked 2`, "a e"},
	{"a permit for the place of a waiter that gave up", Permits, `
		0 ask 0
		1 ask 1
		2 granted 1 11
		3 ask@1 0
		4 refused 0 deadline
		5 granted@1 0 10
		8 unlock@1 0
		9 unlocked@1 0
		11 unlock 1
		12 unlocked 1`, ""},
	{"a permit with the fence of a waiter that gave up before", Permits, `
		0 ask 0
		1 ask 1
		2 granted 1 11
		3 refused 0 deadline
		4 ask 0
		5 granted 0 10
		8 unlock 0
		9 unlocked 0
		11 unlock 1
		12 unlocked 1`, "b"},
	{"two permits with one fence", Permits, `
		0 ask 0
		0 ask 1
		1 granted 0 10
		2 granted 1 10
		8 unlock 0
		9 unlocked 0
		11 unlock 1
		12 unlocked 1`, "b"},
	{"a permit that is never free again", Permits, `
		0 ask 0
		0 ask 1
		0 ask 2
		1 granted 0 10
		2 granted 1 11
		3 killed 0
		4 exited 0
		1900 unlock 1
		1901 unlocked 1
		1902 granted 2 12
		1903 unlock 2
		1904 unlocked 2`, "d"},
	{"a set", All, `
		0 ask 0
		0 ask/1 0
		1 granted 0 10
		1 granted/1 0 20
		9 unlock 0
		9 unlock/1 0
		10 unlocked 0
		10 unlocked/1 0`, ""},
	{"a set that waits for one of its names", All, `
		0 ask 0
		0 ask/1 0
		1 granted 0 10
		1 granted/1 0 20
		2 ask 1
		2 ask/2 1
		1990 unlock 0
		1990 unlock/1 0
		1991 unlocked 0
		1991 unlocked/1 0
		1992 granted 1 11
		1992 granted/2 1 30
		1993 unlock 1
		1993 unlock/2 1
		1994 unlocked 1
		1994 unlocked/2 1`, ""},
	{"a set that keeps what it has not lost", All, `
		0 ask 0
		0 ask/1 0
		1 granted 0 10
		1 granted/1 0 20
		2 ask 1
		100 begin 0 cut
		110 end 0 cut
		120 lost 0
		120 lost/1 0
		121 lost/1 0
		1990 unlock 0
		1990 unlock/1 0
		1991 unlocked 0 lost
		1991 unlocked/1 0 lost
		1992 granted 1 11
		1993 unlock 1
		1994 unlocked 1`, ""},
	{"a set that keeps what it loses later", All, `
		0 ask 0
		0 ask/1 0
		1 granted 0 10
		1 granted/1 0 20
		2 ask 1
		100 begin 0 cut
		110 end 0 cut
		120 lost 0
		120 lost/1 0
		121 lost/1 0
		1980 lost 0
		1990 unlock 0
		1990 unlock/1 0
		1991 unlocked 0 lost
		1991 unlocked/1 0 lost
		1992 granted 1 11
		1993 unlock 1
		1994 unlocked 1`, ""},
	{"a set that keeps what it has lost", All, `
		0 ask 0
		0 ask/1 0
		1 granted 0 10
		1 granted/1 0 20
		2 ask 1
		100 begin 0 cut
		110 end 0 cut
		120 lost 0
		120 lost/1 0
		121 lost 0
		1990 unlock 0
		1990 unlock/1 0
		1991 unlocked 0 lost
		1991 unlocked/1 0 lost
		1992 granted 1 11
		1993 unlock 1
		1994 unlocked 1`, "d"},
	{"a set without one of its names", All, `
		0 ask 0
		0 ask/1 0
		1 granted 0 10
		9 unlock 0
		10 unlocked 0`, "a"},
	{"a lease that outlives its set", All, `
		0 ask 0
		0 ask/1 0
		1 granted 0 10
		1 granted/1 0 20
		2 begin 0 cut
		2 done 0 cut
		500 end 0 cut
		900 lost 0
		1000 unlock/1 0
		1001 unlocked/1 0 lost`, "a"},
	{"two leaders in turn", Leader, `
		0 ask 0
		0 ask 1
		1 granted 0 10
		9 unlock 0
		10 unlocked 0
		11 granted 1 11
		12 unlock 1
		13 unlocked 1`, ""},
	{"a lease that moves twice", Moved, `
		0 ask 0
		0 ask 2
		1 granted 0 10
		2 export 0
		3 exported 0 h1
		4 ask 1 h1
		4 ask@1 1 h1
		5 granted 1 10
		6 refused@1 1 lost
		7 export 1
		8 exported 1 h2
		9 killed 1
		9 exited 1
		10 ask@1 0 h2
		11 granted@1 0 10
		12 unlock@1 0
		13 unlocked@1 0
		14 granted 2 11
		15 unlock 2
		16 unlocked 2`, ""},
	{"a handle that no worker adopts", Moved, `
		0 ask 0
		0 ask 1
		1 granted 0 10
		2 export 0
		3 exported 0 h1
		1003 granted 1 11
		1004 unlock 1
		1005 unlocked 1
		1006 ask 2 h1
		1007 refused 2 lost`, ""},
	{"a handle that is adopted twice", Moved, `
		0 ask 0
		1 granted 0 10
		2 export 0
		3 exported 0 h1
		4 ask 1 h1
		5 ask 2 h1
		6 granted 1 10
		7 unlock 1
		8 unlocked 1
		9 granted 2 10
		10 unlock 2
		11 unlocked 2`, "a b e"},
	{"a handle that is good after another grant", Moved, `
		0 ask 0
		0 ask 1
		1 granted 0 10
		2 export 0
		3 exported 0 h1
		4 granted 1 11
		5 unlock 1
		6 unlocked 1
		7 ask 2 h1
		8 granted 2 12
		9 unlock 2
		10 unlocked 2`, "a e"},
	{"a handle that is refused", Moved, `
		0 ask 0
		1 granted 0 10
		2 export 0
		3 exported 0 h1
		4 ask 1 h1
		5 refused 1 lost`, "k"},
	{"a handle that is refused while its adopter is stopped", Moved, `
		0 ask 0
		1 granted 0 10
		2 export 0
		3 exported 0 h1
		4 ask 1 h1
		5 begin 1 stop
		5 done 1 stop
		305 end 1 stop
		306 refused 1 lost`, ""},
	{"an adoption with a lower fence", Moved, `
		0 ask 0
		1 granted 0 10
		2 export 0
		3 exported 0 h1
		4 ask 1 h1
		5 granted 1 9
		6 unlock 1
		7 unlocked 1`, "b e"},
	{"an Export that returned nil after the next grant", Moved, `
		0 ask 0
		0 ask 1
		1 granted 0 10
		2 granted 1 11
		3 export 0
		4 exported 0 h1
		5 unlock 1
		6 unlocked 1`, "a e f"},
	{"an Export that fails", Moved, `
		0 ask 0
		0 ask 1
		1 granted 0 10
		2 begin 0 cut
		2 done 0 cut
		3 export 0
		4 exported 0 - unavailable
		5 end 0 cut
		6 granted 1 11
		10 unlock 0
		11 unlocked 0
		12 unlock 1
		13 unlocked 1`, "a e f"},
	{"an Export that fails without a fault", Moved, `
		0 ask 0
		1 granted 0 10
		3 export 0
		4 exported 0 - uncertain`, "k"},
	{"an Export after a Lock that had no answer at first", Moved, `
		5 ask 1
		6 granted 1 9
		10 ask 0
		20 begin 0 cut
		20 done 0 cut
		100 end 0 cut
		4990 unlock 1
		4991 unlocked 1
		5000 granted 0 10
		5003 export 0
		5004 exported 0 - unavailable
		5010 unlock 0
		5011 unlocked 0`, ""},
	{"an Export that is refused after a Lock with answers", Moved, `
		5 ask 1
		6 granted 1 9
		10 ask 0
		4990 unlock 1
		4991 unlocked 1
		5000 granted 0 10
		5003 export 0
		5004 exported 0 - unavailable
		5010 unlock 0
		5011 unlocked 0`, "k"},
	{"a writer that becomes a reader", Readers, `
		0 ask 0
		1 granted 0 10 true
		2 ask 1
		3 ask 2
		4 downgrade 0
		5 granted 1 11
		6 downgraded 0
		7 unlock 1
		8 unlocked 1
		9 unlock 0
		10 unlocked 0
		11 granted 2 12 true
		12 unlock 2
		13 unlocked 2`, ""},
	{"a reader before the writer becomes one", Readers, `
		0 ask 0
		1 granted 0 10 true
		2 ask 1
		3 granted 1 11
		4 downgrade 0
		6 downgraded 0
		7 unlock 1
		8 unlocked 1
		9 unlock 0
		10 unlocked 0`, "a e"},
	{"a writer during a Downgrade", Readers, `
		0 ask 0
		1 granted 0 10 true
		2 ask 1
		4 downgrade 0
		5 granted 1 11 true
		6 unlock 1
		7 unlocked 1
		8 downgraded 0
		9 unlock 0
		10 unlocked 0`, "a e f"},
	{"a Downgrade whose reply comes after the loss", Readers, `
		0 ask 0
		1 granted 0 10 true
		2 ask 1
		3 begin 0 latency
		3 done 0 latency
		4 downgrade 0
		5 granted 1 11
		900 lost 0
		901 downgraded 0 lost
		902 unlock 0
		903 unlocked 0 lost
		910 end 0 latency
		911 unlock 1
		912 unlocked 1`, ""},
	{"a Downgrade that fails", Readers, `
		0 ask 0
		1 granted 0 10 true
		2 ask 1
		4 downgrade 0
		5 downgraded 0 unsupported
		6 granted 1 11
		9 unlock 0
		10 unlocked 0
		11 unlock 1
		12 unlocked 1`, "a e f"},
	{"two leaders at once", Leader, `
		0 ask 0
		0 ask 1
		1 granted 0 10
		3 granted 1 11
		9 unlock 0
		10 unlocked 0 deadline
		12 unlock 1
		13 unlocked 1`, "a e"},
}

// TestJudgeKinds is TestJudge for the rules that differ between the kinds of locks.
func TestJudgeKinds(t *testing.T) {
	for _, c := range kindHistories {
		t.Run(c.name, func(t *testing.T) { judged(t, scriptOf(t, c.kind, c.lines), c.want) })
	}
}

// TestLossUnderAWeakFault checks that a reset explains a loss on a server whose locks end with a
// connection, also if the holder began in an earlier round. On other servers it explains none.
func TestLossUnderAWeakFault(t *testing.T) {
	const lines = "0 ask 0\n1 granted 0 10\n2 begin 0 reset\n3 done 0 reset\n3 end 0 reset\n" +
		"5 lost 0\n6 unlock 0\n7 unlocked 0 lost"
	for class, want := range map[Class]string{X: "k", F: ""} {
		h := script(t, X, lines)
		h.Settings.Faults[Reset] = class
		judged(t, h, want)
	}
}

// TestKindsAreCounted checks that each kind has its own grants and violations, also those of no
// lock.
func TestKindsAreCounted(t *testing.T) {
	h := script(t, X, "0 round -1\n0 ask 0\n1 granted 0 10\n2 unlock 0\n3 unlocked 0\n"+
		"10 round -1\n10 ask 1\n11 granted 1 9\n12 unlock 1\n13 unlocked 1\n14 finding 1")
	h.Settings.Kinds = []LockKind{Mutex, Moved, All}
	h.Plan.Rounds = []Round{{Class: X, Kind: Mutex}, {Class: X, Kind: Moved}}
	for i := range h.Events {
		e := &h.Events[i]
		if e.At >= 10*ms {
			e.Round, e.Name = 1, "other"
		}
		if e.Op == Finding {
			e.Rule = RuleH
		}
	}
	got := Judge(h).Figures.Kinds
	for k, want := range map[LockKind]string{Mutex: "1, 0", Moved: "1, h: 1", All: "0, 0"} {
		if got[k].String() != want {
			t.Errorf("%s: %v, want %s", k, got[k], want)
		}
	}
}

// TestHistoryIsKept checks that Judge returns the same verdict for a saved history and for the
// history in memory.
func TestHistoryIsKept(t *testing.T) {
	h := script(t, X, "0 ask 0\n1 granted 0 10\n2 ask 1\n3 granted 1 9\n"+
		"9 unlock 0\n9 unlock 1\n9 unlocked 0\n9 unlocked 1")
	h.Plan.Seed, h.Version = 7, "1.2"
	v := Judge(h)
	files, err := v.Keep(filepath.Join(t.TempDir(), "new"))
	if err != nil || len(files) != 2 || !strings.HasSuffix(files[1], ".html") {
		t.Fatalf("Keep = %v, %v", files, err)
	}
	again, err := Load(files[0])
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(again, h) {
		t.Errorf("Load = %+v, want %+v", again, h)
	}
	got := Judge(again).Violations
	if len(v.Violations) == 0 || !reflect.DeepEqual(got, v.Violations) {
		t.Errorf("the violations of the saved history are %v, want %v", got, v.Violations)
	}
}

// TestHistoriesAreKeptApart checks that a later history with the same server and seed overwrites no
// file, and that each lock with a violation has a picture.
func TestHistoriesAreKeptApart(t *testing.T) {
	h := script(t, X, "0 ask 0\n1 granted 0 10\n2 unlock 0\n3 unlocked 0\n"+
		"4 ask 1\n5 granted 1 9\n6 unlock 1\n7 unlocked 1")
	const locks = 5
	one := h.Events
	for i := range locks {
		for _, e := range one {
			e.Name, e.Try = fmt.Sprint("lock-", i), e.Try+i+1
			e.At += Instant(i+1) * 10 * ms
			h.Events = append(h.Events, e)
		}
	}
	h.Ended = h.Events[len(h.Events)-1].At
	v, dir := Judge(h), t.TempDir()
	for range 2 {
		files, err := v.Keep(dir)
		if err != nil || len(files) != 1+1+locks {
			t.Errorf("Keep = %v, %v, want a history and %d pictures", files, err, 1+locks)
		}
	}
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil || len(files) != 2*(2+locks) {
		t.Errorf("the files of two histories are %q, %v", files, err)
	}
}

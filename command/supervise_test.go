//go:build unix

package command

import (
	"errors"
	"math"
	"os"
	"slices"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"github.com/spf13/pflag"

	"github.com/dlock-go/dlock"
)

// scriptedLease is a lease whose deadline the test moves.
type scriptedLease struct {
	gone chan struct{}

	mu       sync.Mutex
	deadline time.Time
	err      error
}

func (l *scriptedLease) Lost() <-chan struct{} { return l.gone }

func (l *scriptedLease) Deadline() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.deadline
}

func (l *scriptedLease) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err == nil && !time.Now().Before(l.deadline) {
		l.err = dlock.ErrLost
	}
	return l.err
}

func (l *scriptedLease) renew(ttl time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.deadline = time.Now().Add(ttl)
}

// setWallClock sets the wall clock: step is added to it after the lease's deadline was computed. No
// function of package time can make the deadline from before the step: the first word of a Time has
// the seconds of the wall clock above 30 bits of nanoseconds. A bubble of synctest has only one
// clock, so tests with a step run in real time.
func (l *scriptedLease) setWallClock(step time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	*(*uint64)(unsafe.Pointer(&l.deadline)) -= uint64(step/time.Second) << 30
}

func (l *scriptedLease) lose() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.err = dlock.ErrLost
	close(l.gone)
}

// scriptedProcess records its calls and their times.
type scriptedProcess struct {
	start   time.Time
	done    chan struct{}  // closed when the command has ended
	change  chan os.Signal // SIGCHLD
	group   bool           // a process of the group lives on
	tough   bool           // SIGTERM does not end it
	kills   int            // the SIGKILL with this number ends the group; 0 is like 1
	guards  []time.Duration
	overdue bool // the guard ended the job at its deadline
	orphan  bool // the guard was killed before the command had ended
	events  []string
}

func (p *scriptedProcess) note(what string) {
	p.events = append(p.events, what+" at "+time.Since(p.start).String())
}

func (p *scriptedProcess) Changed() <-chan os.Signal { return p.change }

// finish ends the command.
func (p *scriptedProcess) finish() {
	close(p.done)
	p.change <- syscall.SIGCHLD
}

func (p *scriptedProcess) Ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

func (p *scriptedProcess) Alive() bool { return !p.Ended() || p.group }

func (p *scriptedProcess) Until(end time.Time) { p.guards = append(p.guards, end.Sub(p.start)) }

func (p *scriptedProcess) Late() bool { return p.overdue }

func (p *scriptedProcess) Abandoned() bool { return p.orphan }

func (p *scriptedProcess) Forward(sig os.Signal) { p.note(sig.String()) }

func (p *scriptedProcess) Terminate() {
	p.note("TERM")
	if !p.tough && !p.Ended() {
		p.finish()
	}
}

func (p *scriptedProcess) Kill() {
	p.note("KILL")
	p.kills--
	p.group = p.group && p.kills > 0
	if !p.Ended() {
		p.finish()
	}
}

// supervision is a command under a lease with a deadline of 30 s and 5 s of grace.
type supervision struct {
	*supervisor
	lease   *scriptedLease
	process *scriptedProcess
	signals chan os.Signal
	renewed chan struct{}
	losses  int
	rests   int
	stuck   int
}

func supervise() *supervision {
	now := time.Now()
	s := &supervision{
		lease: &scriptedLease{deadline: now.Add(30 * time.Second), gone: make(chan struct{})},
		process: &scriptedProcess{
			start: now, done: make(chan struct{}), change: make(chan os.Signal, 1),
		},
		signals: make(chan os.Signal, 8), renewed: make(chan struct{}, 1),
	}
	s.supervisor = &supervisor{
		lease: s.lease, process: s.process, signals: s.signals, renewed: s.renewed,
		grace: 5 * time.Second, headroom: headroom,
		onLoss:  func(error) { s.losses++ },
		onRest:  func() { s.rests++ },
		onStuck: func() { s.stuck++ },
	}
	return s
}

func (s *supervision) check(t *testing.T, err error, lost bool, events ...string) {
	t.Helper()
	if errors.Is(err, dlock.ErrLost) != lost {
		t.Errorf("wait returned %v, want a loss: %v", err, lost)
	}
	if want := map[bool]int{true: 1}[lost]; s.losses != want {
		t.Errorf("onLoss was called %d times, want %d", s.losses, want)
	}
	if !slices.Equal(s.process.events, events) {
		t.Errorf("events %q, want %q", s.process.events, events)
	}
}

func TestSuperviseEndsCommandBeforeDeadline(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := supervise()
		s.check(t, s.wait(), true, "TERM at 24.75s")
	})
}

func TestSuperviseKillsBeforeDeadline(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := supervise()
		s.process.tough = true
		s.check(t, s.wait(), true, "TERM at 24.75s", "KILL at 29.75s")
	})
}

// A command that ends by SIGTERM may leave other processes of its group behind.
func TestSuperviseKillsGroupOfEndedCommand(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := supervise()
		s.process.group = true
		s.check(t, s.wait(), true, "TERM at 24.75s", "KILL at 29.75s")
	})
}

func TestSuperviseFollowsRenewals(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := supervise()
		go func() {
			for range 10 {
				time.Sleep(10 * time.Second)
				s.lease.renew(30 * time.Second)
			}
		}()
		s.check(t, s.wait(), true, "TERM at 2m4.75s") // 100 s + 24.75 s
	})
}

func TestSuperviseOrdinaryEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := supervise()
		time.AfterFunc(time.Second, s.process.finish)
		s.check(t, s.wait(), false)
	})
}

// The processes that the command left behind have ended before wait returns.
func TestSuperviseEndsLeftProcesses(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := supervise()
		s.process.group = true
		time.AfterFunc(time.Second, s.process.finish)
		s.check(t, s.wait(), false, "TERM at 1s", "KILL at 6s")
		if s.rests != 1 {
			t.Errorf("onRest was called %d times, want once", s.rests)
		}
	})
}

// A process that is started during the killing is killed as well.
func TestSuperviseKillsAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := supervise()
		s.process.group, s.process.kills = true, 3
		time.AfterFunc(time.Second, s.process.finish)
		s.check(t, s.wait(), false, "TERM at 1s", "KILL at 6s", "KILL at 6.005s", "KILL at 6.01s")
	})
}

// A process that cannot be killed keeps the lock until a signal ends the wait.
// dlock reports this once.
func TestSuperviseKeepsTheLockForStuckProcesses(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := supervise()
		s.process.group, s.process.kills = true, math.MaxInt
		time.AfterFunc(time.Second, s.process.finish)
		time.AfterFunc(12*time.Second, func() { s.signals <- syscall.SIGWINCH })
		time.AfterFunc(20*time.Second, func() { s.signals <- syscall.SIGTERM })
		err := s.wait()
		if !errors.Is(err, errStuck) || s.interrupt != syscall.SIGTERM || s.stuck != 1 {
			t.Errorf("wait returned %v, and onStuck was called %d times", err, s.stuck)
		}
		if took := time.Since(s.process.start); took < 20*time.Second || took > 22*time.Second {
			t.Errorf("wait took %v", took)
		}
	})
}

// A signal ends the grace of processes that were left behind, and wait records the signal.
func TestSuperviseIsInterrupted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := supervise()
		s.process.group = true
		time.AfterFunc(time.Second, s.process.finish)
		time.AfterFunc(2*time.Second, func() { s.signals <- syscall.SIGINT })
		s.check(t, s.wait(), false, "TERM at 1s", "KILL at 2s")
		if s.interrupt != syscall.SIGINT {
			t.Errorf("the recorded signal is %v, want SIGINT", s.interrupt)
		}
	})
}

// A signal does not end the wait for processes that get SIGKILL: they must
// not meet the next holder.
func TestSuperviseIsNotInterruptedWhileItKills(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := supervise()
		s.process.tough, s.process.group, s.process.kills = true, true, 20
		time.AfterFunc(time.Second, s.lease.lose)
		time.AfterFunc(6*time.Second+20*time.Millisecond, func() { s.signals <- syscall.SIGTERM })
		err := s.wait()
		if !errors.Is(err, dlock.ErrLost) || errors.Is(err, errStuck) || s.process.Alive() {
			t.Errorf("wait returned %v; a process is left: %v", err, s.process.Alive())
		}
	})
}

// A job that the guard ended at its deadline counts as lost, although the lease has not ended yet.
func TestSuperviseLateJob(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := supervise()
		s.process.overdue = true
		time.AfterFunc(time.Second, s.process.finish)
		s.check(t, s.wait(), true, "TERM at 1s")
	})
}

// Processes that were left behind have no more time than the lease.
func TestSuperviseEndsLeftProcessesInTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := supervise()
		s.process.group = true
		s.keep = true // so that the command may run to the end of the lease
		time.AfterFunc(27*time.Second, s.process.finish)
		s.check(t, s.wait(), false, "TERM at 27s", "KILL at 29.75s")
	})
}

func TestSuperviseLeavesProcesses(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := supervise()
		s.process.group, s.leave = true, true
		time.AfterFunc(time.Second, s.process.finish)
		s.check(t, s.wait(), false)
	})
}

// If the guard is killed, its job ends before the lock is free, also if processes that the command
// leaves behind may go on.
func TestSuperviseEndsTheJobOfAKilledGuard(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := supervise()
		s.process.group, s.process.orphan, s.leave = true, true, true
		time.AfterFunc(time.Second, s.process.finish)
		s.check(t, s.wait(), false, "TERM at 1s", "KILL at 6s")
	})
}

// The guard receives each new end of the lease, and none if a loss does not end the command.
func TestSuperviseUpdatesTheGuard(t *testing.T) {
	t.Parallel()
	for keep, want := range map[bool][]time.Duration{
		false: {40*time.Second - headroom/2},
		true:  nil,
	} {
		synctest.Test(t, func(t *testing.T) {
			s := supervise()
			s.keep = keep
			time.AfterFunc(10*time.Second, func() {
				s.lease.renew(30 * time.Second)
				s.renewed <- struct{}{}
			})
			time.AfterFunc(11*time.Second, s.process.finish)
			s.check(t, s.wait(), false)
			if !slices.Equal(s.process.guards, want) {
				t.Errorf("keep %v: the guard received %v, want %v", keep, s.process.guards, want)
			}
		})
	}
}

func TestSuperviseBrokenLock(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := supervise()
		s.process.tough = true
		time.AfterFunc(2*time.Second, s.lease.lose)
		s.check(t, s.wait(), true, "TERM at 2s", "KILL at 7s")
	})
}

// After a stop the lease may be over. The command then receives neither SIGTERM, which would
// continue it, nor the signal that continued dlock.
func TestSuperviseWakesTooLate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := supervise()
		s.process.tough = true
		s.lease.renew(0)
		s.signals <- syscall.SIGTERM
		s.check(t, s.wait(), true, "KILL at 0s")
	})
}

// A signal that comes before dlock has seen the loss of its lock is not dropped: otherwise dlock
// elect would stand again.
func TestSuperviseSignalAfterALoss(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := supervise()
		s.lease.err = dlock.ErrLost
		s.signals <- syscall.SIGTERM
		s.check(t, s.wait(), true, "TERM at 0s")
		if s.interrupt != syscall.SIGTERM {
			t.Errorf("the signal for dlock is %v, want SIGTERM", s.interrupt)
		}
	})
}

// The same with --on-lost continue: the signal may be the SIGCONT after a stop.
func TestSuperviseContinuesAKeptCommand(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := supervise()
		s.keep = true
		s.lease.renew(0)
		s.signals <- syscall.SIGCONT
		time.AfterFunc(time.Second, s.process.finish)
		s.check(t, s.wait(), true, "continued at 0s")
	})
}

// A wall clock that is set back by an hour gives a command no more time. One that is set forward
// takes nothing from it.
func TestSuperviseClockThatIsSet(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name  string
		step  time.Duration // of the wall clock
		ttl   time.Duration
		isEnd bool // of the lease, during the test
	}{
		{"back", -time.Hour, time.Second, true},
		{"forward", time.Hour, 10 * time.Minute, false},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			s := supervise()
			s.grace, s.headroom = 10*time.Millisecond, 10*time.Millisecond
			s.process.tough = row.isEnd
			s.lease.renew(row.ttl)
			s.lease.setWallClock(row.step)
			ended := make(chan error, 1)
			go func() { ended <- s.wait() }()
			if !row.isEnd {
				time.AfterFunc(time.Second, s.process.finish)
			}
			select {
			case err := <-ended:
				isLost := errors.Is(err, dlock.ErrLost)
				if isLost != row.isEnd || err != nil && !isLost || s.process.Alive() {
					t.Errorf("wait returned %v; the command runs: %v", err, s.process.Alive())
				}
			case <-time.After(30 * time.Second):
				s.process.finish()
				t.Errorf("the command goes on after the deadline; in the end: %v", <-ended)
			}
		})
	}
}

func TestSuperviseForwards(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := supervise()
		time.AfterFunc(time.Second, func() { s.signals <- syscall.SIGTERM })
		time.AfterFunc(2*time.Second, s.process.finish)
		s.check(t, s.wait(), false, "terminated at 1s")
	})
}

// A signal that comes before wait notices the end of the command ends dlock.
func TestSuperviseSignalAfterTheEnd(t *testing.T) {
	t.Parallel()
	s := supervise()
	s.process.finish()
	s.forward(syscall.SIGTERM)
	s.check(t, s.wait(), false)
	if s.interrupt != syscall.SIGTERM {
		t.Errorf("the signal that ends dlock is %v, want SIGTERM", s.interrupt)
	}
}

func TestSuperviseKeepsCommandAfterLoss(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := supervise()
		s.keep = true
		time.AfterFunc(2*time.Second, s.lease.lose)
		time.AfterFunc(3*time.Second, func() { s.signals <- syscall.SIGHUP })
		time.AfterFunc(time.Minute, s.process.finish)
		s.check(t, s.wait(), true, "hangup at 3s")
		if s.forwarded != syscall.SIGHUP {
			t.Errorf("the signal that asked the command to end: %v, want SIGHUP", s.forwarded)
		}
		if took := time.Since(s.process.start); took != time.Minute {
			t.Errorf("the command was given %v, want a minute", took)
		}
	})
}

// A short term must not end before its first renewal, which is due after a third of the term. A
// short maximum hold must leave the command most of its time.
func TestDefaultGraceLeavesTime(t *testing.T) {
	t.Parallel()
	tests := []struct{ ttl, maxHold, grace, headroom time.Duration }{
		{30 * time.Second, 0, 5 * time.Second, 250 * time.Millisecond},
		{time.Hour, 0, 5 * time.Second, 250 * time.Millisecond},
		{9 * time.Second, 0, 3 * time.Second, 250 * time.Millisecond},
		{time.Second, 0, time.Second / 3, time.Second / 8},
		{100 * time.Millisecond, 0, 100 * time.Millisecond / 3, 100 * time.Millisecond / 8},
		{30 * time.Second, 3 * time.Second, time.Second, 250 * time.Millisecond},
		{30 * time.Second, time.Hour, 5 * time.Second, 250 * time.Millisecond},
	}
	for _, tt := range tests {
		f := &lockFlags{}
		f.register(pflag.NewFlagSet("", pflag.ContinueOnError))
		f.ttl, f.maxHold = tt.ttl, tt.maxHold
		if err := f.settleGrace(); err != nil || f.grace != tt.grace || f.headroom != tt.headroom {
			t.Errorf("TTL %v, maximum hold %v: grace %v, headroom %v, %v",
				tt.ttl, tt.maxHold, f.grace, f.headroom, err)
		}
		margin := tt.ttl/100 + 10*time.Millisecond // as in the library
		if late := tt.ttl - margin - f.grace - f.headroom; late <= tt.ttl/3+tt.ttl/20 {
			t.Errorf("TTL %v: the command would end after %v, its renewal comes after %v",
				tt.ttl, late, tt.ttl/3)
		}
	}
}

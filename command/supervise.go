package command

import (
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/dlock-go/dlock"
)

const (
	// headroom is how long before the end of the lease the command must be gone; an
	// eighth of a term under 2 s, which would otherwise end before its renewal.
	headroom = 250 * time.Millisecond
	// lookInterval is how often a group that is to end is looked at: nothing
	// tells when the last of its processes has ended.
	lookInterval = 5 * time.Millisecond
	// killWait is how long a killed group may take to vanish from the process table.
	killWait = time.Second
)

// errLate is a loss that is certain to come: it ends the command before.
var errLate = fmt.Errorf("%w: not renewed in time, or its maximum hold is over", dlock.ErrLost)

// lease is what supervision needs of a *dlock.Lease.
type lease interface {
	Lost() <-chan struct{}
	Err() error
	Deadline() time.Time
}

// process is what supervision needs of a *job.
type process interface {
	changed() <-chan os.Signal // delivers when ended may have another answer
	ended() bool               // the command itself has ended
	alive() bool               // the command, or something that it has started, has not
	forward(sig os.Signal)
	terminate()
	kill()
	until(end time.Time) // by when the job must have ended, whatever happens to dlock
}

// supervisor keeps a command within its lease. It asks nobody at intervals: it
// sleeps until the moment at which the command would have to end, and looks there
// whether a renewal has moved it.
type supervisor struct {
	lease    lease
	process  process
	signals  <-chan os.Signal
	renewed  <-chan struct{} // delivers after a renewal
	grace    time.Duration   // between asking the command to end and killing it
	headroom time.Duration
	keep     bool        // a loss does not end the command
	leave    bool        // what the command leaves behind goes on
	onLoss   func(error) // told of a loss when the command was told
	onRest   func()      // told that something was left behind, when that was told to end
}

// wait returns when the command has ended: nil within its lease, else what
// ended the lease. Only with keep may the command have outlived it, and only with leave
// what it has started.
func (s *supervisor) wait() error {
	timer := time.NewTimer(s.untilLate())
	defer timer.Stop()
	if s.keep {
		timer.Stop()
	}
	s.guard()
	for {
		select {
		case <-s.process.changed():
			if !s.process.ended() {
				continue
			}
			if err := s.lease.Err(); err != nil {
				return s.lost(err)
			}
			return s.clear()
		case <-s.lease.Lost():
			return s.lost(s.lease.Err())
		case <-s.renewed:
			s.guard()
		case <-timer.C:
			late := s.untilLate()
			if late <= 0 {
				return s.lost(errLate)
			}
			timer.Reset(late)
		case sig := <-s.signals:
			// It may be the one that woke us: the lease comes before the command.
			if err := s.lease.Err(); err != nil {
				return s.lost(err)
			}
			s.process.forward(sig)
		}
	}
}

// guard sees to it that the job ends with its lease also where dlock is stopped.
func (s *supervisor) guard() {
	if !s.keep {
		s.process.until(s.lease.Deadline().Add(-s.headroom / 2))
	}
}

// untilLate is how long the command may go on without a renewal.
func (s *supervisor) untilLate() time.Duration {
	return time.Until(s.lease.Deadline()) - s.grace - s.headroom
}

// lost ends the command, unless it is to be kept.
func (s *supervisor) lost(cause error) error {
	if s.keep {
		s.onLoss(cause)
		s.outlive()
		return cause
	}
	if !s.end(s.killAt(cause), func() { s.onLoss(cause) }) {
		return fmt.Errorf("%w; something of the command is still there after SIGKILL", cause)
	}
	return cause
}

// clear ends what the command has left behind, before the lock is freed. The lock is kept for
// as long as something is left.
func (s *supervisor) clear() error {
	if s.leave || !s.process.alive() {
		return nil
	}
	cleared := s.end(s.killAt(nil), s.onRest)
	for ; !cleared; cleared = s.gone(time.Now().Add(killWait)) {
		if err := s.lease.Err(); err != nil {
			return s.lost(err)
		}
	}
	return nil
}

// end asks everything of the job to end, kills it at a time, and reports whether it has ended.
// Where no time is left nothing is asked: what was stopped must not run once more. Messages come
// after the signals.
func (s *supervisor) end(killAt time.Time, told func()) bool {
	if time.Now().Before(killAt) {
		s.process.terminate()
		told()
		if s.gone(killAt) {
			return true
		}
		s.process.kill()
	} else {
		s.process.kill()
		told()
	}
	return s.gone(time.Now().Add(killWait))
}

// killAt is when a command that was asked to end has had its time: before the end of the lease. A
// lease that was taken away is gone already, which leaves the whole grace and nothing to keep; one
// that is past its deadline, as after a stop, leaves nothing at all.
func (s *supervisor) killAt(cause error) time.Time {
	end, grace := s.lease.Deadline().Add(-s.headroom), time.Now().Add(s.grace)
	switch {
	case errors.Is(cause, errLate) || !time.Now().Before(end) || cause == nil && end.Before(grace):
		return end
	}
	return grace
}

// gone waits until nothing is left of the command, at most until limit. Signals
// wait as well: the command has been told to end.
func (s *supervisor) gone(limit time.Time) bool {
	end := time.NewTimer(time.Until(limit))
	defer end.Stop()
	look := time.NewTicker(lookInterval)
	defer look.Stop()
	for s.process.alive() {
		select {
		case <-s.process.changed():
		case <-look.C:
		case <-end.C:
			return !s.process.alive()
		}
	}
	return true
}

// outlive waits for a command that goes on without its lease.
func (s *supervisor) outlive() {
	for !s.process.ended() {
		select {
		case <-s.process.changed():
		case sig := <-s.signals:
			s.process.forward(sig)
		}
	}
}

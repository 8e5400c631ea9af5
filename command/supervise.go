package command

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/command/internal/guard"
)

const (
	// headroom is how long before the end of the lease the command must have ended.
	// For a term under 2 s it is an eighth of the term, because the command would
	// otherwise end before the renewal.
	headroom = 250 * time.Millisecond
	// killWait is how long a killed group may stay in the process table.
	killWait = time.Second
)

// errLate is a loss that is certain to come. dlock ends the command before it comes.
var errLate = fmt.Errorf("%w: not renewed in time, or its maximum hold is over", dlock.ErrLost)

// lease has the methods of a *dlock.Lease that supervision needs.
type lease interface {
	Lost() <-chan struct{}
	Err() error
	Deadline() time.Time
}

// process has the methods of a *guard.Guard that supervision needs.
type process interface {
	Changed() <-chan os.Signal // delivers when the result of Ended may have changed
	Ended() bool               // the command itself has ended
	Alive() bool               // a process of the job is left
	Late() bool                // the guard ended the job at its deadline
	Abandoned() bool           // the guard was killed before the command had ended
	Forward(sig os.Signal)
	Terminate()
	Kill()
	Until(end time.Time) // when the job must have ended, whatever happens to dlock
}

// supervisor keeps a command within its lease. It does not poll the lease. It sleeps until the
// command would have to end, and then checks whether a renewal has moved that time.
type supervisor struct {
	lease    lease
	process  process
	signals  <-chan os.Signal
	renewed  <-chan struct{} // delivers after a renewal
	grace    time.Duration   // between SIGTERM and SIGKILL
	headroom time.Duration
	keep     bool        // a loss does not end the command
	leave    bool        // processes that the command leaves behind go on
	onLoss   func(error) // called after a loss, when the job has received its signals
	onRest   func()      // called when the processes left behind have received SIGTERM
	onStuck  func()      // called when a process survives SIGKILL, and the lock is kept

	interrupt os.Signal // a signal that came when the command had ended, or nil
	forwarded os.Signal // the last of guard.Interrupts that the command has received, or nil
}

// wait returns when the command has ended: nil if it ended within its lease, and otherwise the
// error that ended the lease. The command can outlive its lease only with keep, and its other
// processes only with leave.
func (s *supervisor) wait() error {
	timer := time.NewTimer(s.untilLate())
	defer timer.Stop()
	if s.keep {
		timer.Stop()
	}
	for {
		select {
		case <-s.process.Changed():
			if !s.process.Ended() {
				continue
			}
			if err := s.lease.Err(); err != nil {
				return s.lost(err)
			}
			if s.process.Late() {
				return s.lost(errLate)
			}
			return s.clear()
		case <-s.lease.Lost():
			return s.lost(s.lease.Err())
		case <-s.renewed:
			if !s.keep {
				s.process.Until(jobEnd(s.lease, s.headroom))
			}
		case <-timer.C:
			late := s.untilLate()
			if late <= 0 {
				return s.lost(errLate)
			}
			timer.Reset(late)
		case sig := <-s.signals:
			// The signal may have continued dlock after a stop, so check the lease before the
			// command receives it. Then the signal is for dlock alone.
			err := s.lease.Err()
			switch {
			case err == nil || s.keep:
				s.forward(sig)
			case slices.Contains(guard.Interrupts, sig):
				s.interrupt = sig
			}
			if err != nil {
				return s.lost(err)
			}
		}
	}
}

// forward passes a signal to the command. If the command has ended, the signal is for dlock.
func (s *supervisor) forward(sig os.Signal) {
	isInterrupt := slices.Contains(guard.Interrupts, sig)
	switch {
	case isInterrupt && s.process.Ended():
		s.interrupt = sig
		return
	case isInterrupt:
		s.forwarded = sig
	}
	s.process.Forward(sig)
}

// jobEnd returns the time at which the guard ends the job if dlock cannot. It is later than the
// time at which dlock ends the job.
func jobEnd(l lease, headroom time.Duration) time.Time { return l.Deadline().Add(-headroom / 2) }

// untilLate returns how long the command may go on without a renewal.
func (s *supervisor) untilLate() time.Duration {
	return time.Until(s.lease.Deadline()) - s.grace - s.headroom
}

// lost ends the command because of cause, and returns the cause. With keep it
// waits for the command instead.
func (s *supervisor) lost(cause error) error {
	if s.keep {
		s.onLoss(cause)
		s.outlive()
		return cause
	}
	if !s.end(s.killAt(cause), func() { s.onLoss(cause) }) {
		return fmt.Errorf("%w; %w", cause, errStuck)
	}
	return cause
}

// errStuck is the error of a job with a process that cannot be killed, such as a
// process of another user.
var errStuck = errors.New("a process of the command is still there after SIGKILL")

// clear ends the processes that the command has left behind, before the lock is released. The lock
// is kept while a process is left, unless a signal ends the wait.
func (s *supervisor) clear() error {
	// If the guard was killed, these processes are the command's own, and not left by it.
	if s.leave && !s.process.Abandoned() || !s.process.Alive() {
		return nil
	}
	if s.end(s.killAt(nil), s.onRest) {
		return nil
	}
	s.onStuck()
	for !s.gone(time.Now().Add(killWait), s.process.Kill) {
		if err := s.lease.Err(); err != nil {
			return s.lost(err)
		}
		if s.interrupt != nil {
			return errStuck
		}
	}
	return nil
}

// end sends SIGTERM to the job, and SIGKILL at killAt, and reports whether all of the job has
// ended. If killAt has passed, end sends SIGKILL at once: a job that was stopped must not run
// again. Messages are written after the signals.
func (s *supervisor) end(killAt time.Time, told func()) bool {
	if time.Now().Before(killAt) {
		s.process.Terminate()
		told()
		if s.gone(killAt, nil) {
			return true
		}
		s.process.Kill() // killAt has come, or a signal has ended the grace
	} else {
		s.process.Kill()
		told()
	}
	return s.gone(time.Now().Add(killWait), s.process.Kill)
}

// killAt returns the time for SIGKILL: the end of the grace, or the end of the lease less
// the headroom if that is earlier. If the lease was taken away, there is no lease to
// keep, and the job has its whole grace. If the lease is past its deadline, as after a
// stop, the job has no time at all.
func (s *supervisor) killAt(cause error) time.Time {
	end, grace := s.lease.Deadline().Add(-s.headroom), time.Now().Add(s.grace)
	switch {
	case errors.Is(cause, errLate) || !time.Now().Before(end) || cause == nil && end.Before(grace):
		return end
	}
	return grace
}

// gone waits until no process of the job is left, at most until limit, and reports whether that is
// so. While a process is left it calls again, because a process may have started another one before
// it was killed. If again is nil, a signal ends the wait, too.
func (s *supervisor) gone(limit time.Time, again func()) bool {
	end := time.NewTimer(time.Until(limit))
	defer end.Stop()
	look := time.NewTicker(guard.LookInterval)
	defer look.Stop()
	for s.process.Alive() {
		select {
		case <-s.process.Changed():
		case <-look.C:
			if again != nil {
				again()
			}
		case sig := <-s.signals:
			if slices.Contains(guard.Interrupts, sig) {
				s.interrupt = sig
				if again == nil { // else the job is being killed, and no process may be left
					return false
				}
			}
		case <-end.C:
			return !s.process.Alive()
		}
	}
	return true
}

// outlive waits for a command that goes on without its lease.
func (s *supervisor) outlive() {
	for !s.process.Ended() {
		select {
		case <-s.process.Changed():
		case sig := <-s.signals:
			s.forward(sig)
		}
	}
}

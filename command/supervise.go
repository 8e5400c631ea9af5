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

// process is what supervision needs of a *child.
type process interface {
	Done() <-chan struct{} // the command itself
	alive() bool           // the command or one of its group
	forward(sig os.Signal)
	terminate()
	kill()
}

// supervisor keeps a command within its lease. It asks nobody at intervals: it
// sleeps until the moment at which the command would have to end, and looks there
// whether a renewal has moved it.
type supervisor struct {
	lease    lease
	process  process
	signals  <-chan os.Signal
	grace    time.Duration // between asking the command to end and killing it
	headroom time.Duration
	keep     bool        // a loss does not end the command
	onLoss   func(error) // told of a loss before the command is ended
}

// wait returns when the command has ended: nil within its lease, else what
// ended the lease. Only with keep may the command have outlived it.
func (s *supervisor) wait() error {
	timer := time.NewTimer(s.untilLate())
	defer timer.Stop()
	if s.keep {
		timer.Stop()
	}
	for {
		select {
		case <-s.process.Done():
			if err := s.lease.Err(); err != nil {
				return s.lost(err)
			}
			return nil
		case <-s.lease.Lost():
			return s.lost(s.lease.Err())
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

// untilLate is how long the command may go on without a renewal.
func (s *supervisor) untilLate() time.Duration {
	return time.Until(s.lease.Deadline()) - s.grace - s.headroom
}

// lost ends the command, unless it is to be kept.
func (s *supervisor) lost(cause error) error {
	s.onLoss(cause)
	if s.keep {
		s.outlive()
		return cause
	}
	latest := s.killAt(cause)
	s.process.terminate()
	if s.gone(latest) {
		return cause
	}
	s.process.kill()
	if !s.gone(time.Now().Add(killWait)) {
		return fmt.Errorf("%w; something of the command is still there after SIGKILL", cause)
	}
	return cause
}

// killAt is when a command that was asked to end has had its time. A lease that
// cannot be renewed is good until its deadline. One that was taken away is
// gone already, which leaves the whole grace and nothing to keep; one that is
// past its deadline, as after a stop, leaves nothing at all.
func (s *supervisor) killAt(cause error) time.Time {
	end := s.lease.Deadline().Add(-s.headroom)
	if errors.Is(cause, errLate) || !time.Now().Before(end) {
		return end
	}
	return time.Now().Add(s.grace)
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
		case <-look.C:
		case <-end.C:
			return !s.process.alive()
		}
	}
	return true
}

// outlive waits for a command that goes on without its lease.
func (s *supervisor) outlive() {
	for {
		select {
		case <-s.process.Done():
			return
		case sig := <-s.signals:
			s.process.forward(sig)
		}
	}
}

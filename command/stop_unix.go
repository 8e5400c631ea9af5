//go:build unix

package command

import (
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"

	"github.com/dlock-go/dlock/command/internal/guard"
)

// stops are the signals of a terminal that stop a process.
var stops = []os.Signal{syscall.SIGTSTP, syscall.SIGTTIN, syscall.SIGTTOU}

// stopper stops dlock by the signals of its terminal while no job runs. While a job runs, the guard
// decides about a stop. Before the first job the system stops dlock. Afterwards it never does:
// package os/signal cannot restore the default of a signal after Notify. A write from the
// background would then be repeated without end.
type stopper struct {
	signals   chan os.Signal // nil before the first job
	continued chan os.Signal // delivers SIGCONT
	hasJob    atomic.Bool
}

// pause is called before a job starts.
func (s *stopper) pause() { s.hasJob.Store(true) }

// resume is called after a job. It requests the signals after each job, because the terminal is
// taken back from a job with SIGTTOU ignored, which ends an earlier request.
func (s *stopper) resume() {
	if s.signals == nil {
		s.signals, s.continued = make(chan os.Signal, len(stops)), make(chan os.Signal, 1)
		signal.Notify(s.continued, syscall.SIGCONT)
		go s.run() // until dlock ends
	}
	s.hasJob.Store(false)
	signal.Notify(s.signals, stops...)
}

func (s *stopper) run() {
	for sig := range s.signals {
		if !s.hasJob.Load() && mayStop(sig) {
			s.stop()
		}
	}
}

// mayStop reports whether dlock should obey a signal of its terminal. A key can reach an orphaned
// group, which no shell could continue; the system sends the other signals to no such group. A
// write from the background sends many SIGTTOU, and some arrive after the stop and fg.
func mayStop(sig os.Signal) bool {
	if sig == syscall.SIGTSTP {
		return !guard.IsOrphaned()
	}
	return !guard.IsForeground()
}

// stop stops dlock, and returns when dlock has been continued. The system may carry out a SIGSTOP
// after the call of Kill.
func (s *stopper) stop() {
	for len(s.continued) > 0 {
		<-s.continued // of an earlier stop
	}
	_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP)
	<-s.continued
}

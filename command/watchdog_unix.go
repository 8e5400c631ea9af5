//go:build unix

package command

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
)

const (
	// watchdogCommand is the hidden command that runs the process.
	watchdogCommand = "watchdog"
	// jobVariable is in the environment of the command, and of all that it starts.
	jobVariable = "DLOCK_JOB"
	// endWait is how long the watchdog goes on killing.
	endWait = 10 * time.Second
	// endless is the time that an unset timer has.
	endless = time.Duration(math.MaxInt64)
)

// watchdog is a process that ends the job when dlock cannot: because dlock was killed, or because
// it is stopped until the lease is over. dlock tells it on a pipe what to guard and until when.
// A nil *watchdog guards nothing.
type watchdog struct {
	cmd  *exec.Cmd
	pipe *os.File
}

// startWatchdog starts the process. It returns as soon as the system has: the process is ready
// some milliseconds later, and reads then what was written before.
func startWatchdog(env []string, job string) (*watchdog, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	orders, pipe, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer orders.Close()
	cmd := exec.Command(program, watchdogCommand, job)
	cmd.Env, cmd.Stdin, cmd.Dir = env, orders, "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // out of the terminal's reach
	if err := cmd.Start(); err != nil {
		_ = pipe.Close()
		return nil, err
	}
	return &watchdog{cmd: cmd, pipe: pipe}, nil
}

// pid returns 0 if there is no process.
func (w *watchdog) pid() int {
	if w == nil {
		return 0
	}
	return w.cmd.Process.Pid
}

// guard names the group of the command.
func (w *watchdog) guard(group int) { w.order("guard %d", group) }

// until says when the job must have ended.
func (w *watchdog) until(end time.Time) {
	w.order("until %d", uptime()+time.Until(end))
}

// close ends the watchdog and leaves the job alone.
func (w *watchdog) close() {
	if w == nil {
		return
	}
	w.order("done")
	_ = w.pipe.Close()
}

// order does not wait for a watchdog that does not read. One that has ended has done its work.
func (w *watchdog) order(format string, args ...any) {
	if w == nil {
		return
	}
	_ = w.pipe.SetWriteDeadline(time.Now().Add(time.Millisecond))
	_, _ = fmt.Fprintf(w.pipe, format+"\n", args...)
}

// watchdogs are the commands that the watchdog's process needs.
func watchdogs(a *app) []*cobra.Command {
	return []*cobra.Command{{
		Use:    watchdogCommand + " JOB",
		Short:  "End a job whose dlock cannot end it",
		Hidden: true,
		Args:   exactly("JOB"),
		RunE: func(_ *cobra.Command, args []string) error {
			signal.Ignore(interrupts...) // the end of dlock ends the watchdog
			(&guard{job: args[0]}).watch(a.stdin)
			return nil
		},
	}}
}

// guard is what the process of a watchdog knows.
type guard struct {
	job   string
	group int // 0: not known yet
}

// watch returns when dlock says that the job is done, or when the job was ended.
func (g *guard) watch(orders io.Reader) {
	lines := make(chan string)
	go func() { // until the process ends
		defer close(lines)
		for scanner := bufio.NewScanner(orders); scanner.Scan(); {
			lines <- scanner.Text()
		}
	}()
	late := time.NewTimer(endless)
	defer late.Stop()
	for {
		select {
		case <-late.C:
			g.end()
			return
		case line, ok := <-lines:
			word, value, _ := strings.Cut(line, " ")
			switch word {
			case "guard":
				_, _ = fmt.Sscan(value, &g.group)
			case "until":
				var end time.Duration
				_, _ = fmt.Sscan(value, &end)
				late.Reset(end - uptime())
			case "done":
				return
			}
			if !ok { // dlock was killed
				g.end()
				return
			}
		}
	}
}

// end kills the job until nothing of it is left.
func (g *guard) end() {
	look := time.NewTicker(lookInterval)
	defer look.Stop()
	for limit := time.Now().Add(endWait); g.kill() && time.Now().Before(limit); <-look.C {
		continue
	}
}

// kill reports whether there was something to kill.
func (g *guard) kill() (found bool) {
	if g.group != 0 {
		found = !errors.Is(syscall.Kill(-g.group, syscall.SIGKILL), syscall.ESRCH)
	}
	for _, pid := range bearing(jobVariable + "=" + g.job) {
		found = true
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	return found
}

// clock returns 0 if the system has no such clock: the watchdog then ends the job too late.
func clock(id int32) time.Duration {
	var now unix.Timespec
	_ = unix.ClockGettime(id, &now)
	return time.Duration(now.Nano())
}

//go:build linux

package command

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/dlock-go/dlock/internal/testenv"
)

// shellRow is a script with jobs in it, which a shell runs on a terminal. "$@" in it is a
// program that holds a lock while a command runs, but for the command. The script is run with
// dlock, and with flock(1) for a proof that the row asks for what is usual.
type shellRow struct {
	name   string
	script string
	talk   func(p *dlockProcess) // what is typed and shown
	code   int                   // of the shell
	flock  string                // how flock differs; "" if it does not
}

var shellRows = []shellRow{
	{
		name:   "a key ends the command and the loop around it",
		script: `while :; do "$@" sed -u s/on/ready/; echo again; done`, // no shell: dash can miss a signal while it forks
		talk: func(p *dlockProcess) {
			p.keys("on\n")
			p.shows("ready")
			p.keys(ctrlC)
		},
		code: exitSignal + int(syscall.SIGINT),
	},
	{
		name:   "a command that handles the key goes on, and so does the script",
		script: `trap : INT; "$@" sh -c 'trap "echo handled; exit 3" INT; echo in; while :; do sleep 0.1; done'; echo code $?`,
		talk: func(p *dlockProcess) {
			p.shows("in")
			p.keys(ctrlC)
			p.shows("handled")
			p.shows("code 3")
		},
		flock: "the key ends flock itself",
	},
	{
		name:   "a key stops the command, fg continues it",
		script: `set -m; "$@" sh -c 'echo in; read line; echo got $line'; echo stopped; read line; fg; echo code $?`,
		talk: func(p *dlockProcess) {
			p.shows("in")
			p.keys(ctrlZ)
			p.shows("stopped")
			p.keys("\n")
			p.shows("sh -c") // what fg shows
			p.keys("on\n")
			p.shows("got on")
			p.shows("code 0")
		},
	},
	{
		name:   "the same with a pipe on standard input",
		script: `set -m; echo data | "$@" sh -c 'read data; echo in $data; read line </dev/tty; echo got $line'; echo stopped; read line; fg; echo code $?`,
		talk: func(p *dlockProcess) {
			p.shows("in data")
			p.keys(ctrlZ)
			p.shows("stopped")
			p.keys("\n")
			p.shows("sh -c")
			p.keys("on\n")
			p.shows("got on")
			p.shows("code 0")
		},
	},
	{
		name:   "a command with a pipe on standard input asks on the terminal",
		script: `echo data | "$@" sh -c 'read data; stty -echo </dev/tty; echo password of $data; read word </dev/tty; stty echo </dev/tty; echo got $word'; echo code $?; read line; echo end $line`,
		talk: func(p *dlockProcess) {
			p.shows("password of data")
			p.keys("secret\n")
			p.shows("got secret")
			p.shows("code 0")
			p.keys("here\n")
			p.shows("end here") // the script has the terminal again
		},
	},
	{
		name:   "a pager behind a pipe reads keys",
		script: `set -m; "$@" sh -c 'echo text; sleep 1' | sh -c 'read text; stty -echo </dev/tty; echo page $text; read key </dev/tty; stty echo </dev/tty; echo key $key'; echo end`,
		talk: func(p *dlockProcess) {
			p.shows("page text")
			p.keys("q\n")
			p.shows("key q")
			p.shows("end")
		},
	},
	{
		name:   "a pager behind a pipe in an orphaned group",
		script: `"$@" sh -c 'echo text; sleep 1' | sh -c 'read text; stty -echo </dev/tty; echo page $text; read key </dev/tty; stty echo </dev/tty; echo key $key'; echo end`,
		talk: func(p *dlockProcess) {
			p.shows("page text")
			p.keys("q\n")
			p.shows("key q")
			p.shows("end")
		},
	},
	{
		name: "the command is in the foreground",
		script: `"$@" sh -c 'read pid name state parent group session tty front rest </proc/$$/stat
[ "$group" = "$front" ] && echo front'`,
		talk: func(p *dlockProcess) { p.shows("front") },
	},
	{
		name:   "a key stops nothing in an orphaned group",
		script: `"$@" sh -c 'echo in; read line; echo got $line'`,
		talk: func(p *dlockProcess) {
			p.shows("in")
			p.keys(ctrlZ)
			p.keys("on\n")
			p.shows("got on")
		},
	},
	{
		name:   "a command in the background waits for the terminal, and has it after fg",
		script: `set -m; "$@" sh -c 'echo in; read line </dev/tty; echo got $line' & sleep 0.5; echo now; read line; fg >/dev/null; echo code $?`,
		talk: func(p *dlockProcess) {
			p.shows("now")
			p.keys("\n")
			p.keys("on\n")
			p.shows("got on")
			p.shows("code 0")
		},
	},
}

func TestShells(t *testing.T) {
	t.Parallel()
	eachRow(t, func(*shellRow) *exec.Cmd { return dlockCommand(t.Context(), on(fileURL(t)), "run", "x", "--") })
}

// TestShellsWithFlock runs the same rows with flock(1), where DLOCK_TEST_FLOCK is set: it judges
// the rows, not dlock.
func TestShellsWithFlock(t *testing.T) {
	t.Parallel()
	flock, err := exec.LookPath("flock")
	if os.Getenv("DLOCK_TEST_FLOCK") == "" || err != nil {
		t.Logf("not wanted, or there is none: %v", err)
		return
	}
	eachRow(t, func(row *shellRow) *exec.Cmd {
		if row.flock != "" {
			return nil
		}
		return exec.CommandContext(t.Context(), flock, t.TempDir()+"/lock")
	})
}

// eachRow runs the rows under each shell with what holder returns, unless that is nil.
func eachRow(t *testing.T, holder func(*shellRow) *exec.Cmd) {
	t.Helper()
	for _, shell := range []string{"bash", "dash"} {
		path, err := exec.LookPath(shell)
		if err != nil {
			t.Logf("there is no %s", shell)
			continue
		}
		for _, row := range shellRows {
			if cmd := holder(&row); cmd != nil {
				t.Run(shell+"/"+row.name, func(t *testing.T) {
					t.Parallel()
					row.run(t, path, cmd)
				})
			}
		}
	}
}

func (row *shellRow) run(t *testing.T, shell string, holder *exec.Cmd) {
	t.Helper()
	keyboard, screen := newTerminal(t)
	holder.Path, holder.Args = shell, append([]string{shell, "-c", row.script, shell}, holder.Args...)
	p := launchOn(t, holder, keyboard, screen)
	row.talk(p)
	p.code(row.code)
}

// When the terminal goes away the command gets SIGHUP, and the lock is freed.
func TestTerminalGoesAway(t *testing.T) {
	t.Parallel()
	url := fileURL(t)
	p := onTerminal(t, url, "run", "x", "--", "sh", "-c", "echo in; while :; do sleep 0.1; done")
	p.shows("in")
	_ = p.input.Close()
	p.awaitEnd()
	if got := dlockRun(t, on(url), "try", "x", "--", "true"); got.code != 0 {
		t.Errorf("the lock is not free: %s", got.stderr)
	}
}

// On a terminal, too, everything that the command has started ends with a lost lock: what is in
// its group, and what has left it.
func TestLossEndsWhatLeftTheGroup(t *testing.T) {
	t.Parallel()
	url := fileURL(t)
	for name, start := range map[string]func(*testing.T, string, ...string) *dlockProcess{"terminal": onTerminal, "pipe": startDlock} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := start(t, url, "run", "--max-hold", "500ms", "lose "+name, "--", "sh", "-c", straying)
			pids := strayPids(t, p)
			p.code(exitLost)
			allGone(t, pids)
		})
	}
}

// straying starts processes that ignore SIGTERM: one in the group of the command, one that has
// forked twice, and one that has forked twice in a session of its own. Each writes its number.
const straying = `trap "" TERM HUP INT
loop='echo pid $$; while :; do sleep 0.1; done'
sh -c "$loop" &
(sh -c "$loop" &)
(setsid sh -c "$loop" &)
echo pid $$
while :; do sleep 0.1; done`

func strayPids(t *testing.T, p *dlockProcess) (pids []int) {
	t.Helper()
	for range 4 {
		var pid int
		if line := p.line(); strings.HasPrefix(line, "pid ") {
			if _, err := fmt.Sscanf(line, "pid %d", &pid); err != nil {
				t.Fatal(err)
			}
			pids = append(pids, pid)
		}
	}
	return pids
}

func allGone(t *testing.T, pids []int) {
	t.Helper()
	for _, pid := range pids {
		if err := syscall.Kill(pid, 0); err != syscall.ESRCH && stateOf(t, pid) != "Z" {
			t.Errorf("process %d is still there", pid)
		}
	}
}

// What the command leaves behind has ended when the lock is free, unless -o lets it go on.
func TestCommandLeavesProcesses(t *testing.T) {
	t.Parallel()
	const leaving = `(trap "" TERM; setsid sh -c 'echo pid $$; exec sleep 1000' & ); exit 4`
	for flag, gone := range map[string]bool{"-v": true, "-o": false} {
		t.Run(flag, func(t *testing.T) {
			t.Parallel()
			p := startDlock(t, fileURL(t), "run", "--grace", "0.2s", flag, "x", "--", "sh", "-c", leaving)
			var pid int
			if _, err := fmt.Sscanf(p.line(), "pid %d", &pid); err != nil {
				t.Fatal(err)
			}
			p.code(4)
			if err := syscall.Kill(pid, syscall.SIGKILL); (err == syscall.ESRCH) != gone {
				t.Errorf("signalling what was left behind: %v", err)
			}
		})
	}
}

// killable are backends whose locks end differently when their holder is killed.
func killable(t *testing.T) map[string]string {
	t.Helper()
	return map[string]string{"file": fileURL(t), "redis": testenv.Redis(t).URL, "etcd": testenv.Etcd(t).URL}
}

// A dlock that is killed takes all of its job with it, before the next holder has the lock.
func TestKilledDlockTakesItsJob(t *testing.T) {
	t.Parallel()
	for name, url := range killable(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			lock := nameFor(t)
			p := startDlock(t, url, "run", "--ttl", "3s", lock, "--", "sh", "-c", straying)
			pids := strayPids(t, p)
			next := startDlock(t, url, "run", "-v", "--ttl", "3s", lock, "--", "sh", "-c",
				fmt.Sprintf(`for pid in %s; do kill -0 $pid 2>&1 && grep State /proc/$pid/status; done; echo begun; read line`, strings.Trim(fmt.Sprint(pids), "[]")))
			next.noted("waiting")
			p.send(syscall.SIGKILL)
			for line := next.line(); line != "begun"; line = next.line() {
				if strings.HasPrefix(line, "State:") && !strings.Contains(line, "Z") {
					t.Errorf("a process of the killed dlock's job is there: %s", line)
				}
			}
			next.input.Close()
			next.awaitEnd()
		})
	}
}

// A file lock has no term: a job that is stopped for longer than the TTL goes on with its lock.
func TestStoppedBeyondTTL(t *testing.T) {
	t.Parallel()
	const ttl = time.Second
	url := fileURL(t)
	p := startDlock(t, url, "run", "--ttl", ttl.String(), "x", "--", "sh", "-c", `trap "" TERM; echo ready; read line; echo $line`)
	p.expect("ready")
	p.send(syscall.SIGTSTP)
	awaitStop(t, p.cmd.Process.Pid)
	time.Sleep(2 * ttl)
	if got := dlockRun(t, on(url), "try", "x", "--", "true"); got.code != exitNotAcquired {
		t.Errorf("while it is stopped: exit code %d: %s", got.code, got.stderr)
	}
	p.send(syscall.SIGCONT)
	if _, err := io.WriteString(p.input, "goes on\n"); err != nil {
		t.Fatal(err)
	}
	p.expect("goes on")
	p.code(0)
}

// A dlock that is stopped beyond its lease cannot end its command: the watchdog does.
func TestStoppedDlockLosesItsJob(t *testing.T) {
	t.Parallel()
	const ttl = time.Second
	server := testenv.Redis(t).URL
	name := nameFor(t)
	p := startDlock(t, server, "run", "--ttl", ttl.String(), name, "--", "sh", "-c", straying)
	pids := strayPids(t, p)
	next := startDlock(t, server, "run", "-v", name, "--", "echo", "in")
	next.noted("waiting")
	p.send(syscall.SIGSTOP)
	next.expect("in")
	allGone(t, pids)
	p.send(syscall.SIGCONT)
	p.code(exitLost)
	next.code(0)
}

// A dlock under the lock that it is to take fails at once, and its error names the holder.
func TestNestedDlockFails(t *testing.T) {
	t.Parallel()
	got := dlockRun(t, on(fileURL(t)), "run", "--meta", "outer", "x", "--", os.Args[0], "run", "x", "--", "true")
	if got.code != exitNotAcquired || !strings.Contains(got.stderr, "wait for itself") || !strings.Contains(got.stderr, "outer") {
		t.Errorf("exit code %d: %s", got.code, got.stderr)
	}
}

// A TTL that the server cannot keep is refused, with the most that it can.
func TestTTLAboveTheServersMost(t *testing.T) {
	t.Parallel()
	got := dlockRun(t, on(testenv.Memcached(t).URL), "run", "--ttl", "1000h", nameFor(t), "--", "true")
	if got.code != exitUnsupported || !strings.Contains(got.stderr, "719h59m58s") {
		t.Errorf("exit code %d: %s", got.code, got.stderr)
	}
}

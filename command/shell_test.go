//go:build linux

package command

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/dlock-go/dlock/internal/testenv"
)

// shellRow is a script with jobs, which a shell runs on a terminal. In the script, "$@" is a
// program that runs a command under a lock; the script adds the command. The tests run the script
// with dlock. They also run it with flock(1), to prove that the row expects usual behaviour.
type shellRow struct {
	name   string
	script string
	talk   func(p *dlockProcess) // types keys and waits for output
	code   int                   // of the shell
	flock  string                // how flock differs; "" if it does not
}

var shellRows = []shellRow{
	{
		name: "a key ends the command and the loop around it",
		// The command is no shell: dash can miss a signal while it forks.
		script: `while :; do "$@" sed -u s/on/ready/; echo again; done`,
		talk: func(p *dlockProcess) {
			p.keys("on\n")
			p.shows("ready")
			p.keys(ctrlC)
			p.ends("again")
		},
		code: exitSignal + int(syscall.SIGINT),
	},
	{
		name: "a key ends a wait for the lock and the loop around it",
		// The holder ignores the key, as the shell does for each command in the background.
		script: `"$@" sh -c 'echo taken; exec sleep 1000' & read line; ` +
			`while :; do "$@" true; echo again; done`,
		talk: func(p *dlockProcess) {
			p.shows("taken")
			p.keys("\n")
			p.waitsIn("lock_inode_wait")
			p.keys(ctrlC)
			p.ends("again")
		},
		code: exitSignal + int(syscall.SIGINT),
	},
	{
		name: "a command that handles the key goes on, and so does the script",
		script: `trap : INT; ` +
			`"$@" sh -c 'trap "echo handled; exit 3" INT; echo in; while :; do sleep 0.1; done'; ` +
			`echo code $?`,
		talk: func(p *dlockProcess) {
			p.shows("in")
			p.keys(ctrlC)
			p.shows("handled")
			p.shows("code 3")
		},
		flock: "the key ends flock itself",
	},
	{
		name: "a key stops the command, fg continues it",
		script: `set -m; "$@" sh -c 'echo in; read line; echo got $line'; ` +
			`echo stopped; read line; fg; echo code $?`,
		talk: func(p *dlockProcess) {
			p.shows("in")
			p.stop()
			p.shows("stopped")
			p.keys("\n")
			p.shows("sh -c") // fg shows the command
			p.keys("on\n")
			p.shows("got on")
			p.shows("code 0")
		},
	},
	{
		name: "the same with a pipe on standard input",
		script: `set -m; echo data | "$@" sh -c 'read data; echo in $data; ` +
			`read line </dev/tty; echo got $line'; ` +
			`echo stopped; read line; fg; echo code $?`,
		talk: func(p *dlockProcess) {
			p.shows("in data")
			p.stop()
			p.shows("stopped")
			p.keys("\n")
			p.shows("sh -c")
			p.keys("on\n")
			p.shows("got on")
			p.shows("code 0")
		},
	},
	{
		name: "a command with a pipe on standard input reads from the terminal",
		script: `echo data | "$@" sh -c 'read data; ` +
			`stty -echo </dev/tty; echo password of $data; ` +
			`read word </dev/tty; stty echo </dev/tty; echo got $word'; ` +
			`echo code $?; read line; echo end $line`,
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
		name: "a pager behind a pipe reads keys",
		script: `set -m; "$@" sh -c 'echo text; sleep 1' | ` +
			`sh -c 'read text; stty -echo </dev/tty; echo page $text; ` +
			`read key </dev/tty; stty echo </dev/tty; echo key $key'; ` +
			`echo end`,
		talk: func(p *dlockProcess) {
			p.shows("page text")
			p.keys("q\n")
			p.shows("key q")
			p.shows("end")
		},
	},
	{
		name: "a pager takes the terminal from the command",
		script: "set -m; export f=$(mktemp -u)\n" +
			`"$@" sh -c 'read word </dev/tty; echo text $word; ` +
			`while [ ! -e $f ]; do sleep 0.1; done; rm $f' | ` +
			`sh -c 'read text; stty -echo </dev/tty; echo page $text; ` +
			`read key </dev/tty; stty echo </dev/tty; echo key $key; >$f'; ` +
			`echo end`,
		talk: func(p *dlockProcess) {
			p.keys("on\n")
			p.shows("page text on")
			p.keys("q\n")
			p.shows("key q")
			p.shows("end")
		},
	},
	{
		name: "a pager behind a pipe in an orphaned group",
		script: `"$@" sh -c 'echo text; sleep 1' | ` +
			`sh -c 'read text; stty -echo </dev/tty; echo page $text; ` +
			`read key </dev/tty; stty echo </dev/tty; echo key $key'; ` +
			`echo end`,
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
		name: "a command in the background waits for the terminal, and has it after fg",
		script: `set -m; "$@" sh -c 'echo in; read line </dev/tty; echo got $line' & ` +
			// A shell that has not noticed the stop yet would not continue the job.
			`until read pid name state rest </proc/$!/stat; [ $state = T ]; do sleep 0.1; done; ` +
			`echo now; read line; fg >/dev/null; echo code $?`,
		talk: func(p *dlockProcess) {
			p.shows("now")
			p.keys("\n")
			p.keys("on\n")
			p.shows("got on")
			p.shows("code 0")
		},
	},
	{
		name: "a killed command leaves the modes of the terminal as they were",
		script: `"$@" sh -c 'stty -echo </dev/tty; echo in; kill -9 $$'; echo code $?; ` +
			`stty -a | grep -qe " -echo " || echo modes restored`,
		talk: func(p *dlockProcess) {
			p.shows("in")
			p.shows("code 137")
			p.shows("modes restored")
		},
		flock: "flock leaves the modes to the shell",
	},
	{
		name: "after a command that cannot be executed the script reads from the terminal",
		script: `f=$(mktemp) && echo '#!/no/such/interpreter' >$f && chmod +x $f; ` +
			`"$@" $f; echo code $?; rm $f; read line; echo got $line`,
		talk: func(p *dlockProcess) {
			p.shows("code 127")
			p.keys("on\n")
			p.shows("got on")
		},
		flock: "flock has another exit code for it",
	},
	{
		name: "a script without an interpreter reads from the terminal",
		script: `f=$(mktemp) && echo 'echo in; read line; echo got $line' >$f && chmod +x $f; ` +
			`"$@" $f; echo code $?; rm $f`,
		talk: func(p *dlockProcess) {
			p.shows("in")
			p.keys("on\n")
			p.shows("got on")
			p.shows("code 0")
		},
	},
	{
		name:   "a script reads while its dlock runs in the background",
		script: `"$@" sh -c 'echo in; sleep 2' & sleep 1; read line; echo got $line; wait`,
		talk: func(p *dlockProcess) {
			p.shows("in")
			p.keys("on\n")
			p.shows("got on")
		},
	},
	{
		name: "a pager behind a pipe in the script of another shell",
		script: `set -m; sh -c '"$@" sh -c "echo text; sleep 1" | ` +
			`sh -c "read text; stty -echo </dev/tty; echo page \$text; ` +
			`read key </dev/tty; stty echo </dev/tty; echo key \$key"; ` +
			`echo after' sh "$@"` + "\necho code $?",
		talk: func(p *dlockProcess) {
			p.shows("page text")
			p.keys("q\n")
			p.shows("key q")
			p.shows("after")
			p.shows("code 0")
		},
	},
	{
		name: "a key stops the command of a dlock under a dlock",
		script: `set -m; "$@" "$1" run y -- sh -c 'echo in; read line; echo got $line'; ` +
			`echo stopped; read line; fg; echo code $?`,
		talk: func(p *dlockProcess) {
			p.shows("in")
			p.stop()
			p.shows("stopped")
			p.keys("\n")
			p.shows("sh -c")
			p.keys("on\n")
			p.shows("got on")
			p.shows("code 0")
		},
		flock: "flock has no names",
	},
	{
		name:   "a command of a dlock under a dlock with a pipe reads from the terminal",
		script: `"$@" "$1" run y -- sh -c 'read line </dev/tty; echo got $line' | cat; echo over`,
		talk: func(p *dlockProcess) {
			p.keys("on\n")
			p.shows("got on")
			p.shows("over")
		},
		flock: "flock has no names",
	},
	{
		name: "the same with three",
		script: `"$@" "$1" run y -- "$1" run z -- sh -c 'read line </dev/tty; echo got $line' | ` +
			`cat; echo over`,
		talk: func(p *dlockProcess) {
			p.keys("on\n")
			p.shows("got on")
			p.shows("over")
		},
		flock: "flock has no names",
	},
	{
		name: "another process of the group reads from the terminal",
		script: `export f=$(mktemp -u); mkfifo $f.in $f.out; "$@" sh -c '
(read line <$f.in; read line </dev/tty; echo got $line; echo out >$f.out) &
exec "$0" run y -- sh -c "echo in >$f.in; read line <$f.out; rm $f.*"' "$1" | cat; echo over`,
		talk: func(p *dlockProcess) {
			p.keys("on\n")
			p.shows("got on")
			p.shows("over")
		},
		flock: "flock has no names",
	},
	{
		name: "a command that stops itself",
		script: `set -m; "$@" sh -c 'echo in; kill -STOP $$; echo on'; ` +
			`echo stopped; fg; echo code $?`,
		talk: func(p *dlockProcess) {
			p.shows("in")
			p.shows("stopped")
			p.shows("on")
			p.shows("code 0")
		},
		flock: "flock does not stop with its command",
	},
	{
		name: "kill -9 of the job of a shell ends all of it",
		script: `set -m; export f=$(mktemp)
"$@" sh -c 'sleep 1000 & echo $! >$f; echo in; kill -STOP $$'; echo stopped; kill -9 %1
while kill -0 $(cat $f) 2>/dev/null; do sleep 0.1; done; rm $f; echo gone`,
		talk: func(p *dlockProcess) {
			p.shows("in")
			p.shows("stopped")
			p.shows("gone")
		},
		flock: "flock does not stop with its command",
	},
	{
		name: "a key stops nothing in an orphaned group that writes to a file",
		script: `"$@" sh -c 'echo in >&2; read line </dev/tty; echo got $line >&2' >/dev/null; ` +
			`echo code $?`,
		talk: func(p *dlockProcess) {
			p.shows("in")
			p.reads()
			p.keys(ctrlZ)
			p.keys("on\n")
			p.shows("got on")
			p.shows("code 0")
		},
	},
	{
		name: "a key stops nothing in an orphaned group of a dlock under a dlock",
		script: `"$@" "$1" run y -- sh -c 'echo in; read line; echo got $line'; ` +
			`echo code $?`,
		talk: func(p *dlockProcess) {
			p.shows("in")
			p.reads()
			p.keys(ctrlZ)
			p.keys("on\n")
			p.shows("got on")
			p.shows("code 0")
		},
		flock: "flock has no names",
	},
	{
		// This is how su and sudo wait for their command.
		name: "a key stops nothing in an orphaned group of a command that stops after its child",
		script: `"$@" sh -c 'exec 3<&0
trap "until grep -q ^State:.T /proc/\$!/status; do sleep 0.1; done
echo stops; kill -STOP \$\$" TSTP
sh -c "echo in; read line <&3; echo got \$line" & wait $!; wait $!; exit 3'; echo code $?`,
		talk: func(p *dlockProcess) {
			p.shows("in")
			p.reads()
			p.keys(ctrlZ)
			p.shows("stops")
			p.keys("on\n")
			p.shows("got on")
			p.shows("code 3")
		},
		flock: "the key does not stop the child of its command",
	},
	{
		// This is how a pager restores the modes of its terminal before it stops.
		name: "a key stops nothing in an orphaned group of a child that stops after its command",
		script: `export f=$(mktemp -u) child='trap ": >$f.in; read l <$f; echo stops; trap - TSTP
kill -TSTP \$\$; echo on; kill \$!; exit" TSTP; sleep 1000 & echo in; wait'; mkfifo $f
"$@" sh -c 'trap "until [ -e $f.in ]; do sleep 0.1; done; trap - TSTP; kill -TSTP \$\$" TSTP
trap "trap - CONT; echo >$f" CONT
sh -c "$child" & while kill -0 $! 2>/dev/null; do wait $!; done; exit 3'
echo code $?; rm $f $f.in`,
		talk: func(p *dlockProcess) {
			p.shows("in")
			p.keys(ctrlZ)
			p.shows("stops")
			p.shows("on")
			p.shows("code 3")
		},
		flock: "the key does not stop its command",
	},
	{
		name:   "a key stops nothing in an orphaned group in front of its command",
		script: `"$@" sh -c 'echo in >&2; sleep 1; echo over >&2' >/dev/null; echo code $?`,
		talk: func(p *dlockProcess) {
			p.shows("in")
			p.keys(ctrlZ)
			p.shows("over")
			p.shows("code 0")
		},
	},
	{
		name: "a command that can never have the terminal is hung up",
		script: `set -m; ( ( sleep 0.3; "$@" sh -c 'read line </dev/tty'; echo over $? ) & ); ` +
			`sleep 0.1; read line; echo got $line`,
		talk: func(p *dlockProcess) {
			p.shows("over 129")
			p.keys("on\n")
			p.shows("got on")
		},
		flock: "its command reads an error",
	},
	{
		name: "a command that can never have the terminal is ended if it ignores SIGHUP",
		script: `set -m; ( ( sleep 0.3; trap "" HUP; "$@" sh -c 'read line </dev/tty'; ` +
			`echo over $?; "$@" sh -c 'trap "" TERM; read line </dev/tty'; echo over $? ) & ); ` +
			`sleep 0.1; read line; echo got $line`,
		talk: func(p *dlockProcess) {
			p.shows("over 143")
			p.shows("over 137")
			p.keys("on\n")
			p.shows("got on")
		},
		flock: "its command reads an error",
	},
	{
		name: "a dlock that is killed leaves the terminal to the script",
		script: `"$@" sh -c 'stty -echo </dev/tty; echo in; ` +
			`read pid name state parent rest </proc/$PPID/stat; kill -9 $parent; sleep 1000'; ` +
			`echo code $?; sleep 5; read line; echo got $line; ` +
			`stty -a | grep -qe " -echo " || echo modes restored`,
		talk: func(p *dlockProcess) {
			p.shows("code 137")
			p.keys("on\n")
			p.shows("got on")
			p.shows("modes restored")
		},
		flock: "the command of a flock that is killed goes on",
	},
	{
		name: "a guard that is killed leaves the terminal to the script",
		script: `"$@" sh -c 'stty -echo </dev/tty; echo in; kill -9 $PPID; sleep 1000'; ` +
			`echo code $?; read line; echo got $line; ` +
			`stty -a | grep -qe " -echo " || echo modes restored`,
		talk: func(p *dlockProcess) {
			p.shows("code 137")
			p.keys("on\n")
			p.shows("got on")
			p.shows("modes restored")
		},
		flock: "flock has no guard",
	},
}

func TestShells(t *testing.T) {
	t.Parallel()
	eachRow(t, func(*shellRow) *exec.Cmd {
		return dlockCommand(t.Context(), on(fileURL(t)), "run", "x", "--")
	})
}

// The command ends with its killed guard. After a loss with --on-lost continue, its other processes
// go on: the group of the command still exists when dlock gives the terminal back.
func TestKilledGuardLeavesTheTerminal(t *testing.T) {
	t.Parallel()
	row := &shellRow{
		script: `"$@" sh -c 'echo in; sleep 3 & sleep 1; kill -9 $PPID; sleep 1000'; ` +
			`echo code $?; read line; echo got $line`,
		talk: func(p *dlockProcess) {
			p.shows("code 137")
			p.keys("on\n")
			p.shows("got on")
		},
	}
	row.run(t, "/bin/sh", dlockCommand(t.Context(), on(fileURL(t)),
		"run", "--on-lost", "continue", "--max-hold", "500ms", "x", "--"))
}

// Nothing stops dlock before it has sent SIGKILL to a command that has outlived its lease: neither
// a key, nor a command in the background that needs the terminal for its end.
func TestStopOfAnEndingCommand(t *testing.T) {
	t.Parallel()
	scripts := map[string]string{
		"key": `set -m; "$@" sh -c 'trap "echo ends; sleep 0.3; kill -TSTP \$\$; echo on; exit" TERM
sleep 1000 & echo in; wait'; echo code $?`,
		"background": `set -m; "$@" sh -c 'trap "echo ends; stty sane </dev/tty" TERM
sleep 1000 & echo in; wait; wait' & wait $!; echo code $?`,
	}
	eachShell(t, func(shell, path string) {
		for name, script := range scripts {
			t.Run(shell+"/"+name, func(t *testing.T) {
				t.Parallel()
				url, lock := testenv.Redis(t).URL, nameFor(t)
				row := &shellRow{script: script, talk: func(p *dlockProcess) {
					p.shows("in")
					breakLock(t, url, lock)
					p.shows("ends")
					if name == "key" {
						p.shows("on")
					}
					p.shows("code 76")
				}}
				row.run(t, path, dlockCommand(t.Context(), on(url),
					"run", "--grace", "2s", lock, "--"))
			})
		}
	})
}

// A message of dlock is lost if its standard error is closed, or if nothing reads it. That ends
// neither dlock nor its command.
func TestLostMessagesOnATerminal(t *testing.T) {
	t.Parallel()
	const command = `"$@" sh -c 'exec 2>/dev/tty; echo in; sleep 3; read l; echo got $l; exit 5'`
	talk := func(p *dlockProcess) {
		p.shows("in")
		p.keys("on\n")
		p.shows("got on")
		p.shows("code 5")
	}
	eachShell(t, func(shell, path string) {
		for _, row := range []*shellRow{
			{name: "closed", script: command + ` 2>&-; echo code $?`, talk: talk},
			{
				name: "without a reader",
				script: `{ sleep 0.3; ` + command +
					` 2>&1 >/dev/tty; echo code $? >/dev/tty; } | true`,
				talk: talk,
			},
		} {
			t.Run(shell+"/"+row.name, func(t *testing.T) {
				t.Parallel()
				row.run(t, path, dlockCommand(t.Context(), on(fileURL(t)),
					"run", "-v", "--on-lost", "continue", "--max-hold", "3s", "x", "--"))
			})
		}
	})
}

// TestShellsWithFlock runs the same rows with flock(1). It checks the rows, not dlock.
func TestShellsWithFlock(t *testing.T) {
	t.Parallel()
	flock, err := exec.LookPath("flock")
	if err != nil {
		t.Skipf("does not apply: this system has no flock(1): %v", err)
	}
	eachRow(t, func(row *shellRow) *exec.Cmd {
		if row.flock != "" {
			return nil
		}
		return exec.CommandContext(t.Context(), flock, t.TempDir()+"/lock")
	})
}

// eachRow runs the rows under each shell, with the program that holder returns. It skips a row for
// which holder returns nil.
func eachRow(t *testing.T, holder func(*shellRow) *exec.Cmd) {
	t.Helper()
	eachShell(t, func(shell, path string) {
		for _, row := range shellRows {
			if cmd := holder(&row); cmd != nil {
				t.Run(shell+"/"+row.name, func(t *testing.T) {
					t.Parallel()
					row.run(t, path, cmd)
				})
			}
		}
	})
}

func eachShell(t *testing.T, fn func(shell, path string)) {
	t.Helper()
	for _, shell := range []string{"bash", "dash"} {
		if path, err := exec.LookPath(shell); err != nil {
			t.Errorf("there is no %s", shell)
		} else {
			fn(shell, path)
		}
	}
}

func (row *shellRow) run(t *testing.T, shell string, holder *exec.Cmd) {
	t.Helper()
	keyboard, screen := newTerminal(t)
	holder.Path = shell
	holder.Args = append([]string{shell, "-c", row.script, shell}, holder.Args...)
	p := launchOn(t, holder, keyboard, screen)
	row.talk(p)
	p.code(row.code)
}

// When the terminal goes away, the command receives SIGHUP, and the lock is freed.
func TestTerminalGoesAway(t *testing.T) {
	t.Parallel()
	url, trace := fileURL(t), filepath.Join(t.TempDir(), "trace")
	script := fmt.Sprintf(`trap "echo hung up >%q; trap - HUP; kill -HUP $$" HUP; echo in; `+
		`while :; do sleep 0.1; done`, trace)
	p := onTerminal(t, url, "run", "x", "--", "sh", "-c", script)
	p.shows("in")
	_ = p.input.Close()
	p.code(exitSignal + int(syscall.SIGHUP))
	if text, err := os.ReadFile(trace); string(text) != "hung up\n" {
		t.Errorf("the command wrote %q, %v", text, err)
	}
	if got := dlockRun(t, on(url), "try", "x", "--", "true"); got.code != 0 {
		t.Errorf("the lock is not free: %s", got.stderr)
	}
}

// When the terminal of a shell goes away, all of the job of its dlock ends before the lock is free,
// with and without pipes.
func TestTerminalOfAShellGoesAway(t *testing.T) {
	t.Parallel()
	const job = `loop='while :; do sleep 0.1; done'
(setsid sh -c 'trap "" HUP TERM; echo pid $$; '"$loop" &)
echo pid $$
eval "$loop"`
	eachShell(t, func(shell, path string) {
		for name, script := range map[string]string{
			"terminal":        `"$@" sh -c "$JOB"; echo on`,
			"standard input":  `echo | "$@" sh -c "$JOB"; echo on`,
			"standard output": `"$@" sh -c "$JOB" | cat; echo on`,
		} {
			t.Run(shell+"/"+name, func(t *testing.T) {
				t.Parallel()
				url := fileURL(t)
				holder := dlockCommand(t.Context(), append(on(url), "JOB="+job),
					"run", "--grace", "0.2s", "x", "--")
				var pids []int
				row := &shellRow{
					script: script,
					talk: func(p *dlockProcess) {
						pids = pidsFrom(t, p, 2)
						_ = p.input.Close()
					},
					code: exitSignal + int(syscall.SIGHUP),
				}
				row.run(t, path, holder)
				if got := dlockRun(t, on(url), "run", "x", "--", "true"); got.code != 0 {
					t.Errorf("the lock is not free: %s", got.stderr)
				}
				allGone(t, pids)
			})
		}
	})
}

// When a lock is lost, all processes of the command end, in its group and outside it,
// with and without a terminal.
func TestLossEndsProcessesOutsideTheGroup(t *testing.T) {
	t.Parallel()
	url := testenv.Redis(t).URL
	for name, start := range map[string]func(*testing.T, string, ...string) *dlockProcess{
		"terminal": onTerminal, "pipe": startDlock,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			lock := nameFor(t)
			p := start(t, url, "run", "--grace", "0.5s", lock, "--", "sh", "-c", straying)
			pids := strayPids(t, p)
			breakLock(t, url, lock)
			p.code(exitLost)
			allGone(t, pids)
		})
	}
}

// straying starts processes that ignore SIGTERM. The first one stays in the group of the command,
// the second has forked twice, and the third has forked twice in a new session. All of them and the
// command print their numbers.
const straying = `trap "" TERM HUP INT
loop='echo pid $$; while :; do sleep 0.1; done'
sh -c "$loop" &
(sh -c "$loop" &)
(setsid sh -c "$loop" &)
echo pid $$
while :; do sleep 0.1; done`

func strayPids(t *testing.T, p *dlockProcess) []int {
	t.Helper()
	return pidsFrom(t, p, 4)
}

// pidsFrom reads n lines, each with the number of a process.
func pidsFrom(t *testing.T, p *dlockProcess, n int) (pids []int) {
	t.Helper()
	for range n {
		var pid int
		line := p.line()
		if _, err := fmt.Sscanf(line, "pid %d", &pid); err != nil {
			t.Fatalf("%v in %q", err, line)
		}
		pids = append(pids, pid)
	}
	return pids
}

func allGone(t *testing.T, pids []int) {
	t.Helper()
	for _, pid := range pids {
		if state := stateOf(t, pid); state != "" && state != "Z" {
			t.Errorf("process %d is still there, in state %s", pid, state)
		}
	}
}

// Processes that the command leaves behind have ended when the lock is free,
// unless -o lets them go on.
func TestCommandLeavesProcesses(t *testing.T) {
	t.Parallel()
	const leaving = `echo pid $(trap "" TERM; ` +
		`setsid sh -c 'echo $$; exec sleep 1000 >/dev/null' &); exit 4`
	for flag, gone := range map[string]bool{"-v": true, "-o": false} {
		t.Run(flag, func(t *testing.T) {
			t.Parallel()
			url := fileURL(t)
			p := startDlock(t, url, "run", "--grace", "0.2s", flag, "x", "--", "sh", "-c", leaving)
			var pid int
			if _, err := fmt.Sscanf(p.line(), "pid %d", &pid); err != nil {
				t.Fatal(err)
			}
			p.code(4)
			if state := stateOf(t, pid); (state == "") != gone {
				t.Errorf("the process left behind is in state %q", state)
			}
			if got := dlockRun(t, on(url), "try", "x", "--", "true"); got.code != 0 {
				t.Errorf("the lock is not free: %s", got.stderr)
			}
			if !gone {
				_ = syscall.Kill(pid, syscall.SIGKILL)
			}
		})
	}
}

// killable returns backends whose locks end in different ways when their holder is killed.
func killable(t *testing.T) map[string]string {
	t.Helper()
	return map[string]string{
		"file": fileURL(t), "redis": testenv.Redis(t).URL, "etcd": testenv.Etcd(t).URL,
	}
}

// dlock run works with closed standard streams. A result that cannot be written is an error. If its
// reader has ended, dlock ends by SIGPIPE, without a message, as cat does.
func TestClosedStandardOutput(t *testing.T) {
	t.Parallel()
	const full = "dlock: write /dev/stdout: no space left on device\n"
	url := fileURL(t)
	server, name := testenv.Redis(t).URL, nameFor(t)
	for _, holder := range []*dlockProcess{
		startDlock(t, url, "run", "held", "--", "sh", "-c", "echo ready; read line"),
		startDlock(t, server, "run", name, "--", "sh", "-c", "echo ready; read line"),
	} {
		holder.expect("ready")
	}
	for _, tt := range []struct {
		script string
		code   int
		stderr string
	}{
		{`"$@" run x -- sh -c "exit 3" >&-`, 3, ""},
		{`"$@" run x -- sh -c "echo out; exit 3" <&- >&- 2>&-`, 3, ""},
		{`"$@" run x -- sh -c "exit 3" >/dev/full`, 3, ""},
		{`"$@" run x -- yes`, exitSignal + int(syscall.SIGPIPE), ""}, // ends like yes
		// Go opens /dev/null in the place of a closed standard stream.
		{`"$@" ls >&-`, 0, ""},
		{`"$@" ls >/dev/full`, exitNo, full},
		{`"$@" help run >/dev/full`, exitNo, full},
		{`"$@" run --help >/dev/full`, exitNo, full},
		{`"$@" ls --json >/dev/full`, exitNo, full},
		{`"$@" status x >/dev/full`, exitNo, full},
		{`"$@" status --json x >/dev/full`, exitNo, full},
		{`"$@" break --yes --url ` + server + ` ` + name + ` >/dev/full`, exitNo, full},
		{`exec "$@" ls`, exitSignal + int(syscall.SIGPIPE), ""},
		{`exec "$@" status --json x`, exitSignal + int(syscall.SIGPIPE), ""},
	} {
		read, write := pipes(t)
		closeAll(read)
		cmd := dlockCommand(t.Context(), on(url))
		cmd.Path, cmd.Args = "/bin/sh", []string{"sh", "-c", tt.script, "sh", os.Args[0]}
		var stderr strings.Builder
		cmd.Stdout, cmd.Stderr = write, &stderr
		_ = cmd.Run() // codeOf has its result
		if got := codeOf(cmd); got != tt.code || stderr.String() != tt.stderr {
			t.Errorf("%s: exit code %d, want %d; standard error %q, want %q",
				tt.script, got, tt.code, stderr.String(), tt.stderr)
		}
	}
}

// When dlock is killed, its whole job ends before the next holder has the lock.
func TestKilledDlockTakesItsJob(t *testing.T) {
	t.Parallel()
	for name, url := range killable(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			lock := nameFor(t)
			p := startDlock(t, url, "run", "--ttl", "10s", lock, "--", "sh", "-c", straying)
			pids := strayPids(t, p)
			script := fmt.Sprintf(`for pid in %s; do `+
				`kill -0 $pid 2>&1 && grep State /proc/$pid/status; done; echo begun; read line`,
				strings.Trim(fmt.Sprint(pids), "[]"))
			next := startDlock(t, url, "run", "-v", "--ttl", "10s", lock, "--", "sh", "-c", script)
			next.noted("waiting")
			p.send(syscall.SIGKILL)
			for line := next.line(); line != "begun"; line = next.line() {
				if strings.HasPrefix(line, "State:") && !strings.Contains(line, "Z") {
					t.Errorf("a process of the killed dlock's job is still there: %s", line)
				}
			}
			next.input.Close()
			next.awaitEnd()
		})
	}
}

// A killed dlock takes its job with it, even if the job might go on without the lock otherwise.
func TestKilledDlockTakesAnIndependentJob(t *testing.T) {
	t.Parallel()
	for _, flag := range []string{"-o", "--on-lost=continue"} {
		t.Run(flag, func(t *testing.T) {
			t.Parallel()
			p := startDlock(t, fileURL(t), "run", flag, "x", "--", "sh", "-c", straying)
			pids := strayPids(t, p)
			p.send(syscall.SIGKILL)
			p.silent() // the processes have the same standard output
			allGone(t, pids)
		})
	}
}

// When dlock is killed, a nested dlock and all its processes end, too.
func TestKilledDlockTakesNestedJobs(t *testing.T) {
	t.Parallel()
	quoted := "'" + strings.ReplaceAll(straying, "'", `'"'"'`) + "'"
	inner := "exec " + os.Args[0] + " run inner -- sh -c " + quoted
	p := startDlock(t, fileURL(t), "run", "outer", "--", "sh", "-c", inner)
	pids := strayPids(t, p)
	p.send(syscall.SIGKILL)
	p.awaitEnd() // standard output ends when the last process closes it
	for line, ok := p.next(p.lines); ok; line, ok = p.next(p.lines) {
		t.Logf("%s", line)
	}
	allGone(t, pids)
}

// An upgrade may replace the program's file while dlock waits. The guard is still the same program.
func TestReplacedProgramHasAGuard(t *testing.T) {
	t.Parallel()
	url, program := fileURL(t), filepath.Join(t.TempDir(), "dlock")
	if err := copyFile(program, os.Args[0]); err != nil {
		t.Fatal(err)
	}
	holder := startDlock(t, url, "run", "x", "--", "sh", "-c", "echo ready; read line; exit 0")
	holder.expect("ready")
	cmd := dlockCommand(t.Context(), on(url), "run", "-v", "x", "--", "sh", "-c", straying)
	cmd.Path, cmd.Args[0] = program, program
	input, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	p := launch(t, cmd, input)
	p.noted("waiting")
	if err := os.Remove(program); err != nil {
		t.Fatal(err)
	}
	holder.input.Close()
	pids := strayPids(t, p)
	p.send(syscall.SIGKILL)
	p.awaitEnd()
	for _, ok := p.next(p.lines); ok; _, ok = p.next(p.lines) {
		continue
	}
	allGone(t, pids)
}

func copyFile(to, from string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o700)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}

// A file lock has no term: a job that is stopped for longer than the TTL goes on with its lock.
func TestStoppedBeyondTTL(t *testing.T) {
	t.Parallel()
	const ttl = time.Second
	url := fileURL(t)
	p := startDlock(t, url, "run", "--ttl", ttl.String(), "x", "--",
		"sh", "-c", `trap "" TERM; echo ready; read line; echo $line`)
	p.expect("ready")
	p.send(syscall.SIGTSTP)
	awaitStop(t, p.cmd.Process.Pid)
	time.Sleep(2 * ttl)
	if got := dlockRun(t, on(url), "try", "x", "--", "true"); got.code != exitNotAcquired {
		t.Errorf("while the job is stopped: exit code %d: %s", got.code, got.stderr)
	}
	p.send(syscall.SIGCONT)
	if _, err := io.WriteString(p.input, "goes on\n"); err != nil {
		t.Fatal(err)
	}
	p.expect("goes on")
	p.code(0)
}

// On a server, a job that a key stops for longer than the TTL ends before the next holder has the
// lock. It does not go on with fg, which ends with the exit code of a lost lock.
func TestKeyStopsBeyondTTL(t *testing.T) {
	t.Parallel()
	url := testenv.Redis(t).URL
	eachShell(t, func(shell, path string) {
		t.Run(shell, func(t *testing.T) {
			t.Parallel()
			lock := nameFor(t)
			row := &shellRow{
				script: `set -m; ` +
					`"$@" sh -c 'trap "" TERM; echo pid $$; read line; echo got $line'; ` +
					`echo stopped; read line; fg; echo code $?`,
				talk: func(p *dlockProcess) {
					pids := pidsFrom(t, p, 1)
					next := startDlock(t, url, "run", "-v", lock, "--", "echo", "in")
					next.noted("waiting")
					p.stop()
					p.shows("stopped")
					next.expect("in")
					allGone(t, pids)
					p.keys("\non\n")
					p.shows(fmt.Sprint("code ", exitLost))
					next.code(0)
					if text := p.stderr.text(); strings.Contains(text, "got on") {
						t.Errorf("the command goes on; the terminal shows: %s", text)
					}
				},
			}
			row.run(t, path, dlockCommand(t.Context(), on(url), "run", "--ttl", "6s", lock, "--"))
		})
	})
}

// If dlock is stopped for longer than its lease, the guard ends the command.
func TestStoppedDlockLosesItsJob(t *testing.T) {
	t.Parallel()
	const ttl = 6 * time.Second
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

// A signal ends the wait for the minimum hold, also if it comes while dlock still ends the
// processes that the command has left behind.
func TestSignalOfTheGraceEndsTheMinimumHold(t *testing.T) {
	t.Parallel()
	p := startDlock(t, fileURL(t), "try", "-v", "--min-hold", "10m", "--ttl", "1h",
		"--grace", "10m", "x", "--",
		"sh", "-c", `echo $(trap "" TERM; sleep 600 >/dev/null & echo in); exit 0`)
	p.expect("in")
	p.noted("left behind")
	p.send(syscall.SIGTERM)
	p.code(exitSignal + int(syscall.SIGTERM))
}

// A dlock that runs under the lock that it has to acquire fails at once, and
// its error names the holder.
func TestNestedDlockFails(t *testing.T) {
	t.Parallel()
	got := dlockRun(t, on(fileURL(t)), "run", "--meta", "outer", "x", "--",
		os.Args[0], "run", "x", "--", "true")
	if got.code != exitNotAcquired || !strings.Contains(got.stderr, "wait for itself") ||
		!strings.Contains(got.stderr, "outer") {
		t.Errorf("exit code %d: %s", got.code, got.stderr)
	}
}

// dlock refuses a TTL that the server cannot keep, and names the maximum.
func TestTTLAboveTheServersMost(t *testing.T) {
	t.Parallel()
	url := testenv.Memcached(t).URL
	got := dlockRun(t, on(url), "run", "--ttl", "1000h", nameFor(t), "--", "true")
	if got.code != exitUnsupported || !strings.Contains(got.stderr, "719h59m58s") {
		t.Errorf("exit code %d: %s", got.code, got.stderr)
	}
}

// A command is found as sh finds it: a script whose name begins with a dash is no option of sh, and
// without PATH the usual directories are searched.
func TestCommandIsFoundAsByShells(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	script := filepath.Join(dir, "-x")
	if err := os.WriteFile(script, []byte("echo \"script $1\"\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct {
		path string
		argv []string
		want string
	}{
		{"PATH=.:/usr/bin:/bin", []string{"-x", "one"}, "script one\n"},
		{"", []string{"echo", "found"}, "found\n"},
	} {
		cmd := dlockCommand(t.Context(), nil, append([]string{"run", "x", "--"}, row.argv...)...)
		cmd.Env = slices.DeleteFunc(cmd.Env, func(v string) bool {
			return strings.HasPrefix(v, "PATH=")
		})
		cmd.Dir, cmd.Env = dir, append(cmd.Env, on(fileURL(t))[0])
		if row.path != "" {
			cmd.Env = append(cmd.Env, row.path)
		}
		if out, err := cmd.Output(); err != nil || string(out) != row.want {
			t.Errorf("%s %s: %q, %v, want %q", row.path, row.argv, out, err, row.want)
		}
	}
}

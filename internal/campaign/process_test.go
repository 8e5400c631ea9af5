//go:build unix

package campaign

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/filebackend"
)

// behaviour is the environment variable that makes the test's program a worker. Its value is
// "sound" or the name of a defect, and a directory.
const behaviour = "DLOCK_TEST_WORKER"

func TestMain(m *testing.M) {
	if how := os.Getenv(behaviour); how != "" {
		os.Exit(worked(how))
	}
	os.Exit(m.Run())
}

// openBadly opens a client on files that has the fault how.
func openBadly(ctx context.Context, how, dir string) (*dlock.Client, error) {
	switch how {
	case "hang":
		time.Sleep(time.Hour)
	case "leak":
		go func() { select {} }()
	case "panic":
		time.AfterFunc(300*time.Millisecond, func() { panic("a worker that panics") })
	case "close":
		return failClose(dir, errors.New("a driver that does not close"))
	case "away":
		return failClose(dir, backend.ErrUnavailable)
	}
	return dlock.Open(ctx, "file:"+dir)
}

// worked is the main function of a worker.
func worked(how string) int {
	how, dir, _ := strings.Cut(how, " ")
	conn, err := net.FileConn(os.NewFile(WorkerFD, "engine"))
	if err == nil {
		err = Serve(context.Background(), conn, func(
			ctx context.Context,
		) (c *dlock.Client, lent io.Closer, err error) {
			c, err = openBadly(ctx, how, dir)
			return c, nil, err
		})
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// closeFails is a driver whose Close fails.
type closeFails struct {
	backend.Driver
	err error
}

func (d closeFails) Close() error { return errors.Join(d.Driver.Close(), d.err) }

// failClose returns a client with lock files in dir, whose Close returns err.
func failClose(dir string, err error) (*dlock.Client, error) {
	d, failure := filebackend.New(dir, nil)
	if failure != nil {
		return nil, failure
	}
	return dlock.New(closeFails{d, err})
}

// processes returns a Site with worker processes that use lock files.
func processes(t *testing.T, how string, s Settings) Site {
	t.Helper()
	dir := t.TempDir()
	prober, err := dlock.Open(t.Context(), "file:"+dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = prober.Close() })
	return Site{
		Settings: s,
		Start: func(_, _ int) (Process, error) {
			cmd := exec.Command(os.Args[0])
			cmd.Env = append(os.Environ(), behaviour+"="+how+" "+dir)
			return Start(cmd)
		},
		Probe: func(ctx context.Context) error {
			return prober.Do(ctx, "probe", func(context.Context, *dlock.Lease) error { return nil })
		},
	}
}

// TestProcessesAreKilledAndStopped checks that a sound lock passes under faults that only processes
// can have. Its lock files have no terms, so the lock of a stopped holder is free when the holder
// continues. A fault that comes just after a release hits no lease, so the test tries several
// seeds.
func TestProcessesAreKilledAndStopped(t *testing.T) {
	t.Parallel()
	killed, stopped := 0, 0
	for seed := uint64(1); seed <= 5 && (killed == 0 || stopped == 0); seed++ {
		s := Settings{
			Server: "file", TTL: 500 * time.Millisecond, Expiry: 2 * time.Second,
			Round: 4 * time.Second, Duration: time.Second, Seed: seed,
			Faults: map[Kind]Class{Kill: X, KillWaiter: X, Stop: X, StopWaiter: X},
		}
		h, err := Run(t.Context(), processes(t, "sound", s))
		if err != nil {
			t.Fatal(err)
		}
		v := Judge(h)
		show(t, v)
		if len(v.Violations) > 0 {
			t.Error("a sound lock did not pass")
		}
		killed += v.Figures.KillToGrant.N
		stopped += v.Figures.WakeToLoss.N
	}
	if killed == 0 || stopped == 0 {
		t.Errorf("%d holders were killed and %d were stopped, want at least one of each",
			killed, stopped)
	}
}

// TestBrokenProcessesAreCaught checks that the rules g and h detect broken workers. A server that
// is away when a worker closes its client breaks no rule.
func TestBrokenProcessesAreCaught(t *testing.T) {
	for how, rule := range map[string]Rule{
		"leak": RuleG, "close": RuleG, "panic": RuleH, "hang": RuleH, "away": "",
	} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			patience := 2 * leakPatience
			if how == "hang" {
				patience = time.Second
			}
			s := Settings{TTL: time.Second, Workers: 1}
			log := &recorder{}
			c := &crew{settings: s, start: processes(t, how, s).Start, log: log, store: newStore()}
			if err := c.hire(); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second) // the time until the panic
			c.dismiss(patience)
			events := log.sorted()
			found := slices.IndexFunc(events, func(e Event) bool { return e.Op == Finding })
			if rule == "" && found >= 0 {
				t.Errorf("a finding of a sound worker: %+v", events[found])
			}
			if rule != "" && (found < 0 || events[found].Rule != rule) {
				t.Errorf("no finding of rule %s in %+v", rule, events)
			}
		})
	}
}

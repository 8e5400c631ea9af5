package main

import (
	"bytes"
	"crypto/rand"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dlock-go/dlock/internal/campaign"
	"github.com/dlock-go/dlock/internal/testenv"
)

// TestInterrupt checks that Ctrl-C ends all processes of a campaign, removes the locks of killed
// workers from a server that was given by URL, and keeps the history so far.
func TestInterrupt(t *testing.T) {
	s := testenv.Redis(t)
	dir := filepath.Join(t.TempDir(), rand.Text()) // no other process has it in its environment
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "DLOCK_TEST_REDIS_URL="+s.URL,
		argsVariable+"=-duration 10m -faults linger -kinds mutex -dir "+dir+" redis")
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	t.Cleanup(func() { _ = cmd.Process.Kill() })

	c := redis.NewClient(&redis.Options{Addr: s.Addr})
	defer c.Close()
	for len(keysOf(t, c, "*campaign-*")) == 0 { // until a worker holds a lock
		select {
		case err := <-ended:
			t.Fatalf("the campaign ended by itself: %v\n%s", err, out.String())
		case <-time.After(10 * time.Millisecond):
		}
	}
	for _, pid := range marked(t, dir) { // the locks stay, as after the fault kill
		if pid != cmd.Process.Pid {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	err := <-ended
	keys := append(keysOf(t, c, "*campaign-*"), keysOf(t, c, "*probe-*")...)
	t.Logf("%v\n%s", err, out.String())
	if code := cmd.ProcessState.ExitCode(); code != exitInterrupted {
		t.Errorf("the exit code is %d, want %d", code, exitInterrupted)
	}
	if len(keys) > 0 {
		t.Errorf("the server still has %q", keys)
	}
	if left := marked(t, dir); len(left) > 0 {
		t.Errorf("the processes %d are left", left)
	}
	files, _ := filepath.Glob(filepath.Join(dir, "*.jsonl"))
	if len(files) != 1 {
		t.Fatalf("the histories are %q, want one", files)
	}
	if h, err := campaign.Load(files[0]); err != nil || !h.Cut || len(h.Events) == 0 {
		t.Errorf("Load = %+v, %v; want events and Cut", h, err)
	}
}

func keysOf(t *testing.T, c *redis.Client, pattern string) []string {
	t.Helper()
	keys, err := c.Keys(t.Context(), pattern).Result()
	if err != nil {
		t.Fatal(err)
	}
	return keys
}

// marked returns the processes with a mark in their environment, except this process.
func marked(t *testing.T, mark string) (pids []int) {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/environ")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		environment, _ := os.ReadFile(file) // of a process that may have ended
		pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		if bytes.Contains(environment, []byte(mark)) && pid != os.Getpid() {
			pids = append(pids, pid)
		}
	}
	return pids
}

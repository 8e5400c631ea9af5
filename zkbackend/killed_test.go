package zkbackend_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/internal/testenv"
)

// holderVariable makes this program a process that locks heldName at the URL in the variable, and
// then does not end.
const holderVariable = "DLOCK_TEST_ZK_HOLDER"

// heldName is the lock of that process.
const heldName = "held by a process"

// holdForEver locks heldName, reports it on standard output, and blocks until the process is
// killed.
func holdForEver(url string) {
	c, err := dlock.Open(context.Background(), url)
	if err == nil {
		_, err = c.Lock(context.Background(), heldName)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println("held")
	select {}
}

// startHolder starts that process, and returns when it holds the lock.
func startHolder(t *testing.T, url string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env, cmd.Stderr = append(os.Environ(), holderVariable+"="+url), os.Stderr
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	if !bufio.NewScanner(out).Scan() {
		t.Fatal("the process does not hold the lock")
	}
	return cmd
}

// TestKilledProcess checks that the session follows the TTL. The lock of a killed process is free
// after the TTL and two ticks of the server.
func TestKilledProcess(t *testing.T) {
	t.Parallel()
	const tick, ttl = time.Second, 2 * time.Second
	s := testenv.NewZooKeeper(t, tick)
	url, probe := s.URL+"?ttl="+ttl.String(), testenv.Probe(t, s.URL)
	testenv.InTime(t, ttl+2*tick, probe, func() (killed time.Time, took time.Duration) {
		killed, took = grantedAfterKill(t, url)
		t.Logf("granted %v after the kill", took)
		return killed, took
	})
}

// grantedAfterKill kills a holder, and returns the time from then until a waiter is granted the
// lock.
func grantedAfterKill(t *testing.T, url string) (killed time.Time, took time.Duration) {
	t.Helper()
	c, err := dlock.Open(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	holder := startHolder(t, url)
	granted := make(chan time.Time, 1)
	go func() {
		defer close(granted)
		lease, err := c.Lock(t.Context(), heldName)
		if err != nil {
			t.Errorf("Lock: %v", err)
			return
		}
		granted <- time.Now()
		if err := lease.Unlock(t.Context()); err != nil {
			t.Errorf("Unlock: %v", err)
		}
	}()
	for {
		info, err := c.Inspect(t.Context(), heldName)
		if err != nil {
			t.Fatalf("Inspect: %v", err)
		}
		if info.Waiters > 0 {
			break
		}
	}
	killed = time.Now()
	if err := holder.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	took = (<-granted).Sub(killed)
	<-granted // closed after Unlock
	return killed, took
}

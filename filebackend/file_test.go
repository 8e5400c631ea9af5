//go:build linux

package filebackend

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/backend/kind"
	"github.com/dlock-go/dlock/internal/testenv"
)

// helperDir is an environment variable. With it, the test binary is a process that holds only "k"
// in the given directory until it is killed. helperKind is the kind of lock, and "w?" a writer that
// waits until it holds.
const (
	helperDir  = "DLOCK_TEST_FILE_HOLDER"
	helperKind = "DLOCK_TEST_FILE_KIND"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(helperDir); dir != "" {
		hold(dir)
	}
	testenv.Main(m)
}

func hold(dir string) {
	d, err := New(dir, nil)
	req := of(os.Getenv(helperKind), 0)
	if err == nil {
		_, err = d.Acquire(context.Background(), req)
	}
	waits := errors.Is(err, backend.ErrNotAcquired)
	if waits {
		err = nil
	}
	fmt.Println("held", err)
	for waits { // as the core does: an attempt that a stop interrupts may find its time over
		_, _, err = await(context.Background(), d, req)
		waits = errors.Is(err, backend.ErrUnavailable)
	}
	select {}
}

// startHolder starts a process that holds "k".
func startHolder(t *testing.T, dir string) *exec.Cmd {
	t.Helper()
	return startMember(t, dir, "w")
}

// startMember starts a process that holds "k" as this kind, or waits for it.
func startMember(t *testing.T, dir, word string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), helperDir+"="+dir, helperKind+"="+word)
	cmd.SysProcAttr = &unix.SysProcAttr{Pdeathsig: unix.SIGKILL}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "held <nil>\n" {
		t.Fatalf("the holder printed %q, %v", line, err)
	}
	return cmd
}

func request(key string, owner int) *backend.Request {
	return &backend.Request{
		Key: key, Owner: fmt.Sprintf("%032x", owner), TTL: time.Minute, Mode: backend.Exclusive,
	}
}

// waiting returns a request of a waiter.
func waiting(key string, owner int) *backend.Request {
	req := request(key, owner)
	req.Queue = true
	return req
}

// of returns a request for "k" as one of the kinds w, r and p2, with a ? if it waits.
func of(word string, owner int) *backend.Request {
	word, queue := strings.CutSuffix(word, "?")
	req, k := request("k", owner), kind.Kind(word)
	req.Queue, req.Mode, req.Limit = queue, k.Mode(), k.Limit()
	return req
}

func openDriver(t *testing.T, dir string) *driver {
	t.Helper()
	d, err := New(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return d.(*driver)
}

func acquire(t *testing.T, d backend.Driver, req *backend.Request) *backend.Grant {
	t.Helper()
	g, err := d.Acquire(t.Context(), req)
	if err != nil {
		t.Fatalf("Acquire: %v", err)
	}
	return g
}

func refused(t *testing.T, d backend.Driver, req *backend.Request) *backend.Busy {
	t.Helper()
	_, err := d.Acquire(t.Context(), req)
	b, ok := errors.AsType[*backend.Busy](err)
	if !ok {
		t.Fatalf("Acquire: %v, want Busy", err)
	}
	return b
}

func release(t *testing.T, d backend.Driver, g *backend.Grant) {
	t.Helper()
	if err := d.Release(t.Context(), g); err != nil {
		t.Errorf("Release: %v", err)
	}
}

// await repeats Acquire and Wait, as the core does, until req is granted. It returns the number of
// attempts.
func await(
	ctx context.Context, d backend.Driver, req *backend.Request,
) (g *backend.Grant, tries int, err error) {
	for {
		tries++
		g, err := d.Acquire(ctx, req)
		b, ok := errors.AsType[*backend.Busy](err)
		if !ok {
			return g, tries, err
		}
		if _, err := d.(backend.Waiter).Wait(ctx, req, b); err != nil {
			return nil, tries, err
		}
	}
}

// TestKillFrees checks that the kernel wakes a waiter when the holder is killed. The poll timer
// fires after a second at the earliest, so the timer cannot have woken a waiter that gets the lock
// sooner.
func TestKillFrees(t *testing.T) {
	t.Parallel()
	d := openDriver(t, t.TempDir())
	quick := 0
	for owner := range 5 {
		holder := startHolder(t, d.dir)
		b := refused(t, d, waiting("k", owner+1))
		if err := holder.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		killed := time.Now()
		if _, err := d.Wait(t.Context(), waiting("k", owner+1), b); err != nil {
			t.Fatal(err)
		}
		g, _, err := await(t.Context(), d, waiting("k", owner+1))
		if err != nil {
			t.Fatal(err)
		}
		waited := time.Since(killed)
		t.Logf("the waiter had the lock after %v", waited)
		if waited < pauseWatched/2 {
			quick++
		}
		release(t, d, g)
	}
	if quick == 0 {
		t.Error("no waiter noticed a kill before its timer")
	}
}

// TestKillBetweenMarkAndLock checks that a woken waiter soon makes more attempts if it finds the
// file locked and no holder. The kernel drops the mark of a killed process before the lock, and the
// process may lose the processor in between.
func TestKillBetweenMarkAndLock(t *testing.T) {
	t.Parallel()
	d := openWatching(t)
	g := acquire(t, d, request("k", 1))
	req := waiting("k", 2)
	_ = refused(t, d, req)
	release(t, d, g)
	dying, err := openLock(d.path("k"), unix.O_RDWR)
	if err != nil {
		t.Fatal(err)
	}
	defer dying.close()
	if locked, err := dying.tryLockFor(backend.Exclusive); !locked {
		t.Fatal("the test cannot lock the file: ", err)
	}
	d.find(req).woken.Store(true)
	for _, want := range []time.Duration{
		pauseWoken, 4 * pauseWoken, 16 * pauseWoken, 64 * pauseWoken, 256 * pauseWoken,
		pauseWatched, 2 * pauseWatched,
	} {
		if b := refused(t, d, req); b.State != want {
			t.Errorf("the pause is %v, want %v", b.State, want)
		}
	}
}

// openWatching opens a driver with a watcher.
func openWatching(t *testing.T) *driver {
	t.Helper()
	d := openDriver(t, t.TempDir())
	if d.watcher == nil {
		t.Skip("does not apply: this system has no watches")
	}
	return d
}

// TestEventsLengthenNoPause checks that a pause which an event has ended does not count, nor do the
// retries after it. The event of a foreign close changes nothing else.
func TestEventsLengthenNoPause(t *testing.T) {
	t.Parallel()
	d := openWatching(t)
	acquire(t, d, request("k", 1))
	req := waiting("k", 2)
	pause := refused(t, d, req).State
	for range 3 {
		d.find(req).woken.Store(true)
		want := pauseWoken
		for ; want < pauseWatched; want *= 4 {
			if b := refused(t, d, req); b.State != want {
				t.Errorf("the pause after an event is %v, want %v", b.State, want)
			}
		}
		if b := refused(t, d, req); b.State != pause {
			t.Errorf("the pause is %v, and was %v before the event", b.State, pause)
		}
	}
	if b := refused(t, d, req); b.State != 2*pauseWatched {
		t.Errorf("the pause after %v is %v", pause, b.State)
	}
}

// TestRefusalHasTheFence checks that a refused attempt has the fence of the holder. Where the core
// polls, it detects by the fence that the lock changes hands.
func TestRefusalHasTheFence(t *testing.T) {
	t.Parallel()
	d := openDriver(t, t.TempDir())
	for owner := range 2 {
		g := acquire(t, d, request("k", owner))
		if b := refused(t, d, request("k", 2)); b.Fence != g.Fence {
			t.Errorf("the fence is %d, want %d", b.Fence, g.Fence)
		}
		release(t, d, g)
	}
}

// TestFailedAttemptIsFreeDespiteChildren lets an attempt fail after it has locked the file. A child
// process that is being started, and still has the descriptor, does not keep the lock.
func TestFailedAttemptIsFreeDespiteChildren(t *testing.T) {
	t.Parallel()
	d := openDriver(t, t.TempDir())
	a, err := d.admit(request("k", 1))
	if err != nil {
		t.Fatal(err)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if locked, err := d.lock(a, request("k", 1)); !locked {
		t.Fatal("the test cannot lock the file: ", err)
	}
	child, err := unix.Dup(a.file.fd)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Close(child) }()
	d.forget(a)
	acquire(t, d, request("k", 2))
}

// TestDroppedByTheServer checks that a renewal on a network file system needs the descriptor of the
// lock to be writable. The server of NFS makes each write fail after it has dropped the lock.
func TestDroppedByTheServer(t *testing.T) {
	t.Parallel()
	for path, wantLost := range map[string]bool{
		"/proc/self/mem": true,  // EIO: nothing is mapped at the address 0
		"/dev/full":      false, // ENOSPC
	} {
		d := openDriver(t, t.TempDir())
		d.network = true
		g := acquire(t, d, request("k", 1))
		if _, err := d.Renew(t.Context(), g); err != nil {
			t.Fatalf("Renew: %v", err)
		}
		fd, err := unix.Open(path, unix.O_RDWR|unix.O_CLOEXEC, 0)
		if err != nil {
			t.Skip("does not apply: ", path, ": ", err)
		}
		a := d.find(&g.Request)
		a.mu.Lock()
		healthy := a.file.fd
		a.file.fd = fd
		a.mu.Unlock()
		_, err = d.Renew(t.Context(), g)
		if err == nil || errors.Is(err, backend.ErrLost) != wantLost {
			t.Errorf("Renew with %s: %v, and a loss is %t", path, err, wantLost)
		}
		_ = d.Release(t.Context(), g)
		_ = unix.Close(healthy)
		acquire(t, d, request("k", 2))
	}
}

// TestKilledHolderIsNotShown checks that the record of a dead process does not appear as a holder.
func TestKilledHolderIsNotShown(t *testing.T) {
	t.Parallel()
	d := openDriver(t, t.TempDir())
	holder := startHolder(t, d.dir)
	if info, err := d.Inspect(t.Context(), "k"); err != nil || len(info.Holders) != 1 {
		t.Fatalf("Inspect: %+v, %v; want one holder", info, err)
	}
	_ = holder.Process.Kill()
	_ = holder.Wait()
	if info, err := d.Inspect(t.Context(), "k"); err != nil || len(info.Holders) != 0 {
		t.Errorf("Inspect: %+v, %v; want no holder", info, err)
	}
	for info, err := range d.List(t.Context(), "") {
		t.Errorf("List: %+v, %v; want nothing", info, err)
	}
}

// TestFileTakenAway checks that a holder loses its lock if the file is removed, replaced, or moved
// with its directory. The driver reports the loss.
func TestFileTakenAway(t *testing.T) {
	t.Parallel()
	for name, take := range map[string]func(d *driver) error{
		"removed": func(d *driver) error { return os.Remove(d.path("k")) },
		"replaced": func(d *driver) error {
			other := filepath.Join(d.dir, "other")
			return errors.Join(os.WriteFile(other, nil, 0o600), os.Rename(other, d.path("k")))
		},
		"moved":             func(d *driver) error { return os.Rename(d.path("k"), d.path("l")) },
		"directory moved":   func(d *driver) error { return os.Rename(d.dir, d.dir+"2") },
		"directory removed": func(d *driver) error { return os.RemoveAll(d.dir) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := openDriver(t, filepath.Join(t.TempDir(), "locks"))
			lost := make(chan error, 8)
			req := request("k", 1)
			req.Lost = func(err error) { lost <- err }
			g := acquire(t, d, req)
			if err := take(d); err != nil {
				t.Fatal(err)
			}
			if err := <-lost; !errors.Is(err, backend.ErrLost) {
				t.Errorf("Lost received %v", err)
			}
			if _, err := d.Renew(t.Context(), g); !errors.Is(err, backend.ErrLost) {
				t.Errorf("Renew: %v, want ErrLost", err)
			}
			if err := d.Release(t.Context(), g); !errors.Is(err, backend.ErrNotHeld) {
				t.Errorf("Release: %v, want ErrNotHeld", err)
			}
			next := acquire(t, d, request("k", 2))
			if next.Fence <= g.Fence {
				t.Errorf("fence %d after %d", next.Fence, g.Fence)
			}
			if err := os.Remove(d.path("k")); err != nil {
				t.Fatal(err)
			}
			if _, err := d.Renew(t.Context(), next); !errors.Is(err, backend.ErrLost) {
				t.Errorf("Renew after the second time: %v, want ErrLost", err)
			}
		})
	}
}

// TestDiskThatHangs has an attempt that hangs on the disk and keeps the mutex of its entry. It does
// not delay events of other locks, and delays Close only by closeTimeout. Its lock is freed when
// the disk answers.
func TestDiskThatHangs(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	opened, err := New(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	d, other := opened.(*driver), openDriver(t, dir)
	req := request("held", 1)
	lost := make(chan error, 1)
	req.Lost = func(err error) { lost <- err }
	acquire(t, d, req)
	acquire(t, d, request("free", 1))
	acquire(t, d, request("hangs", 1))
	stuck := d.all(filepath.Base(d.path("hangs")))[0]
	stuck.mu.Lock()
	for _, name := range []string{"hangs", "held"} {
		if err := os.Remove(d.path(name)); err != nil {
			t.Fatal(err)
		}
	}
	select {
	case err := <-lost:
		if !errors.Is(err, backend.ErrLost) {
			t.Errorf("Lost received %v", err)
		}
	case <-time.After(30 * time.Second):
		t.Error("an attempt that hangs delays the events of another lock")
	}
	closed := make(chan error, 1)
	go func() { closed <- d.Close() }()
	select {
	case err := <-closed:
		if !errors.Is(err, backend.ErrUnavailable) {
			t.Errorf("Close: %v, want ErrUnavailable", err)
		}
	case <-time.After(30 * time.Second):
		t.Error("Close waits for the disk")
	}
	release(t, other, acquire(t, other, request("free", 2)))
	stuck.mu.Unlock()
	for end := time.Now().Add(30 * time.Second); len(d.all("")) > 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the lock of the attempt that hung is not freed")
		}
	}
}

// TestRenewalsAreConcurrent checks that the core renews the locks of this driver concurrently. A
// sequential RenewAll would delay all renewals after one that hangs on the disk. The core's
// TestRenewalsThatHangDelayNoOther proves the rest.
func TestRenewalsAreConcurrent(t *testing.T) {
	t.Parallel()
	var d backend.Driver = openDriver(t, t.TempDir())
	if _, ok := d.(backend.BatchRenewer); ok {
		t.Error("the driver combines renewals, although each of them can hang alone")
	}
}

// TestCloseWaitsForASlowDisk checks that Close waits for a slow disk up to its limit. A check of
// the disk replaces all other work that Close waits for, because a mutex would stop the clock of
// the bubble. The close of the watcher, which keeps no lock, is no error.
func TestCloseWaitsForASlowDisk(t *testing.T) {
	t.Parallel()
	const bound = 4 * time.Second
	for _, test := range []struct {
		name             string
		disk, held, want time.Duration
		err              error
	}{
		{"idle", 0, 0, 0, nil},
		{"slow", bound - 1, 0, bound - 1, nil},
		{"hangs", time.Hour, 0, bound, backend.ErrUnavailable},
		{"watcher hangs", 0, time.Hour, bound, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				d := &driver{watcher: &watcher{}}
				d.checks.Go(func() { time.Sleep(test.disk) })
				d.watcher.reader.Go(func() { time.Sleep(test.held) })
				begun := time.Now()
				if err := d.Close(); !errors.Is(err, test.err) {
					t.Errorf("Close: %v, want %v", err, test.err)
				}
				if took := time.Since(begun); took != test.want {
					t.Errorf("Close took %v, want %v", took, test.want)
				}
				time.Sleep(max(test.disk, test.held))
			})
		})
	}
}

// TestSweepLeavesForeignFiles checks that the sweep does not remove a file that was replaced
// before the sweep locked it.
func TestSweepLeavesForeignFiles(t *testing.T) {
	t.Parallel()
	d := openDriver(t, t.TempDir())
	release(t, d, acquire(t, d, request("k", 1)))
	swept, err := openLock(d.path("k"), unix.O_RDWR)
	if err != nil {
		t.Fatal(err)
	}
	defer swept.close()
	if err := os.Remove(d.path("k")); err != nil {
		t.Fatal(err)
	}
	g := acquire(t, d, request("k", 2))
	if err := swept.remove(); err != nil {
		t.Error(err)
	}
	if _, err := d.Renew(t.Context(), g); err != nil {
		t.Errorf("Renew: %v", err)
	}
}

// TestRemovedFileWithoutAnEvent checks the removal of a lock file without an event of the system.
func TestRemovedFileWithoutAnEvent(t *testing.T) {
	t.Parallel()
	d := openDriver(t, t.TempDir())
	d.watcher.close()
	first := acquire(t, d, request("k", 1))
	if err := os.Remove(d.path("k")); err != nil {
		t.Fatal(err)
	}
	second := acquire(t, d, request("k", 2))
	if _, err := d.Acquire(t.Context(), &first.Request); !errors.Is(err, backend.ErrLost) {
		t.Errorf("Acquire again: %v, want ErrLost", err)
	}
	if err := os.Remove(d.path("k")); err != nil {
		t.Fatal(err)
	}
	third := acquire(t, d, request("k", 3))
	if err := d.Release(t.Context(), second); !errors.Is(err, backend.ErrNotHeld) {
		t.Errorf("Release: %v, want ErrNotHeld", err)
	}
	if _, err := d.Renew(t.Context(), third); err != nil {
		t.Errorf("Renew: %v", err)
	}
}

// TestWaiterFollows checks that a waiter whose file was removed gets the lock on the new file.
func TestWaiterFollows(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	holder, waiter := openDriver(t, dir), openDriver(t, dir)
	acquire(t, holder, request("k", 1))
	req := waiting("k", 2)
	b := refused(t, waiter, req)
	if err := os.Remove(holder.path("k")); err != nil {
		t.Fatal(err)
	}
	if _, err := waiter.Wait(t.Context(), req, b); err != nil {
		t.Fatal(err)
	}
	acquire(t, waiter, req)
	if b := refused(t, holder, request("k", 3)); b.Queued {
		t.Error("an attempt without Queue left an entry")
	}
}

// TestForeignFile checks that the driver does not change a file that is not the lock file of the
// name.
func TestForeignFile(t *testing.T) {
	t.Parallel()
	d := openDriver(t, t.TempDir())
	write := func(path string) error { return os.WriteFile(path, []byte("my notes\n"), 0o600) }
	for name, put := range map[string]func(path string) error{
		"text":      write,
		"directory": func(path string) error { return os.Mkdir(path, 0o700) },
		"pipe":      func(path string) error { return unix.Mkfifo(path, 0o600) },
		"symlink": func(path string) error {
			return errors.Join(write(path+"2"), os.Symlink(path+"2", path))
		},
		"another-name": func(path string) error { return relabel(d, path) },
	} {
		path := d.path(name)
		if err := put(path); err != nil {
			t.Fatal(err)
		}
		before := contentsOf(path)
		_, err := d.Acquire(t.Context(), waiting(name, 1))
		if !errors.Is(err, backend.ErrConflict) {
			t.Errorf("%s: Acquire: %v, want ErrConflict", name, err)
		} else if !strings.Contains(err.Error(), path) {
			t.Errorf("%s: the error does not name the file: %v", name, err)
		}
		if contentsOf(path) != before {
			t.Errorf("%s: the driver wrote to the file", name)
		}
	}
	for info, err := range d.List(t.Context(), "") {
		t.Errorf("List: %+v, %v; want nothing", info, err)
	}
	if n := len(d.all("")); n != 0 {
		t.Errorf("%d entries are left", n)
	}
}

// contentsOf returns the content of the file at path, or "" if path is not a regular file.
func contentsOf(path string) string {
	if stat, err := os.Stat(path); err != nil || !stat.Mode().IsRegular() {
		return ""
	}
	b, _ := os.ReadFile(path)
	return string(b)
}

// relabel puts the lock file of another name at path.
func relabel(d *driver, path string) error {
	ctx := context.Background()
	g, err := d.Acquire(ctx, request("origin", 1))
	if err != nil {
		return err
	}
	return errors.Join(d.Release(ctx, g), os.Rename(d.path("origin"), path))
}

func TestUnsafeDirectory(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, mode := range []os.FileMode{0o770, 0o777, 0o702} {
		if err := os.Chmod(dir, mode); err != nil {
			t.Fatal(err)
		}
		if _, err := New(dir, nil); err == nil || !strings.Contains(err.Error(), "chmod 700") {
			t.Errorf("mode %o: %v", mode, err)
		}
	}
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, bad := range []string{file, filepath.Join(file, "below"), "relative", ""} {
		if _, err := New(bad, nil); err == nil {
			t.Errorf("New(%q): no error", bad)
		}
	}
	stat := unix.Stat_t{Mode: unix.S_IFDIR | 0o700, Uid: uint32(os.Geteuid()) + 1}
	if err := checkPrivate(dir, &stat); err == nil || !strings.Contains(err.Error(), "chown") {
		t.Errorf("another owner: %v", err)
	}
	err := checkLocal(dir, networkTypes[unix.NFS_SUPER_MAGIC], &Options{})
	if err == nil || !strings.Contains(err.Error(), "NFS") {
		t.Errorf("NFS: %v", err)
	}
	if err := checkLocal(dir, "NFS", &Options{AllowNetwork: true}); err != nil {
		t.Errorf("NFS, allowed: %v", err)
	}
}

func TestPrivateByDefault(t *testing.T) {
	t.Parallel()
	d := openDriver(t, filepath.Join(t.TempDir(), "a", "b"))
	acquire(t, d, request("k", 1))
	for path, want := range map[string]os.FileMode{
		d.dir: 0o700, filepath.Dir(d.dir): 0o700, d.path("k"): 0o600,
	} {
		if stat, err := os.Stat(path); err != nil || stat.Mode().Perm() != want {
			t.Errorf("%s: mode %v, %v; want %o", path, stat.Mode(), err, want)
		}
	}
}

func TestDefaultDir(t *testing.T) {
	for _, tt := range []struct{ state, home, want string }{
		{"/s", "/h", "/s/dlock"},
		{"", "/h", "/h/.local/state/dlock"},
		{"relative", "/h", "/h/.local/state/dlock"},
		{"", "", ""},
	} {
		t.Setenv("XDG_STATE_HOME", tt.state)
		t.Setenv("HOME", tt.home)
		if got, err := DefaultDir(); got != tt.want || (err == nil) != (tt.want != "") {
			t.Errorf("DefaultDir with %q, %q = %q, %v; want %q",
				tt.state, tt.home, got, err, tt.want)
		}
	}
}

// TestFencesInMemoryAreVolatile checks that the driver calls its fences volatile in a directory
// that a restart of the machine removes.
func TestFencesInMemoryAreVolatile(t *testing.T) {
	t.Parallel()
	var stat unix.Statfs_t
	if err := unix.Statfs("/dev/shm", &stat); err != nil || stat.Type != unix.TMPFS_MAGIC {
		t.Skip("does not apply: this system has no tmpfs in /dev/shm")
	}
	dir, err := os.MkdirTemp("/dev/shm", "dlock-test-") //nolint:usetesting // it must be in memory
	if err != nil {
		t.Skip("does not apply: this user cannot write to /dev/shm")
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	d := openDriver(t, filepath.Join(dir, "locks"))
	if c := d.Capabilities(); c.Fencing != backend.FenceVolatile {
		t.Errorf("Fencing is %v, want FenceVolatile", c.Fencing)
	}
	d.memory = false
	if c := d.Capabilities(); c.Fencing != backend.FenceDurable {
		t.Errorf("Fencing on a disk is %v, want FenceDurable", c.Fencing)
	}
}

// TestReservationsAreConfirmed checks that each reservation is confirmed in the file, so that no
// later grant writes it again.
func TestReservationsAreConfirmed(t *testing.T) {
	t.Parallel()
	d := openDriver(t, t.TempDir())
	for i := range 2 {
		acquire(t, d, request("k", 1))
		c, err := parse([]byte(contentsOf(d.path("k"))))
		if err != nil || !c.confirmed || !c.latest.reservation {
			t.Fatalf("grant %d: %+v, %v; want a confirmed reservation", i, c.latest, err)
		}
		d.boot = "another"
		release(t, d, &backend.Grant{Request: *request("k", 1)})
	}
}

// TestOpenURL opens the default directory and another one.
func TestOpenURL(t *testing.T) {
	t.Setenv("XDG_STATE_HOME", t.TempDir())
	here := t.TempDir()
	for _, raw := range []string{
		"file:", "file:" + here, "file://" + here, "file:" + here + "?allow-network=1",
	} {
		d, err := testenv.Open(t.Context(), raw)
		if err != nil {
			t.Errorf("%s: %v", raw, err)
			continue
		}
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestWaitingIsQuiet checks that waiters neither poll, nor wake each other, nor keep threads. One
// event is enough to pass the lock through all of them.
func TestWaitingIsQuiet(t *testing.T) {
	dir := t.TempDir()
	drivers := []*driver{openDriver(t, dir), openDriver(t, dir), openDriver(t, dir)}
	g := acquire(t, drivers[0], request("k", 0))
	const waiters = 60
	var tries, started atomic.Int64
	var section atomic.Int32
	threads := len(entriesOf(t, "/proc/self/task"))
	var group sync.WaitGroup
	for i := range waiters {
		d, req := drivers[i%len(drivers)], waiting("k", i+1)
		group.Go(func() {
			b := refused(t, d, req)
			started.Add(1)
			for {
				if _, err := d.Wait(t.Context(), req, b); err != nil {
					t.Error(err)
					return
				}
				tries.Add(1)
				g, err := d.Acquire(t.Context(), req)
				var ok bool
				if b, ok = errors.AsType[*backend.Busy](err); ok {
					continue
				}
				if err != nil || section.Add(1) != 1 {
					t.Errorf("a second holder, or %v", err)
					return
				}
				section.Add(-1)
				release(t, d, g)
				return
			}
		})
	}
	for started.Load() < waiters {
		time.Sleep(time.Millisecond)
	}
	var before int64
	for void := 0; ; void++ {
		before = tries.Load()
		began := time.Now()
		time.Sleep(pauseWatched / 4) // the minimum pause is twice as long
		n := tries.Load() - before
		if n <= waiters {
			break
		}
		if took := time.Since(began); took < pauseWatched/2 || void == 5 {
			t.Errorf("%d tries of %d waiters in %v without an event", n, waiters, took)
			break
		}
	}
	if n := len(entriesOf(t, "/proc/self/task")) - threads; n > waiters/2 {
		t.Errorf("%d more threads for %d waiters", n, waiters)
	}
	release(t, drivers[0], g)
	group.Wait()
	t.Logf("%d tries to pass the lock through %d waiters", tries.Load()-before, waiters)
	for _, d := range drivers {
		d.watcher.mu.Lock()
		if n := len(d.watcher.waiting); n != 0 {
			t.Errorf("%d watches are left", n)
		}
		d.watcher.mu.Unlock()
	}
}

func entriesOf(t *testing.T, dir string) []os.DirEntry {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	return entries
}

// TestInspectDoesNotDisturb checks that an attempt on a free lock succeeds however often Inspect
// reads it concurrently.
func TestInspectDoesNotDisturb(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	d, onlooker := openDriver(t, dir), openDriver(t, dir)
	ctx, stop := context.WithCancel(t.Context())
	var group sync.WaitGroup
	group.Go(func() {
		for ctx.Err() == nil {
			info, err := onlooker.Inspect(t.Context(), "k")
			if err != nil || len(info.Holders) == 1 && info.Holders[0].Since.IsZero() {
				t.Errorf("Inspect: %+v, %v", info, err)
			}
		}
	})
	var last *backend.Grant
	for i := range 1000 {
		last = acquire(t, d, request("k", i))
		info, err := d.Inspect(t.Context(), "k")
		if err != nil || len(info.Holders) != 1 || info.Holders[0].Owner != last.Owner ||
			info.Holders[0].Fence != last.Fence<<12 {
			t.Fatalf("Inspect: %+v, %v; want %s", info, err, last.Owner)
		}
		release(t, d, last)
	}
	stop()
	group.Wait()
}

// TestWithoutWatches checks that the waiter polls if the system provides no watch.
func TestWithoutWatches(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(d *driver){
		"no instance": func(d *driver) { d.watcher.close(); d.watcher = nil },
		"no watch":    func(d *driver) { d.watcher.close() },
	} {
		dir := t.TempDir()
		holder, waiter := openDriver(t, dir), openDriver(t, dir)
		spoil(waiter)
		g := acquire(t, holder, request("k", 1))
		b := refused(t, waiter, waiting("k", 2))
		if b.State != pauseUnwatched {
			t.Errorf("%s: the pause is %v", name, b.State)
		}
		release(t, holder, g)
		if _, _, err := await(t.Context(), waiter, waiting("k", 2)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if notify := waiter.Capabilities().Notify; notify != (waiter.watcher != nil) {
			t.Errorf("%s: Notify = %v", name, notify)
		}
	}
}

// TestLongWaitersRest checks that the pauses grow while one holder keeps the lock, and are reset
// when the holder changes.
func TestLongWaitersRest(t *testing.T) {
	t.Parallel()
	for name, pauses := range map[string][2]time.Duration{
		"watched":   {pauseWatched, maxPauseWatched},
		"unwatched": {pauseUnwatched, maxPauseUnwatched},
	} {
		first, longest := pauses[0], pauses[1]
		dir := t.TempDir()
		holder, waiter := openDriver(t, dir), openDriver(t, dir)
		if name == "unwatched" {
			waiter.watcher.close()
		} else if waiter.watcher == nil {
			continue
		}
		g := acquire(t, holder, request("k", 1))
		for _, want := range []time.Duration{first, 2 * first, 4 * first, 8 * first} {
			if b := refused(t, waiter, waiting("k", 2)); b.State != want {
				t.Errorf("%s: the pause is %v, want %v", name, b.State, want)
			}
		}
		for range 5 {
			_ = refused(t, waiter, waiting("k", 2))
		}
		if b := refused(t, waiter, waiting("k", 2)); b.State != longest {
			t.Errorf("%s: the last pause is %v, want %v", name, b.State, longest)
		}
		release(t, holder, g)
		acquire(t, holder, request("k", 3))
		if b := refused(t, waiter, waiting("k", 2)); b.State != first {
			t.Errorf("%s: after another holder the pause is %v, want %v", name, b.State, first)
		}
	}
}

// TestEndlessIsChecked checks that the driver detects the loss of an endless lock. Such a lock has
// no renewals, and its file may be removed without an event.
func TestEndlessIsChecked(t *testing.T) {
	t.Parallel()
	testChecks(t, Options{Endless: true}, endless)
}

// TestBlockingIsChecked checks that a driver without a watcher detects a loss before the renewal.
func TestBlockingIsChecked(t *testing.T) {
	t.Parallel()
	testChecks(t, Options{Block: true}, time.Minute)
}

// testChecks checks that a driver detects the loss of a lock without a renewal. term is the term
// that it grants.
func testChecks(t *testing.T, opts Options, term time.Duration) {
	t.Helper()
	for name, takeAway := range map[string]func(dir string) error{
		"file": func(dir string) error { return os.Remove(filepath.Join(dir, "k.lock")) },
		"directory": func(dir string) error {
			return os.Rename(filepath.Dir(dir), filepath.Dir(dir)+"-gone")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(t.TempDir(), "parent", "locks")
			d, err := New(dir, &opts)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = d.Close() }()
			lost := make(chan error, 1)
			req := request("k", 1)
			req.Lost = func(err error) { lost <- err }
			if ttl := acquire(t, d, req).Term.TTL; ttl != term {
				t.Errorf("the term is %v, want %v", ttl, term)
			}
			if err := takeAway(dir); err != nil {
				t.Fatal(err)
			}
			select {
			case err := <-lost:
				if !errors.Is(err, backend.ErrLost) {
					t.Errorf("the loss is %v", err)
				}
			case <-time.After(30 * time.Second):
				t.Error("the driver does not detect the loss")
			}
		})
	}
}

// TestBlockedWaitersRest checks that a driver that only waits checks less and less often, and one
// that holds a lock at least every checkInterval, also after it has waited for long.
func TestBlockedWaitersRest(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	holder := openDriver(t, dir)
	acquire(t, holder, request("waits", 1))
	synctest.Test(t, func(t *testing.T) {
		d := openBlocking(t, dir)
		_ = refused(t, d, waiting("waits", 2))
		for last, want := range map[time.Duration]time.Duration{
			checkInterval: 2 * checkInterval, maxPauseBlocked: maxPauseBlocked,
		} {
			if got := nextInterval(last, d.all("")); got != want {
				t.Errorf("after %v a waiter is checked after %v, want %v", last, got, want)
			}
		}
		d.startPeriodicChecks()
		time.Sleep(time.Hour)
		lost := make(chan time.Time, 1)
		req := request("k", 3)
		req.Lost = func(error) { lost <- time.Now() }
		acquire(t, d, req)
		held := time.Now()
		if err := os.Remove(d.path("k")); err != nil {
			t.Fatal(err)
		}
		if after := (<-lost).Sub(held); after > checkInterval {
			t.Errorf("the loss is detected after %v, want %v", after, checkInterval)
		}
		acquire(t, d, request("held", 4))
		if got := nextInterval(maxPauseBlocked, d.all("")); got != checkInterval {
			t.Errorf("a holder is checked after %v, want %v", got, checkInterval)
		}
	})
}

// TestReplacedBehindAStoppedProcess removes the lock file of a stopped process, which keeps it
// locked. A waiter in flock finds out with the next check, without an event or a timer of its own.
func TestReplacedBehindAStoppedProcess(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	holder, d, req := startHolder(t, dir), openBlocking(t, dir), waiting("k", 2)
	woken := waitInFlock(t, d, req)
	stop(t, holder)
	if err := os.Remove(d.path("k")); err != nil {
		t.Fatal(err)
	}
	if err := <-woken; err != nil {
		t.Errorf("the waiter is not woken: %v", err)
	}
	release(t, d, acquire(t, d, req))
}

// waitInFlock lets req wait for "k" with a thread in flock. No timer ends the wait, whose error is
// sent.
func waitInFlock(t *testing.T, d *driver, req *backend.Request) (woken <-chan error) {
	t.Helper()
	b := refused(t, d, req)
	b.State = time.Hour
	ended := make(chan error, 1)
	go func() {
		_, err := d.Wait(soon(t, 30*time.Second), req, b)
		ended <- err
	}()
	for flockWaiters(t, d.path("k")) == 0 {
		time.Sleep(time.Millisecond)
	}
	return ended
}

// TestThreadThatFails checks a waiter whose thread gets an error from flock: it is woken, and polls
// from then on. Some file systems refuse a flock that blocks: virtiofs does. The core limits the
// Waits of a waiter without a thread.
func TestThreadThatFails(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	_ = acquire(t, openDriver(t, dir), request("k", 1))
	d, req := openBlocking(t, dir), waiting("k", 2)
	if b := refused(t, d, req); b.Reliable {
		t.Error("a waiter without a thread is reliable")
	}
	a := d.find(req)
	a.mu.Lock()
	a.blocked = a.file // as block does
	a.mu.Unlock()
	b := refused(t, d, req)
	if !b.Reliable {
		t.Error("a waiter in flock is not reliable")
	}
	d.blockOn(a, a.file, -1) // EBADF, as a server may cause ENOLCK, EIO or ESTALE
	b.State = time.Hour
	if _, err := d.Wait(soon(t, 30*time.Second), req, b); err != nil {
		t.Errorf("the waiter is not woken: %v", err)
	}
	if d.block(a); hasThread(a) {
		t.Error("the waiter has another thread, whose failure would wake it again")
	}
	if b := refused(t, d, req); b.Reliable {
		t.Error("a waiter that polls is reliable")
	}
	if b := refused(t, openDriver(t, dir), waiting("k", 3)); b.Reliable {
		t.Error("a waiter that is woken by events is reliable: not every close is an event")
	}
}

// openBlocking opens a driver whose waiters block in flock.
func openBlocking(t *testing.T, dir string) *driver {
	t.Helper()
	d, err := New(dir, &Options{Block: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	return d.(*driver)
}

// TestBlockedWaiters checks that blocked waiters get the lock in the order of their arrival, use no
// watch, and leave when their context ends.
func TestBlockedWaiters(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	holder := openDriver(t, dir)
	g := acquire(t, holder, request("k", 0))
	const waiters = 6
	order := make(chan int, waiters)
	var group sync.WaitGroup
	for i := range waiters {
		d, req := openBlocking(t, dir), waiting("k", i+1)
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		group.Go(func() {
			g, _, err := await(ctx, d, req)
			switch {
			case i == 2 && errors.Is(err, context.Canceled):
				release(t, d, &backend.Grant{Request: *req})
				return
			case err != nil:
				t.Errorf("waiter %d: %v", i, err)
				return
			case d.watcher != nil && d.watcher.state != watcherIdle:
				t.Errorf("waiter %d has a watch", i)
			}
			order <- i
			release(t, d, g)
		})
		for flockWaiters(t, holder.path("k")) <= i {
			time.Sleep(time.Millisecond)
		}
		if i == 2 {
			cancel()
		}
	}
	release(t, holder, g)
	group.Wait()
	close(order)
	last := -1
	for i := range order {
		if i < last {
			t.Errorf("waiter %d after %d", i, last)
		}
		last = i
	}
	if _, _, err := await(soon(t, 30*time.Second), holder, waiting("k", 9)); err != nil {
		t.Errorf("the lock is not free: %v", err)
	}
}

// TestBlockedWaiterDoesNotOvertake checks that a waiter whose thread is in the kernel's queue gets
// the lock by that thread alone, however often it makes an attempt.
func TestBlockedWaiterDoesNotOvertake(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	holder, first, second := openDriver(t, dir), openBlocking(t, dir), openBlocking(t, dir)
	for n := range 30 { // an attempt overtakes only in the instant after the release
		key := fmt.Sprint("k", n)
		blocked := func(waiters int) {
			for flockWaiters(t, holder.path(key)) < waiters {
				time.Sleep(time.Millisecond)
			}
		}
		g := acquire(t, holder, request(key, 0))
		var order atomic.Int32
		var group sync.WaitGroup
		group.Go(func() {
			g, _, err := await(t.Context(), first, waiting(key, 1))
			if err != nil || !order.CompareAndSwap(0, 1) {
				t.Errorf("the first waiter: %v, after another one: %v", err, order.Load())
				return
			}
			release(t, first, g)
		})
		blocked(1)
		req := waiting(key, 2)
		_ = refused(t, second, req)
		second.block(second.find(req))
		blocked(2)
		group.Go(func() {
			g, err := second.Acquire(t.Context(), req)
			for ; err != nil; g, err = second.Acquire(t.Context(), req) {
			}
			order.CompareAndSwap(0, 2)
			release(t, second, g)
		})
		release(t, holder, g)
		group.Wait()
	}
}

// TestBlockedWaiterKeepsItsPlace checks that a signal does not put a waiter at the end of the
// kernel's queue.
func TestBlockedWaiterKeepsItsPlace(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	holder := openDriver(t, dir)
	g := acquire(t, holder, request("k", 0))
	order := make(chan int, 2)
	var group sync.WaitGroup
	queue := func(i int) {
		d, req := openBlocking(t, dir), waiting("k", i+1)
		group.Go(func() {
			g, _, err := await(t.Context(), d, req)
			if err != nil {
				t.Errorf("waiter %d: %v", i, err)
				return
			}
			order <- i
			release(t, d, g)
		})
		for flockWaiters(t, holder.path("k")) <= i {
			time.Sleep(time.Millisecond)
		}
	}
	queue(0)
	threads := threadsInFlock(t) // those of other tests, too: the signal has no effect on them
	queue(1)
	for range 20 { // a thread needs a moment to react
		for _, thread := range threads {
			_ = unix.Tgkill(os.Getpid(), thread, unix.SIGURG)
		}
		time.Sleep(time.Millisecond)
	}
	release(t, holder, g)
	group.Wait()
	if first := <-order; first != 0 {
		t.Errorf("waiter %d has got the lock first", first)
	}
}

// TestWaitEndsWhileTheDiskHangs checks that Wait returns at the end of its context, even if an
// attempt that hangs on the disk keeps the mutex of the acquisition.
func TestWaitEndsWhileTheDiskHangs(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	acquire(t, openDriver(t, dir), request("k", 0))
	for name, d := range map[string]*driver{
		"watched": openDriver(t, dir), "blocking": openBlocking(t, dir),
	} {
		req := waiting("k", 1)
		b := refused(t, d, req)
		b.State = time.Hour // no timer ends the wait
		a := d.find(req)
		a.mu.Lock()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		ended := make(chan error, 1)
		go func() {
			_, err := d.Wait(ctx, req, b)
			ended <- err
		}()
		select {
		case err := <-ended:
			if !errors.Is(err, context.Canceled) {
				t.Errorf("%s: Wait: %v, want Canceled", name, err)
			}
		case <-time.After(30 * time.Second):
			t.Errorf("%s: Wait waits for the disk", name)
		}
		a.mu.Unlock()
	}
}

// TestThreadsOfWaitersThatLeft checks that waiters which give up leave a limited number of threads,
// that the next waiter then polls, and that the limit counts no thread that has ended.
func TestThreadsOfWaitersThatLeft(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	holder, d := openDriver(t, dir), openBlocking(t, dir)
	g := acquire(t, holder, request("k", 0))
	threads := 0
	for i := range maxLeftThreads + 8 {
		req := waiting("k", i+1)
		req.Lost = func(error) {}
		_ = refused(t, d, req)
		a := d.find(req)
		if d.block(a); hasThread(a) {
			threads++
		}
		release(t, d, &backend.Grant{Request: *req})
		if a.lost != nil {
			t.Fatal("a waiter that left keeps the core's function")
		}
	}
	if threads != maxLeftThreads {
		t.Errorf("%d threads of waiters that left, want %d", threads, maxLeftThreads)
	}
	release(t, holder, g)
	g, _, err := await(t.Context(), d, waiting("k", 100))
	if err != nil {
		t.Fatalf("the waiter that polls: %v", err)
	}
	for end := time.Now().Add(30 * time.Second); d.leftThreads.Load() > 0; {
		if time.Now().After(end) {
			t.Fatal("the threads do not end, although the lock is free again and again")
		}
		release(t, d, g)
		if g, _, err = await(t.Context(), d, waiting("k", 100)); err != nil {
			t.Fatal(err)
		}
	}
	req := waiting("k", 101)
	_ = refused(t, d, req)
	if d.block(d.find(req)); !hasThread(d.find(req)) {
		t.Error("the threads have ended, but the next waiter gets none")
	}
}

// hasThread reports whether a thread waits in flock for a.
func hasThread(a *acquisition) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.isBlocked()
}

// threadsInFlock returns the threads of this process that wait in flock(2) (proc(5)).
func threadsInFlock(t *testing.T) (threads []int) {
	t.Helper()
	tasks, err := os.ReadDir("/proc/self/task")
	if err != nil {
		t.Fatal(err)
	}
	for _, task := range tasks {
		call, _ := os.ReadFile("/proc/self/task/" + task.Name() + "/syscall")
		thread, err := strconv.Atoi(task.Name())
		if err == nil && strings.HasPrefix(string(call), fmt.Sprint(unix.SYS_FLOCK, " ")) {
			threads = append(threads, thread)
		}
	}
	if len(threads) == 0 {
		t.Fatal("no thread waits in flock")
	}
	return threads
}

// flockWaiters returns how many threads the kernel has in the queue for the flock of a file
// (proc_locks(5)).
func flockWaiters(t *testing.T, path string) (n int) {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	locks, err := os.ReadFile("/proc/locks")
	if err != nil {
		t.Fatal(err)
	}
	file := fmt.Sprintf(":%d 0 EOF", info.Sys().(*syscall.Stat_t).Ino)
	for line := range strings.Lines(string(locks)) {
		switch {
		case !strings.Contains(line, file):
		case strings.Contains(line, "-> FLOCK"):
			n++
		default: // A holder comes before its waiters. The kernel may list both twice.
			n = 0
		}
	}
	return n
}

// TestUncontendedNeedsNoWatch checks that an uncontended lock opens no watch. The kernel takes up
// to 20 ms to close a watch, which delays the end of a process with a watch.
func TestUncontendedNeedsNoWatch(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	b, err := New(dir, &Options{Endless: true})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = b.Close() }()
	d := b.(*driver)
	if d.watcher == nil {
		t.Skip("does not apply: this system has no watches")
	}
	g := acquire(t, d, request("k", 1))
	if d.watcher.file != nil {
		t.Error("an uncontended lock has opened a watch")
	}
	waiter := openDriver(t, dir)
	_ = refused(t, waiter, waiting("k", 2))
	release(t, d, g)
	if _, _, err := await(t.Context(), waiter, waiting("k", 2)); err != nil {
		t.Error(err)
	}
	_ = refused(t, d, waiting("k", 3))
	if d.watcher.file == nil {
		t.Error("a waiter has no watch")
	}
}

// TestDotsInLinks checks that the names of a path are followed one after the other, as the kernel
// does.
func TestDotsInLinks(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	link := filepath.Join(dir, "a/b/link")
	err := errors.Join(
		os.MkdirAll(filepath.Join(dir, "a/b"), 0o700),
		os.MkdirAll(filepath.Join(dir, "a/locks"), 0o700),
		os.Symlink("a/b", filepath.Join(dir, "short")),
		os.Symlink("../locks", link),
	)
	if err != nil {
		t.Fatal(err)
	}
	d, err := New(filepath.Join(dir, "short/link"), nil)
	if err != nil {
		t.Fatalf("New through two links: %v", err)
	}
	_ = d.Close()
	if err := errors.Join(os.Remove(link), os.Symlink("link", link)); err != nil {
		t.Fatal(err)
	}
	if err := checkPath(filepath.Join(dir, "short/link")); !errors.Is(err, unix.ELOOP) {
		t.Errorf("a link to itself: %v, want ELOOP", err)
	}
}

// TestChildInheritsNothing checks that a child process of the holder does not keep the lock.
func TestChildInheritsNothing(t *testing.T) {
	t.Parallel()
	d := openDriver(t, t.TempDir())
	acquire(t, d, request("k", 1))
	child := exec.Command("sleep", "60")
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = child.Process.Kill()
		_ = child.Wait()
	}()
	fds := fmt.Sprintf("/proc/%d/fd", child.Process.Pid)
	for _, fd := range entriesOf(t, fds) {
		target, _ := os.Readlink(filepath.Join(fds, fd.Name()))
		if strings.HasPrefix(target, d.dir) || strings.Contains(target, "inotify") {
			t.Errorf("the child has %s", target)
		}
	}
}

// TestReleaseOfAnInheritedLock checks that a release wakes the waiters although a child process
// still has the descriptor of the holder.
func TestReleaseOfAnInheritedLock(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	holder, err := New(dir, &Options{Inherit: true})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = holder.Close() }()
	g := acquire(t, holder, request("k", 1))
	child := exec.Command("sleep", "600")
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = child.Process.Kill()
		_ = child.Wait()
	}()
	waiter, req := openDriver(t, dir), waiting("k", 2)
	_ = refused(t, waiter, req)
	release(t, holder, g)
	select {
	case <-waiter.find(req).wake:
	case <-time.After(30 * time.Second):
		t.Error("the release does not wake the waiter")
	}
	acquire(t, waiter, req)
}

// TestReleaseDuringAttempt checks that an attempt which is executed after its Release takes
// nothing.
func TestReleaseDuringAttempt(t *testing.T) {
	t.Parallel()
	d := openDriver(t, t.TempDir())
	req := request("k", 1)
	e, err := d.admit(req)
	if err != nil {
		t.Fatal(err)
	}
	err = d.Release(t.Context(), &backend.Grant{Request: *req})
	if !errors.Is(err, backend.ErrNotHeld) {
		t.Errorf("Release: %v, want ErrNotHeld", err)
	}
	e.mu.Lock()
	err = d.attempt(e, req)
	e.mu.Unlock()
	if !errors.Is(err, backend.ErrUnavailable) {
		t.Errorf("attempt: %v, want ErrUnavailable", err)
	}
	acquire(t, d, request("k", 2))
}

func TestInterpretError(t *testing.T) {
	t.Parallel()
	for errno, want := range map[error]error{
		unix.ELOOP: backend.ErrConflict, unix.EACCES: backend.ErrConflict,
		unix.EROFS: backend.ErrUnsupported, unix.EISDIR: backend.ErrConflict,
		unix.EMFILE: backend.ErrUnavailable, unix.ENOSPC: backend.ErrUnavailable,
		unix.EIO: backend.ErrUnavailable,
	} {
		err := interpretError("open", "/x", errno)
		if !errors.Is(err, want) || !errors.Is(err, errno) {
			t.Errorf("interpretError(%v) = %v, want %v", errno, err, want)
		}
	}
}

// BenchmarkFirst measures an uncontended Acquire and Release with a new name each time. Each
// Acquire writes its reservation to the disk.
func BenchmarkFirst(b *testing.B) {
	d, err := New(b.TempDir(), nil)
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = d.Close() }()
	for i := 0; b.Loop(); i++ {
		g, err := d.Acquire(b.Context(), request(fmt.Sprint(i), 1))
		if err == nil {
			err = d.Release(b.Context(), g)
		}
		if err != nil {
			b.Fatal(err)
		}
	}
}

// TestReplaceableDirectoriesAreRefused checks that a directory which all users can write to needs
// the sticky bit.
func TestReplaceableDirectoriesAreRefused(t *testing.T) {
	t.Parallel()
	shared := filepath.Join(t.TempDir(), "shared")
	dir := filepath.Join(shared, "locks")
	for mode, refuse := range map[os.FileMode]bool{0o777: true, 0o777 | os.ModeSticky: false} {
		if err := errors.Join(os.MkdirAll(dir, 0o700), os.Chmod(shared, mode)); err != nil {
			t.Fatal(err)
		}
		if err := checkPath(dir); (err != nil) != refuse {
			t.Errorf("mode %v: %v", mode, err)
		}
	}
}

// TestChangeableLinksAreRefused checks symbolic links in the path that another user can change.
// Such a link would give two processes two directories.
func TestChangeableLinksAreRefused(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name   string
		mode   os.FileMode // mode of the directory with the link
		uid    int         // owner of the link
		refuse bool
	}{
		{"our own link", 0o755, os.Geteuid(), false},
		{"in a directory that all may write", 0o777, os.Geteuid(), true},
		{"in one with the sticky bit", 0o777 | os.ModeSticky, os.Geteuid(), false},
		{"another user's link", 0o777 | os.ModeSticky, 12345, true},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			if row.uid != os.Geteuid() && os.Geteuid() != 0 {
				t.Skip("does not apply: only root can give files to other users")
			}
			locks, links := filepath.Join(t.TempDir(), "locks"), filepath.Join(t.TempDir(), "links")
			link := filepath.Join(links, "link")
			err := errors.Join(
				os.Mkdir(locks, 0o700), os.Mkdir(links, 0o755), os.Chmod(links, row.mode),
				os.Symlink(locks, link), os.Lchown(link, row.uid, -1),
			)
			if err != nil {
				t.Fatal(err)
			}
			for _, dir := range []string{link, filepath.Join(link, "below")} {
				d, err := New(dir, nil)
				if err == nil {
					_ = d.Close()
				}
				if (err != nil) != row.refuse {
					t.Errorf("New in %s: %v", dir, err)
				}
			}
		})
	}
}

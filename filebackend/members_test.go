//go:build linux

package filebackend

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dlock-go/dlock/backend"
)

// memberFiles returns the files of the members of "k". There are none without a directory.
func memberFiles(t *testing.T, dir string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "k.set", "*"))
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// TestDeadMembersBlockNoOther kills processes that hold or wait as members. Their entries exclude
// no later request, and are removed.
func TestDeadMembersBlockNoOther(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, dead, next string }{
		{"a reader", "r", "w"},
		{"a reader before a permit", "r", "p2"},
		{"a permit", "p1", "p1"},
		{"a permit before a permit of another limit", "p3", "p2"},
		{"a mutex before a reader", "w", "r"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			holder := startMember(t, dir, tt.dead)
			d := openDriver(t, dir)
			if _, err := d.Acquire(t.Context(), of(tt.next, 1)); err == nil {
				t.Fatal("granted while the other process holds")
			}
			_ = holder.Process.Kill()
			_ = holder.Wait()
			release(t, d, acquire(t, d, of(tt.next, 2)))
			if files := memberFiles(t, dir); len(files) > 0 {
				t.Errorf("%v are left", files)
			}
		})
	}
}

// TestDeadWaiterBlocksNoReader kills a writer that waits among readers. The readers behind it get
// the lock.
func TestDeadWaiterBlocksNoReader(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	d := openDriver(t, dir)
	first := acquire(t, d, of("r", 1))
	writer := startMember(t, dir, "w?")
	_ = refused(t, d, of("r", 2))
	_ = writer.Process.Kill()
	_ = writer.Wait()
	second := acquire(t, d, of("r", 3))
	release(t, d, first)
	release(t, d, second)
}

// TestMembersLeaveNothing checks that the last member removes the directory, so that a mutex pays
// nothing for former readers.
func TestMembersLeaveNothing(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	d := openDriver(t, dir)
	readers := []*backend.Grant{acquire(t, d, of("r", 1)), acquire(t, d, of("r", 2))}
	_ = refused(t, d, of("w?", 3))
	for _, g := range readers {
		release(t, d, g)
	}
	release(t, d, acquire(t, d, of("w?", 3)))
	if _, err := os.Stat(filepath.Join(dir, "k.set")); !os.IsNotExist(err) {
		t.Errorf("the directory is left: %v", err)
	}
}

// TestMutexGivesWayToMembers lets a reader wait for a mutex. A mutex that comes after it does not
// overtake it.
func TestMutexGivesWayToMembers(t *testing.T) {
	t.Parallel()
	d := openDriver(t, t.TempDir())
	holder := acquire(t, d, of("w", 1))
	_ = refused(t, d, of("r?", 2))
	release(t, d, holder)
	_ = refused(t, d, of("w", 3))
	release(t, d, acquire(t, d, of("r?", 2)))
	release(t, d, acquire(t, d, of("w", 4)))
}

// TestMutexThatWaitsGivesWay lets a mutex find the lock file free while a reader is in front of it.
// The reader gets the lock although the mutex waits with the file open.
func TestMutexThatWaitsGivesWay(t *testing.T) {
	t.Parallel()
	d := openDriver(t, t.TempDir())
	holder := acquire(t, d, of("w", 1))
	_ = refused(t, d, of("r?", 2))
	release(t, d, holder)
	_ = refused(t, d, of("w?", 3))
	release(t, d, acquire(t, d, of("r?", 2)))
	release(t, d, acquire(t, d, of("w?", 3)))
}

// TestRemovedMemberIsLost removes the file of a reader from outside. Its next renewal reports it.
func TestRemovedMemberIsLost(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	d := openDriver(t, dir)
	g := acquire(t, d, of("r", 1))
	for _, file := range memberFiles(t, dir) {
		if err := os.Remove(file); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := d.Renew(t.Context(), g); !errors.Is(err, backend.ErrLost) {
		t.Errorf("Renew: %v, want ErrLost", err)
	}
	release(t, d, acquire(t, d, of("w", 2)))
}

// TestStoppedGate stops a process while it has the directory of members locked. Other requests fail
// after a second, and succeed when it is gone.
func TestStoppedGate(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	d := openDriver(t, dir)
	reader := acquire(t, d, of("r", 1))
	m, err := lockMembers(filepath.Join(dir, "k.set"), time.Now().Add(maxGate))
	if err != nil || m == nil {
		t.Fatal(m, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	begin := time.Now()
	if _, err := d.Acquire(ctx, of("r", 2)); !errors.Is(err, backend.ErrUnavailable) {
		t.Errorf("Acquire: %v, want ErrUnavailable", err)
	}
	if took := time.Since(begin); took < maxGate {
		t.Errorf("it failed after %v already", took)
	}
	m.close()
	release(t, d, acquire(t, d, of("r", 3)))
	release(t, d, reader)
}

// TestStoppedGateCostsNoPlace stops a process while it has the directory of members locked. The
// attempts of two waiters fail, and they keep their files and their order. A request that did not
// wait before leaves nothing.
func TestStoppedGateCostsNoPlace(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	d := openDriver(t, dir)
	holder := acquire(t, d, of("p1", 1))
	_, _ = refused(t, d, of("p1?", 2)), refused(t, d, of("p1?", 3))
	setAttempt(t, d, of("p1?", 2), waiterTerm+time.Second)
	before := memberFiles(t, dir)
	m, err := lockMembers(filepath.Join(dir, "k.set"), time.Now().Add(maxGate))
	if err != nil {
		t.Fatal(err)
	}
	failed := make(chan error)
	for owner := range 3 {
		go func() {
			_, err := d.Acquire(t.Context(), of("p1?", 2+owner))
			failed <- err
		}()
	}
	for range 3 {
		if err := <-failed; !errors.Is(err, backend.ErrUnavailable) {
			t.Errorf("Acquire: %v, want ErrUnavailable", err)
		}
	}
	m.close()
	if after := memberFiles(t, dir); !slices.Equal(after, before) {
		t.Errorf("the members are %q, and were %q", after, before)
	}
	if d.find(of("p1?", 4)) != nil {
		t.Error("a request that failed is registered")
	}
	release(t, d, holder)
	_ = refused(t, d, of("p1?", 3))
	second := acquire(t, d, of("p1?", 2))
	_ = refused(t, d, of("p1?", 3))
	release(t, d, second)
	release(t, d, acquire(t, d, of("p1?", 3)))
}

// TestDowngradeIsSeenByMutexes downgrades a writer while other processes try to get its lock all
// the time, also in the instant in which the kernel has freed it.
func TestDowngradeIsSeenByMutexes(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	d, other := openDriver(t, dir), openDriver(t, dir)
	for i := range 50 {
		writer := acquire(t, d, of("w", i))
		stop, stopped := make(chan struct{}), make(chan int)
		go func() {
			granted := 0
			for owner := 1000; ; owner++ {
				select {
				case <-stop:
					stopped <- granted
					return
				default:
				}
				if g, err := other.Acquire(t.Context(), of("w", owner)); err == nil {
					granted++
					_ = other.Release(t.Context(), g)
				}
			}
		}()
		shared, err := d.Downgrade(t.Context(), writer)
		if err != nil {
			t.Fatalf("Downgrade %d: %v", i, err)
		}
		close(stop)
		if granted := <-stopped; granted > 0 {
			t.Fatalf("%d writers got the lock of a writer that became a reader", granted)
		}
		release(t, d, shared)
	}
}

// TestForeignFilesInTheSet checks that files of other programs are no members.
func TestForeignFilesInTheSet(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	d := openDriver(t, dir)
	set := filepath.Join(dir, "k.set")
	if err := os.Mkdir(set, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"x", "0000000000000001.w", "1.w.x", "0000000000000001.q.x"} {
		if err := os.WriteFile(filepath.Join(set, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	release(t, d, acquire(t, d, of("w", 1)))
	release(t, d, acquire(t, d, of("r", 2)))
	if files := memberFiles(t, dir); len(files) != 4 {
		t.Errorf("%v are left", files)
	}
}

// setAttempt makes the last attempt of a member lie this long ago.
func setAttempt(t *testing.T, d *driver, req *backend.Request, ago time.Duration) {
	t.Helper()
	at := time.Now().Add(-ago)
	if err := os.Chtimes(d.find(req).member.path, at, at); err != nil {
		t.Fatal(err)
	}
}

// stop stops a process, and returns when all of its threads stand still.
func stop(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	err := cmd.Process.Signal(unix.SIGSTOP)
	if err == nil {
		_, err = unix.Wait4(cmd.Process.Pid, nil, unix.WUNTRACED, nil)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// stopBetweenAttempts stops a process that has not locked the directory of members.
func stopBetweenAttempts(t *testing.T, waiter *exec.Cmd, dir string) {
	t.Helper()
	for range 100 {
		stop(t, waiter)
		m, err := lockMembers(filepath.Join(dir, "k.set"), time.Now().Add(maxGate))
		if err == nil {
			m.close()
			return
		}
		_ = waiter.Process.Signal(unix.SIGCONT)
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatal("the process has locked the directory all the time")
}

// TestStoppedWaiterIsPassed stops the process of a writer that waits among readers. Readers pass it
// until it continues, and then it waits behind them.
func TestStoppedWaiterIsPassed(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	d := openDriver(t, dir)
	readers := []*backend.Grant{acquire(t, d, of("r", 1))}
	writer := startMember(t, dir, "w?")
	_ = refused(t, d, of("r", 2))
	stopBetweenAttempts(t, writer, dir)
	g, _, err := await(t.Context(), d, of("r?", 3))
	if err != nil {
		t.Fatal(err)
	}
	readers = append(readers, g)
	_ = writer.Process.Signal(unix.SIGCONT)
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(time.Millisecond) {
		if _, err := d.Acquire(t.Context(), of("r", 4)); errors.Is(err, backend.ErrNotAcquired) {
			break // the writer waits again
		} else if time.Now().After(end) {
			t.Fatalf("the writer does not wait again: %v", err)
		}
		_ = d.Release(t.Context(), &backend.Grant{Request: *of("r", 4)})
	}
	for _, g := range readers {
		if _, err := d.Renew(t.Context(), g); err != nil {
			t.Errorf("Renew: %v", err)
		}
		release(t, d, g)
	}
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(time.Millisecond) {
		info, err := d.Inspect(t.Context(), "k")
		if err == nil && len(info.Holders) == 1 && info.Mode == backend.Exclusive {
			break
		} else if time.Now().After(end) {
			t.Fatalf("the writer does not get the lock: %+v, %v", info, err)
		}
	}
}

// TestPlacesOfWaiters checks when a waiter is passed: only without an attempt for a term, by either
// direction of the clock, and never while it holds.
func TestPlacesOfWaiters(t *testing.T) {
	t.Parallel()
	for name, ago := range map[string]time.Duration{
		"stopped":            waiterTerm + time.Second,
		"clock was set back": -time.Hour,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := openDriver(t, t.TempDir())
			first, writer := acquire(t, d, of("r", 1)), of("w?", 2)
			if b := refused(t, d, writer); b.Holder != first.Owner {
				t.Errorf("the holder is %q, want %q", b.Holder, first.Owner)
			}
			setAttempt(t, d, writer, ago)
			_ = refused(t, d, writer) // this attempt keeps its place
			if b := refused(t, d, of("r", 3)); b.Holder != "" {
				t.Errorf("the holder is %q, and is not known", b.Holder)
			}
			setAttempt(t, d, writer, ago)
			second := acquire(t, d, of("r", 4))
			release(t, d, first)
			_ = refused(t, d, writer)
			release(t, d, second)
			g := acquire(t, d, writer)
			setAttempt(t, d, writer, ago)
			if b := refused(t, d, of("r", 5)); b.Holder != g.Owner {
				t.Errorf("the holder is %q, want %q", b.Holder, g.Owner)
			}
			release(t, d, g)
		})
	}
}

// TestMembersCheckEverySecond checks that a member never pauses for so long that it is passed.
func TestMembersCheckEverySecond(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	watched, unwatched := openDriver(t, dir), openDriver(t, dir)
	unwatched.watcher.close()
	acquire(t, watched, of("w", 1))
	for owner, d := range []*driver{watched, unwatched} {
		for range 10 {
			b := refused(t, d, of("r?", 2+owner))
			if pause := b.State.(time.Duration) * 3 / 2; pause > time.Second {
				t.Errorf("a pause of up to %v", pause)
			}
		}
	}
}

// TestPollersKeepTheirPlaces checks that the core polls for a member before it is passed, whatever
// its poll interval, if the system provides no watcher. A waiter that is no member has no place.
func TestPollersKeepTheirPlaces(t *testing.T) {
	t.Parallel()
	d := openDriver(t, t.TempDir())
	d.watcher.close()
	d.watcher = nil
	g := acquire(t, d, of("w", 1))
	if after := refused(t, d, of("w?", 2)).RetryAfter; after != 0 {
		t.Errorf("a mutex polls after %v", after)
	}
	for i, word := range []string{"r?", "w?"} {
		after := refused(t, d, of(word, 3+i)).RetryAfter
		if after <= 0 || after > waiterTerm/3 {
			t.Errorf("%s polls after %v, and is passed after %v", word, after, waiterTerm)
		}
	}
	if after := refused(t, d, of("r", 5)).RetryAfter; after != 0 {
		t.Errorf("an attempt that does not wait polls after %v", after)
	}
	release(t, d, g)
}

// TestBlockedWriterJoinsReaders downgrades the holder of a lock for which a writer waits in flock.
// The writer is woken without an event or a timer of its own, and readers then wait behind it.
func TestBlockedWriterJoinsReaders(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	holder, d, req := openDriver(t, dir), openBlocking(t, dir), of("w?", 2)
	g := acquire(t, holder, of("w", 1))
	woken := waitInFlock(t, d, req)
	shared, err := holder.Downgrade(t.Context(), g)
	if err != nil {
		t.Fatal(err)
	}
	if err := <-woken; err != nil {
		t.Errorf("the writer is not woken: %v", err)
	}
	_ = refused(t, d, req)
	_ = refused(t, holder, of("r", 3))
	release(t, holder, shared)
	g, _, err = await(t.Context(), d, req)
	if err != nil {
		t.Fatal(err)
	}
	release(t, d, g)
}

// TestReadersCauseNoScans checks that only lock files are reported as replaced. Each group of
// readers removes the directory of its members.
func TestReadersCauseNoScans(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	replaced := make(chan string, 8)
	w := newWatcher(dir, func(name string) { replaced <- name })
	if !w.open() {
		t.Skip("does not apply: this system has no watches")
	}
	defer w.close()
	d := openDriver(t, dir)
	release(t, d, acquire(t, d, of("r", 1)))
	if err := os.Remove(d.path("k")); err != nil {
		t.Fatal(err)
	}
	if name := <-replaced; name != "k.lock" {
		t.Errorf("%q is reported as replaced", name)
	}
}

// TestUnknownHolderIsPolledLess locks the file of a key as another program would. The pauses of a
// reader grow.
func TestUnknownHolderIsPolledLess(t *testing.T) {
	t.Parallel()
	d := openDriver(t, t.TempDir())
	release(t, d, acquire(t, d, of("w", 1)))
	other, err := openLock(d.path("k"), unix.O_RDWR)
	if err != nil {
		t.Fatal(err)
	}
	defer other.close()
	if locked, err := other.tryLockFor(backend.Exclusive); !locked {
		t.Fatal("the test cannot lock the file: ", err)
	}
	want := pauseWoken
	for range 20 {
		if b := refused(t, d, of("r?", 2)); b.State != want {
			t.Errorf("the pause is %v, want %v", b.State, want)
		}
		want = min(2*want, pauseMember)
	}
}

// TestWaiterWithoutItsFileQueuesAgain removes the file of a waiter from outside. The waiter gets
// the lock behind a later one, and with a file.
func TestWaiterWithoutItsFileQueuesAgain(t *testing.T) {
	t.Parallel()
	d := openDriver(t, t.TempDir())
	first := acquire(t, d, of("p1", 1))
	_, _ = refused(t, d, of("p1?", 2)), refused(t, d, of("p1?", 3))
	if err := os.Remove(d.find(of("p1", 2)).member.path); err != nil {
		t.Fatal(err)
	}
	release(t, d, first)
	_ = refused(t, d, of("p1?", 2))
	release(t, d, acquire(t, d, of("p1?", 3)))
	if err := os.Remove(d.find(of("p1", 2)).member.path); err != nil {
		t.Fatal(err)
	}
	g := acquire(t, d, of("p1?", 2))
	_ = refused(t, d, of("p1", 4))
	release(t, d, g)
}

// TestReplacedFileOfAWaiter puts another file in the place of a waiter's. Nothing locks that file,
// so the waiter needs another one.
func TestReplacedFileOfAWaiter(t *testing.T) {
	t.Parallel()
	d := openDriver(t, t.TempDir())
	first := acquire(t, d, of("p1", 1))
	_ = refused(t, d, of("p1?", 2))
	path := d.find(of("p1", 2)).member.path
	if err := errors.Join(os.Remove(path), os.WriteFile(path, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	release(t, d, first)
	g := acquire(t, d, of("p1?", 2))
	_ = refused(t, d, of("p1", 3))
	release(t, d, g)
}

// TestDeadReadersAreRemoved checks that the files of dead readers do not add up, although only
// readers come.
func TestDeadReadersAreRemoved(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	d := openDriver(t, dir)
	reader := acquire(t, d, of("r", 1))
	for i := range 20 {
		dead := member{firstSeq + 100 + uint64(i), "r", of("r", 100+i).Owner}
		path := filepath.Join(dir, "k.set", dead.String())
		if err := os.WriteFile(path, []byte("signed"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for i := 0; len(memberFiles(t, dir)) > 1; i++ {
		if i == 10_000 {
			t.Fatalf("%d files are left", len(memberFiles(t, dir)))
		}
		release(t, d, acquire(t, d, of("r", 2)))
	}
	release(t, d, reader)
}

// TestRemovedDirectoryIsMadeAgain removes the directory after a request has locked it, as the last
// member does. The request makes another one.
func TestRemovedDirectoryIsMadeAgain(t *testing.T) {
	t.Parallel()
	d := openDriver(t, t.TempDir())
	req := of("r", 1)
	a, err := d.admit(req)
	if err != nil {
		t.Fatal(err)
	}
	a.mu.Lock()
	err = d.openFile(a)
	tries := 0
	if err == nil {
		err = a.withMembers(func(m *members) error {
			if tries++; tries == 1 {
				_ = os.Remove(m.path)
			}
			return d.enterAmong(m, a, req)
		})
	}
	a.mu.Unlock()
	if err != nil || tries != 2 {
		t.Errorf("%d tries, %v", tries, err)
	}
	_ = refused(t, d, of("w", 2))
	release(t, d, &backend.Grant{Request: *req})
}

// TestClosedGateIsOpenDespiteChildren checks that a child process that is being started, and still
// has the descriptor of the directory, does not keep it locked.
func TestClosedGateIsOpenDespiteChildren(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "k.set")
	m, err := lockMembers(path, time.Now().Add(maxGate))
	if err != nil {
		t.Fatal(err)
	}
	child, err := unix.Dup(int(m.dir.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Close(child) }()
	m.close()
	next, err := tryMembers(path)
	if err != nil {
		t.Fatal(err)
	}
	next.close()
}

// TestInspectDuringAStoppedAttempt inspects a lock while its directory is locked.
func TestInspectDuringAStoppedAttempt(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	d := openDriver(t, dir)
	reader, other := acquire(t, d, of("r", 1)), acquire(t, d, request("other", 1))
	m, err := lockMembers(filepath.Join(dir, "k.set"), time.Now().Add(maxGate))
	if err != nil {
		t.Fatal(err)
	}
	defer m.close()
	info, err := d.Inspect(t.Context(), "k")
	if err != nil || len(info.Holders) != 1 || info.Holders[0].Owner != reader.Owner {
		t.Errorf("Inspect: %+v, %v; want the reader", info, err)
	}
	shown := map[string]bool{}
	for info, err := range d.List(t.Context(), "") {
		if err != nil {
			t.Fatalf("List: %v", err)
		}
		shown[info.Key] = true
	}
	if len(shown) != 2 || !shown["k"] || !shown[other.Key] {
		t.Errorf("List shows %v", shown)
	}
}

// TestInspectOfAChangingLock inspects members that leave, wait or change their kind while they are
// read.
func TestInspectOfAChangingLock(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	d := openDriver(t, dir)
	first, second := acquire(t, d, of("r", 1)), acquire(t, d, of("r", 2))
	_ = refused(t, d, of("w?", 3))
	m, err := openMembers(filepath.Join(dir, "k.set"))
	if err != nil {
		t.Fatal(err)
	}
	defer m.close()
	info, complete, err := m.info("k")
	if err != nil || !complete || len(info.Holders) != 2 || info.Mode != backend.Shared {
		t.Errorf("two readers: %+v, %v, %v", info, complete, err)
	}
	release(t, d, second)
	_, stable, err := m.record(m.all[1])
	if err != nil || stable {
		t.Errorf("the file of a reader that has left is stable: %v, %v", stable, err)
	}
	release(t, d, first)
	acquire(t, d, of("w?", 3))
	if err := os.WriteFile(filepath.Join(dir, "x.set"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for info, err := range d.List(t.Context(), "") {
		if err != nil || info.Key != "k" || info.Mode != backend.Exclusive {
			t.Errorf("List: %+v, %v; want the writer", info, err)
		}
	}
}

// TestDowngradeIsFinished lets a call of Downgrade end after its first step. The next call does the
// rest.
func TestDowngradeIsFinished(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	d, other := openDriver(t, dir), openDriver(t, dir)
	reader, writer := acquire(t, d, of("r", 1)), of("w?", 2)
	_ = refused(t, d, writer)
	release(t, d, reader)
	g := acquire(t, d, writer)
	a := d.find(writer)
	a.mu.Lock()
	err := a.withMembers(func(m *members) error {
		return a.rename(m, member{m.first() - 1, "r", g.Owner})
	})
	a.mu.Unlock()
	if err != nil {
		t.Fatal(err)
	}
	_ = refused(t, other, of("r", 3))
	for range 2 {
		shared, err := d.Downgrade(t.Context(), g)
		if err != nil {
			t.Fatal(err)
		}
		release(t, other, acquire(t, other, of("r", 4)))
		_ = refused(t, other, of("w", 5))
		g = shared
	}
	release(t, d, g)
}

// TestDowngradeThatFailsLeavesNoWaiter lets the record of a reader be too long for its file. The
// writer keeps its lock, and no file that others may remove.
func TestDowngradeThatFailsLeavesNoWaiter(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	d := openDriver(t, dir)
	g := acquire(t, d, of("w", 1))
	a := d.find(&g.Request)
	a.key = strings.Repeat("k", 2*maxTexts)
	if _, err := d.Downgrade(t.Context(), g); !errors.Is(err, backend.ErrInvalidName) {
		t.Errorf("Downgrade: %v, want ErrInvalidName", err)
	}
	a.key = "k"
	if files := memberFiles(t, dir); len(files) > 0 {
		t.Errorf("%v are left", files)
	}
	_ = refused(t, d, of("r", 2))
	shared, err := d.Downgrade(t.Context(), g)
	if err != nil {
		t.Fatal(err)
	}
	release(t, d, acquire(t, d, of("r", 2)))
	release(t, d, shared)
}

// TestDowngradeThatFailsLeavesTheWriter lets the record of a writer among members be too long. The
// call has changed nothing, so the members stay as they are.
func TestDowngradeThatFailsLeavesTheWriter(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	d := openDriver(t, dir)
	reader, writer := acquire(t, d, of("r", 1)), of("w?", 2)
	_ = refused(t, d, writer)
	release(t, d, reader)
	g := acquire(t, d, writer)
	before := memberFiles(t, dir)
	a := d.find(writer)
	a.key = strings.Repeat("k", 2*maxTexts)
	if _, err := d.Downgrade(t.Context(), g); !errors.Is(err, backend.ErrInvalidName) {
		t.Errorf("Downgrade: %v, want ErrInvalidName", err)
	}
	a.key = "k"
	if after := memberFiles(t, dir); !slices.Equal(after, before) {
		t.Errorf("the members are %q, and were %q", after, before)
	}
	release(t, d, g)
}

// asStranger calls f without the permissions of the user of the files.
func asStranger(t *testing.T, f func()) {
	t.Helper()
	if os.Geteuid() != 0 {
		f() // nothing but the mode of a file decides
		return
	}
	const stranger = 12345
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer func() { _, _ = unix.SetfsuidRetUid(0) }()
	_, _ = unix.SetfsuidRetUid(stranger)
	if uid, _ := unix.SetfsuidRetUid(stranger); uid != stranger {
		t.Skip("does not apply: this process cannot give up its permissions")
	}
	f()
}

// TestWaiterThatCannotBeRemovedIsNotPassed probes members whose files cannot be removed. A waiter
// that is stopped has its place when it continues, so requests behind it fail. A dead one has not.
func TestWaiterThatCannotBeRemovedIsNotPassed(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	d := openDriver(t, dir)
	holder, waiter := acquire(t, d, of("p1", 1)), of("p1?", 2)
	_ = refused(t, d, waiter)
	setAttempt(t, d, waiter, waiterTerm+time.Second)
	m, err := openMembers(filepath.Join(dir, "k.set"))
	if err != nil {
		t.Fatal(err)
	}
	defer m.close()
	stopped := d.find(waiter).place
	dead := member{stopped.seq + 1, "p1", of("p1", 3).Owner}
	err = errors.Join(
		os.WriteFile(filepath.Join(m.path, dead.String()), nil, 0o600),
		os.Chmod(filepath.Join(m.path, dead.String()), 0o644),
		os.Chmod(filepath.Join(m.path, stopped.String()), 0o644), os.Chmod(m.path, 0o555),
	)
	if err != nil {
		t.Fatal(err)
	}
	asStranger(t, func() {
		if _, err := m.probe(stopped); !errors.Is(err, unix.EACCES) {
			t.Errorf("the stopped waiter: %v, want EACCES", err)
		}
		if c, err := m.probe(dead); c != left || err != nil {
			t.Errorf("the dead member: %v, %v", c, err)
		}
	})
	if err := os.Chmod(m.path, 0o700); err != nil {
		t.Fatal(err)
	}
	if c, err := m.probe(stopped); c != left || err != nil {
		t.Errorf("the stopped waiter, which can be removed: %v, %v", c, err)
	}
	release(t, d, holder)
}

// TestDowngradeWaitsForMutexes has another process lock the file in the instant in which some
// systems free the lock of a downgrade. That process gives way soon.
func TestDowngradeWaitsForMutexes(t *testing.T) {
	t.Parallel()
	d := openDriver(t, t.TempDir())
	g := acquire(t, d, of("w", 1))
	a := d.find(&g.Request)
	a.file.yield()
	mutex, err := openLock(a.path, unix.O_RDWR)
	if err != nil {
		t.Fatal(err)
	}
	defer mutex.close()
	if locked, err := mutex.tryLockFor(backend.Exclusive); !locked {
		t.Fatal("the test cannot lock the file: ", err)
	}
	time.AfterFunc(20*time.Millisecond, mutex.yield)
	shared, err := d.Downgrade(t.Context(), g)
	if err != nil {
		t.Fatalf("Downgrade: %v", err)
	}
	release(t, d, acquire(t, d, of("r", 2)))
	release(t, d, shared)
}

// TestMutexYieldsBeforeItWaits lets a mutex wait for the directory of the members. It does not keep
// the lock file meanwhile, because the process that has the directory may need the file.
func TestMutexYieldsBeforeItWaits(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	d := openDriver(t, dir)
	release(t, d, acquire(t, d, of("w", 1)))
	m, err := lockMembers(filepath.Join(dir, "k.set"), time.Now().Add(maxGate))
	if err != nil {
		t.Fatal(err)
	}
	defer m.close()
	probe, err := openLock(d.path("k"), unix.O_RDWR)
	if err != nil {
		t.Fatal(err)
	}
	defer probe.close()
	failed := make(chan error, 1)
	go func() {
		_, err := d.Acquire(t.Context(), of("w", 2))
		failed <- err
	}()
	tries, locked := 0, 0
	for err == nil {
		select {
		case err = <-failed:
			continue
		case <-time.After(time.Millisecond):
		}
		tries++
		if free, _ := probe.tryLockFor(backend.Exclusive); !free {
			locked++
		}
		probe.yield()
	}
	if locked > tries/2 {
		t.Errorf("the file was locked %d times of %d", locked, tries)
	}
}

// TestNetworkHasMutexesOnly checks that a driver on a network file system has neither readers nor
// permits.
func TestNetworkHasMutexesOnly(t *testing.T) {
	t.Parallel()
	d := openDriver(t, t.TempDir())
	d.network = true
	if modes := d.Capabilities().Modes; modes != backend.Exclusive {
		t.Errorf("the modes are %v", modes)
	}
	for _, word := range []string{"r", "p2"} {
		if _, err := d.Acquire(t.Context(), of(word, 1)); !errors.Is(err, backend.ErrUnsupported) {
			t.Errorf("Acquire of %s: %v, want ErrUnsupported", word, err)
		}
	}
	g := acquire(t, d, of("w", 2))
	if _, err := d.Downgrade(t.Context(), g); !errors.Is(err, backend.ErrUnsupported) {
		t.Errorf("Downgrade: %v, want ErrUnsupported", err)
	}
	release(t, d, g)
}

// TestDirectoryIsRemovedWhileItIsRead opens directories that another process removes before they
// are read.
func TestDirectoryIsRemovedWhileItIsRead(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "dlock")
	opened := func() *os.File {
		if err := os.Mkdir(path, 0o700); err != nil {
			t.Fatal(err)
		}
		dir, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = dir.Close() })
		return dir
	}
	m := &members{dir: opened(), path: path}
	if info, complete, err := m.info(""); info != nil || complete || err != nil {
		t.Errorf("members: %v, %t, %v", info, complete, err)
	}
	d := &driver{dir: path, requests: make(slots, 1)}
	infos, err := d.listSome(t.Context(), opened(), "")
	if len(infos) > 0 || !errors.Is(err, io.EOF) {
		t.Errorf("locks: %v, %v", infos, err)
	}
}

// TestMembersWithoutADirectory removes the directory of the lock files. The error of an attempt
// does not blame another process.
func TestMembersWithoutADirectory(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "removed", "k.set")
	_, err := lockMembers(path, time.Now().Add(maxGate))
	if !errors.Is(err, backend.ErrUnavailable) || !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the error is %v", err)
	}
}

// TestStoppedWaiterKeepsItsOwnFile stops the process of a waiter during an attempt that is granted,
// for so long that other requests would remove its file. They count its permit nevertheless.
func TestStoppedWaiterKeepsItsOwnFile(t *testing.T) {
	t.Parallel()
	d := openDriver(t, t.TempDir())
	first, waiter := acquire(t, d, of("p1", 1)), of("p1?", 2)
	_ = refused(t, d, waiter)
	release(t, d, first)
	setAttempt(t, d, waiter, waiterTerm+time.Second)
	a := d.find(waiter)
	a.mu.Lock()
	err := a.withMembers(func(m *members) error { return d.enterAmong(m, a, waiter) })
	a.mu.Unlock()
	if err != nil {
		t.Fatal(err)
	}
	_ = refused(t, d, of("p1", 3))
	release(t, d, &backend.Grant{Request: *waiter})
}

// TestPermitOfAMutexDisturbsNoOther requests a permit of a name that is a mutex. The mutexes that
// wait are refused as before, also if the permit's attempt is stopped at its end, and if the holder
// has not marked the file yet.
func TestPermitOfAMutexDisturbsNoOther(t *testing.T) {
	t.Parallel()
	for name, word := range map[string]string{"an attempt": "p2", "a waiter": "p2?"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			d, req := openDriver(t, dir), of(word, 2)
			g := acquire(t, d, of("w", 1))
			a, err := d.admit(req)
			if err != nil {
				t.Fatal(err)
			}
			attempt := func() error {
				a.mu.Lock()
				defer a.mu.Unlock()
				return d.attempt(a, req)
			}
			_ = unmark(d.find(&g.Request).file.fd)
			if err := attempt(); !errors.Is(err, backend.ErrNotAcquired) {
				t.Errorf("the permit, before the mark: %v, want *Busy", err)
			}
			_ = refused(t, d, of("w", 3))
			if err := mark(d.find(&g.Request).file.fd); err != nil {
				t.Fatal(err)
			}
			if err := attempt(); !errors.Is(err, backend.ErrConflict) {
				t.Errorf("the permit: %v, want ErrConflict", err)
			}
			_ = refused(t, d, of("w", 4))
			if files := memberFiles(t, dir); len(files) > 0 {
				t.Errorf("%v are left", files)
			}
			release(t, d, g)
			release(t, d, acquire(t, d, of("w", 5)))
		})
	}
}

// TestPermitBlocksInNoFlock lets a permit wait for another program that has locked the file. It
// gets no thread in flock(2), which would lock the file for a mutex.
func TestPermitBlocksInNoFlock(t *testing.T) {
	t.Parallel()
	d, req := openBlocking(t, t.TempDir()), of("p2?", 1)
	release(t, d, acquire(t, d, of("w", 2)))
	other, err := openLock(d.path("k"), unix.O_RDWR)
	if err != nil {
		t.Fatal(err)
	}
	defer other.close()
	if locked, err := other.tryLockFor(backend.Exclusive); !locked {
		t.Fatal("the test cannot lock the file: ", err)
	}
	b := refused(t, d, req)
	if _, err := d.Wait(t.Context(), req, b); err != nil {
		t.Fatal(err)
	}
	if hasThread(d.find(req)) {
		t.Error("the permit has a thread in flock")
	}
	other.yield()
	release(t, d, acquire(t, d, req))
}

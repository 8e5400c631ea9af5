//go:build linux

package filebackend

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

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
	m, err := openMembers(filepath.Join(dir, "k.set"), false)
	if err != nil || m == nil {
		t.Fatal(m, err)
	}
	begin := time.Now()
	if _, err := d.Acquire(t.Context(), of("r", 2)); !errors.Is(err, backend.ErrUnavailable) {
		t.Errorf("Acquire: %v, want ErrUnavailable", err)
	}
	if took := time.Since(begin); took < maxGate {
		t.Errorf("it failed after %v already", took)
	}
	m.close()
	release(t, d, acquire(t, d, of("r", 3)))
	release(t, d, reader)
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

//go:build linux && (amd64 || arm64)

package command

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"os"
	"path/filepath"
	"testing"
)

// A program whose loader is missing is no script, and is found.
func TestMissingLoader(t *testing.T) {
	t.Parallel()
	url := fileURL(t)
	program := filepath.Join(t.TempDir(), "program")
	if err := os.WriteFile(program, withLoader(t, "/no/such/loader"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, command := range []string{"run", "elect"} { // another term of elect would fail, too
		got := dlockRun(t, on(url), command, "x", "--", program)
		want := "dlock: " + program + ": the dynamic loader that it needs was not found\n"
		if got.code != exitNotFound || got.stderr != want {
			t.Errorf("dlock %s: exit code %d, want %d; standard error: %s",
				command, got.code, exitNotFound, got.stderr)
		}
	}
	if got := dlockRun(t, on(url), "status", "--exit-code", "x"); got.code != exitNo {
		t.Errorf("the lock is not free: %s", got.stdout)
	}
}

// withLoader returns the header of a 64-bit program of this machine that names a loader.
func withLoader(t *testing.T, loader string) []byte {
	t.Helper()
	own, err := os.Open("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	defer own.Close()
	var header elf.Header64
	if err := binary.Read(own, binary.NativeEndian, &header); err != nil {
		t.Fatal(err)
	}
	header.Phoff, header.Phnum = uint64(binary.Size(header)), 1
	segment := elf.Prog64{Type: uint32(elf.PT_INTERP), Filesz: uint64(len(loader) + 1)}
	segment.Off = header.Phoff + uint64(binary.Size(segment))
	var program bytes.Buffer
	for _, part := range []any{header, segment, []byte(loader + "\x00")} {
		if err := binary.Write(&program, binary.NativeEndian, part); err != nil {
			t.Fatal(err)
		}
	}
	return program.Bytes()
}

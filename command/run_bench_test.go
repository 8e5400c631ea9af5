//go:build unix

package command

import (
	"os/exec"
	"testing"
)

// BenchmarkRun compares a command alone with the same command under dlock run and a lock file. The
// difference is what dlock costs, linked with the packages of this test.
func BenchmarkRun(b *testing.B) {
	for name, command := range map[string]func() *exec.Cmd{
		"bare": func() *exec.Cmd { return exec.CommandContext(b.Context(), "true") },
		"dlock": func() *exec.Cmd {
			return dlockCommand(b.Context(), on("file:"+b.TempDir()), "run", "x", "--", "true")
		},
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if err := command().Run(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

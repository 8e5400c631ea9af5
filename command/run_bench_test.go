//go:build unix

package command

import (
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
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

// BenchmarkWaiters runs many commands that wait for one lock file. Each iteration is a second. The
// metrics are the processor time that all of them use in it, and the most memory that one of them
// had, linked with the packages of this test.
func BenchmarkWaiters(b *testing.B) {
	if runtime.GOOS != "linux" {
		b.Skip("does not apply: this system has no /proc")
	}
	const waiters = 100
	env := on("file:" + b.TempDir())
	start := func(words ...string) int {
		cmd := dlockCommand(b.Context(), env, words...)
		stderr, err := cmd.StderrPipe()
		if err == nil {
			err = cmd.Start()
		}
		if err == nil {
			_, err = stderr.Read(make([]byte, 1)) // its first note
		}
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() {
			_ = cmd.Process.Signal(syscall.SIGTERM)
			_ = cmd.Wait()
		})
		return cmd.Process.Pid
	}
	start("run", "x", "--", "sh", "-c", "echo ready >&2; exec sleep 1000")
	var pids []int
	for range waiters {
		pids = append(pids, start("run", "-v", "x", "--", "true"))
	}
	time.Sleep(time.Second) // for the ends of their starts
	before, _ := usage(b, pids)
	for b.Loop() {
		time.Sleep(time.Second)
	}
	after, memory := usage(b, pids)
	b.ReportMetric(float64((after-before).Microseconds())/1000/float64(b.N), "cpu-ms/s")
	b.ReportMetric(memory, "resident-MiB")
}

// usage returns the processor time of processes, and the most memory that one of them had, in MiB.
func usage(b *testing.B, pids []int) (processor time.Duration, memory float64) {
	b.Helper()
	field := func(file string, in func(text string) string) float64 {
		text, err := os.ReadFile(file)
		if err != nil {
			b.Fatal(err)
		}
		value, err := strconv.ParseFloat(in(string(text)), 64)
		if err != nil {
			b.Fatal(err)
		}
		return value
	}
	for _, pid := range pids {
		directory := "/proc/" + strconv.Itoa(pid)
		for _, n := range []int{14, 15} { // utime and stime of proc_pid_stat(5), in ticks of 10 ms
			processor += 10 * time.Millisecond * time.Duration(field(directory+"/stat",
				func(text string) string {
					_, rest, _ := strings.Cut(text, ") ")
					return strings.Fields(rest)[n-3]
				}))
		}
		memory = max(memory, field(directory+"/status", func(text string) string {
			_, rest, _ := strings.Cut(text, "VmHWM:")
			return strings.Fields(rest)[0]
		})/1024)
	}
	return processor, memory
}

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// reports are recorded streams, and what the report of each contains.
var reports = []struct {
	file      string
	allowSkip bool
	ok        bool
	totals    string
	want      []string // in the output
	unwanted  []string
}{
	{
		file: "pass", ok: true, totals: "6 passed, 0 failed, 0 skipped",
		want: []string{
			"ok    example.com/m/redisbackend  0.0s\n",
			`backend  source     version      cases passed  failed  skipped  do not apply  void
mem      process    Go 1.26.8    1             0       0        0             0
redis    container  Redis 8.0.6  2             0       0        0             0
valkey   container  Valkey 9.1   1             0       0        0             0
`,
		},
		unwanted: []string{"=== RUN", "--- PASS", "no test files"},
	},
	{
		file: "fail", totals: "1 passed, 2 failed, 0 skipped",
		want: []string{
			"    a_test.go:3: got 1, want 2\n", "    a_test.go:4: parent fails on its own\n",
			"FAIL\texample.com/m\t0.003s\n",
			"redis    container  Redis 8.0.6  0             1       0        0             0\n",
		},
		unwanted: []string{"all is well"},
	},
	{
		file: "void", ok: true,
		totals: "2 passed, 0 failed, 0 skipped; 2 observations were void and repeated",
		want: []string{
			"redis    container  Redis 8.0.6  2             0       0        0             2\n",
			"the longest tests\n   12.3s  redisbackend TestConformance/One\n" +
				"    0.5s  redisbackend TestConformance/Two\n",
		},
		unwanted: []string{"stood still"},
	},
	{
		file: "skip", totals: "1 passed, 0 failed, 1 skipped",
		want: []string{"no redis server", "DLOCK_TEST_ALLOW_SKIP"},
	},
	{
		file: "skip", allowSkip: true, ok: true, totals: "1 passed, 0 failed, 1 skipped",
		unwanted: []string{"no redis server"},
	},
	{
		file: "inapplicable", ok: true,
		totals:   "1 passed, 0 failed, 0 skipped, 1 do not apply",
		unwanted: []string{"no Keeper"},
	},
	{
		file: "build", totals: "0 passed, 0 failed, 0 skipped",
		want: []string{
			"x.go:3:9: undefined: y\n", "FAIL\texample.com/m [build failed]\n", "no test ran",
		},
	},
	{
		file: "panic", totals: "1 passed, 1 failed, 0 skipped",
		want: []string{"panic: boom [recovered, repanicked]\n", "FAIL\texample.com/m\t"},
	},
	{
		file: "timeout", totals: "1 passed, 1 failed, 0 skipped",
		want: []string{
			"=== CONT  TestA/one\n", "panic: test timed out after 2s\n", "time.Sleep(",
			"FAIL\texample.com/m\t",
		},
	},
	{
		file: "signal", totals: "1 passed, 1 failed, 0 skipped",
		want: []string{"=== CONT  TestHangs\n", "SIGQUIT: quit\n", "FAIL\texample.com/m\t"},
	},
	{
		file: "truncated", totals: "0 passed, 1 failed, 0 skipped",
		want: []string{"FAIL  example.com/m  has not ended\n"},
	},
	{
		file: "garbage", totals: "0 passed, 0 failed, 0 skipped",
		want: []string{"go: cannot find main module", "no test ran"},
	},
}

// TestReport uses recorded streams: shortened outputs of go test -json.
func TestReport(t *testing.T) {
	for _, c := range reports {
		t.Run(c.file, func(t *testing.T) {
			out, ok := run(t, c.file, c.allowSkip)
			if ok != c.ok {
				t.Errorf("finish = %v, want %v", ok, c.ok)
			}
			if !strings.HasSuffix(out, "\n"+c.totals+"\n") {
				t.Errorf("the last line is not %q", c.totals)
			}
			for _, want := range c.want {
				if !strings.Contains(out, want) {
					t.Errorf("the output lacks %q", want)
				}
			}
			for _, unwanted := range c.unwanted {
				if strings.Contains(out, unwanted) {
					t.Errorf("the output contains %q", unwanted)
				}
			}
			if t.Failed() {
				t.Log(out)
			}
		})
	}
}

func run(t *testing.T, file string, allowSkip bool) (string, bool) {
	t.Helper()
	in, err := os.Open(filepath.Join("testdata", file+".jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	var out strings.Builder
	r := newReport(&out, allowSkip)
	if err := r.read(in); err != nil {
		t.Fatal(err)
	}
	ok := r.finish()
	return out.String(), ok
}

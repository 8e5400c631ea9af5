package runner

import (
	"os"
	"os/exec"
	"strconv"
	"testing"
)

func TestIsOwnerDead(t *testing.T) {
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	ended := exec.Command(os.Args[0], "-test.run=^$")
	if err := ended.Run(); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		host string
		pid  int
		want bool
	}{
		{host, os.Getpid(), false},
		{host, ended.Process.Pid, true},
		{"another-" + host, ended.Process.Pid, false},
	} {
		labels := map[string]string{labelHost: c.host, labelPID: strconv.Itoa(c.pid)}
		if got := isOwnerDead(labels); got != c.want {
			t.Errorf("isOwnerDead(%s, %d) = %v", c.host, c.pid, got)
		}
	}
}

package bench

import (
	"testing"
	"time"
)

// A session on the server follows the TTL of the URL, so a workload with a TTL sets it there.
func TestWithTTL(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		url  string
		ttl  time.Duration
		want string
	}{
		{"zk://h", 2 * time.Second, "zk://h?ttl=2s"},
		{"zk://h/?acl=world", 2 * time.Second, "zk://h/?acl=world&ttl=2s"},
		{"zk://h/?ttl=9s", 2 * time.Second, "zk://h/?ttl=9s"},
		{"zk://h", 0, "zk://h"},
	} {
		if got := withTTL(c.url, c.ttl); got != c.want {
			t.Errorf("withTTL(%q, %v) = %q, want %q", c.url, c.ttl, got, c.want)
		}
	}
}

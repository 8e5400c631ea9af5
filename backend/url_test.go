package backend

import (
	"strings"
	"testing"
	"time"
)

func TestTTLIsNotPartOfTheText(t *testing.T) {
	t.Parallel()
	u, err := ParseURL("zk://host?ttl=2s")
	if err != nil || u.TTL != 0 {
		t.Fatalf("TTL is %v, %v", u.TTL, err)
	}
	if u.TTL = time.Minute; u.String() != "zk://host?ttl=2s" {
		t.Errorf("the text is %q", u)
	}
}

func TestParseURL(t *testing.T) {
	t.Parallel()
	tests := []struct {
		raw, user, password, hosts, path string
	}{
		{"mem:", "", "", "", ""},
		{"a:", "", "", "", ""},
		{"zz9+-.:", "", "", "", ""},
		{"mem:x", "", "", "", "x"},
		{"file:/var/lib/locks", "", "", "", "/var/lib/locks"},
		{"file:///var/lib/locks", "", "", "", "/var/lib/locks"},
		{"redis://host", "", "", "host", ""},
		{"redis://host:6380/3", "", "", "host:6380", "/3"},
		{"redis://:pw@host", "", "pw", "host", ""},
		{"redis://u%40x:p%2Fw%3F%25@h1,h2:2,[::1]:3/", "u@x", "p/w?%", "h1,h2:2,[::1]:3", "/"},
		{"redis://u:a@b@host", "u", "a@b", "host", ""},
		{"redis://@host:65535", "", "", "host:65535", ""},
		{"redis://?socket=/run/redis.sock", "", "", "", ""},
		{"zk://h1,h2/a%20b", "", "", "h1,h2", "/a b"},
	}
	for _, tt := range tests {
		u, err := ParseURL(tt.raw)
		if err != nil {
			t.Errorf("ParseURL(%q): %v", tt.raw, err)
			continue
		}
		hosts := strings.Join(u.Hosts, ",")
		if u.User != tt.user || u.Password != tt.password ||
			hosts != tt.hosts || u.Path != tt.path {
			t.Errorf("ParseURL(%q) = user %q, password %q, hosts %q, path %q",
				tt.raw, u.User, u.Password, hosts, u.Path)
		}
	}
}

// TestParseURLRefuses also checks that no error repeats a credential, even if the URL is malformed.
func TestParseURLRefuses(t *testing.T) {
	t.Parallel()
	for _, raw := range []string{
		"", "redis", "://h", "Redis://h", "1redis://h", "redis://h#x", "redis://user:hunter2@h#x",
		"redis://h:0", "redis://h:65536", "redis://h:port",
		"redis://::1", "redis://[::1", "redis://[hunter]",
		"redis://h,,h", "redis://h/%zz", "redis://h?x", "redis://h?=1", "redis://h?X=1",
		"redis://h?x=1&x=2", "redis://h?x=%0a", "redis://h?x=%1f", "redis://h/%7f",
		"redis://user:hun/ter2@h", "redis://user:hunter2?@h", "redis://user:hunter2%@h",
		"redis://user:hunter2@h:x", "redis://user:hunter2@h?x",
		"user:hunter2@h", "redis:user:hunter2@h", "hunter2://user@h:x?a",
		"re dis://user:hunter2@h", "redis://h?x=1?y=2@3", "redis://user:hunter2@a b",
		"redis://user:hunter2", "redis://user:hunter2/0", "redis://:hunter2",
		"redis://[::1]:hunter2", "redis://user:hun[ter2]:1",
		"redis://h,user:hunter2,h", "redis://user:70234987", "redis://[::1]:70234987",
		"redis://h?password=hun&ter2", "redis://h?password=hun&ter2=%zz",
		"redis://h?x-password=hun&ter2!=1", "redis://h?token=hun&ter2=1&ter2=2",
		"redis+sentinel://h/m?sentinel-password=hun&ter2", "redis://h?pasword=hun&ter2",
	} {
		_, err := ParseURL(raw)
		if err == nil {
			t.Errorf("ParseURL(%q): no error", raw)
			continue
		}
		text := err.Error()
		if strings.Contains(text, "user") && strings.Contains(raw, "@") &&
			!strings.Contains(text, "user info") || strings.Contains(text, "hunter2") ||
			strings.Contains(text, "ter2") || strings.Contains(text, "234987") {
			t.Errorf("ParseURL(%q): the error repeats a credential: %v", raw, err)
		}
	}
}

func TestURLTake(t *testing.T) {
	t.Parallel()
	u, err := ParseURL("quorum:?rest=x&member=a&member=b&fair=1")
	if err != nil {
		t.Fatal(err)
	}
	if got := u.TakeAll("member"); len(got) != 2 {
		t.Errorf("TakeAll(member) = %q", got)
	}
	var fair bool
	if err := u.TakeBool("fair", &fair); err != nil || !fair {
		t.Errorf("TakeBool(fair) = %v, %v", fair, err)
	}
	if got := strings.Join(u.Untaken(), " "); got != "rest" {
		t.Errorf("Untaken() = %q, want rest", got)
	}
}

// TestUntakenShowsNoPassword checks that the name of a parameter is not shown if it may be the rest
// of a password.
func TestUntakenShowsNoPassword(t *testing.T) {
	t.Parallel()
	u, err := ParseURL("redis+sentinel://h/m?tll=1s&sentinel-password=hun&ter2=5")
	if err != nil {
		t.Fatal(err)
	}
	u.Take("sentinel-password")
	left := u.Untaken()
	if text := strings.Join(left, " "); len(left) != 2 || left[0] != "tll" ||
		strings.Contains(text, "ter2") || !strings.Contains(text, "%26") {
		t.Errorf("Untaken() = %q", left)
	}
}

// TestTextOfAURLMadeByHand checks that the text has an authority if a user, a password or a host is
// set.
func TestTextOfAURLMadeByHand(t *testing.T) {
	t.Parallel()
	for want, u := range map[string]URL{
		"x:":          {Scheme: "x"},
		"x:/p":        {Scheme: "x", Path: "/p"},
		"x://h/p":     {Scheme: "x", Hosts: []string{"h"}, Path: "/p"},
		"x://u@":      {Scheme: "x", User: "u"},
		"x://:xxxxx@": {Scheme: "x", Password: "p"},
		"x:/%2Fp":     {Scheme: "x", Path: "//p"},
		"x://h//p":    {Scheme: "x", Hosts: []string{"h"}, Path: "//p"},
		"x://u@h1,h2": {Scheme: "x", User: "u", Hosts: []string{"h1", "h2"}},
	} {
		if got := u.String(); got != want {
			t.Errorf("the text is %q, want %q", got, want)
		}
	}
}

// TestURLTakeRefuses checks values that do not parse or are not greater than 0. No error repeats
// the value.
func TestURLTakeRefuses(t *testing.T) {
	t.Parallel()
	var (
		d       time.Duration
		n       int
		b       bool
		takings = map[string]func(*URL) error{
			"duration": func(u *URL) error { return u.TakeDuration("x", &d) },
			"int":      func(u *URL) error { return u.TakeInt("x", &n) },
			"bool":     func(u *URL) error { return u.TakeBool("x", &b) },
		}
	)
	for _, test := range []struct {
		kind, value string
		ok          bool
	}{
		{"duration", "1ns", true},
		{"duration", "0s", false},
		{"duration", "-1s", false},
		{"duration", "hunter2", false},
		{"int", "1", true},
		{"int", "0", false},
		{"int", "hunter2", false},
		{"bool", "true", true},
		{"bool", "hunter2", false},
	} {
		u, err := ParseURL("mem:?x=" + test.value)
		if err != nil {
			t.Fatal(err)
		}
		d, n, b = -1, -1, false
		err = takings[test.kind](u)
		if (err == nil) != test.ok || (d == 1 || n == 1 || b) != test.ok {
			t.Errorf("%s %q: %v; the values are %v, %d, %t", test.kind, test.value, err, d, n, b)
		}
		if err != nil && strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: the error repeats the value: %v", test.kind, err)
		}
	}
}

func TestURLHostsWithPort(t *testing.T) {
	t.Parallel()
	u, err := ParseURL("redis://h1,h2:2,[::1],[::1]:3")
	if err != nil {
		t.Fatal(err)
	}
	const want = "h1:6379 h2:2 [::1]:6379 [::1]:3"
	if got := strings.Join(u.HostsWithPort("6379"), " "); got != want {
		t.Errorf("HostsWithPort = %q, want %q", got, want)
	}
}

func TestURLStringHidesSecrets(t *testing.T) {
	t.Parallel()
	for _, raw := range []string{
		"redis://u:hunter2@h", "redis://:hunter2@h", "redis://h?sentinel_password=hunter2",
		"quorum:?member=redis:%2F%2Fu:hunter2%40h", "mem:?x=redis:%2F%2Fu:hunter2%40h",
	} {
		u, err := ParseURL(raw)
		if err != nil {
			t.Fatal(err)
		}
		if s := u.String(); strings.Contains(s, "hunter2") {
			t.Errorf("String of %q shows the secret: %q", raw, s)
		}
	}
}

func FuzzParseURL(f *testing.F) {
	for _, seed := range []string{
		"mem:", "mem:x?a=b", "mem:%2F%2Fx", "mem:/%2F", "file:/a/b%20c",
		"redis://u:p@h1:1,[::1]:2/0?db=1&ttl=3s", "redis://", "redis:///%2F/x",
		"redis://u@h", "redis://%3A@h", "quorum:?member=a&member=b",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		u, err := ParseURL(raw)
		if err != nil {
			return
		}
		s := u.String()
		again, err := ParseURL(s)
		if err != nil {
			t.Fatalf("ParseURL(%q) = %q, which does not parse: %v", raw, s, err)
		}
		if again.String() != s {
			t.Fatalf("String of %q is %q, and String of the result is %q", raw, s, again.String())
		}
		same := again.Scheme == u.Scheme && again.User == u.User && again.Path == u.Path &&
			strings.Join(again.Hosts, ",") == strings.Join(u.Hosts, ",") &&
			len(again.params) == len(u.params) && (again.Password == "") == (u.Password == "")
		if !same {
			t.Fatalf("ParseURL(%q) = %+v, and of its String %+v", raw, u, again)
		}
		for i, p := range u.params {
			if p.name != again.params[i].name || p.secretless() != again.params[i].value {
				t.Fatalf("parameter %d of %q became %+v, was %+v", i, raw, again.params[i], p)
			}
		}
	})
}

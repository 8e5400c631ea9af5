package tlsfile_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/backend/tlsfile"
	"github.com/dlock-go/dlock/internal/testenv/pki"
)

func take(t *testing.T, raw, secure string) (*tlsfile.Files, error) {
	t.Helper()
	u, err := backend.ParseURL(raw)
	if err != nil {
		t.Fatal(err)
	}
	f, err := tlsfile.Take(u, secure)
	if left := u.Untaken(); err == nil && len(left) > 0 {
		t.Errorf("%s: %q were not taken", raw, left)
	}
	return f, err
}

func TestTake(t *testing.T) {
	t.Parallel()
	const all = "ca=a&cert=c&key=k&server-name=n"
	want := tlsfile.Files{CA: "a", Cert: "c", Key: "k", ServerName: "n"}
	tests := []struct {
		url, secure string
		want        *tlsfile.Files
		err         string
	}{
		{url: "x://h?tls=1&" + all, want: &want},
		{url: "xs://h?" + all, secure: "xs", want: &want},
		{url: "xs://h", secure: "xs", want: &tlsfile.Files{}},
		{url: "x://h"},
		{url: "x://h?tls=0"},
		{url: "x://h", secure: "xs"},
		{url: "x://h?ca=a", err: "go with tls=1"},
		{url: "x://h?tls=0&server-name=n", err: "go with tls=1"},
		{url: "x://h?key=k", secure: "xs", err: "go with xs://"},
		{url: "x://h?tls=maybe", err: `"tls"`},
		{url: "x://h?tls=1&cert=c", err: "go together"},
		{url: "xs://h?key=k", secure: "xs", err: "go together"},
	}
	for _, tt := range tests {
		got, err := take(t, tt.url, tt.secure)
		if tt.err != "" {
			if err == nil || !strings.Contains(err.Error(), tt.err) {
				t.Errorf("%s: %v, want %s", tt.url, err, tt.err)
			}
			continue
		}
		if err != nil || (got == nil) != (tt.want == nil) || got != nil && *got != *tt.want {
			t.Errorf("%s: %+v, %v, want %+v", tt.url, got, err, tt.want)
		}
	}
}

func TestConfig(t *testing.T) {
	t.Parallel()
	a := pki.NewAuthority(t)
	c := a.Issue(t, "client.test", time.Now().Add(time.Hour))
	files := &tlsfile.Files{CA: a.File, Cert: c.CertFile, Key: c.KeyFile, ServerName: "n"}
	config, err := files.Config("h:1")
	if err != nil {
		t.Fatal(err)
	}
	if config.ServerName != "n" || !config.RootCAs.Equal(a.Pool()) ||
		len(config.Certificates) != 1 {
		t.Errorf("the configuration has name %q and %d certificates",
			config.ServerName, len(config.Certificates))
	}
	if config, err := (*tlsfile.Files)(nil).Config("h:1"); config != nil || err != nil {
		t.Errorf("plaintext: %v, %v", config, err)
	}
}

func TestNameToVerify(t *testing.T) {
	t.Parallel()
	for addr, want := range map[string]string{"h:1": "h", "[::1]:1": "::1", "/socket": "", "": ""} {
		config, err := new(tlsfile.Files).Config(addr)
		if err != nil {
			t.Fatal(err)
		}
		if config.ServerName != want || config.RootCAs != nil || config.InsecureSkipVerify {
			t.Errorf("%q: name %q, authorities %v", addr, config.ServerName, config.RootCAs)
		}
		if again := tlsfile.For("other:1", config); want != "" && again.ServerName != want {
			t.Errorf("%q: then %q", addr, again.ServerName)
		} else if want == "" && (again.ServerName != "other" || config.ServerName != "") {
			t.Errorf("%q: then %q, the original is %q", addr, again.ServerName, config.ServerName)
		}
	}
}

// TestErrorsNameTheFile checks that an error names the file and does not quote its content. A user
// may name the file of a password by mistake.
func TestErrorsNameTheFile(t *testing.T) {
	t.Parallel()
	a := pki.NewAuthority(t)
	until := time.Now().Add(time.Hour)
	c, other := a.Issue(t, "x", until), a.Issue(t, "y", until)
	secret := filepath.Join(t.TempDir(), "password")
	text := []byte("-----BEGIN secret-----\nc2VjcmV0\n-----END secret-----\n")
	if err := os.WriteFile(secret, text, 0o600); err != nil {
		t.Fatal(err)
	}
	const nowhere = "/no/where"
	tests := []struct {
		files tlsfile.Files
		named string
	}{
		{tlsfile.Files{CA: nowhere}, nowhere},
		{tlsfile.Files{CA: secret}, secret},
		{tlsfile.Files{Cert: nowhere, Key: c.KeyFile}, nowhere},
		{tlsfile.Files{Cert: c.CertFile, Key: nowhere}, nowhere},
		{tlsfile.Files{Cert: c.CertFile, Key: secret}, secret},
		{tlsfile.Files{Cert: secret, Key: c.KeyFile}, secret},
		{tlsfile.Files{Cert: c.CertFile, Key: other.KeyFile}, other.KeyFile},
	}
	for _, tt := range tests {
		_, err := tt.files.Config("h:1")
		if err == nil || !strings.Contains(err.Error(), tt.named) ||
			strings.Contains(err.Error(), "secret") {
			t.Errorf("%+v: %v", tt.files, err)
		}
	}
}

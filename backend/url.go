package backend

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// URL is a parsed configuration URL:
//
//	scheme://[user:password@]host[:port][,host[:port]…][/path][?parameter=value…]
//	scheme:[path][?parameter=value…]
//
// It is dlock's own type because net/url refuses lists of hosts and prints
// passwords in its errors. Not safe for concurrent use.
type URL struct {
	Scheme         string
	User, Password string
	Hosts          []string // as written: with or without a port, IPv6 in brackets
	Path           string   // decoded; after an authority it is empty or starts with "/"

	// TTL is the default TTL of the client's locks. The core sets it before it calls the Opener,
	// and String leaves it out. ParseURL leaves it 0, which means unknown.
	TTL time.Duration

	authority bool // written with "//"
	params    []param
}

type param struct {
	name, value string
	taken       bool
}

// repeatable is the one parameter that may stand more than once.
const repeatable = "member"

// ParseURL parses a configuration URL. User info is percent-encoded and ends at
// the last "@" before the first "/" or "?"; every later "@" is written %40. Parameters
// are lower-case and stand once each, "member" alone may be repeated. "#" is refused.
// No error repeats what stands before the last "@".
func ParseURL(raw string) (*URL, error) {
	u, err := parseURL(raw)
	if err != nil {
		return nil, fmt.Errorf("dlock: invalid URL: %w", err)
	}
	return u, nil
}

func parseURL(raw string) (*URL, error) {
	if strings.Contains(raw, "#") {
		return nil, errors.New(`"#" must be written %23`)
	}
	scheme, rest, ok := strings.Cut(raw, ":")
	if !ok {
		return nil, errors.New("no scheme: it starts with scheme:// or scheme:, as in redis://host")
	}
	rest, query, _ := strings.Cut(rest, "?")
	u := &URL{Scheme: scheme}
	path := rest
	var authority string
	if after, ok := strings.CutPrefix(rest, "//"); ok {
		authority, path = after, ""
		if i := strings.IndexByte(after, '/'); i >= 0 {
			authority, path = after[:i], after[i:]
		}
		u.authority = true
	}
	// Before anything is quoted: where an "@" stands here, what precedes it
	// may be a password with an unescaped "/", "?" or ":".
	if strings.Contains(path, "@") || strings.Contains(query, "@") {
		return nil, errors.New(`"@" after the hosts must be written %40, and "/", "?" in a password %2F, %3F`)
	}
	if !validScheme(scheme) {
		return nil, errors.New("the scheme must be lower-case letters, digits, + - . and start with a letter")
	}
	if err := u.parseAuthority(authority); err != nil {
		return nil, err
	}
	var err error
	if u.Path, err = unescape(path); err != nil {
		return nil, fmt.Errorf("path: %w", err)
	}
	return u, u.parseQuery(query)
}

func validScheme(s string) bool {
	if s == "" || s[0] < 'a' || s[0] > 'z' {
		return false
	}
	return strings.Trim(s, "abcdefghijklmnopqrstuvwxyz0123456789+-.") == ""
}

func (u *URL) parseAuthority(s string) error {
	if i := strings.LastIndexByte(s, '@'); i >= 0 {
		user, password, _ := strings.Cut(s[:i], ":")
		var err1, err2 error
		u.User, err1 = unescape(user)
		u.Password, err2 = unescape(password)
		if err1 != nil || err2 != nil {
			return errors.New("user info: a bad percent-encoding, or a control character")
		}
		s = s[i+1:]
	}
	if s == "" {
		return nil
	}
	for host := range strings.SplitSeq(s, ",") {
		if err := checkHost(host); err != nil {
			return err
		}
		u.Hosts = append(u.Hosts, host)
	}
	return nil
}

// hostPattern is a name or an IPv4 address, or an IPv6 address in brackets, and
// perhaps a port.
var hostPattern = regexp.MustCompile(`^(?:[A-Za-z0-9._-]+|\[([0-9a-fA-F:.]+)\])(?::([0-9]+))?$`)

func checkHost(host string) error {
	match := hostPattern.FindStringSubmatch(host)
	if match == nil {
		return fmt.Errorf("host %q: it must be name, name:port, [IPv6] or [IPv6]:port", host)
	}
	if ip := match[1]; ip != "" && net.ParseIP(ip) == nil {
		return fmt.Errorf("host %q: not an IPv6 address", host)
	}
	if port := match[2]; port != "" {
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
			return fmt.Errorf("host %q: the port must be a number from 1 to 65535", host)
		}
	}
	return nil
}

func (u *URL) parseQuery(query string) error {
	if query == "" {
		return nil
	}
	for pair := range strings.SplitSeq(query, "&") {
		name, value, ok := strings.Cut(pair, "=")
		if !ok || name == "" || strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789_-") != "" {
			return fmt.Errorf("parameter %q: it is written name=value, the name in lower case", name)
		}
		value, err := unescape(value)
		if err != nil {
			return fmt.Errorf("parameter %q: %w", name, err)
		}
		if name != repeatable && slices.ContainsFunc(u.params, func(p param) bool { return p.name == name }) {
			return fmt.Errorf("parameter %q stands twice", name)
		}
		u.params = append(u.params, param{name: name, value: value})
	}
	return nil
}

// unescape decodes percent-encoding and says nothing of the text itself.
func unescape(s string) (string, error) {
	decoded, err := url.PathUnescape(s)
	if err != nil {
		return "", errors.New("a bad percent-encoding: % is written %25")
	}
	if strings.ContainsFunc(decoded, func(r rune) bool { return r < ' ' || r == 0x7f }) {
		return "", errors.New("a control character")
	}
	return decoded, nil
}

// HostsWithPort returns Hosts, each with defaultPort where none was written,
// in the form that net.Dial takes.
func (u *URL) HostsWithPort(defaultPort string) []string {
	hosts := make([]string, len(u.Hosts))
	for i, host := range u.Hosts {
		name, port, err := net.SplitHostPort(host)
		if err != nil {
			name, port = strings.Trim(host, "[]"), defaultPort
		}
		hosts[i] = net.JoinHostPort(name, port)
	}
	return hosts
}

// Take returns a parameter and marks it as known. What nobody took is an error
// at dlock.Open.
func (u *URL) Take(name string) (value string, ok bool) {
	for i := range u.params {
		if u.params[i].name == name {
			u.params[i].taken = true
			return u.params[i].value, true
		}
	}
	return "", false
}

// TakeAll is Take for the parameter that may be repeated.
func (u *URL) TakeAll(name string) []string {
	var values []string
	for i := range u.params {
		if u.params[i].name == name {
			u.params[i].taken = true
			values = append(values, u.params[i].value)
		}
	}
	return values
}

// TakeString sets *dst to the parameter if it is there.
func (u *URL) TakeString(name string, dst *string) {
	if value, ok := u.Take(name); ok {
		*dst = value
	}
}

// TakeDuration sets *dst to the parameter if it is there: a Go duration such as
// 1m30s, greater than 0.
func (u *URL) TakeDuration(name string, dst *time.Duration) error {
	return take(u, name, dst, "a duration such as 1m30s", func(s string) (time.Duration, bool) {
		d, err := time.ParseDuration(s)
		return d, err == nil && d > 0
	})
}

// TakeInt sets *dst to the parameter if it is there: a number greater than 0.
func (u *URL) TakeInt(name string, dst *int) error {
	return take(u, name, dst, "a number greater than 0", func(s string) (int, bool) {
		n, err := strconv.Atoi(s)
		return n, err == nil && n > 0
	})
}

// TakeBool sets *dst to the parameter if it is there: 1, 0, true or false.
func (u *URL) TakeBool(name string, dst *bool) error {
	return take(u, name, dst, "1 or 0", func(s string) (bool, bool) {
		b, err := strconv.ParseBool(s)
		return b, err == nil
	})
}

// take does not quote the value: it may be a secret under a misspelt name.
func take[T any](u *URL, name string, dst *T, want string, parse func(string) (T, bool)) error {
	value, ok := u.Take(name)
	if !ok {
		return nil
	}
	parsed, ok := parse(value)
	if !ok {
		return fmt.Errorf("dlock: invalid URL: parameter %q must be %s", name, want)
	}
	*dst = parsed
	return nil
}

// Untaken returns the names of the parameters that nobody took.
func (u *URL) Untaken() []string {
	var names []string
	for _, p := range u.params {
		if !p.taken {
			names = append(names, p.name)
		}
	}
	return names
}

// redacted stands for a secret in String.
const redacted = "xxxxx"

// String returns the URL with its password, and whatever parameter may hold one,
// replaced by xxxxx. Parsing it gives u again, but for these.
func (u *URL) String() string {
	var b strings.Builder
	b.WriteString(u.Scheme + ":")
	if u.hasAuthority() {
		b.WriteString("//")
		if u.User != "" || u.Password != "" {
			b.WriteString(escapeValue(u.User))
			if u.Password != "" {
				b.WriteString(":" + redacted)
			}
			b.WriteString("@")
		}
		b.WriteString(strings.Join(u.Hosts, ","))
	}
	b.WriteString(u.escapedPath())
	for i, p := range u.params {
		b.WriteByte("?&"[min(i, 1)])
		b.WriteString(p.name + "=" + escapeValue(p.secretless()))
	}
	return b.String()
}

// secretless returns the value, or what stands for it where it may be a secret.
func (p param) secretless() string {
	if p.name == repeatable || strings.Contains(p.value, "@") {
		return redacted
	}
	for _, word := range []string{"pass", "secret", "token", "credential"} {
		if strings.Contains(p.name, word) {
			return redacted
		}
	}
	return p.value
}

// escapedPath keeps slashes readable, but for a second leading one where it
// would read as an authority.
func (u *URL) escapedPath() string {
	path := strings.ReplaceAll(escapeValue(u.Path), "%2F", "/")
	if after, ok := strings.CutPrefix(path, "//"); ok && !u.hasAuthority() {
		return "/%2F" + after
	}
	return path
}

func (u *URL) hasAuthority() bool {
	return u.authority || u.User != "" || u.Password != "" || len(u.Hosts) > 0
}

// escapeValue leaves nothing that ParseURL could take for a delimiter. Unlike
// in a form a space is %20, since "+" stands for itself.
func escapeValue(s string) string {
	return strings.ReplaceAll(url.QueryEscape(s), "+", "%20")
}

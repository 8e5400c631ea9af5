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
	"sync"
	"time"
)

// URL is a parsed configuration URL:
//
//	scheme://[user:password@]host[:port][,host[:port]…][/path][?parameter=value…]
//	scheme:[path][?parameter=value…]
//
// These are valid:
//
//	redis://localhost
//	rediss://user:p%40ss@10.0.0.1:6379/2?timeout=2s
//	redis+cluster://node1:6379,node2:6379,[::1]:6379?ttl=10s
//	mysql://app@db.internal/locks?table=dlock&fair=1
//	file:/var/lock/dlock
//	mem:
//
// It is a type of this module because net/url refuses lists of hosts and prints
// passwords in its errors. It is not safe for concurrent use.
type URL struct {
	Scheme         string
	User, Password string
	Hosts          []string // as written: with or without a port, IPv6 in brackets
	Path           string   // decoded; after an authority it is empty or starts with "/"

	// TTL is the default TTL of the client's locks. The core sets it before it
	// calls the Opener, and String omits it. ParseURL leaves it 0, which means
	// unknown.
	TTL time.Duration

	authority bool // written with "//"
	params    []param
}

// param is one parameter, in the order of the URL. taken marks the parameters
// that the core or the driver has used.
type param struct {
	name, value string
	taken       bool
}

// repeatable is the only parameter that may occur more than once.
const repeatable = "member"

// ParseURL parses a configuration URL.
//
// User and password are percent-encoded and end at the last "@" before the first
// "/" or "?"; every later "@" is written %40. Parameters are in lower case and
// occur once each, except "member". "#" is refused. No error repeats the text
// before the last "@", because it may contain a password, or the name of a
// parameter after a password, because it may be the rest of the password.
func ParseURL(raw string) (*URL, error) {
	u, err := parseURL(raw)
	if err != nil {
		return nil, fmt.Errorf("dlock: invalid URL: %w", err)
	}
	return u, nil
}

// parseURL is ParseURL without the prefix of its errors.
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
		return nil, errors.New(`"@" after the hosts must be written %40, ` +
			`and "/", "?" in a password %2F, %3F`)
	}
	if !validScheme(scheme) {
		return nil, errors.New(
			"the scheme must be lower-case letters, digits, + - . and start with a letter")
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

// validScheme reports whether s can be the scheme of a URL.
func validScheme(s string) bool {
	if s == "" || s[0] < 'a' || s[0] > 'z' {
		return false
	}
	return strings.Trim(s, "abcdefghijklmnopqrstuvwxyz0123456789+-.") == ""
}

// parseAuthority sets the user, the password and the hosts.
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

// hostPattern matches a name or an IPv4 address, or an IPv6 address in brackets,
// and an optional port.
var hostPattern = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^(?:[A-Za-z0-9._-]+|\[([0-9a-fA-F:.]+)\])(?::([0-9]+))?$`)
})

// checkHost returns an error if host is not a name or an address with an optional
// port. It does not resolve the name. The error contains no more than the text
// before the first colon or the port, because the rest may be a password.
func checkHost(host string) error {
	match := hostPattern().FindStringSubmatch(host)
	if match == nil {
		name, _, _ := strings.Cut(host, ":") // the rest is a password in redis://user:password
		return fmt.Errorf("host %q…: it must be name, name:port, [IPv6] or [IPv6]:port", name)
	}
	if ip := match[1]; ip != "" && net.ParseIP(ip) == nil {
		return fmt.Errorf("host %q: not an IPv6 address", host)
	}
	if port := match[2]; port != "" {
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
			name := strings.TrimSuffix(host, port) // the port may be a password, too
			return fmt.Errorf("host %q…: the port must be a number from 1 to 65535", name)
		}
	}
	return nil
}

// parseQuery sets the parameters. It does not check them: each driver has its
// own.
func (u *URL) parseQuery(query string) error {
	if query == "" {
		return nil
	}
	for pair := range strings.SplitSeq(query, "&") {
		name, value, ok := strings.Cut(pair, "=")
		if !ok { // pair may be the rest of a value
			return errors.New(`a parameter is written name=value, and "&" in a value %26`)
		}
		shown := strconv.Quote(name)
		if slices.ContainsFunc(u.params, param.isSecret) {
			shown = hiddenName
		}
		if name == "" || strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789_-") != "" {
			return fmt.Errorf("parameter %s: it is written name=value, the name in lower case",
				shown)
		}
		value, err := unescape(value)
		if err != nil {
			return fmt.Errorf("parameter %s: %w", shown, err)
		}
		named := func(p param) bool { return p.name == name }
		if name != repeatable && slices.ContainsFunc(u.params, named) {
			return fmt.Errorf("parameter %s stands twice", shown)
		}
		u.params = append(u.params, param{name: name, value: value})
	}
	return nil
}

// unescape decodes percent-encoding. Its errors do not contain the text, because
// it may be a password.
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

// HostsWithPort returns Hosts in the form that net.Dial takes, with defaultPort
// where the URL has no port. An IPv6 address has its brackets.
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

// Take returns a parameter and marks it as taken. A parameter that is not taken
// by the core or the driver is an error of dlock.Open. ok reports whether the URL
// has it.
func (u *URL) Take(name string) (value string, ok bool) {
	for i := range u.params {
		if u.params[i].name == name {
			u.params[i].taken = true
			return u.params[i].value, true
		}
	}
	return "", false
}

// TakeAll is Take for the parameter that may be repeated. It returns the values
// in the order of the URL.
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

// TakeString sets *dst to the parameter if the URL has it.
func (u *URL) TakeString(name string, dst *string) {
	if value, ok := u.Take(name); ok {
		*dst = value
	}
}

// TakeDuration sets *dst to the parameter if the URL has it. The value must be a
// Go duration such as 1m30s, greater than 0.
func (u *URL) TakeDuration(name string, dst *time.Duration) error {
	return take(u, name, dst, "a duration such as 1m30s", func(s string) (time.Duration, bool) {
		d, err := time.ParseDuration(s)
		return d, err == nil && d > 0
	})
}

// TakeInt sets *dst to the parameter if the URL has it. The value must be a
// number greater than 0.
func (u *URL) TakeInt(name string, dst *int) error {
	return take(u, name, dst, "a number greater than 0", func(s string) (int, bool) {
		n, err := strconv.Atoi(s)
		return n, err == nil && n > 0
	})
}

// TakeBool sets *dst to the parameter if the URL has it. The value must be 1, 0,
// true or false.
func (u *URL) TakeBool(name string, dst *bool) error {
	return take(u, name, dst, "1 or 0", func(s string) (bool, bool) {
		b, err := strconv.ParseBool(s)
		return b, err == nil
	})
}

// take parses a parameter. Its errors do not contain the value, because it may be
// a secret under a misspelt name.
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

// Untaken returns the names of the parameters that were not taken, for an error. A
// parameter after a password may be the rest of the password: for its name, Untaken
// returns a text about that.
func (u *URL) Untaken() []string {
	var names []string
	for i, p := range u.params {
		switch {
		case p.taken:
		case slices.ContainsFunc(u.params[:i], param.isSecret):
			names = append(names, hiddenName)
		default:
			names = append(names, p.name)
		}
	}
	return names
}

const (
	// redacted replaces secrets in String.
	redacted = "xxxxx"
	// hiddenName replaces the name of a parameter after a secret, in errors.
	hiddenName = "(after a password, in which & is written %26)"
)

// String returns the URL with xxxxx instead of the password and of every
// parameter that may contain one. Parsing the result gives u again, except for
// these.
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

// secretless returns the value, or xxxxx if it may be a secret.
func (p param) secretless() string {
	if p.isSecret() {
		return redacted
	}
	return p.value
}

// isSecret reports whether the value may be a secret, or contain one.
func (p param) isSecret() bool {
	contains := func(word string) bool { return strings.Contains(p.name, word) }
	return p.name == repeatable || strings.Contains(p.value, "@") ||
		slices.ContainsFunc([]string{"pass", "secret", "token", "credential"}, contains)
}

// escapedPath keeps slashes readable, except that a second leading slash is
// escaped if it would start an authority.
func (u *URL) escapedPath() string {
	path := strings.ReplaceAll(escapeValue(u.Path), "%2F", "/")
	if after, ok := strings.CutPrefix(path, "//"); ok && !u.hasAuthority() {
		return "/%2F" + after
	}
	return path
}

// hasAuthority reports whether String writes "//".
func (u *URL) hasAuthority() bool {
	return u.authority || u.User != "" || u.Password != "" || len(u.Hosts) > 0
}

// escapeValue escapes everything that ParseURL could read as a delimiter. Unlike
// in a form, a space is %20, because "+" is itself.
func escapeValue(s string) string {
	return strings.ReplaceAll(url.QueryEscape(s), "+", "%20")
}

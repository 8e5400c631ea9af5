package command

import (
	"io"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/dlock-go/dlock/backend"
)

// urlPlace says where a URL belongs.
const urlPlace = "a URL stands behind --url, or in DLOCK_URL"

// servers is a regular expression for the schemes whose URLs may have a user, in any case. Its
// last branch matches nothing: a program may have no such scheme.
func servers() string {
	schemes := slices.DeleteFunc(backend.Schemes(), func(scheme string) bool {
		return scheme == "file" || scheme == "mem"
	})
	for i := range schemes {
		schemes[i] = regexp.QuoteMeta(schemes[i])
	}
	return `(?i)(` + strings.Join(append(schemes, `\z`), "|") + `)`
}

// serverScheme finds the scheme of a server.
var serverScheme = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(servers() + `:`)
})

// isURL reports whether text may contain a URL with a password, or a part of one. It also reports
// many texts without a password. Use it for words that have failed: their errors do not quote them.
func isURL(text string) bool {
	return strings.Contains(text, "://") ||
		strings.Contains(text, ":") && strings.Contains(text, "@") ||
		serverScheme().MatchString(text)
}

// checkWord returns an error if a word of the command line has the URL of a server with a user:
// scheme://user@, scheme://user:password@ or scheme:/user:password@. The URL may stand behind other
// text, such as DLOCK_URL=, and has no space. A password may have a slash. A host, or a host and a
// port, ends at a slash and has no user before it.
//
// Every user of the server could read the password in a name, in a prefix or in --meta. Everything
// else is a good name: redis:flush:alice@web1 has no slash, and redis://host:6379/@user has a port.
func checkWord(what, word string) error {
	if strings.Contains(word, "@") && urlWithUser().MatchString(word) {
		return usagef("%s looks like the URL of a server: %s", what, urlPlace)
	}
	return nil
}

// urlWithUser finds what checkWord refuses: a user alone, a user with a password, or a password
// without a user. A password of digits and a slash would be a port.
var urlWithUser = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(servers() + `:(` + strings.Join([]string{
		`//[^\s/:@[]*@`,
		`/+[^\s/:@[]+:[0-9]*([^\s/@0-9][^\s@]*)?@`,
		`/+:[^\s@]*@`,
	}, "|") + `)`)
})

// shown returns a word of the command line for an error. It does not quote a word that may be a
// URL with a password.
func shown(what, word string) string {
	if isURL(word) {
		return what + " looks like a URL"
	}
	return word
}

// unquoted returns the error of a flag. If its value may be a URL with a password, the error does
// not quote it: err may quote a part of the value.
func unquoted(flag, value string, err error) error {
	if isURL(value) {
		return usagef("the value of %s looks like a URL: %s", flag, urlPlace)
	}
	return err
}

// redacted replaces a password in a message.
const redacted = "xxxxx"

// userInfo finds the end of a scheme, and everything up to the last @ before a space.
var userInfo = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`(:/*)\S*@`) })

// harmless finds the user of a URL that a driver has named: it has no password, or xxxxx instead.
var harmless = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^://[^\s/:@]*(:` + redacted + `)?@$`)
})

// redact replaces in a message whatever may be a password: what stands between a colon and an @,
// without spaces. All messages of dlock go through it, because they quote words of the command
// line. So the message of a good name can have xxxxx, too.
func redact(message string) string {
	return userInfo().ReplaceAllStringFunc(message, func(found string) string {
		if harmless().MatchString(found) {
			return found
		}
		return userInfo().ReplaceAllString(found, "${1}"+redacted+"@")
	})
}

// redactor redacts the messages that it writes to w. Each Write is one message.
type redactor struct{ w io.Writer }

func (r redactor) Write(message []byte) (int, error) {
	_, err := io.WriteString(r.w, redact(string(message)))
	return len(message), err
}

// textValue is the value of a flag that other users of the server can read.
type textValue string

// Set refuses the URL of a server.
func (v *textValue) Set(text string) error {
	*v = textValue(text)
	return checkWord("it", text)
}

func (v *textValue) String() string { return string(*v) }

// Type returns the name that pflag uses for a string.
func (v *textValue) Type() string { return "string" }

package redisbackend

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/backend/batch"
)

var (
	// errNotMaster refuses a connection to a server that has been demoted.
	errNotMaster = errors.New("the server that the sentinels name is not a master")
	// errDialing ends a request in place that has no connection. The request has not been sent.
	errDialing = errors.New("dlock: a connection is being dialed")
	// errNotReply and errLongReply end a connection to a server with wrong or expensive replies.
	errNotReply  = errors.New("the server's answer is not Redis's protocol")
	errLongReply = errors.New("the server's answer is too long")
	// errNotSentinelReply is an error of a server at the address of a sentinel.
	errNotSentinelReply = errors.New("its answer is not Redis's protocol")
)

// errUnexpected returns an error about a reply that no script of the driver gives. It does not
// contain the reply, whose size and content are not under the driver's control.
func errUnexpected(reply any) error {
	return fmt.Errorf("unexpected reply of type %T", reply)
}

// refusals are the first words of replies with which a server refuses a request. It has not
// executed the request, and may do so later, or another server may. A script gets them at its first
// write at the latest. After its first write, a script of the driver fails only if a value is
// foreign, which is no refusal.
var refusals = []string{
	"LOADING", "READONLY", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN", "MOVED", "ASK", "CROSSSLOT",
	"NOREPLICAS", "MISCONF", "OOM", "BUSY", "NOAUTH", "WRONGPASS", "NOPERM", "DENIED",
	"NOSCRIPT", "max number of clients reached", replicaWaits,
}

// interpretError classifies an error of the client library. It wraps a definite answer in the
// sentinel of package backend. Any other error leaves the outcome unknown. ctx is the context of
// the call: an unknown error after its end also wraps ctx's error. A *replicaError stays as it is,
// because a refusal to wait for replicas is no refusal of the request before it.
func interpretError(ctx context.Context, err error) error {
	switch {
	case err == nil, isUnreplicated(err), errors.Is(err, backend.ErrUnavailable): // by the dialer
		return err
	case isReply(err, "WRONGTYPE"), isReply(err, "CONFLICT"):
		return fmt.Errorf("%w: %w", backend.ErrConflict, err)
	case isReply(err, "This instance has cluster support disabled"):
		return fmt.Errorf("%w: the server is not a node of a cluster: %w",
			backend.ErrUnsupported, err)
	case isReply(err, "unknown command"), isReply(err, "This Redis command is not allowed"):
		return fmt.Errorf("%w: %w", backend.ErrUnsupported, err)
	case isUnsent(err) || isRefusal(err):
		return fmt.Errorf("%w: %w", backend.ErrUnavailable, err)
	case ctx.Err() != nil && !errors.Is(err, ctx.Err()):
		return fmt.Errorf("%w: %w", ctx.Err(), err)
	}
	return err
}

// interpret is interpretError without credentials in the text.
func (l *lane) interpret(ctx context.Context, err error) error {
	return interpretError(ctx, l.secrets.redact(err))
}

// interpretOpening returns the meaning of an error while a driver is opened. Requests at opening
// change nothing, so an unknown outcome is as good as a request that was not executed.
func interpretOpening(err error) error {
	if err == nil || isDefinite(err) {
		return err
	}
	return fmt.Errorf("%w: %w", backend.ErrUnavailable, err)
}

// isDefinite reports whether err, which interpretError has returned, shows that the server has not
// executed the request.
func isDefinite(err error) bool {
	return errors.Is(err, backend.ErrUnavailable) || errors.Is(err, backend.ErrConflict) ||
		errors.Is(err, backend.ErrUnsupported)
}

// isUnsent reports whether the request has not left the client. Only a lent client returns an error
// of a dial as it is: the driver's own dialer returns ErrUnavailable.
func isUnsent(err error) bool {
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Op == "dial" {
		return true
	}
	return errors.Is(err, redis.ErrPoolTimeout) || errors.Is(err, redis.ErrPoolExhausted) ||
		errors.Is(err, redis.ErrClosed) || errors.Is(err, batch.ErrUnsent)
}

// isRefusal reports whether err is one of the refusals.
func isRefusal(err error) bool {
	return slices.ContainsFunc(refusals, func(word string) bool { return isReply(err, word) })
}

// isReply reports whether err is an error reply of the server that starts with prefix. With the
// prefix "" it reports whether the server has replied at all, so that the connection still works.
func isReply(err error, prefix string) bool {
	reply, ok := errors.AsType[redis.Error](err)
	return ok && strings.HasPrefix(trimReply(reply.Error()), prefix)
}

// trimReply removes what precedes the actual error in a reply: the general code and, in the errors
// of scripts before Redis 7, the place where the script raised it.
func trimReply(text string) string {
	text = strings.TrimPrefix(text, "ERR ")
	const place = "@user_script:"
	i := strings.LastIndex(text, place)
	if i >= 0 && strings.HasPrefix(text, "Error running script") {
		text = strings.TrimLeft(text[i+len(place):], " 0123456789:")
	}
	return strings.TrimPrefix(text, "-")
}

// secrets are the credentials of a driver: passwords, and their users. No error contains them.
type secrets struct{ users, passwords []string }

// newSecrets takes pairs of a user and a password. Either may be empty.
func newSecrets(credentials ...string) (s secrets) {
	for pair := range slices.Chunk(credentials, 2) {
		s.users = append(s.users, pair[0], quoted(pair[0]))
		s.passwords = append(s.passwords, pair[1], quoted(pair[1]))
	}
	return s
}

// quoted returns a credential in the form that %q gives it, with escapes.
func quoted(secret string) string {
	text := strconv.Quote(secret)
	return text[1 : len(text)-1]
}

// redact removes credentials from an error. A server without AUTH answers with the arguments of
// that command, and servers of other protocols answer with any part of what they received.
func (s secrets) redact(err error) error {
	if err == nil {
		return nil
	}
	if missing, ok := errors.AsType[*replicaError](err); ok {
		return &replicaError{missing.acknowledged, missing.wanted, s.redact(missing.err)}
	}
	if reply, ok := errors.AsType[redis.Error](err); ok {
		if text := s.clean(reply.Error()); text != reply.Error() {
			return redactedReply(text)
		}
	}
	if text := s.clean(err.Error()); text != err.Error() {
		return &redactedError{text, err}
	}
	return err
}

// clean replaces passwords and, in a text that contains a password, also users. A text without a
// password may contain a user: NOPERM rightly names its user. A text may have been cut within a
// password. So the beginning of a password is enough, and the text is cut before it.
func (s secrets) clean(text string) string {
	text = cutArguments(text)
	clean := text
	for _, password := range s.passwords {
		clean = replaceSecret(clean, password)
		before, _, ok := strings.Cut(clean, password[:min(secretHead, len(password))])
		if ok && password != "" {
			clean = before + hidden
		}
	}
	if clean == text {
		return text
	}
	for _, user := range s.users {
		clean = replaceSecret(clean, user)
	}
	return clean
}

const (
	// hidden replaces a credential, as in the text of a URL.
	hidden = "xxxxx"
	// secretHead is the number of bytes of a password that suffice to recognize it.
	secretHead = 8
)

// replaceSecret replaces a credential in text. An empty one occurs in every text and is skipped.
func replaceSecret(text, secret string) string {
	if secret == "" {
		return text
	}
	return strings.ReplaceAll(text, secret, hidden)
}

// cutArguments cuts the arguments of a command from the error about the command. The server may
// have shortened them, so that clean would not find a long password in them.
func cutArguments(text string) string {
	text, _, _ = strings.Cut(text, ", with args beginning with")
	return text
}

// redactedReply is an error reply of the server without credentials. It implements redis.Error.
type redactedReply string

func (r redactedReply) Error() string { return string(r) }

// RedisError implements redis.Error.
func (redactedReply) RedisError() {}

// redactedError is an error with a clean text. It has no Unwrap method, which would return the
// original text.
type redactedError struct {
	text string
	err  error
}

func (r *redactedError) Error() string { return r.text }

// Is reports whether the original error is target, for errors.Is.
func (r *redactedError) Is(target error) bool { return errors.Is(r.err, target) }

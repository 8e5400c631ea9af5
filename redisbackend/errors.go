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
)

// refusals are the first words of replies that say that the server has not done
// what was asked, and may do it later or elsewhere. A script meets them at its
// first write at the latest, and none of ours fails after its first write.
var refusals = []string{
	"LOADING", "READONLY", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN", "MOVED", "ASK", "CROSSSLOT",
	"NOREPLICAS", "MISCONF", "OOM", "BUSY", "NOAUTH", "WRONGPASS", "NOPERM", "DENIED",
	"max number of clients reached",
}

// interpretError gives what the client library said its meaning: a definite
// answer is wrapped in its sentinel; what is not leaves the outcome unknown. ctx
// is that of the call: an error after its end is told as its end.
func interpretError(ctx context.Context, err error) error {
	switch {
	case err == nil || errors.Is(err, backend.ErrUnavailable): // the dialer's
		return err
	case replied(err, "WRONGTYPE"), replied(err, "CONFLICT"):
		return fmt.Errorf("%w: %w", backend.ErrConflict, err)
	case replied(err, "This instance has cluster support disabled"):
		return fmt.Errorf("%w: the server is not a node of a cluster: %w", backend.ErrUnsupported, err)
	case replied(err, "unknown command"), replied(err, "This Redis command is not allowed"):
		return fmt.Errorf("%w: %w", backend.ErrUnsupported, err)
	case notSent(err) || slices.ContainsFunc(refusals, func(word string) bool { return replied(err, word) }):
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

// secrets are the passwords of a driver and their users.
type secrets struct{ users, passwords []string }

func newSecrets(credentials ...string) (s secrets) {
	for pair := range slices.Chunk(credentials, 2) {
		s.users = append(s.users, pair[0], quoted(pair[0]))
		s.passwords = append(s.passwords, pair[1], quoted(pair[1]))
	}
	return s
}

// quoted returns a credential as %q shows it, which has escapes in it.
func quoted(secret string) string {
	text := strconv.Quote(secret)
	return text[1 : len(text)-1]
}

// redact keeps credentials out of errors. A server that does not have AUTH answers with the
// arguments of the command that it does not have, and other servers with whatever they were sent.
func (s secrets) redact(err error) error {
	if err == nil {
		return nil
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

// clean replaces passwords and, in a text that has one, users: NOPERM rightly names its user. Texts
// may be shortened within a password: then its beginning is enough, and the rest is cut.
func (s secrets) clean(text string) string {
	text = cutArguments(text)
	clean := text
	for _, password := range s.passwords {
		clean = replaceSecret(clean, password)
		if before, _, ok := strings.Cut(clean, password[:min(secretHead, len(password))]); ok && password != "" {
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
	hidden     = "xxxxx" // as in the text of a URL
	secretHead = 8
)

func replaceSecret(text, secret string) string {
	if secret == "" {
		return text
	}
	return strings.ReplaceAll(text, secret, hidden)
}

// cutArguments cuts a command's arguments from the error about it. They may be shortened, so that a
// long password is not found in them.
func cutArguments(text string) string {
	text, _, _ = strings.Cut(text, ", with args beginning with")
	return text
}

// redactedReply is a server's error without credentials. It is a redis.Error.
type redactedReply string

func (r redactedReply) Error() string { return string(r) }

// RedisError implements redis.Error.
func (redactedReply) RedisError() {}

// redactedError has a clean text, and is what the original error is. It has no Unwrap, because that
// would return the original text.
type redactedError struct {
	text string
	err  error
}

func (r *redactedError) Error() string { return r.text }

// Is implements errors.Is.
func (r *redactedError) Is(target error) bool { return errors.Is(r.err, target) }

// unavailable is what an error means while opening, when nothing that is asked for can stay half done.
func unavailable(err error) error {
	if err == nil || errors.Is(err, backend.ErrUnavailable) || errors.Is(err, backend.ErrUnsupported) || errors.Is(err, backend.ErrConflict) {
		return err
	}
	return fmt.Errorf("%w: %w", backend.ErrUnavailable, err)
}

// notSent tells that the request has not left the client.
func notSent(err error) bool {
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Op == "dial" {
		return true
	}
	return errors.Is(err, redis.ErrPoolTimeout) || errors.Is(err, redis.ErrPoolExhausted) ||
		errors.Is(err, redis.ErrClosed)
}

// replied tells that the server answered with an error that starts so, "" being any.
func replied(err error, prefix string) bool {
	reply, ok := errors.AsType[redis.Error](err)
	return ok && strings.HasPrefix(cause(reply.Error()), prefix)
}

// cause cuts what stands before the error proper: the general code, and in the
// errors of scripts, before Redis 7, the place where it was raised.
func cause(text string) string {
	text = strings.TrimPrefix(text, "ERR ")
	const place = "@user_script:"
	if i := strings.LastIndex(text, place); i >= 0 && strings.HasPrefix(text, "Error running script") {
		text = strings.TrimLeft(text[i+len(place):], " 0123456789:")
	}
	return strings.TrimPrefix(text, "-")
}

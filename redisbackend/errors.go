package redisbackend

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
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

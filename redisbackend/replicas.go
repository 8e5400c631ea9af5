package redisbackend

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"
)

// replicaWait is a value in the context of a request: it requires that replicas acknowledge the
// writes of the request, within a timeout.
type replicaWait struct {
	replicas int
	timeout  time.Duration
}

type replicaWaitKey struct{}

// withReplicaWait returns the context for a request that proves a term of ttl. With Options.Wait it
// requires replicas. Half of Options.Timeout ends the wait well before the request is given up, and
// a quarter of ttl ends it before the core gives up a renewal, after a third of ttl.
func (o Options) withReplicaWait(ctx context.Context, ttl time.Duration) context.Context {
	if o.Wait == 0 {
		return ctx
	}
	timeout := max(time.Millisecond, min(o.Timeout/2, ttl/4))
	return context.WithValue(ctx, replicaWaitKey{}, replicaWait{o.Wait, timeout})
}

// hasReplicaWait reports whether a request requires replicas.
func hasReplicaWait(ctx context.Context) bool { return ctx.Value(replicaWaitKey{}) != nil }

// replicaError is the answer to a request that was executed without its replicas.
type replicaError struct {
	acknowledged, wanted int64
	err                  error // the server's refusal to wait, or nil
}

// Error returns the number of replicas, or the server's refusal to wait for them.
func (e *replicaError) Error() string {
	if e.err != nil {
		return fmt.Sprintf("the server does not wait for replicas: %v", e.err)
	}
	return fmt.Sprintf("%d of %d replicas have acknowledged", e.acknowledged, e.wanted)
}

// Unwrap returns the server's refusal to wait, or nil.
func (e *replicaError) Unwrap() error { return e.err }

// isUnreplicated reports whether err is a *replicaError. The reply to the request is valid, but it
// proves no term.
func isUnreplicated(err error) bool {
	_, ok := errors.AsType[*replicaError](err)
	return ok
}

// ignoreIfRefused returns err, or nil if a script has refused with 0 and only replicas are missing.
// A refusal proves no term, so it needs no replicas.
func ignoreIfRefused(reply any, err error) error {
	if reply == int64(0) && isUnreplicated(err) {
		return nil
	}
	return err
}

// replication is a hook that ends a pipeline with WAIT if the context of the pipeline requires
// replicas. WAIT counts only the writes of its own connection; so in a cluster the pipeline to each
// node has its own. If replicas are missing, all commands of the pipeline fail.
type replication struct{}

// DialHook implements redis.Hook.
func (replication) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessHook implements redis.Hook.
func (replication) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

// ProcessPipelineHook implements redis.Hook. WAIT is the last command of the same pipeline. As a
// request of its own it might use another connection, and would then return at once.
func (replication) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		required, ok := ctx.Value(replicaWaitKey{}).(replicaWait)
		if !ok {
			return next(ctx, cmds)
		}
		wait := redis.NewIntCmd(ctx, "wait", required.replicas, required.timeout.Milliseconds())
		err := next(ctx, append(slices.Clip(cmds), wait))
		setMissingErrors(cmds, err)
		if missing := required.check(wait); missing != nil {
			for _, cmd := range cmds {
				if cmd.Err() == nil {
					cmd.SetErr(missing)
				}
			}
		}
		return err
	}
}

// check returns an error if the answer to WAIT does not prove that enough replicas have the writes.
// A *replicaError means that the server has executed them; any other error leaves that unknown.
func (r replicaWait) check(wait *redis.IntCmd) error {
	n, err := wait.Result()
	switch {
	case err == nil && n >= int64(r.replicas):
		return nil
	case err == nil || isReply(err, ""):
		return &replicaError{acknowledged: n, wanted: int64(r.replicas), err: err}
	}
	return err
}

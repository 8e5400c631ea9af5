package redisbackend

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"
)

// replicaWait asks, through the context of a request, for replicas to have what it writes.
type replicaWait struct {
	replicas int
	timeout  time.Duration
}

type replicaWaitKey struct{}

// proven is ctx for a request that proves a term of ttl. The wait ends well before the request
// is given up, and leaves most of the term.
func (o Options) proven(ctx context.Context, ttl time.Duration) context.Context {
	if o.Wait == 0 {
		return ctx
	}
	wait := replicaWait{replicas: o.Wait, timeout: max(time.Millisecond, min(o.Timeout/2, ttl/3))}
	return context.WithValue(ctx, replicaWaitKey{}, wait)
}

func waitsForReplicas(ctx context.Context) bool { return ctx.Value(replicaWaitKey{}) != nil }

// replicaError is the answer to what was done, but without its replicas.
type replicaError struct {
	acknowledged, wanted int64
	err                  error // the server's refusal to wait
}

func (e *replicaError) Error() string {
	if e.err != nil {
		return fmt.Sprintf("the server does not wait for replicas: %v", e.err)
	}
	return fmt.Sprintf("%d of %d replicas have acknowledged", e.acknowledged, e.wanted)
}

func (e *replicaError) Unwrap() error { return e.err }

// replication is a hook that ends a pipeline with WAIT, as that counts only what its own connection
// has written: in a cluster the pipeline of each node. Commands without their replicas fail.
type replication struct{}

// DialHook implements redis.Hook.
func (replication) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessHook implements redis.Hook.
func (replication) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

// ProcessPipelineHook implements redis.Hook.
func (replication) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		ask, ok := ctx.Value(replicaWaitKey{}).(replicaWait)
		if !ok {
			return next(ctx, cmds)
		}
		wait := redis.NewIntCmd(ctx, "wait", ask.replicas, ask.timeout.Milliseconds())
		err := next(ctx, append(slices.Clip(cmds), wait))
		failUnsent(cmds, err)
		if short := ask.judge(wait); short != nil {
			for _, cmd := range cmds {
				if cmd.Err() == nil {
					cmd.SetErr(short)
				}
			}
		}
		return err
	}
}

// judge returns what is wrong with the answer to WAIT.
func (a replicaWait) judge(wait *redis.IntCmd) error {
	n, err := wait.Result()
	switch {
	case err == nil && n >= int64(a.replicas):
		return nil
	case err == nil || replied(err, ""):
		return &replicaError{acknowledged: n, wanted: int64(a.replicas), err: err}
	}
	return err
}

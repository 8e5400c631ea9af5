package redisbackend

import (
	"context"
	_ "embed"
	"strings"
	"sync/atomic"

	"github.com/redis/go-redis/v9"

	"github.com/dlock-go/dlock/backend"
)

var (
	//go:embed scripts/grant.lua
	grantLua string
	//go:embed scripts/queue.lua
	queueLua string
	//go:embed scripts/acquire.lua
	acquireLua string
	//go:embed scripts/release.lua
	releaseLua string
	//go:embed scripts/break.lua
	breakLua string
	//go:embed scripts/renew.lua
	renewLua string
	//go:embed scripts/inspect.lua
	inspectLua string
)

var (
	acquireScript = newScript(assemble(acquireLua))
	releaseScript = newScript(assemble(releaseLua))
	breakScript   = newScript(assemble(breakLua))
	renewScript   = newScript(renewLua)
	inspectScript = newScript(inspectLua)
)

// assemble completes a script that can make somebody the holder.
func assemble(source string) string {
	return grantLua + strings.Replace(source, "\n-- queue.lua\n", "\n"+queueLua, 1)
}

// script is a Lua script as arguments of EVAL and EVALSHA. None has a shebang
// line: a server without memory refuses a script that has one as a whole, and runs
// one without up to its first command that needs memory.
type script struct {
	source, hash any
}

func newScript(source string) *script {
	return &script{source: source, hash: redis.NewScript(source).Hash()}
}

// lane is a client with what is known of its pool.
type lane struct {
	client redis.UniversalClient
	size   int32        // of its pool; 0 where others use it too
	busy   atomic.Int32 // requests under way
	idle   atomic.Int32 // connections that were open and idle when it was last looked at
}

func (c connection) lane(client redis.UniversalClient) *lane {
	if single, ok := client.(*redis.Client); ok && c.owned {
		return &lane{client: client, size: int32(single.Options().PoolSize)}
	}
	return &lane{client: client}
}

// run evaluates a script; args are two blanks, numkeys, the keys and the arguments. It returns when ctx
// ends, although go-redis watches but the deadline of a context, and even that not while
// it waits for a connection. So where ctx ends by its deadline alone, and a connection is known
// to be open and idle, the request is made in place. Otherwise a goroutine makes it.
func (l *lane) run(ctx context.Context, s *script, args ...any) (any, error) {
	direct, ok := backend.DeadlineOnly(ctx)
	if !ok || l.busy.Load() >= l.idle.Load() || ctx.Err() != nil {
		return l.runAside(ctx, s, args...)
	}
	l.busy.Add(1)
	reply, err := l.evaluate(direct, s, args)
	l.note(l.busy.Add(-1)+1, err)
	return reply, interpretError(ctx, err)
}

// runAside is run for those who must not be late by any chance: never in place.
func (l *lane) runAside(ctx context.Context, s *script, args ...any) (any, error) {
	l.busy.Add(1)
	reply, err := backend.Call(ctx, func(ctx context.Context) (any, error) { return l.evaluate(ctx, s, args) })
	l.note(l.busy.Add(-1)+1, err)
	return reply, interpretError(ctx, err)
}

// note draws the conclusions of a request that has ended, one of busy.
func (l *lane) note(busy int32, err error) {
	if err != nil && !replied(err, "") {
		l.forget()
	} else if busy <= l.size && busy > l.idle.Load() {
		l.idle.Store(int32(l.client.PoolStats().IdleConns))
	}
}

// forget is called when a connection turned out to be broken: then others may be.
func (l *lane) forget() { l.idle.Store(0) }

// evaluate sends EVALSHA and, where the server does not know the script or has
// forgotten it, EVAL. Neither has been executed if the answer is NOSCRIPT.
func (l *lane) evaluate(ctx context.Context, s *script, args []any) (any, error) {
	args[0], args[1] = "evalsha", s.hash
	reply, err := l.process(ctx, args)
	if err != nil && redis.HasErrorPrefix(err, "NOSCRIPT") {
		args[0], args[1] = "eval", s.source
		return l.process(ctx, args)
	}
	return reply, err
}

func (l *lane) process(ctx context.Context, args []any) (any, error) {
	cmd := redis.NewCmd(ctx, args...)
	cmd.SetFirstKeyPos(3)
	_ = l.client.Process(ctx, cmd) // the same error as the command's
	return cmd.Result()
}

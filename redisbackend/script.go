package redisbackend

import (
	"context"
	_ "embed"
	"errors"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/redis/go-redis/v9"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/backend/batch"
)

var (
	//go:embed scripts/grant.lua
	grantLua string
	//go:embed scripts/queue.lua
	queueLua string
	//go:embed scripts/free.lua
	freeLua string
	//go:embed scripts/freesharded.lua
	freeShardedLua string
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

// scripts are what a driver asks its server to do.
type scripts struct {
	acquire, release, breaks, renew, inspect *script
}

var (
	singleScripts  = assemble(freeLua)
	clusterScripts = assemble(freeShardedLua)
)

// assemble puts the scripts together, with free as their way to tell who waits without a place in the queue.
func assemble(free string) *scripts {
	whole := func(source string) *script {
		source = strings.Replace(source, "\n-- queue.lua\n", "\n"+queueLua, 1)
		return newScript(strings.ReplaceAll(grantLua+source, "-- free.lua\n", free))
	}
	return &scripts{
		acquire: whole(acquireLua), release: whole(releaseLua), breaks: whole(breakLua),
		renew: newScript(renewLua), inspect: newScript(inspectLua),
	}
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

// once is a command that no client repeats: after a repetition "nothing to release" may mean
// that the first try has released.
type once struct{ *redis.Cmd }

// NoRetry implements redis.Cmder.
func (once) NoRetry() bool { return true }

// lane is a client with what is known of its pool.
type lane struct {
	client  redis.UniversalClient
	cluster *redis.ClusterClient      // the client, if it is one
	waits   bool                      // for replicas, where a request asks for them
	secrets secrets                   // that no error shows
	batcher *batch.Batcher[call, any] // nil: every request is sent alone
	dials   *dials                    // nil if size is 0
	size    int32                     // of its pool; 0 if the pool is shared with the application
	busy    atomic.Int32              // requests under way
	idle    atomic.Int32              // connections that were open and idle when it was last looked at
}

func (c connection) lane(client redis.UniversalClient, opts Options) *lane {
	l := &lane{client: client, waits: opts.Wait > 0, secrets: c.secrets}
	l.cluster, _ = client.(*redis.ClusterClient)
	single, ok := client.(*redis.Client)
	if ok && !l.waits {
		l.batcher = batch.New(batch.Options[call, any]{
			Send: l.sendBatch, Timeout: opts.Timeout, Closed: redis.ErrClosed,
			Most: c.connections(single) / 2, // the others are for renewals, which do not queue
		})
	}
	if ok && c.owned {
		l.size, l.dials = int32(single.Options().PoolSize), c.dials
	}
	return l
}

// connections is how many a lane may use, of those of its client.
func (c connection) connections(client *redis.Client) int {
	if !c.owned { // both lanes have the same client
		return client.Options().PoolSize / 2
	}
	return client.Options().PoolSize
}

// close is called when the connections are closed.
func (l *lane) close() {
	if l.batcher != nil {
		l.batcher.Close()
	}
}

// run evaluates a script. It returns when ctx ends. In a cluster every request is sent alone, as
// there are several servers of which one may not answer, and so is a request that waits for replicas.
func (l *lane) run(ctx context.Context, s *script, r *request) (any, error) {
	if l.batcher == nil {
		return l.runAlone(ctx, s, r)
	}
	if q := l.batcher.Enter(ctx, call{s, r.args, r.keys.lock}); q != nil {
		reply, err := q.Await()
		return reply, l.interpret(ctx, err)
	}
	defer l.batcher.Leave()
	return l.runAlone(ctx, s, r)
}

// runAlone returns when ctx ends. go-redis only watches the deadline of a context, and not even that
// while it waits for a connection. So the request is made in place if ctx ends by its deadline alone
// and a connection should be open and idle. Otherwise a goroutine makes it.
func (l *lane) runAlone(ctx context.Context, s *script, r *request) (any, error) {
	direct, ok := backend.DeadlineOnly(ctx)
	if !ok || l.busy.Load() >= l.idle.Load() || ctx.Err() != nil {
		return l.runAside(ctx, s, r.until(ctx))
	}
	r.inPlace = inPlace{direct, l.dials.next()}
	l.busy.Add(1)
	reply, err := l.evaluate(&r.inPlace, s, r.args)
	l.note(l.busy.Add(-1)+1, err)
	if errors.Is(err, errDialing) {
		return l.runAside(ctx, s, r.until(ctx))
	}
	return reply, l.interpret(ctx, err)
}

// errDialing ends a request in place that has no connection. It has not been sent.
var errDialing = errors.New("dlock: a connection is being dialed")

// inPlace is the context of a request in place. It has the deadline of the caller's context, and
// ends when a dial begins, as go-redis would wait for a dial beyond the deadline. go-redis reads
// Done and Err only until it has a connection.
type inPlace struct {
	context.Context // without a Done channel
	dialing         <-chan struct{}
}

// Done implements context.Context.
func (c *inPlace) Done() <-chan struct{} { return c.dialing }

// Err implements context.Context.
func (c *inPlace) Err() error {
	select {
	case <-c.dialing:
		return errDialing
	default:
		return c.Context.Err()
	}
}

// dials announces the dials of a driver's clients.
type dials struct {
	channel atomic.Pointer[chan struct{}] // closed and replaced when a dial begins
}

func newDials() *dials {
	d := new(dials)
	d.channel.Store(new(make(chan struct{})))
	return d
}

// next returns a channel that is closed when the next dial begins.
func (d *dials) next() <-chan struct{} { return *d.channel.Load() }

// announced returns network with an announcement of each dial.
func (d *dials) announced(network dial) dial {
	return func(ctx context.Context, name, addr string) (net.Conn, error) {
		close(*d.channel.Swap(new(make(chan struct{}))))
		return network(ctx, name, addr)
	}
}

// runAside is for those who must not be late by any chance: never in place, and never in a batch.
func (l *lane) runAside(ctx context.Context, s *script, args []any) (any, error) {
	l.busy.Add(1)
	reply, err := backend.Call(ctx, func(ctx context.Context) (any, error) { return l.evaluate(ctx, s, args) })
	l.note(l.busy.Add(-1)+1, err)
	return reply, l.interpret(ctx, err)
}

// call is one evaluation among many.
type call struct {
	script *script
	args   []any
	lock   string // a key of a lock that the call is about
}

// answer is that to a call.
type answer = batch.Answer[any]

// runEach makes several calls, as runAside does. In a cluster each master has a request of its own, so
// that a master that does not answer fails its own calls alone: go-redis would wait for all masters.
func (l *lane) runEach(ctx context.Context, calls []call) []answer {
	if len(calls) == 1 {
		reply, err := l.runAside(ctx, calls[0].script, calls[0].args)
		return []answer{{Reply: reply, Err: err}}
	}
	parts, err := backend.Call(ctx, func(ctx context.Context) (map[redis.UniversalClient][]int, error) {
		return l.byNode(ctx, calls)
	})
	if err != nil {
		return slices.Repeat([]answer{{Err: l.interpret(ctx, err)}}, len(calls))
	}
	answers := make([]answer, len(calls))
	var requests sync.WaitGroup
	for _, part := range parts {
		requests.Go(func() { l.sendPart(ctx, calls, part, answers) })
	}
	requests.Wait()
	return answers
}

// byNode returns the indices of the calls to each server.
func (l *lane) byNode(ctx context.Context, calls []call) (map[redis.UniversalClient][]int, error) {
	parts := make(map[redis.UniversalClient][]int)
	for i, c := range calls {
		node, err := l.node(ctx, c.lock)
		if err != nil {
			return nil, err
		}
		parts[node] = append(parts[node], i)
	}
	return parts, nil
}

// sendPart makes some of the calls, and stores their answers.
func (l *lane) sendPart(ctx context.Context, calls []call, part []int, answers []answer) {
	together := make([]call, len(part))
	for n, i := range part {
		together[n] = calls[i]
	}
	for n, a := range l.sendBatch(ctx, together) {
		answers[part[n]] = answer{Reply: a.Reply, Err: l.interpret(ctx, a.Err)}
	}
}

// sendBatch sends several calls together, and returns when ctx ends.
func (l *lane) sendBatch(ctx context.Context, calls []call) []answer {
	l.busy.Add(1)
	answers, err := backend.Call(ctx, func(ctx context.Context) ([]answer, error) {
		return l.evaluateEach(ctx, calls), nil
	})
	if err != nil {
		answers = slices.Repeat([]answer{{Err: err}}, len(calls))
	}
	l.note(l.busy.Add(-1)+1, firstError(answers))
	return answers
}

// firstError returns an error of the connection if there is one, else any.
func firstError(answers []answer) (first error) {
	for _, a := range answers {
		if a.Err != nil && (first == nil || !replied(a.Err, "")) {
			first = a.Err
		}
	}
	return first
}

// note draws the conclusions of a request that has ended, one of busy.
func (l *lane) note(busy int32, err error) {
	if err != nil && !replied(err, "") {
		l.forget()
		l.reload()
	} else if busy <= l.size && busy > l.idle.Load() {
		l.idle.Store(int32(l.client.PoolStats().IdleConns))
	}
}

// forget is called when a connection turned out to be broken: then others may be.
func (l *lane) forget() { l.idle.Store(0) }

// evaluate sends EVALSHA and, where the server does not know the script or has
// forgotten it, EVAL. Neither has been executed if the answer is NOSCRIPT.
func (l *lane) evaluate(ctx context.Context, s *script, args []any) (any, error) {
	reply, err := l.process(ctx, "evalsha", s.hash, args)
	if err != nil && redis.HasErrorPrefix(err, "NOSCRIPT") && ctx.Err() == nil {
		return l.process(ctx, "eval", s.source, args)
	}
	return reply, err
}

func (l *lane) process(ctx context.Context, name, text any, args []any) (any, error) {
	cmd := command(ctx, name, text, args)
	if l.waits && waitsForReplicas(ctx) {
		l.pipeline(ctx, cmd)
	} else {
		_ = l.client.Process(ctx, cmd) // the same error as the command's
	}
	return cmd.Result()
}

func command(ctx context.Context, name, text any, args []any) once {
	args[0], args[1] = name, text
	cmd := redis.NewCmd(ctx, args...)
	cmd.SetFirstKeyPos(3)
	return once{cmd}
}

// pipeline sends commands in one request, or one to each node. Each has its reply or its error.
// The nodes of a cluster have a hook that waits for replicas: go-redis splits the pipeline.
func (l *lane) pipeline(ctx context.Context, cmds ...redis.Cmder) {
	send := l.send
	if l.cluster == nil {
		send = replication{}.ProcessPipelineHook(send)
	}
	failUnsent(cmds, send(ctx, cmds))
}

func (l *lane) send(ctx context.Context, cmds []redis.Cmder) error {
	_, err := l.client.Pipelined(ctx, func(p redis.Pipeliner) error {
		return p.BatchProcess(ctx, cmds...)
	})
	return err
}

// failUnsent gives commands the error that is theirs: where a new connection is refused, for a wrong password say, go-redis
// returns it, and leaves commands without a reply and without an error.
func failUnsent(cmds []redis.Cmder, err error) {
	for _, cmd := range cmds {
		if c, ok := cmd.(once); ok && c.Err() == nil && c.Val() == nil { // no script answers nil
			c.SetErr(err)
		}
	}
}

// evaluateEach is evaluate for many.
func (l *lane) evaluateEach(ctx context.Context, calls []call) []answer {
	answers := make([]answer, len(calls))
	todo := make([]int, len(calls))
	for i := range todo {
		todo[i] = i
	}
	for _, name := range []string{"evalsha", "eval"} {
		cmds := make([]redis.Cmder, len(todo))
		for n, i := range todo {
			text := calls[i].script.hash
			if name == "eval" {
				text = calls[i].script.source
			}
			cmds[n] = command(ctx, name, text, calls[i].args)
		}
		l.pipeline(ctx, cmds...)
		var unknown []int
		for n, i := range todo {
			answers[i].Reply, answers[i].Err = cmds[n].(once).Result()
			if err := answers[i].Err; err != nil && redis.HasErrorPrefix(err, "NOSCRIPT") {
				unknown = append(unknown, i)
			}
		}
		if todo = unknown; len(todo) == 0 || ctx.Err() != nil {
			break
		}
	}
	return answers
}

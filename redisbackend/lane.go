package redisbackend

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/redis/go-redis/v9"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/backend/batch"
)

// lane is a client of go-redis, with what the driver observes about its pool. A driver has two:
// main acquires, inspects and breaks; control renews and releases.
//
// A request is sent in one of four ways:
//
//	in place    in the caller's goroutine, which is the fastest way: runAlone
//	separately  in another goroutine, so that the call returns when its context ends
//	in a batch  with the requests of other callers, in one pipeline: run
//	as a part   of a renewal, a ReleaseAll or a listing, in one pipeline for each node: runEach
type lane struct {
	client  redis.UniversalClient
	cluster *redis.ClusterClient      // the client if it is one, otherwise nil
	waits   bool                      // for replicas, if the context of a request requires it
	secrets secrets                   // that errors must not contain
	batcher *batch.Batcher[call, any] // nil if there are no batches
	dials   *dials                    // nil if size is 0
	size    int32                     // of the pool; 0 if it is shared with the application
	busy    atomic.Int32              // number of requests under way
	idle    atomic.Int32              // number of open and idle connections, when last counted
}

// lane returns the lane of one of the connection's clients.
func (c connection) lane(client redis.UniversalClient, opts Options) *lane {
	l := &lane{client: client, waits: opts.Wait > 0, secrets: c.secrets}
	l.cluster, _ = client.(*redis.ClusterClient)
	single, ok := client.(*redis.Client)
	if ok && !l.waits {
		l.batcher = batch.New(batch.Options[call, any]{
			Send: l.sendQueued, Timeout: opts.Timeout,
			MaxUnderWay: c.maxConns(single) / 2, // the rest is for renewals, which do not queue
		})
	}
	if ok && c.owned {
		l.size, l.dials = int32(single.Options().PoolSize), c.dials
	}
	return l
}

// maxConns returns how many of the client's connections one lane may use. The two lanes of a lent
// client share its pool.
func (c connection) maxConns(client *redis.Client) int {
	if !c.owned {
		return client.Options().PoolSize / 2
	}
	return client.Options().PoolSize
}

// close ends the batches. The connections must be closed before, which ends the requests under way.
func (l *lane) close() {
	if l.batcher != nil {
		l.batcher.Close()
	}
}

// run evaluates a script and returns when ctx ends. In a cluster every request is sent singly,
// because one of several servers may not answer. A request that waits for replicas is sent singly,
// too.
func (l *lane) run(ctx context.Context, s script, r *request) (any, error) {
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

// runAlone returns when ctx ends. go-redis observes only the deadline of a context, and while it
// waits for a connection not even that. So the request runs in place only if nothing but its
// deadline ends ctx, and if a connection is probably open and idle. Otherwise it runs separately.
func (l *lane) runAlone(ctx context.Context, s script, r *request) (any, error) {
	direct, ok := backend.DeadlineOnly(ctx)
	if !ok || l.busy.Load() >= l.idle.Load() || ctx.Err() != nil {
		return l.runSeparately(ctx, s, r.until(ctx))
	}
	r.inPlace = inPlace{direct, l.dials.next()}
	l.busy.Add(1)
	reply, err := l.evaluate(&r.inPlace, s, r.args)
	l.updateIdle(l.busy.Add(-1)+1, err)
	if errors.Is(err, errDialing) {
		return l.runSeparately(ctx, s, r.until(ctx))
	}
	return reply, l.interpret(ctx, err)
}

// inPlace is the context of a request in place. It has the deadline of the caller's context, and
// also ends when a dial begins, because go-redis would wait for a dial beyond the deadline.
// go-redis reads Done and Err only until it has a connection.
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

// runSeparately evaluates a script in another goroutine, and returns when ctx ends. It never runs
// in place and never in a batch, so that neither can delay the request. Renewals and breaks need
// this. After the end of ctx that goroutine goes on until go-redis returns, and its answer is
// dropped.
func (l *lane) runSeparately(ctx context.Context, s script, args []any) (any, error) {
	l.busy.Add(1)
	reply, err := backend.Call(ctx, func(ctx context.Context) (any, error) {
		return l.evaluate(ctx, s, args)
	})
	l.updateIdle(l.busy.Add(-1)+1, err)
	return reply, l.interpret(ctx, err)
}

// updateIdle updates l.idle after a request has ended with err. busy is the number of requests that
// were under way, including that request. go-redis counts its idle connections under a mutex, so
// the driver counts only if more requests than l.idle were under way. A node that has left the
// cluster answers CLUSTERDOWN, and redirects no request.
func (l *lane) updateIdle(busy int32, err error) {
	if err != nil && (!isReply(err, "") || isReply(err, "CLUSTERDOWN")) {
		l.resetIdle()
		l.reload()
	} else if busy <= l.size && busy > l.idle.Load() {
		l.idle.Store(int32(l.client.PoolStats().IdleConns))
	}
}

// resetIdle is called when a connection has failed, because the other connections may have failed,
// too. Until they are counted again, no request runs in place.
func (l *lane) resetIdle() { l.idle.Store(0) }

// evaluate sends EVALSHA and, if the server does not have the script or has forgotten it, EVAL. If
// the answer is NOSCRIPT, the server has not executed the script. The context may have ended
// meanwhile: it may be an inPlace, after which the caller runs the request separately. EVAL also
// stores the script on the server, so that the next EVALSHA finds it.
func (l *lane) evaluate(ctx context.Context, s script, args []any) (any, error) {
	reply, err := l.process(ctx, "evalsha", s().hash, args)
	if err != nil && redis.HasErrorPrefix(err, "NOSCRIPT") {
		return l.process(ctx, "eval", s().source, args)
	}
	return reply, err
}

// process sends one command and returns its reply. Only a pipeline can wait for replicas.
func (l *lane) process(ctx context.Context, name, text any, args []any) (any, error) {
	cmd := newCommand(ctx, name, text, args)
	if l.waits && hasReplicaWait(ctx) {
		l.pipeline(ctx, cmd)
	} else {
		_ = l.client.Process(ctx, cmd) // the same error as the command's
	}
	return cmd.Result()
}

package redisbackend

import (
	"context"
	"slices"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/backend/batch"
)

// call is one of many evaluations that are sent together.
type call struct {
	script script
	args   []any  // as newCommand takes them
	lock   string // the key of a lock that the call is about: it determines the node
}

// answer is the answer to a call.
type answer = batch.Answer[any]

// runEach evaluates several calls as runSeparately does, and returns the answers in their order. In
// a cluster it sends one request to each master, so that a silent master fails only its own calls:
// go-redis would wait for all masters.
func (l *lane) runEach(ctx context.Context, calls []call) []answer {
	if len(calls) == 1 {
		reply, err := l.runSeparately(ctx, calls[0].script, calls[0].args)
		return []answer{{Reply: reply, Err: err}}
	}
	type groups = map[redis.UniversalClient][]int
	parts, err := backend.Call(ctx, func(ctx context.Context) (groups, error) {
		return l.groupByNode(ctx, calls)
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

// groupByNode returns the indices of the calls to each server. It may load the state of the cluster
// first, and so block for a round trip.
func (l *lane) groupByNode(
	ctx context.Context, calls []call,
) (map[redis.UniversalClient][]int, error) {
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

// sendPart sends the calls with the indices in part, and stores their answers. Concurrent calls of
// sendPart store them in different elements of answers.
func (l *lane) sendPart(ctx context.Context, calls []call, part []int, answers []answer) {
	together := make([]call, len(part))
	for n, i := range part {
		together[n] = calls[i]
	}
	for n, a := range l.sendBatch(ctx, together, func(int, answer) {}) {
		answers[part[n]] = answer{Reply: a.Reply, Err: l.interpret(ctx, a.Err)}
	}
}

// sendQueued is the Send of the batcher.
func (l *lane) sendQueued(ctx context.Context, calls []call, report func(i int, a answer)) {
	for i, a := range l.sendBatch(ctx, calls, report) {
		report(i, a)
	}
}

// sendBatch sends several calls together, and returns when ctx ends. It calls report for each
// answer that comes before the other ones; report may be called after sendBatch has returned. Calls
// of single requests are not sent after the end of ctx: see guardedNumKeys. The errors are the
// client library's own. The batch counts as one request in busy, because it uses one connection.
func (l *lane) sendBatch(
	ctx context.Context, calls []call, report func(i int, a answer),
) []answer {
	for _, c := range calls {
		if n, ok := c.args[2].(*guardedNumKeys); ok {
			n.ctx = ctx
		}
	}
	l.busy.Add(1)
	answers, err := backend.Call(ctx, func(ctx context.Context) (answers []answer, err error) {
		defer batch.Rescue(&err)
		return l.evaluateEach(ctx, calls, report), nil
	})
	if err != nil {
		answers = slices.Repeat([]answer{{Err: err}}, len(calls))
	}
	l.updateIdle(l.busy.Add(-1)+1, firstError(answers))
	return answers
}

// firstError returns an error of the connection if there is one, and otherwise any error.
func firstError(answers []answer) (first error) {
	for _, a := range answers {
		if a.Err != nil && (first == nil || !isReply(a.Err, "")) {
			first = a.Err
		}
	}
	return first
}

// evaluateEach is evaluate for many calls: EVALSHA for each, and then EVAL for those with a script
// that the server does not have. In between it reports the answers to the other calls.
func (l *lane) evaluateEach(
	ctx context.Context, calls []call, report func(i int, a answer),
) []answer {
	answers := make([]answer, len(calls))
	todo := make([]int, len(calls)) // indices of the calls without an answer
	for i := range todo {
		todo[i] = i
	}
	for _, name := range []string{"evalsha", "eval"} {
		cmds := make([]redis.Cmder, len(todo))
		for n, i := range todo {
			text := calls[i].script().hash
			if name == "eval" {
				text = calls[i].script().source
			}
			cmds[n] = newCommand(ctx, name, text, calls[i].args)
		}
		l.pipeline(ctx, cmds...)
		var unknown []int
		for n, i := range todo {
			answers[i].Reply, answers[i].Err = cmds[n].(once).Result()
			if err := answers[i].Err; err != nil && redis.HasErrorPrefix(err, "NOSCRIPT") {
				unknown = append(unknown, i)
			} else {
				report(i, answers[i])
			}
		}
		if todo = unknown; len(todo) == 0 || ctx.Err() != nil {
			break
		}
	}
	return answers
}

// pipeline sends commands in one request, or in one request to each node. Each command has its
// reply or its error afterwards. In a cluster go-redis divides the pipeline between the nodes. So
// there the wait for replicas is a hook of the client of each node.
func (l *lane) pipeline(ctx context.Context, cmds ...redis.Cmder) {
	send := l.sendPipeline
	if l.cluster == nil {
		send = replication{}.ProcessPipelineHook(send)
	}
	setMissingErrors(cmds, send(ctx, cmds))
}

// sendPipeline sends commands through the client's own hooks.
func (l *lane) sendPipeline(ctx context.Context, cmds []redis.Cmder) error {
	_, err := l.client.Pipelined(ctx, func(p redis.Pipeliner) error {
		return p.BatchProcess(ctx, cmds...)
	})
	return err
}

// setMissingErrors sets err for the commands that have neither a reply nor an error. If a new
// connection is refused, for example because of a wrong password, go-redis returns the error but
// does not set it for the commands.
func setMissingErrors(cmds []redis.Cmder, err error) {
	for _, cmd := range cmds {
		if c, ok := cmd.(once); ok && c.Err() == nil && c.Val() == nil { // no script replies nil
			c.SetErr(err)
		}
	}
}

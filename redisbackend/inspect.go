package redisbackend

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/backend/key"
)

// scanCount is how many keys the server looks at in one step of a listing.
const scanCount = 1000

// Inspect implements backend.Inspector.
func (d *driver) Inspect(ctx context.Context, name string) (*backend.Info, error) {
	infos, err := d.inspect(ctx, []string{lockKey(name)})
	if err != nil {
		return nil, err
	}
	info := infos[0]
	if info == nil || info.Key != "" && info.Key != name {
		return nil, fmt.Errorf("%w: the value under the key is not dlock's", backend.ErrConflict)
	}
	info.Key = name
	return info, nil
}

// List implements backend.Inspector.
func (d *driver) List(ctx context.Context, prefix string) iter.Seq2[*backend.Info, error] {
	return func(yield func(*backend.Info, error) bool) {
		masters, err := backend.Call(ctx, d.main.masters)
		if err != nil {
			yield(nil, d.main.interpret(ctx, err))
			return
		}
		seen := make(map[string]bool) // SCAN may repeat keys, and a slot move between two masters
		for _, master := range masters {
			if !d.list(ctx, master, prefix, seen, yield) {
				return
			}
		}
	}
}

// list shows the locks of one server. It reports whether to go on.
func (d *driver) list(
	ctx context.Context, server redis.UniversalClient, prefix string, seen map[string]bool,
	yield func(*backend.Info, error) bool,
) bool {
	var cursor uint64
	for {
		found, next, err := scan(ctx, server, cursor, pattern(prefix))
		if err != nil {
			yield(nil, d.main.interpret(ctx, err))
			return false
		}
		if !d.yieldAll(ctx, unseen(found, seen), prefix, yield) {
			return false
		}
		if next == 0 {
			return true
		}
		cursor = next
	}
}

// pattern matches the keys of locks, which end in "}", and of their waiters. Encoded names
// contain no character that is special in a pattern; and as no name is ever hashed, the
// encoding of a prefix is a prefix of the encoding.
func pattern(prefix string) string {
	return "dlock:{" + key.Encode(prefix, maxKey) + "*[}s]"
}

// unseen returns the locks that found keys belong to, each of them once.
func unseen(found []string, seen map[string]bool) []string {
	var locks []string
	for _, k := range found {
		lock := strings.TrimSuffix(k, ":waiters")
		if strings.HasSuffix(lock, "}") && !seen[lock] {
			seen[lock] = true
			locks = append(locks, lock)
		}
	}
	return locks
}

type scanned struct {
	keys []string
	next uint64
}

func scan(
	ctx context.Context, server redis.UniversalClient, cursor uint64, match string,
) ([]string, uint64, error) {
	page, err := backend.Call(ctx, func(ctx context.Context) (scanned, error) {
		keys, next, err := server.Scan(ctx, cursor, match, scanCount).Result()
		return scanned{keys, next}, err
	})
	return page.keys, page.next, err
}

// yieldAll shows those of locks that are held or waited for. It reports whether to go on.
func (d *driver) yieldAll(
	ctx context.Context, locks []string, prefix string, yield func(*backend.Info, error) bool,
) bool {
	if len(locks) == 0 {
		return true
	}
	infos, err := d.inspect(ctx, locks)
	if err != nil {
		yield(nil, err)
		return false
	}
	for _, info := range infos {
		if info == nil || info.Key == "" || !strings.HasPrefix(info.Key, prefix) {
			continue
		}
		if !yield(info, nil) {
			return false
		}
	}
	return true
}

// inspect looks at locks by their keys. An Info is nil for a foreign value; its
// Key is empty where nobody holds or queues.
func (d *driver) inspect(ctx context.Context, locks []string) ([]*backend.Info, error) {
	var calls []call
	for part := range slices.Chunk(locks, d.perScript) {
		args := make([]any, 0, 3+2*len(part))
		args = append(args, nil, nil, 2*len(part))
		for _, lock := range part {
			args = append(args, lock, lock+":waiters")
		}
		calls = append(calls, call{d.scripts.inspect, args, part[0]})
	}
	infos := make([]*backend.Info, 0, len(locks))
	for _, a := range d.main.runEach(ctx, calls) {
		if a.Err != nil {
			return nil, a.Err
		}
		entries, _ := a.Reply.([]any)
		for _, entry := range entries {
			infos = append(infos, decodeInfo(entry))
		}
	}
	if len(infos) != len(locks) {
		return nil, fmt.Errorf("%d answers for %d locks", len(infos), len(locks))
	}
	return infos, nil
}

// decodeInfo returns nil for what is not ours.
func decodeInfo(entry any) *backend.Info {
	fields, _ := entry.([]any)
	if len(fields) != 5 {
		return nil
	}
	value, held := fields[0].(string)
	left, _ := fields[1].(int64)
	queued, _ := fields[2].(int64)
	listeners, _ := fields[3].(int64)
	name, _ := fields[4].(string)
	info := &backend.Info{Key: name, Mode: backend.Exclusive, Waiters: int(queued + max(listeners, 0))}
	if listeners < 0 && queued == 0 {
		info.Waiters = -1
	}
	if !held {
		return info
	}
	holder, name, ok := decodeHolder(value)
	if !ok {
		return nil
	}
	holder.TTL = time.Duration(max(left, -1)) * time.Millisecond
	info.Key, info.Holders = name, []backend.Holder{holder}
	return info
}

// decodeHolder reads the value of a lock, as grant.lua writes it.
func decodeHolder(value string) (holder backend.Holder, name string, ok bool) {
	lines := strings.SplitN(value, "\n", 8)
	if len(lines) != 8 || lines[0] != "dlock1" {
		return backend.Holder{}, "", false
	}
	fence, err := parseFence(lines[2])
	seconds, err1 := strconv.ParseInt(lines[3], 10, 64)
	micros, err2 := strconv.ParseInt(lines[4], 10, 64)
	if err != nil || err1 != nil || err2 != nil {
		return backend.Holder{}, "", false
	}
	return backend.Holder{
		Owner: lines[1], Fence: fence << 12, Since: time.Unix(seconds, micros*1000), Meta: lines[7],
	}, lines[6], true
}

// Break implements backend.Breaker.
func (d *driver) Break(ctx context.Context, name, owner string) error {
	// Executed late it may break the next holder's lock: never behind others in a queue.
	reply, err := d.main.runAside(ctx, d.scripts.breaks, d.newRequest(name, owner).with().until(ctx))
	switch {
	case err != nil:
		return err
	case reply == int64(1):
		return nil
	case reply != int64(0):
		return errReply(reply)
	}
	return backend.ErrNotHeld
}

package redisbackend

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/backend/key"
	"github.com/dlock-go/dlock/backend/kind"
)

// scanCount is the number of keys that the server checks in one step of a listing. The step keeps
// the server from other requests.
const scanCount = 1000

// maxInspected is the maximum number of locks in one inspection, because each of them may have many
// holders. With 4,000 holders of each the reply has about maxReply.
const maxInspected = 16

// Inspect implements backend.Inspector. It is one request, and its answer is the state of one
// moment.
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

// List implements backend.Inspector. It scans the keys of each server, and inspects the locks of
// each page together. The list is of no single moment. SCAN returns every key that exists from the
// beginning of the scan to its end, and may omit a key that does not.
func (d *driver) List(ctx context.Context, prefix string) iter.Seq2[*backend.Info, error] {
	return func(yield func(*backend.Info, error) bool) {
		masters, err := backend.Call(ctx, d.main.masters)
		if err != nil {
			yield(nil, d.main.interpret(ctx, err))
			return
		}
		// SCAN may repeat keys, and a slot may move between two masters.
		seen := make(map[string]bool)
		for _, master := range masters {
			if !d.listServer(ctx, master, prefix, seen, yield) {
				return
			}
		}
	}
}

// listServer yields the locks of one server that are not in seen. It returns whether the listing
// goes on.
func (d *driver) listServer(
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
		if !d.yieldAll(ctx, addUnseen(found, seen), prefix, yield) {
			return false
		}
		if next == 0 {
			return true
		}
		cursor = next
	}
}

// pattern returns a pattern for the keys of locks, which end in "}", and of their waiters. Encoded
// names contain no character that is special in a pattern. No name is ever hashed, so the encoding
// of a prefix is a prefix of the encoding.
func pattern(prefix string) string {
	return "dlock:{" + key.Encode(prefix, maxKey) + "*[}s]"
}

// addUnseen returns the keys of the locks that the found keys belong to, if they are not in seen,
// and adds them to seen.
func addUnseen(found []string, seen map[string]bool) []string {
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

// page is the answer to one step of a listing.
type page struct {
	keys []string
	next uint64 // the cursor of the next step, 0 after the last one
}

// replicaWaits is how a replica refuses WAIT.
const replicaWaits = "WAIT cannot be used with replica"

// scan makes one step of a listing. A replica answers SCAN, but it refuses WAIT, with which a
// master waits for no replica here. A server that does not permit WAIT passes.
func scan(
	ctx context.Context, server redis.UniversalClient, cursor uint64, match string,
) ([]string, uint64, error) {
	p, err := backend.Call(ctx, func(ctx context.Context) (page, error) {
		pipe := server.Pipeline()
		step, wait := pipe.Scan(ctx, cursor, match, scanCount), pipe.Do(ctx, "wait", 0, 0)
		_, err := pipe.Exec(ctx)
		if isReply(wait.Err(), "") && !isReply(wait.Err(), replicaWaits) {
			err = step.Err()
		}
		keys, next := step.Val()
		return page{keys, next}, err
	})
	return p.keys, p.next, err
}

// yieldAll yields the locks that are held or waited for. A lock whose name does not start with
// prefix has a value of another program. yieldAll returns whether the listing goes on.
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

// inspect returns the state of locks, given by their keys, in the same order. An Info is nil for a
// value that is not dlock's. Its Key is empty if the lock is neither held nor queued for.
func (d *driver) inspect(ctx context.Context, locks []string) ([]*backend.Info, error) {
	var calls []call
	for part := range slices.Chunk(locks, min(d.perScript, maxInspected)) {
		args := make([]any, 0, 3+2*len(part))
		args = append(args, nil, nil, 2*len(part))
		for _, lock := range part {
			args = append(args, lock, lock+":waiters")
		}
		calls = append(calls, call{inspectScript, args, part[0]})
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

// decodeInfo returns the answer of inspect.lua about one lock, or nil for a value that is not
// dlock's. The fields are the value, the remaining time in ms, the number of live queue entries,
// and the name and the kind of one of them, which matter if the lock is free.
func decodeInfo(entry any) *backend.Info {
	fields, _ := entry.([]any)
	if len(fields) != 5 {
		return nil
	}
	left, _ := fields[1].(int64)
	queued, _ := fields[2].(int64)
	name, _ := fields[3].(string)
	word, _ := fields[4].(string)
	k := kind.Kind(word)
	info := &backend.Info{Key: name, Mode: k.Mode(), Limit: k.Limit(), Waiters: int(queued)}
	switch value := fields[0].(type) {
	case string:
		return addHolders(info, kind.Writer, []any{value, left})
	case []any:
		if len(value) == 0 {
			return nil
		}
		word, _ = value[0].(string)
		return addHolders(info, kind.Kind(word), value[1:])
	}
	return info
}

// addHolders sets the kind of info and adds its holders. Each of them is a record and the remaining
// time in ms. It returns nil for a record that is not dlock's.
func addHolders(info *backend.Info, k kind.Kind, holders []any) *backend.Info {
	info.Mode, info.Limit = k.Mode(), k.Limit()
	for pair := range slices.Chunk(holders, 2) {
		value, _ := pair[0].(string)
		left, _ := pair[len(pair)-1].(int64)
		r, ok := decode(value)
		if !ok {
			return nil
		}
		info.Key = r.name
		ttl := time.Duration(max(left, -1)) * time.Millisecond
		info.Holders = append(info.Holders, r.holder(ttl))
	}
	return info
}

// Break implements backend.Breaker. A break that is executed late may break the lock of the next
// holder. So it never waits in a queue, and is not sent after ctx has ended.
func (d *driver) Break(ctx context.Context, name, owner string) error {
	args := d.newRequest(name, owner).with().until(ctx)
	return decodeRemoval(d.main.runSeparately(ctx, breakScript, args))
}

package redisbackend

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/backend/measure"
)

var (
	_ measure.Floor    = (*driver)(nil)
	_ measure.Counters = (*driver)(nil)
)

// floorTTL removes the key that an interrupted Floor has left.
const floorTTL = 30 * time.Second

// floorScript is the usual script to unlock a lock on Redis.
var floorScript = sync.OnceValue(func() *redis.Script {
	return redis.NewScript(
		`if redis.call("get", KEYS[1]) == ARGV[1] then return redis.call("del", KEYS[1]) end ` +
			`return 0`)
})

// Floor implements measure.Floor: SET NX PX, and a script that deletes the key if it is the
// owner's.
func (d *driver) Floor(ctx context.Context, key, owner string) error {
	lock := newKeys(key).lock + ":floor"
	ok, err := d.main.client.SetNX(ctx, lock, owner, floorTTL).Result()
	if err == nil && !ok {
		err = backend.ErrNotAcquired
	}
	if err != nil {
		return d.main.interpret(ctx, err)
	}
	n, err := floorScript().Run(ctx, d.main.client, []string{lock}, owner).Int()
	if err == nil && n != 1 {
		err = backend.ErrNotHeld
	}
	return d.main.interpret(ctx, err)
}

// Counters implements measure.Counters with INFO of the server, or of each master.
func (d *driver) Counters(ctx context.Context) (measure.Counts, error) {
	return backend.Call(ctx, func(ctx context.Context) (sum measure.Counts, err error) {
		masters, err := d.main.masters(ctx)
		for _, master := range masters {
			if err == nil {
				err = addCounts(ctx, master, &sum)
			}
		}
		return sum, d.main.interpret(ctx, err)
	})
}

// addCounts adds the counts of one server to sum. Requests are the server's reads from its sockets:
// its count of commands would include the commands of scripts.
func addCounts(ctx context.Context, server redis.UniversalClient, sum *measure.Counts) error {
	info, err := server.Info(ctx).Result()
	if err != nil {
		return err
	}
	fields := infoFields(info)
	requests, errRequests := strconv.ParseInt(fields["total_reads_processed"], 10, 64)
	clients, errClients := strconv.ParseInt(fields["connected_clients"], 10, 64)
	if err := errors.Join(errRequests, errClients); err != nil {
		return fmt.Errorf("INFO: %w", err)
	}
	sum.Commands += requests
	sum.Connections += clients
	return nil
}

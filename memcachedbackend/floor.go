package memcachedbackend

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"

	"github.com/bradfitz/gomemcache/memcache"

	"github.com/dlock-go/dlock/backend/key"
	"github.com/dlock-go/dlock/backend/measure"
)

var (
	_ measure.Floor    = (*driver)(nil)
	_ measure.Counters = (*driver)(nil)
	_ measure.Sweeper  = (*driver)(nil)
)

const (
	// floorSeconds ends what a floor has left: its counter, always, and its lock, if it was interrupted.
	floorSeconds = 60
	// floorValue is about as long as the value of a lock.
	floorValue = 150
)

// Floor implements measure.Floor: add, incr, gets and cas, the least that draws a fence and frees
// nobody else's.
func (d *driver) Floor(ctx context.Context, name, owner string) error {
	encoded := key.Encode(name, maxKey)
	lock, counter := "dlock-floor:"+encoded, "dlock-count:"+encoded
	value := append(make([]byte, 0, floorValue), owner...)[:floorValue]
	return d.server(name).main.do(ctx, func(c *memcache.Client) error {
		if err := c.Add(&memcache.Item{Key: lock, Value: value, Expiration: floorSeconds}); err != nil {
			return err
		}
		_, err := c.Increment(counter, 1)
		if errors.Is(err, memcache.ErrCacheMiss) {
			err = c.Set(&memcache.Item{Key: counter, Value: []byte("1"), Expiration: floorSeconds})
		}
		if err != nil {
			return err
		}
		item, err := c.Get(lock)
		if err != nil {
			return err
		}
		item.Expiration = expired
		return c.CompareAndSwap(item)
	})
}

// Counters implements measure.Counters, by stats: the sum over all servers. There is no count of
// commands, but of what they did.
func (d *driver) Counters(ctx context.Context) (measure.Counts, error) {
	var sum measure.Counts
	for _, s := range d.servers {
		if err := s.pool.count(ctx, &sum); err != nil {
			return measure.Counts{}, fmt.Errorf("stats of %s: %w", s.pool.address, err)
		}
	}
	return sum, nil
}

// count asks on a connection of its own: gomemcache knows no stats.
func (p *pool) count(ctx context.Context, sum *measure.Counts) error {
	ctx, cancel := context.WithTimeout(ctx, p.opts.Timeout)
	defer cancel()
	_, conn, err := connect(ctx, p.address.Network(), p.address.String(), p.opts)
	if err != nil {
		return err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.SetDeadline(past) })()
	if _, err := conn.Write([]byte("stats\r\n")); err != nil {
		return err
	}
	return countStats(conn, sum)
}

// countStats adds what the lines of stats tell: "STAT name value".
func countStats(conn net.Conn, sum *measure.Counts) error {
	lines := bufio.NewScanner(conn)
	for lines.Scan() && lines.Text() != "END" {
		fields := strings.Fields(lines.Text())
		if len(fields) != 3 {
			return fmt.Errorf("the server answered %q", lines.Text())
		}
		to, name := &sum.Commands, fields[1]
		switch {
		case name == "curr_connections":
			to = &sum.Connections
		case !isCommandCount(name):
			continue
		}
		n, err := strconv.ParseInt(fields[2], 10, 64)
		if err != nil {
			return err
		}
		*to += n
	}
	return lines.Err()
}

// isCommandCount tells whether a counter is one of commands. Those of incr, decr and delete are told by their
// results; add and cas count as set.
func isCommandCount(name string) bool {
	switch name {
	case "cmd_get", "cmd_set", "cmd_touch", "cmd_flush", "cmd_meta",
		"incr_hits", "incr_misses", "decr_hits", "decr_misses", "delete_hits", "delete_misses":
		return true
	}
	return false
}

// Sweep implements measure.Sweeper: what is left of a free lock is its counter.
func (d *driver) Sweep(ctx context.Context, names []string) error {
	for _, name := range names {
		err := d.server(name).main.do(ctx, func(c *memcache.Client) error { return c.Delete(newKeys(name).counter) })
		if err != nil && !errors.Is(err, memcache.ErrCacheMiss) {
			return err
		}
	}
	return nil
}

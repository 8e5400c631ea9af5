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
	// floorExpiry, in seconds, ends what Floor leaves: always its counter, and its lock if Floor
	// was interrupted.
	floorExpiry = 60
	// floorSize is about the size of a record, in bytes.
	floorSize = 150
)

// Floor implements measure.Floor with add, incr, gets and cas. It is the minimum that draws a fence
// and removes no other owner's lock.
func (d *driver) Floor(ctx context.Context, name, owner string) error {
	encoded := key.Encode(name, maxEncoded)
	lock, counter := floorPrefix+encoded, floorCounterPrefix+encoded
	value := append(make([]byte, 0, floorSize), owner...)[:floorSize]
	return d.server(name).main.do(ctx, func(c *memcache.Client) error {
		err := c.Add(&memcache.Item{Key: lock, Value: value, Expiration: floorExpiry})
		if err != nil {
			return err
		}
		_, err = c.Increment(counter, 1)
		if errors.Is(err, memcache.ErrCacheMiss) {
			err = c.Set(&memcache.Item{Key: counter, Value: []byte("1"), Expiration: floorExpiry})
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

// Counters implements measure.Counters. It sums up the stats of all servers. They have no count of
// commands, but counts of the effects of commands.
func (d *driver) Counters(ctx context.Context) (measure.Counts, error) {
	var sum measure.Counts
	for _, s := range d.servers {
		if err := s.pool.count(ctx, &sum); err != nil {
			return measure.Counts{}, fmt.Errorf("stats of %s: %w", s.pool.address, err)
		}
	}
	return sum, nil
}

// count adds the stats of one server to sum. It uses a new connection, because gomemcache does not
// support stats.
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

// countStats adds the lines of an answer to sum. Each line is "STAT name value".
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

// isCommandCount reports whether a name of stats is a count of commands. The server counts incr,
// decr and delete by their results, and counts add and cas as set.
func isCommandCount(name string) bool {
	switch name {
	case "cmd_get", "cmd_set", "cmd_touch", "cmd_flush", "cmd_meta",
		"incr_hits", "incr_misses", "decr_hits", "decr_misses", "delete_hits", "delete_misses":
		return true
	}
	return false
}

// Sweep implements measure.Sweeper. The counter is the only remains of a free lock.
func (d *driver) Sweep(ctx context.Context, names []string) error {
	for _, name := range names {
		err := d.server(name).main.do(ctx, func(c *memcache.Client) error {
			return c.Delete(newKeys(name).counter)
		})
		if err != nil && !errors.Is(err, memcache.ErrCacheMiss) {
			return err
		}
	}
	return nil
}

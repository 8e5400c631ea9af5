package zkbackend

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/go-zookeeper/zk"

	"github.com/dlock-go/dlock/backend/key"
	"github.com/dlock-go/dlock/backend/measure"
)

var (
	_ measure.Floor    = (*driver)(nil)
	_ measure.Counters = (*driver)(nil)
)

// Floor implements measure.Floor: a node, a listing of the other nodes, and its deletion. Its parent, which
// is made by the first, is none of a lock: their names have no tilde.
func (d *driver) Floor(ctx context.Context, name, _ string) error {
	s, err := d.live(ctx)
	if err != nil {
		return err
	}
	_, err = ask(ctx, s, func() (any, error) {
		parent := d.settings.root + "/~floor-" + key.Encode(name, maxKey)
		node, err := s.floorNode(parent)
		if errors.Is(err, zk.ErrNoNode) {
			if err = d.makeContainer(s, parent, nil); err == nil || errors.Is(err, zk.ErrNodeExists) {
				node, err = s.floorNode(parent)
			}
		}
		if err == nil {
			_, _, err = s.conn.Children(parent)
		}
		if err == nil {
			err = s.conn.Delete(node, -1)
		}
		return nil, interpretError(err)
	})
	return err
}

func (s *session) floorNode(parent string) (string, error) {
	return s.conn.Create(parent+"/x-", nil, zk.FlagEphemeralSequential, s.settings.acl)
}

// Counters implements measure.Counters, by the command srvr, which servers answer unless
// 4lw.commands.whitelist forbids it. It asks all servers, and fails if one does not answer: who knows what that was
// asked. To them each ping is a packet.
func (d *driver) Counters(ctx context.Context) (total measure.Counts, err error) {
	for _, server := range d.servers {
		counts, err := d.counters(ctx, server)
		if err != nil {
			return measure.Counts{}, fmt.Errorf("srvr of %s: %w", server, err)
		}
		total.Commands = sum(total.Commands, counts.Commands)
		total.Connections = sum(total.Connections, counts.Connections)
	}
	return total, nil
}

// sum is unknown, -1, where one of the two is.
func sum(a, b int64) int64 {
	if min(a, b) < 0 {
		return -1
	}
	return a + b
}

func (d *driver) counters(ctx context.Context, server string) (measure.Counts, error) {
	conn, err := connect(ctx, "tcp", server, d.settings.TLS)
	if err != nil {
		return measure.Counts{}, err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	if _, err := conn.Write([]byte("srvr")); err != nil {
		return measure.Counts{}, err
	}
	counts := measure.Counts{Commands: -1, Connections: -1}
	fields := map[string]*int64{"Received": &counts.Commands, "Connections": &counts.Connections}
	lines := bufio.NewScanner(conn)
	for lines.Scan() {
		name, value, _ := strings.Cut(lines.Text(), ": ")
		if to := fields[name]; to != nil && err == nil {
			*to, err = strconv.ParseInt(value, 10, 64)
		}
	}
	return counts, errors.Join(err, lines.Err())
}

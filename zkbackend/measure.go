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

// Floor implements measure.Floor: it creates a node, lists its parent and deletes the node. The
// first call creates the parent, which is not a lock.
func (d *driver) Floor(ctx context.Context, name, _ string) error {
	s, err := d.liveSession(ctx)
	if err != nil {
		return err
	}
	_, err = call(ctx, s, func() (any, error) {
		return nil, interpretError(d.floor(s, d.settings.root+floorPrefix+key.Encode(name, maxKey)))
	})
	return err
}

// floor is Floor with the nodes in parent.
func (d *driver) floor(s *session, parent string) error {
	node, err := s.createFloorNode(parent)
	if errors.Is(err, zk.ErrNoNode) {
		err = d.makeContainer(s, parent, nil)
		if err == nil || errors.Is(err, zk.ErrNodeExists) {
			node, err = s.createFloorNode(parent)
		}
	}
	if err != nil {
		return err
	}
	if _, _, err := s.conn.Children(parent); err != nil {
		return err
	}
	return s.conn.Delete(node, -1)
}

// createFloorNode creates a node like the node of an acquisition and returns its path.
func (s *session) createFloorNode(parent string) (string, error) {
	return s.conn.Create(parent+"/x-", nil, zk.FlagEphemeralSequential, s.settings.acl)
}

// Counters implements measure.Counters by the command srvr, which servers answer unless
// 4lw.commands.whitelist forbids it. It returns an error if any server does not answer, because the
// sum would then be wrong. The servers count each ping as a packet.
func (d *driver) Counters(ctx context.Context) (total measure.Counts, err error) {
	for _, server := range d.servers {
		counts, err := d.counters(ctx, server)
		if err != nil {
			return measure.Counts{}, fmt.Errorf("srvr of %s: %w", server, err)
		}
		total.Commands = addKnown(total.Commands, counts.Commands)
		total.Connections = addKnown(total.Connections, counts.Connections)
	}
	return total, nil
}

// addKnown returns the sum of two counters, or -1, which is unknown, if one of them is unknown.
func addKnown(a, b int64) int64 {
	if min(a, b) < 0 {
		return -1
	}
	return a + b
}

// counters reads the counters of one server over a connection of its own.
func (d *driver) counters(ctx context.Context, server string) (measure.Counts, error) {
	conn, err := dialServer(ctx, "tcp", server, d.settings.TLS)
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

package zkbackend

import (
	"errors"
	"strings"
	"testing"

	"github.com/go-zookeeper/zk"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/backend/kind"
	"github.com/dlock-go/dlock/internal/testenv"
	"github.com/dlock-go/dlock/internal/testenv/raw"
)

// enqueueAs makes an acquisition of req that has a node with that number in the queue.
func enqueueAs(t *testing.T, d *driver, req *backend.Request, number string) {
	t.Helper()
	_, err := d.makeLock(d.session, req.Key)
	must(t, err)
	err = d.makeContainer(d.session, d.queue(req.Key), nil)
	if !errors.Is(err, zk.ErrNodeExists) {
		must(t, err)
	}
	k := kind.Of(req)
	node := d.queue(req.Key) + "/" + nodeName(req.Owner, k) + number
	_, err = d.session.conn.Create(node, nil, zk.FlagEphemeral, zk.WorldACL(zk.PermAll))
	must(t, err)
	d.admit(d.session, id{req.Key, req.Owner}, k).markQueued(node)
}

// TestNumbersThatEnd checks a queue whose numbers have ended: later nodes have the last number, or
// a negative one. None of them holds the lock while there is another node, and none stays queued.
// When the queue is empty, its numbers restart.
func TestNumbersThatEnd(t *testing.T) {
	t.Parallel()
	const last, negative = "2147483647", "-2147483648"
	s := testenv.ZooKeeper(t)
	d, other := openURL(t, s.URL), openURL(t, s.URL)
	for name, mode := range map[string]backend.Mode{
		"writer": backend.Exclusive, "reader": backend.Shared, "permit": backend.Permit,
	} {
		for _, numbers := range [][2]string{
			{"2147483646", last}, {last, last}, {last, negative}, {negative, last},
		} {
			t.Run(name+" "+numbers[0]+" "+numbers[1], func(t *testing.T) {
				holder, waiter := raw.Request(t, patience), raw.Request(t, patience)
				for _, req := range []*backend.Request{holder, waiter} {
					if req.Mode = mode; mode == backend.Permit {
						req.Limit = 3
					}
				}
				enqueueAs(t, d, holder, numbers[0])
				g, held := raw.Acquire(t, d, holder), nodeOf(t, d, holder)
				enqueueAs(t, other, waiter, numbers[1])
				b := raw.Busy(t, other, waiter)
				entries, err := d.session.syncedEntries(d.queue(holder.Key))
				must(t, err)
				if b.Queued || len(entries) != 1 {
					t.Errorf("%+v, with the queue %v", b, entries)
				}
				raw.Release(t, d, g)
				g = raw.Acquire(t, other, waiter)
				node := nodeOf(t, other, waiter)
				if !isOrdered(held) && !strings.HasSuffix(node, "0000000000") {
					t.Errorf("the numbers do not restart: %s", node)
				}
				raw.Release(t, other, g)
			})
		}
	}
}

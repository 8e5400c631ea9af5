package etcdbackend

import (
	"errors"
	"testing"

	mvccpb "go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/backend/kind"
)

// newRegistered returns a driver without a server, and an acquisition that it has.
func newRegistered() (*driver, *acquisition) {
	a := &acquisition{news: make(chan struct{}, 1), lease: &lease{}}
	a.owner = "owner"
	a.keys = newKeys("root", "name", a.owner)
	return &driver{acquisitions: map[string]*acquisition{a.owner: a}}, a
}

// TestRemovalsInAnyOrder checks that an older report of a removal does not hide a newer one: the
// inbox and the watch of the queue report in any order.
func TestRemovalsInAnyOrder(t *testing.T) {
	t.Parallel()
	d, a := newRegistered()
	a.created = 10
	d.markRemoved(a.owner, 16)
	d.markRemoved(a.owner, 12)
	if !a.isLost(14) {
		t.Error("the key of revision 14 seems to exist, but was removed at 16")
	}
}

// TestConflictAfterALateAttempt checks that an acquisition with a request that may still be
// executed is not forgotten because a later attempt is a conflict. The next waiter goes on with its
// owner.
func TestConflictAfterALateAttempt(t *testing.T) {
	t.Parallel()
	for _, late := range []bool{false, true} {
		d, a := newRegistered()
		a.mayHaveGhost = late
		d.applyError(a, backend.ErrConflict)
		if known := d.acquisitions[a.owner] == a; known != late {
			t.Errorf("with a late request: %t: the acquisition is known: %t", late, known)
		}
	}
}

// TestKeyMissingInTheCopy checks that a waiter detects a copy of the queue that is newer than its
// key and does not have it: no event will wake the waiter.
func TestKeyMissingInTheCopy(t *testing.T) {
	t.Parallel()
	_, a := newRegistered()
	a.created = 10
	for _, test := range []struct {
		copy *queue
		want bool
	}{
		{&queue{revision: 9}, true}, // the copy is older than the key
		{&queue{revision: 13}, false},
		{&queue{revision: 13, entries: []entry{{a.owner, a.owner, 10, kind.Writer}}}, true},
		{&queue{revision: 13, entries: []entry{{a.owner, a.owner, 7, kind.Writer}}}, false},
	} {
		if got := test.copy.has(a); got != test.want {
			t.Errorf("%+v: the copy has the key: %t", test.copy, got)
		}
	}
}

// TestConflictIsOfTheFirstKey checks that a key of another kind is a conflict only as the first
// key. Behind another key it belongs to an attempt that is about to fail, or to a dead client.
func TestConflictIsOfTheFirstKey(t *testing.T) {
	t.Parallel()
	_, a := newRegistered()
	a.kind = kind.Reader
	key := func(k kind.Kind) *mvccpb.KeyValue {
		r := record{kind: k, client: "client"}
		return &mvccpb.KeyValue{Key: []byte("key"), Value: r.encode()}
	}
	for _, test := range []struct {
		kinds    []kind.Kind
		conflict bool
	}{
		{[]kind.Kind{"p3", kind.Writer}, true},
		{[]kind.Kind{kind.Writer, "p3", kind.Writer}, false},
	} {
		var ans answer
		var kvs []*mvccpb.KeyValue
		for _, k := range test.kinds {
			kvs = append(kvs, key(k))
		}
		err := a.readFront(&ans, kvs)
		if errors.Is(err, backend.ErrConflict) != test.conflict {
			t.Errorf("%q: %v", test.kinds, err)
		}
	}
}

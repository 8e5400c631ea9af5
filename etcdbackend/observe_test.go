package etcdbackend

import (
	"context"
	"maps"
	"slices"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/metadata"

	"github.com/dlock-go/dlock/internal/testenv/raw"
)

// watcher is a Watcher of a client that keeps the context of the last watch.
type watcher struct {
	clientv3.Watcher
	ctx context.Context
}

func (w *watcher) Watch(
	ctx context.Context, _ string, _ ...clientv3.OpOption,
) clientv3.WatchChan {
	w.ctx = ctx
	ended := make(chan clientv3.WatchResponse)
	close(ended)
	return ended
}

// TestWatchRequiresALeader checks that Watch has the metadata of the driver and of its stream, and
// not its caller's. So it uses the stream of the other watches, and ends on a member without a
// leader.
func TestWatchRequiresALeader(t *testing.T) {
	t.Parallel()
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{"127.0.0.1:1"}})
	if err != nil {
		t.Fatal(err)
	}
	d := newDriver(client, owned, Options{Timeout: time.Second})
	defer d.Close()
	w := &watcher{Watcher: client.Watcher}
	client.Watcher = w
	ctx := metadata.AppendToOutgoingContext(t.Context(), "trace", "1")
	raw.WantIs(t, "Watch", d.Watch(ctx, t.Name(), func() {}), errEnded)
	got, _ := metadata.FromOutgoingContext(w.ctx)
	want, _ := metadata.FromOutgoingContext(d.life)
	if len(got[streamKey]) != 1 {
		t.Errorf("a watch with %v has no stream", got)
	}
	delete(got, streamKey)
	if len(want) == 0 || !maps.EqualFunc(got, want, slices.Equal) {
		t.Errorf("a watch with %v, the driver's other ones have %v", got, want)
	}
}

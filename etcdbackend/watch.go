package etcdbackend

import (
	"context"
	"strconv"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/metadata"
)

// watch is a watch of the keys with a prefix, which exists on the server.
type watch struct {
	events   clientv3.WatchChan
	revision int64              // at which the server has created it
	end      context.CancelFunc // ends events
	stream   int64              // its number
	err      error              // why the server has not created it
}

// openWatch opens a watch of the keys with a prefix, from a revision on. 0 means from now on. It
// blocks until the watch exists, until it fails, or until ctx ends. The watch lives until the
// caller calls its end, or until the driver is closed.
//
// The client has one stream for all watches with the same metadata. It keeps the stream as long as
// the stream has a watch, and gets a token only for a new stream. So the token may have expired:
// the server then refuses each further watch of the stream. Or the member at the other end is
// stopped. In both cases openWatch opens the watch on another stream: once after an error, and
// without an answer after patience, after twice as long, and so on. The first watch that exists is
// used.
func (d *driver) openWatch(
	ctx context.Context, prefix string, revision int64, patience time.Duration,
) (watch, error) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	opened := make(chan watch)
	for failed := false; ; {
		stream := d.watchStream.Load()
		if !d.background.Go(func() { d.createWatch(ctx, stream, prefix, revision, opened) }) {
			return watch{}, errClosed
		}
		select {
		case w := <-opened:
			if w.err == nil {
				return w, nil
			}
			w.end()
			if failed {
				return watch{}, w.err
			}
			stream, failed = w.stream, true
		case <-time.After(patience):
			patience *= 2
		case <-ctx.Done():
			return watch{}, ctx.Err()
		}
		d.watchStream.CompareAndSwap(stream, stream+1) // unless another watch has found it bad
	}
}

// createWatch creates a watch on a stream and sends it to opened, unless ctx ends first. It does
// not end the watch before the server has answered: the client would keep a stream whose only watch
// ends earlier.
func (d *driver) createWatch(
	ctx context.Context, stream int64, prefix string, revision int64, opened chan<- watch,
) {
	life, end := context.WithCancel(d.life)
	w := watch{stream: stream, end: end}
	number := strconv.FormatInt(stream, 10)
	w.events = d.client.Watch(metadata.AppendToOutgoingContext(life, streamKey, number), prefix,
		clientv3.WithPrefix(), clientv3.WithRev(revision), clientv3.WithCreatedNotify())
	created, ok := <-w.events
	w.revision, w.err = created.Header.GetRevision(), created.Err()
	if !ok {
		w.err = errEnded
	}
	select {
	case opened <- w:
	case <-ctx.Done():
		end()
	}
}

// streamKey is the key of the metadata that differ between the streams of watches. Servers ignore
// it.
const streamKey = "dlock-stream"

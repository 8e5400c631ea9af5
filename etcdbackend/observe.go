package etcdbackend

import "context"

// Watch implements backend.Watcher. It has the values of the other watches, so that it shares their
// stream and requires a leader.
func (d *driver) Watch(ctx context.Context, key string, changed func()) error {
	w, err := d.openWatch(ctx, d.prefix(key), 0, d.timeout/2)
	if err != nil {
		return err
	}
	defer w.end()
	defer context.AfterFunc(ctx, w.end)()
	changed()
	for resp := range w.events {
		if err := resp.Err(); err != nil {
			return err
		}
		changed()
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	return errEnded
}

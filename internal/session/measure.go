package session

import (
	"context"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/backend/measure"
)

var (
	_ measure.Floor    = (*Driver)(nil)
	_ measure.Counters = (*Driver)(nil)
)

// floorPrefix begins the names of floors. No key has a NUL in it.
const floorPrefix = "\x00floor\x00"

// Floor implements measure.Floor by the two statements alone. It has the turn for both of them, so
// that a Floor that is given up leaves no lock.
func (d *Driver) Floor(ctx context.Context, key, _ string) error {
	id := d.server.ID(floorPrefix + key)
	_, err := inLine(ctx, d, func(s *session) (none struct{}, err error) {
		var acquired bool
		err = d.run(s, func(c Conn) (err error) {
			acquired, err = c.TryLock(id)
			return err
		})
		switch {
		case err != nil:
			return none, err
		case !acquired:
			return none, &backend.Busy{}
		}
		return none, d.run(s, func(c Conn) error { return c.Unlock(id) })
	})
	return err
}

// Counters implements measure.Counters.
func (d *Driver) Counters(ctx context.Context) (measure.Counts, error) {
	return inLine(ctx, d, func(s *session) (counts measure.Counts, err error) {
		err = d.run(s, func(c Conn) (err error) {
			counts, err = c.Count()
			return err
		})
		return counts, err
	})
}

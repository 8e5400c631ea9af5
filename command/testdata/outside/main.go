// A dlock of another module, with the URLs of a driver of its own.
package main

import (
	"context"
	"errors"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/command"
)

func main() {
	backend.Register("ours", open)
	command.Main()
}

// driver has mutexes only. It keeps them in the files of ours:/dir.
type driver struct{ files }

// files has the methods that driver shares with the driver of file:.
type files interface {
	backend.Driver
	backend.Waiter
	backend.Inspector
}

func open(ctx context.Context, u *backend.URL) (backend.Driver, error) {
	u.Scheme = "file"
	open, err := backend.Lookup(u.Scheme)
	if err != nil {
		return nil, err
	}
	d, err := open(ctx, u)
	if err != nil {
		return nil, err
	}
	f, ok := d.(files)
	if !ok {
		return nil, errors.Join(errors.New("ours: the files cannot be listed"), d.Close())
	}
	return &driver{f}, nil
}

func (d *driver) Capabilities() backend.Capabilities {
	c := d.files.Capabilities()
	c.Modes = backend.Exclusive
	return c
}

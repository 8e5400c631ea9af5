package zkbackend

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/dlock-go/dlock/backend"
)

func init() {
	backend.Register("zk", open)
	backend.Register("zookeeper", open)
}

const (
	// openTimeout bounds an opening whose context has no earlier end.
	openTimeout = 8 * time.Second
	// reprobe is the pause between two attempts of an opening.
	reprobe = 100 * time.Millisecond
	// redialing is for how long an opening dials again where connections are refused or end at once.
	redialing = 500 * time.Millisecond
)

// New makes a driver for the servers of one ensemble, each as host:port. It connects, for at most
// eight seconds, and sees whether it may make locks. There is no way to lend it a *zk.Conn: the
// session timeout that the server has granted, on which every lease depends, is to be had from
// a connection that the driver dials itself.
func New(servers []string, opts *Options) (backend.Driver, error) {
	return start(context.Background(), servers, opts)
}

func open(ctx context.Context, u *backend.URL) (backend.Driver, error) {
	servers, opts, err := parseURL(u)
	if err != nil {
		return nil, err
	}
	return start(ctx, servers, opts)
}

func start(ctx context.Context, servers []string, opts *Options) (backend.Driver, error) {
	if len(servers) == 0 {
		return nil, errors.New("dlock: zkbackend.New needs a server")
	}
	settings, err := opts.settings()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	d := newDriver(servers, settings)
	if err := d.begin(ctx); err != nil {
		_ = d.Close()
		return nil, err
	}
	return d, nil
}

// begin is probe, again and again while the ensemble may be about to elect a leader.
func (d *driver) begin(ctx context.Context) error {
	for start := time.Now(); ; {
		err := d.probe(ctx)
		switch {
		case err == nil:
			return nil
		case isPassing(err):
		case errors.Is(err, zk.ErrNoServer) && time.Since(start) < redialing:
			d.abandon(err) // the library would pause for a second before it dials again
		default:
			return err
		}
		select {
		case <-time.After(reprobe):
		case <-ctx.Done():
			return unavailable(err)
		}
	}
}

// abandon ends the present session, so that the next attempt dials at once.
func (d *driver) abandon(cause error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.session != nil {
		d.session.end(cause)
	}
}

// probe connects, makes the directory of locks if there is none, and makes and deletes a node in it in
// one step. A wrong password shows only here: the server takes any, and denies access.
func (d *driver) probe(ctx context.Context) error {
	if err := d.measure(ctx); err != nil {
		return err
	}
	s, err := d.live(ctx)
	if err != nil {
		return err
	}
	d.measuredAt = ""
	d.caps.MaxTTL = d.settings.maxTTL(s.proof.granted())
	_, err = ask(ctx, s, func() (any, error) {
		if err := d.makeRoot(s); err != nil {
			return nil, err
		}
		path := d.settings.root + "/~probe" // no lock's: their names have no tilde
		_, err := s.conn.Multi(
			&zk.CreateRequest{Path: path, Acl: d.settings.acl, Flags: zk.FlagEphemeral},
			&zk.DeleteRequest{Path: path, Version: -1})
		return nil, err
	})
	if errors.Is(err, zk.ErrNoAuth) {
		err = fmt.Errorf("the user needs all permissions on %s, or that of creating it: %w", d.settings.root, err)
	}
	return interpretError(err)
}

// measure learns the server's tick, by a session of its own: servers do not report it, but by
// default the shortest timeout that they grant is two ticks.
func (d *driver) measure(ctx context.Context) error {
	if d.settings.tick > 0 {
		return nil
	}
	s, err := d.live(ctx)
	if err != nil {
		return err
	}
	d.settings, d.measuredAt = d.settings.measured(s.proof.granted()), s.conn.Server()
	s.end(errMeasured)
	return nil
}

// makeRoot makes the directory of locks. The chroot is not made: a misspelt one would be
// a place where nobody else looks.
func (d *driver) makeRoot(s *session) error {
	exists, _, err := s.conn.Exists(d.settings.root)
	if exists || err != nil {
		return err
	}
	_, err = s.conn.Create(d.settings.root, nil, zk.FlagPersistent, d.settings.acl)
	switch {
	case errors.Is(err, zk.ErrNodeExists):
		return nil
	case errors.Is(err, zk.ErrNoNode):
		return fmt.Errorf("%w: the chroot %q does not exist", backend.ErrUnavailable, d.settings.Chroot)
	}
	return err
}

package zkbackend

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/dlock-go/dlock/backend"
)

func init() {
	backend.Register("zk", open)
	backend.Register("zookeeper", open)
}

const (
	// probePause is the pause between two probes of an Open.
	probePause = 100 * time.Millisecond

	// maxRedials is how often an Open dials again if connections are refused or end at once. On a
	// fast machine that takes half a second. A server that is silent is not dialled again.
	maxRedials = 5
)

// New makes a driver for the servers of one ensemble, each as host:port. It connects and checks
// that the user may create locks. It takes at most eight seconds.
//
// It cannot use a *zk.Conn of the caller. Every lease depends on the session timeout that the
// server has granted. The driver can read that only from a connection that it has dialled.
func New(servers []string, opts *Options) (backend.Driver, error) {
	if len(servers) == 0 {
		return nil, errors.New("dlock: zkbackend.New needs a server")
	}
	settings, err := opts.settings()
	if err != nil {
		return nil, err
	}
	return opened(connect(context.Background(), servers, settings))
}

// open is the Opener of the driver.
func open(ctx context.Context, u *backend.URL) (backend.Driver, error) {
	t, err := parseTarget(u)
	if err != nil {
		return nil, err
	}
	return opened(connect(ctx, t.servers, t.settings))
}

// opened returns a plain nil for a driver that could not be opened, and closes what it has left
// open.
func opened(d *driver, err error) (backend.Driver, error) {
	if err != nil {
		_ = d.Close()
		return nil, err
	}
	return d, nil
}

// connect makes a driver and probes its servers. It always returns a driver, for the caller to
// close.
func connect(ctx context.Context, servers []string, settings *settings) (*driver, error) {
	ctx, cancel := context.WithTimeout(ctx, backend.OpenTimeout)
	defer cancel()
	d := newDriver(servers, settings)
	return d, d.probeRepeatedly(ctx)
}

// probeRepeatedly probes the servers until one serves or refuses the driver. It continues while the
// ensemble may be about to elect a leader.
func (d *driver) probeRepeatedly(ctx context.Context) error {
	for redials := 0; ; {
		err := d.probe(ctx)
		switch {
		case err == nil:
			return nil
		case isTransient(err):
		case errors.Is(err, zk.ErrNoServer) && redials < maxRedials && !isSilent(err):
			redials++
			d.endSession(err) // the library would pause for a second before it dials again
		default:
			return err
		}
		select {
		case <-time.After(probePause):
		case <-ctx.Done():
			return unavailable(err)
		}
	}
}

// isSilent reports whether err is about a server that did not answer in time. A write of a few
// bytes waits for no server: if it is too late, this process stood still.
func isSilent(err error) bool {
	timeout, ok := errors.AsType[net.Error](err)
	op, _ := errors.AsType[*net.OpError](err)
	return ok && timeout.Timeout() && (op == nil || op.Op != "write")
}

// endSession ends the present session, so that the next attempt dials at once.
func (d *driver) endSession(cause error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.session != nil {
		d.session.end(cause)
	}
}

// probe connects and creates the directory of locks if there is none. Then it creates and deletes a
// node in the directory in one step. Only that shows a wrong password: the server accepts any
// password and denies access later.
func (d *driver) probe(ctx context.Context) error {
	if err := d.measureTick(ctx); err != nil {
		return err
	}
	s, err := d.liveSession(ctx)
	if err != nil {
		return err
	}
	d.measuredAt = ""
	d.caps.MaxTTL = d.settings.maxTTL(s.proof.granted())
	_, err = call(ctx, s, func() (any, error) {
		if err := d.makeDirectory(s); err != nil {
			return nil, err
		}
		var probing sync.WaitGroup
		probing.Go(func() { d.probeContainers(s) })
		defer probing.Wait()
		path := d.settings.root + probeNode
		_, err := s.conn.Multi(
			&zk.CreateRequest{Path: path, Acl: d.settings.acl, Flags: zk.FlagEphemeral},
			&zk.DeleteRequest{Path: path, Version: -1})
		return nil, err
	})
	if errors.Is(err, zk.ErrNoAuth) {
		err = fmt.Errorf("the user needs all permissions on %s, or the permission to create it: %w",
			d.settings.root, err)
	}
	return interpretError(err)
}

// probeContainers sets noContainers, by a request for a container whose parent never exists.
// Without it, only the client that creates a queue would detect an old server, and no other client
// would delete the queue.
func (d *driver) probeContainers(s *session) {
	path := d.settings.root + noNode + "/container"
	_, err := s.conn.CreateContainer(path, nil, zk.FlagContainer, d.settings.acl)
	if isUnimplemented(err) {
		d.noContainers.Store(true)
	}
}

// measureTick measures the server's tick with a session of its own. Servers do not report the tick,
// but by default the shortest timeout that they grant is two ticks. The real session begins on the
// same server.
func (d *driver) measureTick(ctx context.Context) error {
	if d.settings.tick > 0 {
		return nil
	}
	s, err := d.liveSession(ctx)
	if err != nil {
		return err
	}
	d.settings, d.measuredAt = d.settings.measured(s.proof.granted()), s.conn.Server()
	s.end(errMeasured)
	return nil
}

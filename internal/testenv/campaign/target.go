//go:build unix

package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/backend/measure"
	"github.com/dlock-go/dlock/conformance/faultproxy"
	"github.com/dlock-go/dlock/internal/campaign"
	"github.com/dlock-go/dlock/internal/testenv"
)

// target is a kind of server.
type target struct {
	name   string
	ttl    time.Duration
	expiry time.Duration // time from the death of a holder until the lock is free
	fair   bool          // the workers use fair locks
	start  func(tb testenv.TB) *place
}

// place is a running server.
type place struct {
	source, version string
	url             string
	addrs           []string                    // for a proxy; empty: workers use no proxy
	through         func(addrs []string) string // the URL with other addresses; nil: see ways
	faults          map[campaign.Kind]fault
	weak            []campaign.Kind // faults of a worker under which the server is of class F
}

// fault is a fault that the command itself causes.
type fault struct {
	class  campaign.Class
	inject func(tb testenv.TB, name string) (heal func())
}

// workerFaults need only the server's address.
var workerFaults = []campaign.Kind{
	campaign.Kill, campaign.KillWaiter, campaign.Stop, campaign.StopShort, campaign.StopWaiter,
	campaign.Linger,
}

// networkFaults need a proxy.
var networkFaults = []campaign.Kind{
	campaign.Cut, campaign.Reset, campaign.Latency, campaign.LostReply, campaign.LateRequest,
	campaign.Fade,
}

// run starts the server, runs a campaign and judges its history.
func (t *target) run(tb *testenv.Program, o *options) *campaign.Verdict {
	p := t.start(tb)
	operator := newOperator(tb, p)
	progress := func(format string, args ...any) {
		tb.Logf("%s: %s", t.name, fmt.Sprintf(format, args...))
	}
	kinds := carried(o.kinds, operator.client.Capabilities(), progress)
	if len(kinds) == 0 {
		return nil
	}
	s := campaign.Site{
		Settings: campaign.Settings{
			Server: t.name, TTL: t.ttl, Expiry: t.expiry, Fair: t.fair,
			Duration: o.duration, Seed: o.seed, Faults: p.classes(operator, o.faults),
			Kinds: kinds, Elections: o.elect,
		},
		Version:  p.version,
		Inject:   injector(tb, p, operator),
		Probe:    operator.probe,
		Left:     operator.left,
		Progress: func(text string) { progress("%s", text) },
	}
	if o.elect > 0 {
		p.addrs = nil // no proxies: a killed process is the only fault
	}
	p.connect(tb, &s)
	h, err := campaign.Run(tb.Context(), s)
	if err != nil {
		tb.Errorf("%s: %v", t.name, err)
	}
	if p.source == "url" {
		if err := operator.sweep(h.Names(), t.expiry+sweepTime); err != nil {
			tb.Errorf("%s: the campaign has left locks on the server: %v", t.name, err)
		}
	}
	return campaign.Judge(h)
}

// carried returns the kinds of locks that a backend with these capabilities has, and reports each
// other kind.
func carried(
	kinds []campaign.LockKind, caps backend.Capabilities, report func(string, ...any),
) (carried []campaign.LockKind) {
	for _, k := range kinds {
		if k.IsCarriedBy(caps) {
			carried = append(carried, k)
		} else {
			report("the kind %s is skipped, because the backend does not have it", k)
		}
	}
	return carried
}

// connect gives each worker its own network, if a proxy can be used. If the proxies need a lent
// client, every second worker opens the URL without a proxy instead.
func (p *place) connect(tb testenv.TB, s *campaign.Site) {
	s.Workers = campaign.DefaultWorkers // at least as many as there are processes
	networks := make(map[int]*faultproxy.Proxy)
	for i := range s.Workers {
		if len(p.addrs) == 0 || p.through == nil && i%2 == 0 {
			continue
		}
		proxy, err := faultproxy.New(p.addrs...)
		if err != nil {
			tb.Fatalf("%v", err)
		}
		tb.Cleanup(proxy.Close)
		networks[i] = proxy
	}
	s.Network = func(worker int) campaign.Network {
		if proxy := networks[worker]; proxy != nil {
			return proxy
		}
		return nil
	}
	s.Start = func(worker, _ int) (campaign.Process, error) {
		return p.startWorker(networks[worker])
	}
}

// startWorker starts a worker. The worker connects through proxy, if it is not nil.
func (p *place) startWorker(proxy *faultproxy.Proxy) (campaign.Process, error) {
	switch {
	case proxy == nil:
		return start(p.url, nil)
	case p.through != nil:
		return start(p.through(proxy.Addrs()), nil)
	}
	detour := make(ways)
	for i, way := range proxy.Addrs() {
		detour[p.addrs[i]] = way
	}
	return start(p.url, detour)
}

// classes returns the possible faults with their classes. If wanted is not empty, only these faults
// are returned.
func (p *place) classes(o *operator, wanted []campaign.Kind) map[campaign.Kind]campaign.Class {
	all := make(map[campaign.Kind]campaign.Class)
	for _, k := range workerFaults {
		all[k] = campaign.X
	}
	if len(p.addrs) > 0 {
		for _, k := range networkFaults {
			all[k] = campaign.X
		}
	}
	for k, f := range p.faults {
		all[k] = f.class
	}
	for _, k := range p.weak {
		all[k] = campaign.F
	}
	if o.client.Capabilities().Break {
		all[campaign.Break] = campaign.F
	}
	maps.DeleteFunc(all, func(k campaign.Kind, _ campaign.Class) bool {
		return len(wanted) > 0 && !slices.Contains(wanted, k)
	})
	return all
}

// injector returns Site.Inject.
func injector(
	tb *testenv.Program, p *place, o *operator,
) func(context.Context, campaign.Kind, string) (func() error, error) {
	return func(ctx context.Context, k campaign.Kind, name string) (func() error, error) {
		if k == campaign.Break {
			return nil, o.breakLock(ctx, name)
		}
		var heal func()
		err := tb.Try(func(tb testenv.TB) { heal = p.faults[k].inject(tb, name) })
		if err != nil || heal == nil {
			return nil, err
		}
		return func() error { return tb.Try(func(testenv.TB) { heal() }) }, nil
	}
}

// operator is a client that reaches the server over a network without faults.
type operator struct {
	driver  backend.Driver
	client  *dlock.Client
	request backend.Request // of the probe
}

func newOperator(tb testenv.TB, p *place) *operator {
	d, err := testenv.Open(tb.Context(), p.url)
	if err != nil {
		tb.Fatalf("%v", err)
	}
	c, err := dlock.New(d)
	if err != nil {
		tb.Fatalf("%v", err)
	}
	tb.Cleanup(func() { _ = c.Close() })
	return &operator{d, c, backend.Request{
		Key: "probe-" + rand.Text(), Owner: rand.Text(),
		TTL: max(probeTTL, d.Capabilities().MinTTL), Mode: backend.Exclusive,
	}}
}

// probeTTL limits the time for which a probe without an answer leaves its lock.
const probeTTL = 10 * time.Second

// probe acquires and releases a lock that no worker uses.
func (o *operator) probe(ctx context.Context) error {
	g, err := o.driver.Acquire(ctx, &o.request)
	if err != nil {
		return err
	}
	return o.driver.Release(ctx, g)
}

// breakLock takes a lock from all its holders. If the server cannot be reached or the lock is free,
// it returns ErrMissed.
func (o *operator) breakLock(ctx context.Context, name string) error {
	info, err := o.client.Inspect(ctx, name)
	if err != nil {
		return missed(err)
	}
	broken := campaign.ErrMissed
	for _, h := range info.Holders {
		switch err := o.client.Break(ctx, name, h.Owner); {
		case err == nil:
			broken = nil
		case !errors.Is(err, dlock.ErrNotHeld):
			return missed(err)
		}
	}
	return broken
}

// missed returns ErrMissed if err means that the server cannot be reached.
func missed(err error) error {
	if errors.Is(err, dlock.ErrUnavailable) || errors.Is(err, dlock.ErrUncertain) {
		return campaign.ErrMissed
	}
	return err
}

// left returns the locks that have holders or waiters.
func (o *operator) left(ctx context.Context, prefix string) (left []string, err error) {
	if !o.client.Capabilities().List {
		return nil, nil
	}
	for info, err := range o.client.List(ctx, prefix) {
		if err != nil {
			return nil, err
		}
		left = append(left, info.Key)
	}
	return left, nil
}

// sweepTime is the time that a sweep may take after the expiry of the dead workers. sweepPause is
// the pause between two passes over the locks.
const (
	sweepTime  = 30 * time.Second
	sweepPause = 50 * time.Millisecond
)

// sweep removes the data of the named locks and of the probe from a server that was given by URL.
// Workers that were killed have left locks, and places in queues, to which a broken lock can pass.
func (o *operator) sweep(names []string, patience time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	names = append(names, o.request.Key)
	err := o.free(ctx, names)
	if s, ok := o.driver.(measure.Sweeper); ok {
		err = errors.Join(err, s.Sweep(ctx, names))
	}
	return err
}

// free breaks the locks until they have neither holders nor waiters.
func (o *operator) free(ctx context.Context, names []string) error {
	if caps := o.client.Capabilities(); !caps.Inspect || !caps.Break {
		return nil
	}
	for {
		var used []string
		for _, name := range names {
			info, err := o.client.Inspect(ctx, name)
			if err == nil && len(info.Holders) == 0 && info.Waiters <= 0 {
				continue
			}
			used = append(used, name)
			if err == nil {
				err = o.breakLock(ctx, name)
			}
			if err != nil && !errors.Is(missed(err), campaign.ErrMissed) && ctx.Err() == nil {
				return err
			}
		}
		if names = used; len(names) == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%q are still in use: %w", names, ctx.Err())
		case <-time.After(sweepPause):
		}
	}
}

// replaced returns url with the address of the server replaced.
func replaced(url, addr string) func(addrs []string) string {
	return func(addrs []string) string { return strings.Replace(url, addr, addrs[0], 1) }
}

// Package leaderelection has the callbacks of the package leaderelection of Kubernetes' client-go,
// over every backend of dlock. A program that moves from there keeps its callbacks. Its
// configuration changes:
//
//	Lock                        Client, Name and Identity
//	LeaseDuration               LeaseDuration
//	RenewDeadline, RetryPeriod  nothing: dlock renews the lease and retries by itself
//	ReleaseOnCancel             nothing: Run releases the lock when OnStartedLeading has returned
//
// As in client-go, Run returns when the process stops leading, and a program that goes on calls it
// again. There are two differences. A candidate that has never led gets no OnStoppedLeading. A
// leader that is cancelled keeps the lock until its OnStartedLeading has returned, so that it does
// not overlap with the next leader.
package leaderelection

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/dlock-go/dlock"
)

// LeaderElectionConfig describes a candidate.
type LeaderElectionConfig struct {
	// Client is a connection to the lock server. Run does not close it.
	Client *dlock.Client
	// Name is the name of the election, the same for all candidates.
	Name string
	// Identity is the name of this candidate in calls of OnNewLeader. If it is empty, it is
	// program@host:pid.
	Identity string
	// LeaseDuration is how long a leader that has died keeps the lock. 0 is the TTL of Client.
	LeaseDuration time.Duration
	Callbacks     LeaderCallbacks
}

// LeaderCallbacks are called when the leader changes.
type LeaderCallbacks struct {
	// OnStartedLeading is called when this candidate becomes the leader, on the goroutine of Run.
	// If it returns early, the candidate goes on leading. The context ends with the lease and with
	// the context of Run, and OnStartedLeading must return soon after that. [Fence] returns the
	// fence of the lease.
	OnStartedLeading func(context.Context)
	// OnStoppedLeading is called once for each call of OnStartedLeading, when its context has
	// ended, even if OnStartedLeading has not returned. So it may exit the process.
	OnStoppedLeading func()
	// OnNewLeader, which may be nil, is called with the present leader and with each new one, this
	// candidate included. Leaders that follow each other quickly may be missing. The calls come one
	// at a time, and Run waits for the last one.
	OnNewLeader func(identity string)
}

// Run stands for election and leads, until ctx ends or the lease is lost. It returns nil if this
// candidate has led. Otherwise it returns the error of [dlock.Client.Elect]: ctx's error if ctx has
// ended, or for example ErrClosed. It returns ErrUnsupported if OnNewLeader is set and the backend
// cannot inspect locks.
func Run(ctx context.Context, config LeaderElectionConfig) error {
	callbacks := config.Callbacks
	switch {
	case config.Client == nil:
		return errors.New("leaderelection: Client is nil")
	case callbacks.OnStartedLeading == nil || callbacks.OnStoppedLeading == nil:
		return errors.New("leaderelection: OnStartedLeading or OnStoppedLeading is nil")
	case callbacks.OnNewLeader != nil && !config.Client.Capabilities().Inspect:
		return fmt.Errorf("leaderelection: OnNewLeader: %w", dlock.ErrUnsupported)
	}
	var observing sync.WaitGroup
	defer observing.Wait()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	if callbacks.OnNewLeader != nil {
		observing.Go(func() { config.observe(ctx) })
	}
	hasLed := false
	lead := func(ctx context.Context, lease *dlock.Lease) error {
		defer stop() // otherwise Elect would stand again
		hasLed = true
		callbacks.lead(ctx, lease)
		return nil
	}
	if err := config.Client.Elect(ctx, config.Name, lead, config.options()...); !hasLed {
		return err
	}
	return nil
}

// lead calls the callbacks of a leader. It returns when the lease and the work have ended.
func (c *LeaderCallbacks) lead(ctx context.Context, lease *dlock.Lease) {
	var leading sync.WaitGroup
	leading.Go(func() {
		<-ctx.Done()
		c.OnStoppedLeading()
	})
	c.OnStartedLeading(context.WithValue(ctx, fenceKey{}, lease.Fence()))
	leading.Wait()
}

// observe calls OnNewLeader until ctx ends. After an error, Observe goes on where it can.
func (c *LeaderElectionConfig) observe(ctx context.Context) {
	reported := ""
	for info, err := range c.Client.Observe(ctx, c.Name) {
		if err != nil || len(info.Holders) == 0 {
			continue
		}
		if leader := info.Holders[0].Meta; leader != reported {
			reported = leader
			c.Callbacks.OnNewLeader(leader)
		}
	}
}

// options returns the options of the lock.
func (c *LeaderElectionConfig) options() (opts []dlock.Option) {
	if c.Identity != "" {
		opts = append(opts, dlock.WithMeta(c.Identity))
	}
	if c.LeaseDuration != 0 {
		opts = append(opts, dlock.WithTTL(c.LeaseDuration))
	}
	return opts
}

// fenceKey is the key of the fence in the context of OnStartedLeading.
type fenceKey struct{}

// Fence returns the fence of the lease, for the context of OnStartedLeading or one derived from it.
// A resource that refuses lower fences is safe from a leader that was stopped for a while. See
// [dlock.Lease.Fence].
func Fence(ctx context.Context) uint64 {
	fence, _ := ctx.Value(fenceKey{}).(uint64)
	return fence
}

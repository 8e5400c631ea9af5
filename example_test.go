package dlock_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/membackend"
)

func ExampleOpen() {
	ctx := context.Background()
	// In production the URL is for example redis://localhost:6379. Then import its driver:
	//
	//	import _ "github.com/dlock-go/dlock/redisbackend"
	client, err := dlock.Open(ctx, "mem:?prefix=shop/&ttl=10s")
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()

	err = client.Do(ctx, "nightly-report", func(ctx context.Context, lease *dlock.Lease) error {
		fmt.Println("reporting under", lease.Name())
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
	// Output: reporting under nightly-report
}

func ExampleNew() {
	// Each driver package has a New, for drivers that share a connection with the application.
	driver := membackend.New(&membackend.Options{Space: "tests"})
	client, err := dlock.New(driver, dlock.WithTTL(10*time.Second))
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close() // also closes the driver

	fmt.Println("can break locks:", client.Capabilities().Break)
	// Output: can break locks: true
}

func ExampleClient_Lock() {
	ctx := context.Background()
	client, err := dlock.Open(ctx, "mem:")
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()

	// The timeout limits only the wait. The lease is held until Unlock.
	waitCtx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	lease, err := client.Lock(waitCtx, "accounts/42")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("holding", lease.Name())

	if err := lease.Unlock(ctx); err != nil {
		// ErrLost means that another holder may have had the lock before the work was done.
		log.Fatal(err)
	}
	// Output: holding accounts/42
}

func ExampleMutex() {
	ctx := context.Background()
	client, err := dlock.Open(ctx, "mem:")
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()

	// Make a Mutex once, at the start of the program. Mutex reports a bad name, or an option that
	// the backend does not support.
	var index dlock.Mutex
	index, err = client.Mutex("search-index", dlock.WithTTL(time.Minute), dlock.WithFair())
	if err != nil {
		log.Fatal(err)
	}

	lease, err := index.Lock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("rebuilding the", index.Name())
	if err := lease.Unlock(ctx); err != nil {
		log.Fatal(err)
	}
	// Output: rebuilding the search-index
}

func ExampleClient_Do() {
	ctx := context.Background()
	client, err := dlock.Open(ctx, "mem:")
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()

	// highest is the state of a resource that refuses stale writers.
	var highest uint64
	write := func(_ context.Context, fence uint64) error {
		if fence < highest {
			return errors.New("stale fence")
		}
		highest = fence
		return nil
	}
	for range 3 {
		err := client.Do(ctx, "ledger", func(ctx context.Context, lease *dlock.Lease) error {
			return write(ctx, lease.Fence())
		})
		switch {
		case errors.Is(err, dlock.ErrLost):
			fmt.Println("the lock was lost while we worked")
		case err != nil:
			fmt.Println(err)
		default:
			fmt.Println("written")
		}
	}
	// Output:
	// written
	// written
	// written
}

func ExampleClient_TryLock() {
	ctx := context.Background()
	client, err := dlock.Open(ctx, "mem:")
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()

	lease, err := client.TryLock(ctx, "migration")
	switch {
	case errors.Is(err, dlock.ErrNotAcquired):
		fmt.Println("another process runs the migration")
		return
	case err != nil:
		log.Fatal(err)
	}

	fmt.Println("migrating")
	if err := lease.Unlock(ctx); err != nil {
		log.Fatal(err)
	}
	// Output: migrating
}

func ExampleLease_Context() {
	ctx := context.Background()
	client, err := dlock.Open(ctx, "mem:")
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()

	lease, err := client.Lock(ctx, "import")
	if err != nil {
		log.Fatal(err)
	}

	// The work ends with the lease: here an operator breaks the lock.
	work, cancel := lease.Context(ctx)
	defer cancel()
	if err := client.Break(ctx, "import", lease.Owner()); err != nil {
		log.Fatal(err)
	}
	<-work.Done()
	fmt.Println("lost:", errors.Is(context.Cause(work), dlock.ErrLost))
	fmt.Println("unlock returns it, too:", errors.Is(lease.Unlock(ctx), dlock.ErrLost))
	// Output:
	// lost: true
	// unlock returns it, too: true
}

func ExampleWithReentrant() {
	ctx := context.Background()
	client, err := dlock.Open(ctx, "mem:", dlock.WithReentrant())
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()

	// save may be called with the lock held or without it. The context makes the difference: pass
	// on the context of the caller.
	save := func(ctx context.Context, what string) error {
		return client.Do(ctx, "document", func(context.Context, *dlock.Lease) error {
			fmt.Println("saving the", what)
			return nil
		})
	}
	err = client.Do(ctx, "document", func(ctx context.Context, _ *dlock.Lease) error {
		return errors.Join(save(ctx, "text"), save(ctx, "images"))
	})
	if err != nil {
		log.Fatal(err)
	}
	// Output:
	// saving the text
	// saving the images
}

// Mutex is an interface of three methods, and the zero Lease is a lease that is never lost. So code
// that locks can be tested without a server.
func ExampleMutex_fake() {
	var m dlock.Mutex = fakeMutex{}
	lease, err := m.Lock(context.Background())
	fmt.Println(lease.Err(), err)
	// Output: <nil> <nil>
}

type fakeMutex struct{}

func (fakeMutex) Name() string                                  { return "fake" }
func (fakeMutex) Lock(context.Context) (*dlock.Lease, error)    { return &dlock.Lease{}, nil }
func (fakeMutex) TryLock(context.Context) (*dlock.Lease, error) { return nil, dlock.ErrNotAcquired }

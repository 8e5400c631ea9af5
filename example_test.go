package dlock_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"sync"
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

func ExampleRWMutex() {
	ctx := context.Background()
	client, err := dlock.Open(ctx, "mem:")
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()

	var catalog dlock.RWMutex
	catalog, err = client.RWMutex("catalog")
	if err != nil {
		log.Fatal(err)
	}

	// Readers share the lock, in one process or in several. A writer waits for all of them.
	first, err := catalog.RLock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	second, err := catalog.RLock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	_, err = catalog.TryLock(ctx)
	fmt.Println("a writer has to wait:", errors.Is(err, dlock.ErrNotAcquired))

	if err := errors.Join(first.Unlock(ctx), second.Unlock(ctx)); err != nil {
		log.Fatal(err)
	}
	writer, err := catalog.Lock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("writing the", catalog.Name())
	if err := writer.Unlock(ctx); err != nil {
		log.Fatal(err)
	}
	// Output:
	// a writer has to wait: true
	// writing the catalog
}

func ExampleSemaphore() {
	ctx := context.Background()
	client, err := dlock.Open(ctx, "mem:")
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()

	// At most two downloads at a time, of all processes together.
	var downloads dlock.Semaphore
	downloads, err = client.Semaphore("downloads", 2)
	if err != nil {
		log.Fatal(err)
	}
	first, err := downloads.Acquire(ctx)
	if err != nil {
		log.Fatal(err)
	}
	second, err := downloads.Acquire(ctx)
	if err != nil {
		log.Fatal(err)
	}
	_, err = downloads.TryAcquire(ctx)
	fmt.Println("all permits are taken:", errors.Is(err, dlock.ErrNotAcquired))

	if err := errors.Join(first.Unlock(ctx), second.Unlock(ctx)); err != nil {
		log.Fatal(err)
	}
	// Output: all permits are taken: true
}

func ExampleClient_LockAll() {
	ctx := context.Background()
	client, err := dlock.Open(ctx, "mem:")
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()

	// Transfers in opposite directions do not deadlock.
	var transfers sync.WaitGroup
	balance := map[string]int{"alice": 100, "bob": 100}
	transfer := func(from, to string, amount int) {
		locks, err := client.LockAll(ctx, []string{from, to})
		if err != nil {
			log.Fatal(err)
		}
		balance[from] -= amount
		balance[to] += amount
		if err := locks.Unlock(ctx); err != nil {
			log.Fatal(err)
		}
	}
	transfers.Go(func() { transfer("alice", "bob", 30) })
	transfers.Go(func() { transfer("bob", "alice", 10) })
	transfers.Wait()
	fmt.Println(balance)
	// Output: map[alice:80 bob:120]
}

func ExampleClient_Elect() {
	client, err := dlock.Open(context.Background(), "mem:")
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()

	// In a service, ctx ends with the process: see signal.NotifyContext.
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	err = client.Elect(ctx, "scheduler", func(ctx context.Context, lease *dlock.Lease) error {
		fmt.Println("leading the", lease.Name())
		stop() // the service ends

		// A leader works until its context ends: with its lease, or with the service.
		<-ctx.Done()
		return nil
	})
	fmt.Println("the service has ended:", errors.Is(err, context.Canceled))
	// Output:
	// leading the scheduler
	// the service has ended: true
}

func ExampleClient_Observe() {
	ctx := context.Background()
	client, err := dlock.Open(ctx, "mem:", dlock.WithMeta("node-1"))
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()

	lease, err := client.Lock(ctx, "leader")
	if err != nil {
		log.Fatal(err)
	}
	for info, err := range client.Observe(ctx, "leader") {
		if err != nil {
			fmt.Println(err) // Observe goes on where it can
			continue
		}
		if len(info.Holders) == 0 {
			fmt.Println("no leader")
			break
		}
		fmt.Println("the leader is", info.Holders[0].Meta)
		if err := lease.Unlock(ctx); err != nil {
			log.Fatal(err)
		}
	}
	// Output:
	// the leader is node-1
	// no leader
}

func ExampleLease_Export() {
	ctx := context.Background()
	old, err := dlock.Open(ctx, "mem:")
	if err != nil {
		log.Fatal(err)
	}
	lease, err := old.Lock(ctx, "device")
	if err != nil {
		log.Fatal(err)
	}
	fence := lease.Fence()

	// The handle is the right to the lock. Pass it to the next process through a pipe.
	handle, err := lease.Export(ctx)
	if err != nil {
		log.Fatal(err)
	}
	old.Close() // the process ends, and the lock stays taken

	next, err := dlock.Open(ctx, "mem:")
	if err != nil {
		log.Fatal(err)
	}
	defer next.Close()
	adopted, err := next.Adopt(ctx, handle)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("holding", adopted.Name(), "without a gap:", adopted.Fence() >= fence)
	if err := adopted.Unlock(ctx); err != nil {
		log.Fatal(err)
	}
	// Output: holding device without a gap: true
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

// Command stock sells a stock from many tills at once, and never sells more than it has. Only the
// URL decides which server keeps the lock:
//
//	go run ./examples/stock file:
//	go run ./examples/stock redis://localhost:6379
//	go run ./examples/stock etcd://localhost:2379
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"sync"
	"sync/atomic"

	"github.com/dlock-go/dlock"

	_ "github.com/dlock-go/dlock/etcdbackend"
	_ "github.com/dlock-go/dlock/filebackend"
	_ "github.com/dlock-go/dlock/membackend"
	_ "github.com/dlock-go/dlock/memcachedbackend"
	_ "github.com/dlock-go/dlock/mysqlbackend"
	_ "github.com/dlock-go/dlock/pgbackend"
	_ "github.com/dlock-go/dlock/redisbackend"
	_ "github.com/dlock-go/dlock/zkbackend"
)

const (
	items = 50
	shops = 2 // each with its own connection, as a process would have
	tills = 4 // in each shop
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: stock URL")
		os.Exit(64)
	}
	if err := run(ctx, os.Args[1], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// run sells everything and prints how much it has sold.
func run(ctx context.Context, url string, out io.Writer) error {
	var store store
	store.left.Store(items)
	errs := make([]error, shops)
	var open sync.WaitGroup
	for i := range shops {
		open.Go(func() { errs[i] = shop(ctx, url, &store) })
	}
	open.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	_, err := fmt.Fprintf(out, "sold %d of %d, %d left\n",
		store.sold.Load(), items, store.left.Load())
	return err
}

// shop sells from several tills until nothing is left.
func shop(ctx context.Context, url string, store *store) error {
	client, err := dlock.Open(ctx, url)
	if err != nil {
		return err
	}
	errs := make([]error, tills)
	var selling sync.WaitGroup
	for i := range tills {
		selling.Go(func() {
			more := true
			sell := func(_ context.Context, lease *dlock.Lease) (err error) {
				more, err = store.sell(lease.Fence())
				return err
			}
			for more && errs[i] == nil {
				errs[i] = client.Do(ctx, "stock", sell)
			}
		})
	}
	selling.Wait()
	return errors.Join(append(errs, client.Close())...)
}

// store is the resource. It reads and then writes: without the lock, two tills would sell the same
// item. It also refuses a fence that is older than the last one. A till with such a fence was held
// up for longer than its lease.
type store struct{ left, sold, fence atomic.Int64 }

func (s *store) sell(fence uint64) (more bool, err error) {
	if last := s.fence.Load(); int64(fence) < last {
		return false, fmt.Errorf("fence %d after %d: the lease is over", fence, last)
	}
	s.fence.Store(int64(fence))
	left := s.left.Load()
	if left == 0 {
		return false, nil
	}
	s.sold.Add(1)
	s.left.Store(left - 1)
	return true, nil
}

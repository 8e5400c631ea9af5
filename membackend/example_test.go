package membackend_test

import (
	"context"
	"fmt"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/membackend"
)

// Two clients of one space contend like two processes.
func ExampleNew() {
	ctx := context.Background()
	space := &membackend.Options{Space: "example"}
	first, err := dlock.New(membackend.New(space), dlock.WithMeta("example"))
	if err != nil {
		panic(err)
	}
	defer first.Close()
	second, err := dlock.New(membackend.New(space))
	if err != nil {
		panic(err)
	}
	defer second.Close()

	lease, err := first.Lock(ctx, "report")
	if err != nil {
		panic(err)
	}
	_, err = second.TryLock(ctx, "report")
	fmt.Println(err)
	fmt.Println(lease.Unlock(ctx))
	// Output:
	// dlock: try-lock "report" (mem): lock not acquired: held by "example"
	// <nil>
}

func Example_openFromURL() {
	ctx := context.Background()
	client, err := dlock.Open(ctx, "mem:example?ttl=10s")
	if err != nil {
		panic(err)
	}
	defer client.Close()
	err = client.Do(ctx, "report", func(context.Context, *dlock.Lease) error {
		fmt.Println("holding")
		return nil
	})
	fmt.Println(err)
	// Output:
	// holding
	// <nil>
}

package memcachedbackend_test

import (
	"context"
	"log"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/memcachedbackend"
)

func ExampleNew() {
	servers := []string{"cache1:11211", "cache2:11211"}
	driver, err := memcachedbackend.New(servers, &memcachedbackend.Options{
		Timeout: 300 * time.Millisecond,
	})
	if err != nil {
		log.Fatal(err)
	}
	client, err := dlock.New(driver)
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()

	ctx := context.Background()
	err = client.Do(ctx, "nightly-report", func(ctx context.Context, lease *dlock.Lease) error {
		log.Printf("alone until %v, fence %d", lease.Deadline(), lease.Fence())
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
}

func Example_openFromURL() {
	// import _ "github.com/dlock-go/dlock/memcachedbackend"
	ctx := context.Background()
	client, err := dlock.Open(ctx, "memcached://cache1,cache2/?timeout=300ms")
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()

	lease, err := client.Lock(ctx, "nightly-report")
	if err != nil {
		log.Fatal(err)
	}
	defer func() {
		if err := lease.Unlock(ctx); err != nil {
			log.Print(err)
		}
	}()
}

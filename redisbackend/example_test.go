package redisbackend_test

import (
	"context"
	"log"

	"github.com/redis/go-redis/v9"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/redisbackend"
)

func ExampleNew() {
	rdb := redis.NewClient(&redis.Options{
		Addr:                  "localhost:6379",
		MaxRetries:            -1,
		ContextTimeoutEnabled: true,
	})
	defer rdb.Close() // the driver does not close the client

	driver, err := redisbackend.New(rdb, nil)
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
	// import _ "github.com/dlock-go/dlock/redisbackend"
	ctx := context.Background()
	client, err := dlock.Open(ctx, "redis://localhost:6379/0?timeout=2s")
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

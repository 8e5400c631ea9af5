package zkbackend_test

import (
	"context"
	"log"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/zkbackend"
)

func ExampleNew() {
	driver, err := zkbackend.New([]string{"zk1:2181", "zk2:2181", "zk3:2181"}, &zkbackend.Options{
		Chroot:  "/app",
		Session: 20 * time.Second,
	})
	if err != nil {
		log.Fatal(err)
	}
	client, err := dlock.New(driver, dlock.WithTTL(20*time.Second)) // not longer than the session
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
	// import _ "github.com/dlock-go/dlock/zkbackend"
	ctx := context.Background()
	client, err := dlock.Open(ctx, "zk://zk1,zk2,zk3/app?session=20s&ttl=20s")
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

package etcdbackend_test

import (
	"context"
	"log"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/etcdbackend"
)

func ExampleNew() {
	etcd, err := clientv3.New(clientv3.Config{
		Endpoints:            []string{"http://localhost:2379"},
		DialKeepAliveTime:    10 * time.Second,
		DialKeepAliveTimeout: 3 * time.Second,
		Logger:               zap.NewNop(),
	})
	if err != nil {
		log.Fatal(err)
	}
	defer etcd.Close() // the driver does not close the client

	driver, err := etcdbackend.New(etcd, nil)
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
	// import _ "github.com/dlock-go/dlock/etcdbackend"
	ctx := context.Background()
	client, err := dlock.Open(ctx, "etcd://node1,node2,node3/dlock?timeout=2s")
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

// Command leader is a candidate in an election, with the callbacks of Kubernetes' client-go and
// without Kubernetes. Run it in several terminals, and end the leader with Ctrl-C or kill -9. Only
// the URL decides which server keeps the lock:
//
//	go run ./examples/leader file:
//	go run ./examples/leader redis://localhost:6379
//	go run ./examples/leader etcd://localhost:2379
package main

import (
	"context"
	"fmt"
	"io"
	"log"
	"os"
	"os/signal"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/examples/leader/leaderelection"

	_ "github.com/dlock-go/dlock/etcdbackend"
	_ "github.com/dlock-go/dlock/filebackend"
	_ "github.com/dlock-go/dlock/membackend"
	_ "github.com/dlock-go/dlock/memcachedbackend"
	_ "github.com/dlock-go/dlock/mysqlbackend"
	_ "github.com/dlock-go/dlock/pgbackend"
	_ "github.com/dlock-go/dlock/redisbackend"
	_ "github.com/dlock-go/dlock/zkbackend"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: leader URL")
		os.Exit(64)
	}
	host, _ := os.Hostname()
	if err := run(ctx, os.Args[1], fmt.Sprintf("%s:%d", host, os.Getpid()), os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// run stands for election until ctx ends, and prints what happens.
func run(ctx context.Context, url, identity string, out io.Writer) error {
	client, err := dlock.Open(ctx, url)
	if err != nil {
		return err
	}
	defer client.Close()
	logger := log.New(out, identity+": ", 0)
	config := leaderelection.LeaderElectionConfig{
		Client:   client,
		Name:     "examples/leader",
		Identity: identity,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(ctx context.Context) {
				logger.Println("started leading with the fence", leaderelection.Fence(ctx))
				<-ctx.Done() // the leader's work, which ends with ctx
			},
			OnStoppedLeading: func() { logger.Println("stopped leading") },
			OnNewLeader:      func(identity string) { logger.Println("the leader is", identity) },
		},
	}
	for ctx.Err() == nil { // after the loss of its lease, it stands again
		if err := leaderelection.Run(ctx, config); err != nil && ctx.Err() == nil {
			return err
		}
	}
	return nil
}

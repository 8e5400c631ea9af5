//go:build unix

package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/internal/campaign"

	_ "github.com/dlock-go/dlock/etcdbackend"
	_ "github.com/dlock-go/dlock/filebackend"
	_ "github.com/dlock-go/dlock/memcachedbackend"
	_ "github.com/dlock-go/dlock/mysqlbackend"
	_ "github.com/dlock-go/dlock/pgbackend"
	_ "github.com/dlock-go/dlock/zkbackend"
)

// urlVariable makes this program a worker of the server with that URL. waysVariable has the ways of
// the worker, if there are any.
const (
	urlVariable  = "DLOCK_CAMPAIGN_URL"
	waysVariable = "DLOCK_CAMPAIGN_WAYS"
)

// start starts this program again as a worker.
func start(url string, w ways) (campaign.Process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), urlVariable+"="+url, waysVariable+"="+w.String())
	return campaign.Start(cmd)
}

// work is the main function of a worker.
func work(url string) (code int) {
	f := os.NewFile(campaign.WorkerFD, "engine")
	conn, err := net.FileConn(f)
	if err == nil {
		_ = f.Close()
		err = campaign.Serve(context.Background(), conn, opener(url))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "worker:", err)
		return 1
	}
	return 0
}

// opener returns the function that opens the client of a worker. The client has the TTL of its
// locks, which some drivers use for their session.
func opener(url string) campaign.Opener {
	return func(ctx context.Context) (c *dlock.Client, lent io.Closer, err error) {
		if w := parseWays(os.Getenv(waysVariable)); len(w) > 0 {
			return w.open(url)
		}
		c, err = dlock.Open(ctx, url, dlock.WithTTL(ttl))
		return c, nil, err
	}
}

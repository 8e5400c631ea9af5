package filebackend_test

import (
	"context"
	"fmt"
	"log"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/filebackend"
)

func ExampleNew() {
	driver, err := filebackend.New("/var/lib/myapp/locks", nil)
	if err != nil {
		log.Fatal(err)
	}
	client, err := dlock.New(driver)
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = client.Close() }()

	ctx := context.Background()
	err = client.Do(ctx, "nightly", func(_ context.Context, lease *dlock.Lease) error {
		fmt.Println("the only process on this machine, with fence", lease.Fence())
		return nil
	})
	if err != nil {
		log.Print(err)
	}
}

func Example_openFromURL() {
	// The default directory is $XDG_STATE_HOME/dlock, or ~/.local/state/dlock if that variable is
	// not set.
	client, err := dlock.Open(context.Background(), "file:")
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = client.Close() }()
}

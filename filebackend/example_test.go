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

	err = client.Do(context.Background(), "nightly", func(_ context.Context, lease *dlock.Lease) error {
		fmt.Println("the only process on this machine, with fence", lease.Fence())
		return nil
	})
	if err != nil {
		log.Print(err)
	}
}

func Example_openFromURL() {
	// The default directory: $XDG_STATE_HOME/dlock, else ~/.local/state/dlock.
	client, err := dlock.Open(context.Background(), "file:")
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = client.Close() }()
}

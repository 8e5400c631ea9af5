// A dlock of another module, with the URLs of one more driver.
package main

import (
	"context"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/command"
)

func main() {
	backend.Register("ours", open)
	command.Main()
}

// open opens the files of ours:/dir.
func open(ctx context.Context, u *backend.URL) (backend.Driver, error) {
	u.Scheme = "file"
	open, err := backend.Lookup(u.Scheme)
	if err != nil {
		return nil, err
	}
	return open(ctx, u)
}

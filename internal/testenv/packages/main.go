// Command packages prints the Debian packages of those test servers that are neither given by URL
// nor installed, one in a line. Without Docker, scripts/test.sh installs them:
//
//	go run ./internal/testenv/packages
package main

import (
	"fmt"
	"os"

	"github.com/dlock-go/dlock/internal/testenv"
	"github.com/dlock-go/dlock/internal/testenv/runner"
)

func main() {
	for _, r := range testenv.Recipes() {
		if os.Getenv(r.URLVariable()) != "" {
			continue
		}
		if _, err := runner.FindProgram(&r.Spec); err != nil {
			fmt.Println(r.Package)
		}
	}
}

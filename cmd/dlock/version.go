package main

import (
	"cmp"
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"

	"github.com/dlock-go/dlock/backend"
)

func newVersion(a *app) *cobra.Command {
	return &cobra.Command{
		Use:               "version",
		Short:             "Show the version and the backends of this program",
		Args:              exactly(),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(*cobra.Command, []string) error {
			_, err := fmt.Fprintf(a.stdout, "dlock %s, %s %s/%s\nschemes: %s\n",
				moduleVersion(), runtime.Version(), runtime.GOOS, runtime.GOARCH, strings.Join(backend.Schemes(), " "))
			return err
		},
	}
}

// moduleVersion is what the go command wrote into the binary.
func moduleVersion() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "(unknown)"
	}
	return cmp.Or(info.Main.Version, "(devel)")
}

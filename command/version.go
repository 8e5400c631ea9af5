package command

import (
	"cmp"
	"fmt"
	"io"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/dlock-go/dlock/backend"
)

const modulePath = "github.com/dlock-go/dlock"

func newVersion(a *app) *cobra.Command {
	return &cobra.Command{
		Use:               "version",
		Short:             "Show the version and the backends of this program",
		Args:              exactly(),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(*cobra.Command, []string) error {
			_, err := io.WriteString(a.stdout, versionText())
			return err
		},
	}
}

func versionText() string {
	return fmt.Sprintf("dlock %s, %s %s/%s\nschemes: %s\n",
		moduleVersion(), runtime.Version(), runtime.GOOS, runtime.GOARCH,
		strings.Join(backend.Schemes(), " "))
}

// moduleVersion returns the version of dlock's module in this program, even if the
// program belongs to another module.
func moduleVersion() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "(unknown)"
	}
	module := &info.Main
	i := slices.IndexFunc(info.Deps, func(m *debug.Module) bool { return m.Path == modulePath })
	if i >= 0 {
		module = info.Deps[i]
	}
	return cmp.Or(module.Version, "(devel)")
}

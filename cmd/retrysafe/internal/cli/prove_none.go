//go:build noprove

package cli

import (
	"github.com/spf13/cobra"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli/command"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli/exit"
)

// proveCommand returns a command that says where "prove" is.
func proveCommand(*command.Env) *cobra.Command {
	return &cobra.Command{
		Use: "prove", Short: "Put the promises to the test (not in this build)", DisableFlagParsing: true,
		RunE: func(*cobra.Command, []string) error {
			return exit.Usagef("this build is for production and has no checks in it").
				Hintf("run prove of a release archive, or of: go install github.com/retrysafe/retrysafe/cmd/retrysafe@latest")
		},
	}
}

func runProveChild() (code int, ok bool) { return 0, false }

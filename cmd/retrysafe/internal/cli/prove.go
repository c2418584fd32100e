//go:build !noprove

package cli

import (
	"github.com/spf13/cobra"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli/command"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli/prove"
)

// proveCommand returns the command "prove". With the build tag noprove the checks, and
// what only they need, are not linked.
func proveCommand(env *command.Env) *cobra.Command { return prove.Command(env) }

// runProveChild plays the part of this process in a check, if it has one.
func runProveChild() (code int, ok bool) { return prove.RunChild() }

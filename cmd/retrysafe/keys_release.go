package main

import (
	"github.com/spf13/cobra"

	"github.com/retrysafe/retrysafe/operator"
)

func (p *program) keysRelease(stores *storeFlags) *cobra.Command {
	return p.acting(stores, (*operator.Desk).Release, true, "release",
		"You vouch for both: the other side does not know of it, and whoever ran it has ended.\nThe next request with this key runs it. Where effects are unprotected, nothing else stands between this and a second effect.",
		&cobra.Command{
			Short: "State that an operation has not happened and never will",
			Long: `States that an operation whose outcome is unknown has not happened, and will not: the
next request with its key runs it. Two things have to be true, and you vouch for both:

  1. The other side does not know of it.
  2. Whoever ran it has ended, and nothing of it is still on its way: "not found" while
     the first attempt is merely slow is how charges happen twice.

` + actHelp,
			Example: `  retrysafe keys release tenant-a 8e03978e-40d5-43dd-bc93-6894a57f9324 --why "the provider knows nothing of it, and node 3 is switched off"`,
		})
}

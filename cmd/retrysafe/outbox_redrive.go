package main

import (
	"github.com/spf13/cobra"

	"github.com/retrysafe/retrysafe/operator"
)

func (p *program) outboxRedrive(f *boxFlags) *cobra.Command {
	var force bool
	cmd := p.handling(f, letterVerb{name: "redrive letter", dead: true, do: (*operator.Letters).Redrive}, &force, &cobra.Command{
		Use:   "redrive ID",
		Short: "Send a dead letter again",
		Long: `Sends a dead letter again, behind all others of its group and under the key that it
had. If it has been on its way for longer than its receiver remembers keys (--window)
that is refused: if it had happened, it would happen a second time. --force says that
you have found out that it has not.

` + actHelp,
		Example: `  retrysafe outbox redrive 17 --why "the receiver is up again"
  # it is older than the receiver's memory, and you have found out that it did not arrive
  retrysafe outbox redrive 17 --force --why "not in the receiver's log of May 3rd"`,
	})
	cmd.Flags().BoolVar(&force, "force", false, "although its receiver may have forgotten its key")
	return cmd
}

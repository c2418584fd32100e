package main

import (
	"time"

	"github.com/spf13/cobra"
)

// boxFlags are what the commands of the outbox have in common.
type boxFlags struct {
	*storeFlags
	window time.Duration
}

func (p *program) outbox() *cobra.Command {
	cmd := group(&cobra.Command{
		Use:   "outbox",
		Short: "See messages that could not be delivered, and decide what becomes of them",
		Long: `Messages of the outbox commit together with answers and are delivered afterwards. One
that cannot be delivered becomes a dead letter, and stays one until a person decides:
nothing else ever takes it away.

` + storeHelp,
		Example: `  # dead letters
  retrysafe outbox list --store postgres://app@db/app
  # one of them
  retrysafe outbox show --store postgres://app@db/app 17`,
	})
	f := &boxFlags{storeFlags: needsStore(cmd)}
	cmd.PersistentFlags().DurationVar(&f.window, "window", 24*time.Hour, "how long receivers remember a key; negative: they need none")
	cmd.AddCommand(p.outboxList(f), p.outboxShow(f), p.outboxRedrive(f), p.outboxSkip(f), p.outboxDrop(f))
	return cmd
}

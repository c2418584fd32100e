package main

import "github.com/spf13/cobra"

func (p *program) keys() *cobra.Command {
	cmd := group(&cobra.Command{
		Use:   "keys",
		Short: "See what is stuck, and unstick it",
		Long: `Keys are what operations are known by: each belongs to a scope, the tenant that sent
it. These commands show what is known of them, and let a person decide what nobody
else can. Nothing here is urgent for safety: what is stuck is refused to everybody
until somebody has found out.

` + storeHelp,
		Example: `  # what needs a person
  retrysafe keys list --store sqlite:retrysafe.db --dead
  # what is known of one key, and what may be done about it
  retrysafe keys show --store sqlite:retrysafe.db tenant-a 8e03978e-40d5-43dd-bc93-6894a57f9324`,
	})
	stores := needsStore(cmd)
	cmd.AddCommand(
		p.keysList(stores), p.keysShow(stores), p.keysAudit(stores), p.keysHash(),
		p.keysResolve(stores), p.keysDecline(stores), p.keysRelease(stores), p.keysRedrive(stores),
		p.keysForget(stores), p.keysErase(stores), p.keysQuarantine(stores), p.keysCopy(),
	)
	return cmd
}

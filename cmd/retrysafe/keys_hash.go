package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/retrysafe/retrysafe"
)

func (p *program) keysHash() *cobra.Command {
	return &cobra.Command{
		Use:   "hash KEY",
		Short: "Say how logs name a key",
		Long: `Logs, metrics and pages never have a key itself, for whoever has it could use it.
They have its hash. This says what it is, and needs no store; the other way round,
keys list --key-hash finds the key.`,
		Example: `  retrysafe keys hash 8e03978e-40d5-43dd-bc93-6894a57f9324`,
		Args:    exactly("KEY"),
		RunE: runs(func(_ *cobra.Command, args []string) error {
			_, err := fmt.Fprintln(p.stdout, retrysafe.HashKey(unnamed(args[0])))
			return err
		}),
	}
}

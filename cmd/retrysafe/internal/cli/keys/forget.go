package keys

import (
	"github.com/spf13/cobra"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli/action"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli/command"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli/stores"
)

func forgetCommand(env *command.Env, target *stores.Flags) *cobra.Command {
	return simpleCommand(env, target, "forget",
		"The key is free then: the next request with it is a new operation, with effects of its own.",
		&cobra.Command{
			Short: "Free a key whose stored answer is wrong",
			Long: `Frees a key whose operation has ended: the next request with it, whatever it asks
for, is a new operation and has effects of its own. It is for a stored answer that is
wrong, such as an error that was kept. Be certain that the old operation had no effect,
or that two are wanted. An operation in flight or with an unknown outcome is refused:
settle it first. Receipts of outbox messages that settled the key are deleted with it.

Running gateways follow within a second, on Redis and DynamoDB within a minute. The
command says so, or how long it takes where the store cannot tell them.

` + action.Help,
			Example: `  retrysafe keys forget tenant-a 8e03978e-40d5-43dd-bc93-6894a57f9324 --why "a wrong 500 was kept, nothing was charged"`,
		})
}

func eraseCommand(env *command.Env, target *stores.Flags) *cobra.Command {
	return simpleCommand(env, target, "erase",
		"The content is deleted for good: body, headers, request, checkpoint, reason, notes. The key stays used.",
		&cobra.Command{
			Short: "Delete the content of a record, and leave the key used",
			Long: `Deletes the content of a record whose operation has ended: the body and headers of the
answer, the request, the checkpoint, the reason, the texts of notes. The key stays used
until it expires: a retry is told that the operation was executed and its answer not
kept, and nothing runs again. Receipts of outbox messages that settled the key are
deleted too. It is for data that must be deleted.

An operation in flight or with an unknown outcome is refused: settle it first. Do not
write personal data into --why: the audit keeps it. Copies that the database keeps on
its own (dead rows, logs, backups) are deleted when the database does so: see
docs/runbook.md. Running gateways follow as after forget.

` + action.Help,
			Example: `  retrysafe keys erase tenant-a 8e03978e-40d5-43dd-bc93-6894a57f9324 --why "request 42 for erasure"`,
		})
}

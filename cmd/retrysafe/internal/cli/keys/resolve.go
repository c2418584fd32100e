package keys

import (
	"github.com/spf13/cobra"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli/action"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli/command"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli/exit"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli/stores"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/printable"
	"github.com/retrysafe/retrysafe/operator"
	"github.com/retrysafe/retrysafe/store/storekit"
)

func resolveCommand(env *command.Env, target *stores.Flags) *cobra.Command {
	return answerCommand(env, target, "resolve", "It happened: every retry gets this answer from now on, and it never changes.",
		"All of them happened: every retry of each gets this same answer from now on, and it never changes.", &cobra.Command{
			Short: "State that an operation has happened, and the answer for retries",
			Long: `States that an operation whose outcome is unknown has happened. Every retry gets the
answer that you give, from now on and for the whole retention. It has to be what your
API would have answered, because the client's program reads it: a success has a body,
unless --no-body says that yours has none, or its status is 204.

Look the operation up at the other side first: by the key that was sent there, or by
amount, account and time. If the record says that it did not happen, because an
operator had released it, it becomes disputed instead: perhaps it has happened twice.

` + bulkHelp + `

` + action.Help,
			Example: `  retrysafe keys resolve tenant-a 8e03978e-40d5-43dd-bc93-6894a57f9324 --status 201 --header 'Content-Type: application/json' --body '{"id":"ch_17","status":"paid"}' --provider-ref ch_17 --why "ch_17 is in the provider's dashboard"
  # in a script: at the revision that was seen, with the answer from a file
  retrysafe keys resolve tenant-a 8e03978e-40d5-43dd-bc93-6894a57f9324 --revision 1767225600000001 --status 201 --body-file answer.json --why "case 42" --by anna --yes`,
		})
}

func declineCommand(env *command.Env, target *stores.Flags) *cobra.Command {
	return answerCommand(env, target, "decline", "It was refused for good: every retry gets this answer from now on, and it never changes.",
		"All of them were refused for good: every retry of each gets this same answer from now on, and it never changes.", &cobra.Command{
			Short: "State that an operation was refused for good, and the answer for retries",
			Long: `States that an operation whose outcome is unknown was refused for good: the other
side knows of it, and has declined. Every retry gets the answer that you give.

` + bulkHelp + `

` + action.Help,
			Example: `  # many at once: the provider has refused everything since noon
  retrysafe keys decline --operation 'POST /charges' --upstream-status 502 --since 2026-03-01T12:00:00Z --status 402 --body '{"error":"declined"}' --why "the provider's statement"
  retrysafe keys decline tenant-a 8e03978e-40d5-43dd-bc93-6894a57f9324 --status 402 --header 'Content-Type: application/json' --body '{"error":"declined"}' --why "the provider's dashboard says declined"`,
		})
}

// answerCommand completes a command whose operation takes the answer for retries.
func answerCommand(env *command.Env, target *stores.Flags, verb, consequence, many string, cmd *cobra.Command) *cobra.Command {
	cmd.Use = verb + " {[SCOPE] KEY | FILTERS}"
	flags, key, answer := action.AddFlags(cmd, true), addKeyArg(cmd), addAnswerFlags(cmd)
	bulkFlags := addBulkFlags(cmd)
	cmd.Args = keyOrFilters(bulkFlags)
	cmd.RunE = command.Run(func(cmd *cobra.Command, args []string) error {
		result, err := answer.result(env)
		if err != nil {
			return err
		}
		if len(args) == 0 {
			if answer.providerRef != "" {
				return exit.Usagef("--provider-ref is for one key: the effects of many have different names")
			}
			b := bulk{bulkFlags: bulkFlags, flags: flags, batch: operator.Batch{Verb: verb, Answer: result, Bodiless: answer.noBody}, consequence: many + "\n" + preview(&result)}
			b.batch.Filter.Scope = printable.ParseName(key.scope)
			return b.run(cmd.Context(), env, target)
		}
		o := operation{
			verb: verb, consequence: consequence + "\n" + preview(&result), providerRef: answer.providerRef, key: key,
			arguments: []string{string(storekit.AppendResult(nil, &result))}, answer: &result, noBody: answer.noBody,
		}
		return o.run(cmd.Context(), env, target, flags, args)
	})
	return cmd
}

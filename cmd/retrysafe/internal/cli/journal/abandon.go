package journal

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/retrysafe/retrysafe/client"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli/command"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli/exit"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/printable"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/terminal"
)

func abandonCommand(env *command.Env, f *flags) *cobra.Command {
	var why string
	var forget, yes bool
	cmd := &cobra.Command{
		Use:   "abandon ID",
		Short: "Never send an operation again",
		Long: `Notes that an operation is not to be sent again, for example because you have found it in
the API's own lists. A program that asks for the operation gets an error from then on.

With --forget it is removed from the journal: the next call for this ID is a new operation,
with a new key. If the first one was executed after all, that is a second one.`,
		Example: `  retrysafe journal abandon --journal payments.journal order-17 --why "ch_17 is in the dashboard"
  # it was not executed, and may be begun again
  retrysafe journal abandon --journal payments.journal order-17 --why "not in the dashboard" --forget`,
		Args: command.Args("ID"),
	}
	cmd.Flags().StringVar(&why, "why", "", "reason (required)")
	cmd.Flags().BoolVar(&forget, "forget", false, "remove it, so that a later call is a new operation")
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask")
	cmd.RunE = command.Run(func(cmd *cobra.Command, args []string) error {
		ctx := cmd.Context()
		if strings.TrimSpace(why) == "" {
			return exit.Usagef("--why is missing: the reason, for readers of the journal").Hintf(`for example --why "ch_17 is in the provider's dashboard"`)
		}
		j, err := f.open(ctx, env, false)
		if err != nil {
			return err
		}
		defer j.Close()
		all, err := j.Operations(ctx)
		if err != nil {
			return exit.Errorf(exit.Store, "%v", err)
		}
		at := slices.IndexFunc(all, func(op client.Operation) bool { return op.ID == args[0] })
		if at < 0 {
			return exit.Errorf(exit.No, "there is no operation %s in the journal", printable.Text(args[0])).Hintf("see what is there: retrysafe journal list --all")
		}
		op := all[at]
		if !op.Unfinished() && !forget {
			return exit.Errorf(exit.No, "%s is %s already", name(&op), state(&op)).Hintf("--forget removes it")
		}
		consequence := "It will never be sent again. If it was not executed, it will not be."
		if forget {
			consequence = "The next call for it is a new operation. If this one was executed, that is a second one."
		}
		if !yes {
			question := fmt.Sprintf("%s, %s\n  %s %s\n  begun %s\n%s", name(&op), state(&op), op.Method, printable.Text(op.URL), terminal.Exact(op.Begun), consequence)
			if err := env.Confirm(ctx, question); err != nil {
				return err
			}
		}
		if forget {
			if err := j.Forget(ctx, op.ID); err != nil {
				return exit.Errorf(exit.Store, "%v", err)
			}
			fmt.Fprintf(env.Out, "%s: forgotten\n", name(&op))
			return nil
		}
		op.Abandoned, op.Ended = cmp.Or(env.Getenv("USER"), env.Getenv("LOGNAME"), "unknown")+": "+why, time.Now().UTC()
		if err := j.End(ctx, op); err != nil {
			return exit.Errorf(exit.Store, "%v", err)
		}
		fmt.Fprintf(env.Out, "%s: abandoned\n", name(&op))
		return nil
	})
	return cmd
}

package migrate

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli/command"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli/stores"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/storeurl"
)

func upCommand(env *command.Env, target *stores.Flags) *cobra.Command {
	return &cobra.Command{
		Use:   "up",
		Short: "Apply the migrations that a store does not have",
		Long: `Applies the migrations that a store does not have: in one transaction, or statement by
statement in MySQL, which commits each change of a schema by itself. It is safe while
other programs use the store, and if several run it at once. A SQLite file that does not
exist is created. A store that is too new for this program is refused and not changed.`,
		Example: `  retrysafe migrate up --store sqlite:retrysafe.db
  # by a role that may change the schema; the gateway's own need not
  retrysafe migrate up --store 'postgres://owner@db/app?schema=retrysafe'`,
		Args: command.Args(),
		RunE: command.Run(func(cmd *cobra.Command, _ []string) error { return up(cmd.Context(), env, target) }),
	}
}

func up(ctx context.Context, env *command.Env, target *stores.Flags) error {
	l, err := target.Location(env)
	if err != nil {
		return err
	}
	before, err := l.Status(ctx)
	if err != nil && !l.Missing() {
		return err
	}
	if before.Refused {
		return l.TooNew(before)
	}
	opened, err := storeurl.Open(ctx, l.URL, nil)
	if err != nil {
		return l.StoreError(err)
	}
	if err := opened.Close(); err != nil {
		return l.StoreError(err)
	}
	after, err := l.Status(ctx)
	if err != nil {
		return err
	}
	if before.Version == after.Version {
		fmt.Fprintf(env.Out, "%s: nothing to do, it has schema version %d\n", l, after.Version)
		return nil
	}
	fmt.Fprintf(env.Out, "%s: migrated from version %d to %d\n", l, before.Version, after.Version)
	return nil
}

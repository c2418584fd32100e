package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/spf13/cobra"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/storeurl"
)

func (p *program) migrateUp(stores *storeFlags) *cobra.Command {
	return &cobra.Command{
		Use:   "up",
		Short: "Bring a store to the newest schema",
		Long: `Brings a store to the schema of this program. It is one transaction, safe while others
work and when several do it at once. A SQLite file that is not there is made. A store
that is newer than this program is refused, and nothing is changed.`,
		Example: `  retrysafe migrate up --store sqlite:retrysafe.db
  # by a role that may change the schema; the gateway's own need not
  retrysafe migrate up --store 'postgres://owner@db/app?schema=retrysafe'`,
		Args: exactly(),
		RunE: runs(func(cmd *cobra.Command, _ []string) error {
			ctx := cmd.Context()
			a, err := stores.address(p)
			if err != nil {
				return err
			}
			before, err := a.status(ctx)
			if err != nil && !isMissing(a) {
				return err
			}
			if before.Refused {
				return failed(exitStore, "the store %s has schema version %d, and this program knows only %d", a, before.Version, before.Newest).hinted("upgrade the program")
			}
			opened, err := storeurl.Open(ctx, a.url, nil)
			if err != nil {
				return a.trouble(err)
			}
			if err := opened.Close(); err != nil {
				return a.trouble(err)
			}
			after, err := a.status(ctx)
			if err != nil {
				return err
			}
			if before.Version == after.Version {
				fmt.Fprintf(p.stdout, "%s: nothing to do, it has schema version %d\n", a, after.Version)
				return nil
			}
			fmt.Fprintf(p.stdout, "%s: migrated from version %d to %d\n", a, before.Version, after.Version)
			return nil
		}),
	}
}

// isMissing reports whether a SQLite file is not there.
func isMissing(a *address) bool {
	if a.at.Kind != storeurl.SQLite {
		return false
	}
	_, err := os.Stat(a.at.Path)
	return errors.Is(err, fs.ErrNotExist)
}

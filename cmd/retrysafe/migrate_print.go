package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/storeurl"
	"github.com/retrysafe/retrysafe/store/pgstore"
	"github.com/retrysafe/retrysafe/store/sqlitestore"
)

func (p *program) migratePrint(stores *storeFlags) *cobra.Command {
	var schema string
	var reaper bool
	cmd := &cobra.Command{
		Use:   "print [postgres|sqlite]",
		Short: "Print the schema as SQL, for other tools",
		Long: `Prints the tables of a store as one SQL script, for those who migrate with a tool of
their own. It connects to nothing. Which database it is for is said by the argument, or
by the store's URL.

With --reaper it prints instead what lets PostgreSQL delete by itself what is due: a
procedure, and a job of the extension pg_cron that calls it.`,
		Example: `  retrysafe migrate print postgres --schema retrysafe > 0042_retrysafe.sql
  retrysafe migrate print sqlite
  # let the database delete what is due
  retrysafe migrate print postgres --reaper`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 1 {
				return fmt.Errorf("%q is one argument too many", args[1])
			}
			return nil
		},
		ValidArgs: []string{"postgres", "sqlite"},
	}
	cmd.Flags().StringVar(&schema, "schema", "", "PostgreSQL: the schema that the tables are in")
	cmd.Flags().BoolVar(&reaper, "reaper", false, "print the job that deletes what is due instead (PostgreSQL, pg_cron)")
	cmd.RunE = runs(func(_ *cobra.Command, args []string) error {
		var at storeurl.Address
		if len(args) > 0 {
			at.Kind = args[0]
		} else {
			a, err := stores.address(p)
			if err != nil {
				return misused("nobody said for which database").hinted("retrysafe migrate print postgres, or sqlite")
			}
			at = a.at
		}
		if schema != "" {
			at.Schema = schema
		}
		script, err := scriptOf(at, reaper)
		if err != nil {
			return err
		}
		_, err = fmt.Fprint(p.stdout, script)
		return err
	})
	return cmd
}

func scriptOf(at storeurl.Address, reaper bool) (string, error) {
	switch {
	case at.Kind == storeurl.Postgres && reaper:
		return pgstore.PrintReaper(&pgstore.ReaperOptions{Schema: at.Schema})
	case at.Kind == storeurl.Postgres:
		return pgstore.PrintMigrations(at.Schema)
	case at.Kind == storeurl.SQLite && (reaper || at.Schema != ""):
		return "", misused("--reaper and --schema are for PostgreSQL")
	case at.Kind == storeurl.SQLite:
		return sqlitestore.PrintMigrations()
	default:
		return "", misused("there is no schema for %q", at.Kind).hinted("retrysafe migrate print postgres, or sqlite")
	}
}

package migrate

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli/command"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli/exit"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli/stores"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/storeurl"
	"github.com/retrysafe/retrysafe/store/mysqlstore"
	"github.com/retrysafe/retrysafe/store/pgstore"
	"github.com/retrysafe/retrysafe/store/sqlitestore"
)

func printCommand(env *command.Env, target *stores.Flags) *cobra.Command {
	var schema string
	var reaper bool
	cmd := &cobra.Command{
		Use:   "print [postgres|mysql|sqlite]",
		Short: "Print the schema as SQL, for other tools",
		Long: `Prints the tables of a store as one SQL script, for migration tools. It connects to
nothing. The argument, or the URL of the store, says for which database.

With --reaper it prints instead what makes PostgreSQL delete expired records by itself:
a procedure, and a job of the extension pg_cron that calls it.`,
		Example: `  retrysafe migrate print postgres --schema retrysafe > 0042_retrysafe.sql
  retrysafe migrate print sqlite
  # let the database delete expired records
  retrysafe migrate print postgres --reaper`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 1 {
				return fmt.Errorf("%q is one argument too many", args[1])
			}
			return nil
		},
		ValidArgs: []string{"postgres", "mysql", "sqlite"},
	}
	cmd.Flags().StringVar(&schema, "schema", "", "PostgreSQL: the schema that the tables are in")
	cmd.Flags().BoolVar(&reaper, "reaper", false, "print the job that deletes expired records instead (PostgreSQL, pg_cron)")
	cmd.RunE = command.Run(func(_ *cobra.Command, args []string) error {
		var at storeurl.Address
		if len(args) > 0 {
			at.Kind = args[0]
		} else {
			l, err := target.Location(env)
			if err != nil {
				return exit.Usagef("no database is named").Hintf("retrysafe migrate print postgres, mysql, or sqlite")
			}
			at = l.Address
		}
		if schema != "" {
			at.Schema = schema
		}
		text, err := script(at, reaper)
		if err != nil {
			return err
		}
		_, err = fmt.Fprint(env.Out, text)
		return err
	})
	return cmd
}

// script returns the SQL for a database.
func script(at storeurl.Address, reaper bool) (string, error) {
	switch {
	case at.Kind == storeurl.Postgres && reaper:
		return pgstore.PrintReaper(&pgstore.ReaperOptions{Schema: at.Schema})
	case at.Kind == storeurl.Postgres:
		return pgstore.PrintMigrations(at.Schema)
	case (at.Kind == storeurl.SQLite || at.Kind == storeurl.MySQL) && (reaper || at.Schema != ""):
		return "", exit.Usagef("--reaper and --schema are for PostgreSQL")
	case at.Kind == storeurl.SQLite:
		return sqlitestore.PrintMigrations()
	case at.Kind == storeurl.MySQL:
		return mysqlstore.PrintMigrations()
	default:
		return "", exit.Usagef("there is no schema for %q", at.Kind).Hintf("retrysafe migrate print postgres, mysql, or sqlite")
	}
}

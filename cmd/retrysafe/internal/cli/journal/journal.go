// Package journal is the command group "retrysafe journal": it shows the operations of a Go
// client that are unfinished, sends them again and lets a person abandon them. In its files
// the name journal refers to the library's package.
package journal

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"net/url"
	"os"
	"strings"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver of postgres:// journals
	"github.com/spf13/cobra"
	_ "modernc.org/sqlite" // the driver of sqlite: journals

	"github.com/retrysafe/retrysafe/client"
	"github.com/retrysafe/retrysafe/client/journal"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli/command"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli/exit"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/printable"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/terminal"
)

// variable has the journal if the command line does not name one.
const variable = "RETRYSAFE_JOURNAL"

// Command returns the group.
func Command(env *command.Env) *cobra.Command {
	cmd := command.Group(&cobra.Command{
		Use:   "journal",
		Short: "See and finish the operations of a Go client that died",
		Long: `A program that sends requests by the Go client (package client) may keep a journal: each
operation is in it, with its key and its bytes, before it is sent. What the program left
unfinished can be sent again from here, with the same keys.

The journal is given by --journal or by $` + variable + `: a FILE, sqlite:FILE or
postgres://user:password@host/database. A file belongs to one process at a time: it can be
listed while its program runs, and changed only when that is stopped.`,
		Example: `  # what is unfinished
  retrysafe journal list --journal payments.journal
  # send it again
  retrysafe journal resume --journal payments.journal --header-env Authorization=PAYMENTS_TOKEN`,
	})
	f := new(flags)
	cmd.PersistentFlags().StringVar(&f.journal, "journal", "", "`FILE` or URL of the journal")
	cmd.PersistentFlags().StringVar(&f.table, "table", "retrysafe_journal", "`NAME` of its table in a database")
	cmd.AddCommand(listCommand(env, f), resumeCommand(env, f), abandonCommand(env, f))
	return cmd
}

// flags are the flags that all commands of the group have.
type flags struct{ journal, table string }

// An opened journal can be looked at and changed.
type opened interface {
	client.Journal
	Forget(ctx context.Context, id string) error
	Close() error
}

// inDatabase is a journal with the connections that it uses.
type inDatabase struct {
	*journal.SQL
	db *sql.DB
}

func (d inDatabase) Close() error { return d.db.Close() }

// open opens the journal. It never creates one.
func (f *flags) open(ctx context.Context, env *command.Env, readOnly bool) (opened, error) {
	location := cmp.Or(f.journal, env.Getenv(variable))
	if location == "" {
		return nil, exit.Usagef("the journal is missing").Hintf("name it with --journal FILE, or in $%s", variable)
	}
	if strings.HasPrefix(location, "postgres://") || strings.HasPrefix(location, "postgresql://") {
		return f.database(ctx, "pgx", location, "postgres journal")
	}
	file, sqlite := strings.CutPrefix(location, "sqlite:")
	if _, err := os.Stat(file); err != nil {
		if errors.Is(err, os.ErrNotExist) {
			return nil, exit.Errorf(exit.Store, "there is no journal %s", file).Hintf("check the path: only the program that uses it creates it")
		}
		return nil, exit.Errorf(exit.Store, "%v", err)
	}
	if sqlite {
		dsn := url.URL{Scheme: "file", Opaque: (&url.URL{Path: file}).EscapedPath(), RawQuery: "_pragma=busy_timeout(5000)"}
		return f.database(ctx, "sqlite", dsn.String(), file)
	}
	j, err := journal.Open(file, &journal.Options{ReadOnly: readOnly})
	switch {
	case errors.Is(err, journal.ErrLocked):
		return nil, exit.Errorf(exit.Store, "%v", err).Hintf("only retrysafe journal list works while its program runs")
	case err != nil:
		return nil, exit.Errorf(exit.Store, "%v", err)
	}
	return j, nil
}

func (f *flags) database(ctx context.Context, driver, dsn, name string) (opened, error) {
	db, err := sql.Open(driver, dsn)
	if err == nil {
		err = db.PingContext(ctx)
	}
	if err != nil {
		return nil, exit.Errorf(exit.Store, "open %s: %v", name, err)
	}
	j, err := journal.NewSQL(db, &journal.SQLOptions{Table: f.table, Dollar: driver == "pgx"})
	if err != nil {
		_ = db.Close()
		return nil, exit.Usagef("%v", err)
	}
	return inDatabase{j, db}, nil
}

// state says in a word how far an operation is.
func state(op *client.Operation) string {
	switch {
	case op.Abandoned != "":
		return "abandoned"
	case op.Answer != nil:
		return "answered"
	default:
		return "unfinished"
	}
}

// name returns the ID of an operation for people.
func name(op *client.Operation) string { return terminal.Clip(printable.Text(op.ID), 60) }

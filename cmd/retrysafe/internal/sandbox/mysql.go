package sandbox

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/storeurl"
)

// newMySQL makes a database of its own on the server.
func newMySQL(ctx context.Context, address string, at *storeurl.Address, purpose string) (*Sandbox, error) {
	name := "retrysafe_" + purpose + "_" + random()
	if err := executeMySQL(ctx, at.DSN, "CREATE DATABASE "+name); err != nil {
		return nil, fmt.Errorf("make a database for the run (the user needs CREATE and DROP on retrysafe_%s_%%): %w", purpose, err)
	}
	u, err := url.Parse(address)
	if err != nil {
		return nil, err
	}
	u.Path = "/" + name
	return &Sandbox{URL: u.String(), What: "the database " + name, remove: func(ctx context.Context) error {
		return executeMySQL(ctx, at.DSN, "DROP DATABASE "+name)
	}}, nil
}

func executeMySQL(ctx context.Context, dsn, statement string) error {
	db, err := sql.Open("mysql", dsn)
	if err != nil {
		return err
	}
	_, err = db.ExecContext(ctx, statement)
	return errors.Join(err, db.Close())
}

package pgstore

import (
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5/pgconn"
)

// isLocked reports whether the server gave up waiting for a lock.
func isLocked(err error) bool { return isCode(err, "55P03") }

func isCode(err error, codes ...string) bool {
	var e *pgconn.PgError
	if !errors.As(err, &e) {
		return false
	}
	for _, code := range codes {
		if e.Code == code {
			return true
		}
	}
	return false
}

// explain adds what to do to errors that a user can do something about.
func explain(err error) error {
	var hint string
	switch {
	case err == nil:
		return nil
	case isCode(err, "3D000"):
		hint = "create the database first"
	case isCode(err, "28P01", "28000"):
		hint = "check user and password in the store's URL"
	case isCode(err, "42P01", "42703"):
		hint = "the schema is not there or not this program's; run the migrations"
	case isCode(err, "25006"):
		hint = "the server is read-only, as a standby is; connect to the primary"
	case isCode(err, "53100"):
		hint = "the server's disk is full"
	default:
		return err
	}
	return fmt.Errorf("%w (%s)", err, hint)
}

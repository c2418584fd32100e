package pgstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/retrysafe/retrysafe"
)

// An error that the user can do something about says what, and stays the error that it is.
func TestErrorsSayWhatToDo(t *testing.T) {
	t.Parallel()
	code := func(code string) error {
		return fmt.Errorf("step: %w", &pgconn.PgError{Severity: "FEHLER", SeverityUnlocalized: "ERROR", Code: code, Message: "in\ntwo lines"})
	}
	for name, c := range map[string]struct {
		err  error
		says string
	}{
		"3D000":                {code("3D000"), "create the database first"},
		"28P01":                {code("28P01"), "check user and password"},
		"28000":                {code("28000"), "check user and password"},
		"42501":                {code("42501"), "GRANT SELECT, INSERT, UPDATE, DELETE"},
		"42501, explained":     {fmt.Errorf("%w: %w", errNoDDL, code("42501")), ""},
		"42P01":                {code("42P01"), "run the migrations"},
		"42703":                {code("42703"), "run the migrations"},
		"25006":                {code("25006"), "connect to the primary"},
		"53100":                {code("53100"), "disk is full"},
		"another code":         {code("53200"), ""},
		"no code":              {errors.New("in\ntwo lines"), ""},
		"a deadline":           {context.DeadlineExceeded, ""},
		"a deadline of a dial": {fmt.Errorf("%w", connectError(t)), "did not answer in time"},
	} {
		got := explain(c.err)
		if !errors.Is(got, c.err) {
			t.Errorf("%s: %v is not the error that it was", name, got)
		}
		if c.says == "" && got != c.err || !strings.Contains(got.Error(), c.says) || c.says != "" && strings.Contains(got.Error(), "\n") { //nolint:errorlint // it is left alone
			t.Errorf("%s: %q, want %q in one line", name, got, c.says)
		}
	}
	if err := explain(nil); err != nil {
		t.Errorf("no error: %v", err)
	}
	for _, ended := range []error{pgx.ErrTxClosed, sql.ErrTxDone} {
		if err := explain(fmt.Errorf("step: %w", ended)); !errors.Is(err, retrysafe.ErrTxDone) || !errors.Is(err, ended) {
			t.Errorf("%v: %v", ended, err)
		}
	}
}

// What the driver says of TLS is left out where the same address was tried without, so that
// the error begins with its cause.
func TestRefusedTLSIsNotTheCause(t *testing.T) {
	t.Parallel()
	const prefix, a, b = "pgstore: failed to connect to `user=u database=d`:", "\n\t1.1.1.1:5432 (a): ", "\n\t1.1.1.2:5432 (b): "
	for text, want := range map[string]string{
		prefix + a + refusedTLS + a + "server error: FATAL: no d":                     prefix + " 1.1.1.1:5432 (a): server error: FATAL: no d",
		prefix + " 1.1.1.1:5432 (a): " + refusedTLS:                                   prefix + " 1.1.1.1:5432 (a): " + refusedTLS,
		prefix + a + refusedTLS + b + refusedTLS:                                      prefix + " 1.1.1.1:5432 (a): " + refusedTLS + " 1.1.1.2:5432 (b): " + refusedTLS,
		prefix + a + refusedTLS + a + "dial error: x" + b + "dial error:\n\ty":        prefix + " 1.1.1.1:5432 (a): dial error: x 1.1.1.2:5432 (b): dial error: y",
		prefix + a + "server error: no encryption" + a + "tls error: bad certificate": prefix + " 1.1.1.1:5432 (a): server error: no encryption 1.1.1.1:5432 (a): tls error: bad certificate",
		"in\ntwo lines": "in two lines",
	} {
		if got := inOneLine(text); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
}

// connectError is that of a server that does not answer within no time.
func connectError(t *testing.T) error {
	ctx, cancel := context.WithTimeout(t.Context(), 0)
	defer cancel()
	_, err := pgconn.Connect(ctx, "postgres://127.0.0.1:1/none")
	return err
}

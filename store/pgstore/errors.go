package pgstore

import (
	"context"
	"crypto/x509"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"syscall"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/retrysafe/retrysafe"
)

// isLocked reports whether the server has given up waiting for a lock.
func isLocked(err error) bool { return isCode(err, "55P03") }

func isCode(err error, codes ...string) bool {
	if err == nil {
		return false
	}
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

// explain adds a hint to errors that the user can do something about.
func explain(err error) error {
	var hint string
	switch {
	case err == nil:
		return nil
	case errors.Is(err, pgx.ErrTxClosed), errors.Is(err, sql.ErrTxDone):
		return fmt.Errorf("%w: %w", retrysafe.ErrTxDone, err)
	case isCode(err, "3D000"):
		hint = "create the database first"
	case isCode(err, "28P01", "28000"):
		hint = "check user and password in the store's URL"
	case isCode(err, "42501") && !errors.Is(err, errNoDDL):
		hint = "the store's role lacks rights; its tables' owner must GRANT SELECT, INSERT, UPDATE, DELETE ON retrysafe_keys (and retrysafe_outbox, _dead, _shards, _workers, _changes, _last_change) and GRANT SELECT ON retrysafe_schema, and USAGE on their schema"
	case isCode(err, "42P01", "42703"):
		hint = "the schema is not there or not this program's; run the migrations"
	case isCode(err, "25006"):
		hint = readOnly
	case isCode(err, "53100"):
		hint = "the server's disk is full"
	default:
		var connect *pgconn.ConnectError
		if hint = unreachable(err); hint == "" && !errors.As(err, &connect) {
			return err
		}
	}
	return &hintedError{err, hint}
}

// unreachable returns a hint for a server that cannot be connected to.
func unreachable(err error) string {
	var connect *pgconn.ConnectError
	var name *net.DNSError
	switch {
	case !errors.As(err, &connect):
		return ""
	case errors.As(err, &name):
		return "the name does not resolve (DNS); check the host in the store's URL, and the resolver"
	case isExpired(err):
		return "the certificate of the store's server has expired, or this machine's clock is wrong; renew the certificate at the server"
	case strings.Contains(err.Error(), "read only connection"): // by target_session_attrs; the driver has no other mark
		return readOnly
	case errors.Is(err, syscall.ECONNREFUSED), errors.Is(err, syscall.ENOENT):
		return "is the server running, and is this its address?"
	case errors.Is(err, context.DeadlineExceeded):
		return noAnswer
	default:
		return ""
	}
}

// isExpired reports whether a certificate was refused because of its dates.
func isExpired(err error) bool {
	var invalid x509.CertificateInvalidError
	return errors.As(err, &invalid) && invalid.Reason == x509.Expired
}

const (
	noAnswer = "the server did not answer in time; is this its address?"
	readOnly = "the server is read-only, as a standby is; connect to the primary: name all servers in the store's URL, with target_session_attrs=read-write"
)

// hintedError is an error of the driver's in one line, with a hint, if there is one.
type hintedError struct {
	err  error
	hint string
}

func (e *hintedError) Error() string {
	text := inOneLine(e.err.Error())
	if e.hint != "" {
		text += " (" + e.hint + ")"
	}
	return text
}

// refusedTLS is what the driver says of a server that has no TLS. With sslmode=prefer, the
// default, it tries the same address again without.
const refusedTLS = "tls error: server refused TLS connection"

// inOneLine returns the text of an error of the driver's in one line. One that has an attempt
// in each line loses those that ended for want of TLS, if the address was tried without.
func inOneLine(text string) string {
	lines := strings.Split(text, "\n")
	lines = slices.DeleteFunc(slices.Clone(lines), func(line string) bool {
		address, refused := strings.CutSuffix(line, refusedTLS)
		return refused && slices.ContainsFunc(lines, func(other string) bool { return other != line && strings.HasPrefix(other, address) })
	})
	return strings.Join(strings.Fields(strings.Join(lines, " ")), " ")
}

func (e *hintedError) Unwrap() error { return e.err }

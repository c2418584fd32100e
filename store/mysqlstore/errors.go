package mysqlstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"syscall"

	"github.com/go-sql-driver/mysql"

	"github.com/retrysafe/retrysafe"
)

// The server's error codes that the store tells apart.
const (
	codeExists         = 1062
	codeChanged        = 1020
	codeUnknownBase    = 1049
	codeAccess         = 1045
	codeNoRight        = 1044
	codeTableRight     = 1142
	codeNoTable        = 1146
	codeNoColumn       = 1054
	codeNoSavepoint    = 1305
	codeNoVariable     = 1193
	codeLockWait       = 1205
	codeDeadlock       = 1213
	codeNoWait         = 3572
	codeInTransaction  = 1568
	codeNull           = 1048
	codeRange          = 1690
	codeReadOnly       = 1290
	codeReadOnlyMode   = 1836
	codeDiskFull       = 1021
	codeTableFull      = 1114
	codePacketTooLarge = 1153
)

func isCode(err error, codes ...uint16) bool {
	var e *mysql.MySQLError
	return errors.As(err, &e) && slices.Contains(codes, e.Number)
}

// isLocked reports whether another transaction has the lock of a row, and this one did
// not wait for it, or not for longer.
func isLocked(err error) bool { return isCode(err, codeLockWait, codeNoWait) }

// isDeadlock reports whether the server has refused the transaction because of another one:
// they waited for each other; or, with MariaDB's innodb_snapshot_isolation, the other has
// changed a row since the statement has begun to read. Nothing was applied.
func isDeadlock(err error) bool { return isCode(err, codeDeadlock, codeChanged) }

// isRefusal reports whether the server has answered, and refused the statement.
func isRefusal(err error) bool {
	var e *mysql.MySQLError
	return errors.As(err, &e)
}

// errLocked is the answer to a swap whose batch met a row that another transaction has
// locked. Nothing was applied; the swap is sent by itself.
var errLocked = errors.New("mysqlstore: another transaction has locked the key")

// explain adds a hint to errors that a user can fix, and says why a closed store is
// closed.
func (s *Store) explain(ctx context.Context, err error) error {
	if isCode(err, codeNoTable) {
		if newer := newerSchema(ctx, s.steps.db); newer != nil {
			return fmt.Errorf("%w: %w", newer, err)
		}
		if closed := s.closed(ctx); closed != nil {
			return closed
		}
	}
	return explain(err)
}

const readOnlyHint = "the server is read-only, as a replica is; connect to the primary"

func explain(err error) error {
	var hint string
	switch {
	case err == nil:
		return nil
	case errors.Is(err, sql.ErrTxDone):
		return fmt.Errorf("%w: %w", retrysafe.ErrTxDone, err)
	case isCode(err, codeUnknownBase):
		hint = "create the database first"
	case isCode(err, codeAccess):
		hint = "check user and password in the store's URL"
	case isCode(err, codeNoRight, codeTableRight):
		hint = "the database does not exist, or the store's user lacks rights; GRANT SELECT, INSERT, UPDATE, DELETE on the tables retrysafe_*, and for migrations CREATE, ALTER, INDEX and DROP, and for a move LOCK TABLES and TRIGGER"
	case isCode(err, codeNoVariable):
		hint = "the driver sets each parameter of the store's URL that it does not know as a variable; is one misspelt?"
	case isCode(err, codeNoTable) && !strings.Contains(err.Error(), "retrysafe_"):
		hint = "is it used by a trigger on a table of the store?"
	case isCode(err, codeNoTable, codeNoColumn):
		hint = "the schema is not there or not this program's; run the migrations"
	case isCode(err, codeReadOnly, codeReadOnlyMode):
		hint = readOnlyHint
	case isCode(err, codeDiskFull, codeTableFull):
		hint = "the server's disk is full"
	case isCode(err, codeChanged):
		hint = "the transaction sees the rows as they were when it began to read; begin it READ COMMITTED, which is the default of the pool"
	case isCode(err, codePacketTooLarge), errors.Is(err, mysql.ErrPktTooLarge):
		hint = "raise the server's max_allowed_packet"
	default:
		if hint = unreachable(err); hint == "" {
			return err
		}
	}
	return &hintedError{err, hint}
}

// unreachable returns a hint for a server that cannot be connected to.
func unreachable(err error) string {
	var name *net.DNSError
	var dial *net.OpError
	switch {
	case errors.As(err, &name):
		return "the name does not resolve (DNS); check the host in the store's URL, and the resolver"
	case errors.As(err, &dial) && dial.Op == "dial" && (errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, syscall.ENOENT)):
		return "is the server running, and is this its address?"
	case errors.As(err, &dial) && dial.Op == "dial" && (dial.Timeout() || errors.Is(err, context.DeadlineExceeded)):
		return "the server did not answer in time; is this its address?"
	default:
		return ""
	}
}

// hintedError is an error of the driver's in one line, with a hint.
type hintedError struct {
	err  error
	hint string
}

func (e *hintedError) Error() string {
	return strings.Join(strings.Fields(e.err.Error()), " ") + " (" + e.hint + ")"
}

func (e *hintedError) Unwrap() error { return e.err }

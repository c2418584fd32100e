package mysqlstore

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"strings"

	"github.com/retrysafe/retrysafe/internal/failpoint"
)

// conns are connections for the store's own steps.
type conns struct {
	db *sql.DB
	// several says that the connections take several statements in one round trip.
	several bool
	// mariaDB says that the server is MariaDB, which has statements of its own.
	mariaDB bool
	// lone says that a step that comes alone is one statement and no transaction.
	lone bool
}

// probe finds out what the connections can do.
func (c *conns) probe(ctx context.Context) error {
	var n int
	err := c.db.QueryRowContext(ctx, `SELECT 1; SELECT 2`).Scan(&n)
	if err != nil && !isRefusal(err) {
		return fmt.Errorf("mysqlstore: connect: %w", err)
	}
	if err == nil { // a parameter must not make the driver prepare the statement
		err = c.db.QueryRowContext(ctx, `SELECT ?; SELECT 2`, 1).Scan(&n)
	}
	if err == nil { // a driver around the driver may hide what it can do
		c.several, err = c.queries(ctx)
		return err
	}
	return nil
}

// queries reports whether the driver takes queries without preparing them.
func (c *conns) queries(ctx context.Context) (ok bool, err error) {
	link, err := c.db.Conn(ctx)
	if err != nil {
		return false, fmt.Errorf("mysqlstore: connect: %w", err)
	}
	defer link.Close()
	err = link.Raw(func(driven any) error {
		_, ok = driven.(driver.QueryerContext)
		return nil
	})
	return ok, err
}

// statement is one statement with its parameters.
type statement struct {
	sql  string
	args []any
	// each, if not nil, is called for each row of the result. A statement with it returns
	// rows, and others do not.
	each func(scan func(...any) error) error
}

// conn is one connection in use.
type conn struct {
	*sql.Conn
	several, mariaDB, lone bool
}

// do calls f with a connection. If f fails in a transaction it is rolled back.
func (c *conns) do(ctx context.Context, f func(conn) error) error {
	link, err := c.db.Conn(ctx)
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	defer link.Close()
	err = f(conn{link, c.several, c.mariaDB, c.lone})
	if err != nil {
		discard(ctx, link, err)
	}
	return err
}

// discard ends the transaction that an error has left open. If that is not possible the
// connection is not used again, and the server rolls back when it is closed.
func discard(ctx context.Context, link *sql.Conn, err error) {
	if isRefusal(err) || errors.Is(err, errRollback) {
		if _, err := link.ExecContext(context.WithoutCancel(ctx), `ROLLBACK`); err == nil {
			return
		}
	}
	_ = link.Raw(func(any) error { return driver.ErrBadConn })
}

// errRollback, wrapped in an error of a function that [conns.do] calls, says that the
// connection is intact.
var errRollback = errors.New("roll back")

// script runs statements, in one round trip if the connection can. The server runs none
// behind one that it refuses.
func (c conn) script(ctx context.Context, statements ...statement) error {
	if !c.several {
		for _, s := range statements {
			if err := c.run(ctx, s); err != nil {
				return err
			}
		}
		return nil
	}
	var text strings.Builder
	var args []any
	var results []func(func(...any) error) error
	for i, s := range statements {
		if i > 0 {
			text.WriteByte(';')
		}
		text.WriteString(s.sql)
		args = append(args, s.args...)
		if s.each != nil {
			results = append(results, s.each)
		}
	}
	failpoint.Hit("mysql.sending")
	rows, err := c.QueryContext(ctx, text.String(), args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for n := 0; ; n++ {
		for rows.Next() {
			if n >= len(results) {
				return errors.New("mysqlstore: the server returned rows where none were asked for")
			}
			if err := results[n](rows.Scan); err != nil {
				return err
			}
		}
		if !rows.NextResultSet() {
			break
		}
	}
	if err := rows.Err(); err != nil {
		return err
	}
	failpoint.Hit("mysql.answered")
	return rows.Close()
}

// run runs one statement.
func (c conn) run(ctx context.Context, s statement) error { return runOn(ctx, c.Conn, s) }

// execer is a connection or a transaction.
type execer interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

func runOn(ctx context.Context, db execer, s statement) error {
	if s.each == nil {
		_, err := db.ExecContext(ctx, s.sql, s.args...)
		return err
	}
	rows, err := db.QueryContext(ctx, s.sql, s.args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for more := true; more; more = rows.NextResultSet() { // a compound statement may have several
		for rows.Next() {
			if err := s.each(rows.Scan); err != nil {
				return err
			}
		}
	}
	if err := rows.Err(); err != nil {
		return err
	}
	return rows.Close()
}

package testservers

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
)

// sqlTimeout bounds each of our own statements: a server may be paused, or wait
// for a standby that is.
const sqlTimeout = time.Minute

// exec runs one statement on a connection of its own.
func (p *Postgres) exec(ctx context.Context, sql string) error {
	return p.withConn(ctx, func(ctx context.Context, conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, sql)
		return err
	})
}

// query returns the one value that sql gives, on a connection of its own.
func query[T any](ctx context.Context, p *Postgres, sql string, args ...any) (value T, err error) {
	err = p.withConn(ctx, func(ctx context.Context, conn *pgx.Conn) error {
		return conn.QueryRow(ctx, sql, args...).Scan(&value)
	})
	return value, err
}

// pollSQL repeats a query on one connection until its value is true.
func (p *Postgres) pollSQL(ctx context.Context, sql string, args ...any) error {
	return p.withConn(ctx, func(ctx context.Context, conn *pgx.Conn) error {
		return poll(ctx, func() (done bool, err error) {
			err = conn.QueryRow(ctx, sql, args...).Scan(&done)
			return done, err
		})
	})
}

// withConn lends do a connection over the unix socket, where no proxy and no
// pool is in the way.
func (p *Postgres) withConn(ctx context.Context, do func(context.Context, *pgx.Conn) error) error {
	ctx, cancel := context.WithTimeout(ctx, sqlTimeout)
	defer cancel()
	conn, err := pgx.Connect(ctx, p.SocketURL("postgres"))
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	return do(ctx, conn)
}

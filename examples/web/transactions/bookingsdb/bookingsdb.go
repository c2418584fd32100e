// Package bookingsdb has the shape of what sqlc generates for pgx (sql_package: pgx/v5).
package bookingsdb

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// DBTX is a connection, a pool or a transaction.
type DBTX interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// Queries are the statements on one DBTX.
type Queries struct{ db DBTX }

// New returns the statements on db.
func New(db DBTX) *Queries { return &Queries{db} }

// WithTx returns the same statements in a transaction.
func (q *Queries) WithTx(tx pgx.Tx) *Queries { return &Queries{tx} }

const createBooking = `INSERT INTO bookings (id, amount) VALUES ($1, $2)`

// CreateBookingParams are the parameters of CreateBooking.
type CreateBookingParams struct {
	ID     string
	Amount int64
}

// CreateBooking inserts a booking.
func (q *Queries) CreateBooking(ctx context.Context, arg CreateBookingParams) error {
	_, err := q.db.Exec(ctx, createBooking, arg.ID, arg.Amount)
	return err
}

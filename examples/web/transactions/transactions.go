// Package transactions has a handler in the transaction form for each of the libraries that
// docs/transactions.md shows. Each of them books what the client asks for, in the
// transaction that the guard has begun.
package transactions

import (
	"crypto/rand"
	"database/sql"
	"encoding/json"
	"errors"
	"net/http"

	"github.com/jackc/pgx/v5"
	"github.com/uptrace/bun"
	"gorm.io/gorm"

	"github.com/retrysafe/retrysafe/examples/web/transactions/bookingsdb"
)

// A Booking is a row of the table bookings.
type Booking struct {
	ID     string
	Amount int64
}

// Limit is the highest amount. It is checked after the write, which is then rolled back.
const Limit = 10_000

func read(r *http.Request) (b Booking, err error) {
	err = json.NewDecoder(r.Body).Decode(&b)
	b.ID = rand.Text()
	return b, err
}

func answer(w http.ResponseWriter, b Booking) error {
	if b.Amount > Limit {
		return errors.New("the amount is over the limit")
	}
	w.WriteHeader(http.StatusCreated)
	return json.NewEncoder(w).Encode(b)
}

// BookPgx writes with plain pgx.
func BookPgx(w http.ResponseWriter, r *http.Request, tx pgx.Tx) error {
	b, err := read(r)
	if err != nil {
		return err
	}
	if _, err := tx.Exec(r.Context(), `INSERT INTO bookings (id, amount) VALUES ($1, $2)`, b.ID, b.Amount); err != nil {
		return err
	}
	return answer(w, b)
}

// Sqlc is a service with the code that sqlc generates.
type Sqlc struct{ Queries *bookingsdb.Queries }

// Book writes with the generated queries.
func (s *Sqlc) Book(w http.ResponseWriter, r *http.Request, tx pgx.Tx) error {
	b, err := read(r)
	if err != nil {
		return err
	}
	if err := s.Queries.WithTx(tx).CreateBooking(r.Context(), bookingsdb.CreateBookingParams(b)); err != nil {
		return err
	}
	return answer(w, b)
}

// Gorm is a service with gorm.
type Gorm struct{ DB *gorm.DB }

// Book writes with a session of gorm that works in tx.
func (s *Gorm) Book(w http.ResponseWriter, r *http.Request, tx *sql.Tx) error {
	b, err := read(r)
	if err != nil {
		return err
	}
	db := s.DB.WithContext(r.Context()) // a session of its own
	db.Statement.ConnPool = tx
	if err := db.Create(&b).Error; err != nil {
		return err
	}
	return answer(w, b)
}

// Bun is a service with bun.
type Bun struct{ DB *bun.DB }

// Book writes with a query of bun that works in tx.
func (s *Bun) Book(w http.ResponseWriter, r *http.Request, tx *sql.Tx) error {
	b, err := read(r)
	if err != nil {
		return err
	}
	if _, err := s.DB.NewInsert().Model(&b).Conn(tx).Exec(r.Context()); err != nil {
		return err
	}
	return answer(w, b)
}

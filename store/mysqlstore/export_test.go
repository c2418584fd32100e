package mysqlstore

import (
	"context"
	"database/sql"

	"github.com/retrysafe/retrysafe"
)

// ID returns what the row of a ref is found by.
func ID(ref retrysafe.Ref) []byte { return idOf(ref) }

// Several reports whether the store's connections take several statements in one round
// trip.
func (s *Store) Several() bool { return s.steps.several }

// SpeakMySQL lets the store use the statements for MySQL, whatever the server is.
func (s *Store) SpeakMySQL() { s.steps.mariaDB, s.steps.lone = false, false }

// SendLoneStepsAsBatches lets the store send a step that comes alone as the transaction that
// a batch is.
func (s *Store) SendLoneStepsAsBatches() { s.steps.lone = false }

// LastInsertID asks for the revision that an update has stored.
func LastInsertID(ctx context.Context, link *sql.Conn) error {
	_, err := lastInsertID(ctx, conn{Conn: link}, 0)
	return err
}

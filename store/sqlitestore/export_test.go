package sqlitestore

import (
	"context"
	"fmt"
)

// LimitPages bounds the database file for the writer's connection, as a full
// disk would.
func (s *Store) LimitPages(ctx context.Context, pages int) error {
	return s.writer.inTx(ctx, s.db, func(w *writer) error {
		_, err := w.conn.ExecContext(ctx, fmt.Sprintf("PRAGMA max_page_count = %d", pages))
		return err
	})
}

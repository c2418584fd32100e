package sqlitestore

import (
	"context"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/store/storekit"
)

var _ retrysafe.ChangeFeed = (*Store)(nil)

// changeWait is the interval at which the table of changes is read. It bounds how late a
// change is seen: SQLite notifies no other process.
const changeWait = 250 * time.Millisecond

// The statements on announced writes. The first three run in this order, in the
// transaction that makes the write.
const (
	nextChange = `UPDATE retrysafe_last_change SET n = n + 1, before = token, token = randomblob(16)`

	insertChange = `INSERT INTO retrysafe_changes (n, before, token, id) SELECT n, before, token, ? FROM retrysafe_last_change`

	dropChanges = `DELETE FROM retrysafe_changes WHERE n <= (SELECT n - 1000 FROM retrysafe_last_change)`

	selectLastChange = `SELECT n, token FROM retrysafe_last_change`

	selectChanges = `SELECT l.n, l.token, c.n, c.before, c.token, k.rec FROM retrysafe_last_change AS l
		LEFT JOIN retrysafe_changes AS c ON c.n > ? LEFT JOIN retrysafe_keys AS k ON k.id = c.id ORDER BY c.n`

	countChangeTables = `SELECT count(*) FROM sqlite_master WHERE type = 'table' AND name IN ('retrysafe_changes', 'retrysafe_last_change')`
)

// announce adds the announced writes of the batch to the table of changes.
func (b *batch) announce(ctx context.Context, tx execer) error {
	for i, q := range b.requests {
		if q.create || !q.w.Announce || b.answers[i].Err != nil {
			continue
		}
		if err := exec(ctx, tx, 1, nextChange); err != nil {
			return err
		}
		if err := exec(ctx, tx, 1, insertChange, b.rowOf(i).id[:]); err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, dropChanges); err != nil {
			return fmt.Errorf("write keys: %w", err)
		}
	}
	return nil
}

// findChanges finds out whether the file has the tables of changes. They may be missing
// where another program migrates the schema.
func (s *Store) findChanges(ctx context.Context) error {
	var n int
	if err := s.db.QueryRowContext(ctx, countChangeTables).Scan(&n); err != nil {
		return fmt.Errorf("sqlitestore: %w", s.explain(ctx, err))
	}
	s.announces = n == 2
	return nil
}

// A changeCursor is the last change that was read.
type changeCursor struct {
	n     int64
	token string
}

func (c changeCursor) String() string { return fmt.Sprintf("%d-%x", c.n, c.token) }

func parseCursor(text string) (changeCursor, error) {
	number, rest, ok := strings.Cut(text, "-")
	n, bad := strconv.ParseInt(number, 10, 64)
	b, worse := hex.DecodeString(rest)
	if !ok || bad != nil || worse != nil {
		return changeCursor{}, fmt.Errorf("%w: %q is no cursor of this store", retrysafe.ErrChangesLost, text)
	}
	return changeCursor{n, string(b)}, nil
}

// Changes implements [retrysafe.ChangeFeed]. It reads a small table four times a second.
func (s *Store) Changes(ctx context.Context, cursor string) ([]retrysafe.Ref, string, error) {
	if !s.life.Enter() {
		return nil, "", ErrClosed
	}
	defer s.life.Leave()
	if !s.announces {
		return nil, "", fmt.Errorf("sqlitestore: the tables of changes are not there: %w", errors.ErrUnsupported)
	}
	changed, next, err := s.readChanges(ctx, cursor)
	if err == nil && cursor != "" && len(changed) == 0 {
		select {
		case <-time.After(changeWait):
		case <-ctx.Done():
			err = ctx.Err()
		}
	}
	if err != nil {
		return nil, "", fmt.Errorf("read changes: %w", s.explain(ctx, err))
	}
	return changed, next.String(), nil
}

func (s *Store) readChanges(ctx context.Context, cursor string) (changed []retrysafe.Ref, next changeCursor, err error) {
	if cursor == "" {
		var token []byte
		err := s.db.QueryRowContext(ctx, selectLastChange).Scan(&next.n, &token)
		next.token = string(token)
		return nil, next, err
	}
	at, err := parseCursor(cursor)
	if err != nil {
		return nil, next, err
	}
	rows, err := s.db.QueryContext(ctx, selectChanges, at.n)
	if err != nil {
		return nil, next, err
	}
	defer rows.Close()
	r := changeReader{at: at, next: at}
	for rows.Next() {
		if err := r.row(rows); err != nil {
			return nil, next, err
		}
	}
	if err := rows.Err(); err != nil {
		return nil, next, err
	}
	if r.rows == 0 {
		return nil, next, errNoLastChange
	}
	return r.changed, r.next, nil
}

// errNoLastChange refuses to follow: without that row no number is known.
var errNoLastChange = errors.New("the row of retrysafe_last_change is missing; insert it as the migration does")

// A changeReader reads the changes behind a cursor.
type changeReader struct {
	at, next changeCursor
	changed  []retrysafe.Ref
	rows     int
}

// row reads one row. It returns ErrChangesLost if the row does not follow the one before:
// changes were dropped, or the file is another one.
func (r *changeReader) row(rows *sql.Rows) error {
	var last int64
	var n sql.NullInt64
	var lastToken, before, token, rec []byte
	if err := rows.Scan(&last, &lastToken, &n, &before, &token, &rec); err != nil {
		return err
	}
	r.rows++
	if !n.Valid { // nothing is behind the cursor
		if (changeCursor{last, string(lastToken)}) != r.at {
			return retrysafe.ErrChangesLost
		}
		return nil
	}
	if n.Int64 != r.next.n+1 || string(before) != r.next.token {
		return retrysafe.ErrChangesLost
	}
	r.next = changeCursor{n.Int64, string(token)}
	got, err := storekit.DecodeRecord(rec)
	if err != nil { // it was purged or is damaged, and only it has the name
		return fmt.Errorf("%w: %w", retrysafe.ErrChangesLost, err)
	}
	r.changed = append(r.changed, got.Ref)
	return nil
}

package mysqlstore

import (
	"context"
	"crypto/rand"
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
// change is seen: the server notifies no session.
const changeWait = 250 * time.Millisecond

// The statements on announced writes. The first three run in this order, in the
// transaction that makes the write. The row of the last change lets such transactions take
// turns, so that numbers are in the order of the commits.
const (
	nextChange = `UPDATE retrysafe_last_change SET n = n + 1, prior = token, token = ?`

	insertChange = `INSERT INTO retrysafe_changes (n, prior, token, id) SELECT n, prior, token, ? FROM retrysafe_last_change`

	dropChanges = `DELETE FROM retrysafe_changes WHERE n <= (SELECT n - 1000 FROM retrysafe_last_change)`

	selectLastChange = `SELECT n, token FROM retrysafe_last_change`

	selectChanges = `SELECT l.n, l.token, c.n, c.prior, c.token, k.head FROM retrysafe_last_change AS l
		LEFT JOIN retrysafe_changes AS c ON c.n > ? LEFT JOIN retrysafe_keys AS k ON k.id = c.id ORDER BY c.n`
)

// announcements returns the statements that add the announced swaps to the table of
// changes.
func announcements(requests []swap, answers []answer) (statements []statement) {
	for i, q := range requests {
		if !q.w.Announce || answers[i].Err != nil {
			continue
		}
		token := make([]byte, 16)
		_, _ = rand.Read(token) // it never fails
		statements = append(statements, statement{sql: nextChange, args: []any{token}}, statement{sql: insertChange, args: []any{bytesOf(q.id)}}, statement{sql: dropChanges})
	}
	return statements
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
		err := s.steps.db.QueryRowContext(ctx, selectLastChange).Scan(&next.n, &token)
		next.token = string(token)
		return nil, next, err
	}
	at, err := parseCursor(cursor)
	if err != nil {
		return nil, next, err
	}
	r := changeReader{at: at, next: at}
	if err := runOn(ctx, s.steps.db, statement{sql: selectChanges, args: []any{at.n}, each: r.row}); err != nil {
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
// changes were dropped, or the database is another one.
func (r *changeReader) row(scan func(...any) error) error {
	var last int64
	var n *int64
	var lastToken, prior, token, head []byte
	if err := scan(&last, &lastToken, &n, &prior, &token, &head); err != nil {
		return err
	}
	r.rows++
	if n == nil { // nothing is behind the cursor
		if (changeCursor{last, string(lastToken)}) != r.at {
			return retrysafe.ErrChangesLost
		}
		return nil
	}
	if *n != r.next.n+1 || string(prior) != r.next.token {
		return retrysafe.ErrChangesLost
	}
	r.next = changeCursor{*n, string(token)}
	got, err := storekit.DecodeRecord(head)
	if err != nil { // it was purged or is damaged, and only it has the name
		return fmt.Errorf("%w: %w", retrysafe.ErrChangesLost, err)
	}
	r.changed = append(r.changed, got.Ref)
	return nil
}

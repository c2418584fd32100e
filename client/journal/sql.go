package journal

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/retrysafe/retrysafe/client"
)

// SQLOptions are the optional settings of a [SQL] journal.
type SQLOptions struct {
	// Table is its name, of letters, digits and underscores, with a schema and a full stop
	// before it if there is one. Default: retrysafe_journal.
	Table string
	// Dollar says that the driver has $1 for a parameter, as those of PostgreSQL have, and
	// not a question mark.
	Dollar bool
}

// A SQL journal is a table of any database, for any number of processes. Two of them that
// resume one operation at the same time send it with the same key. Nothing is deleted from the
// table: how long operations are kept after their end is a matter of its owner.
type SQL struct {
	db                                                        *sql.DB
	create, insert, read, find, update, release, remove, list string
}

var _ client.Journal = (*SQL)(nil)

var tableName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)?$`)

// NewSQL returns the journal in a table of db. It does not connect.
func NewSQL(db *sql.DB, o *SQLOptions) (*SQL, error) {
	if o == nil {
		o = new(SQLOptions)
	}
	table := o.Table
	if table == "" {
		table = "retrysafe_journal"
	}
	if !tableName.MatchString(table) {
		return nil, fmt.Errorf("journal: %q is not the name of a table; use letters, digits and underscores", table)
	}
	statement := func(text string) string {
		text = strings.ReplaceAll(text, "TABLE_NAME", table)
		for n := 1; o.Dollar && strings.Contains(text, "?"); n++ {
			text = strings.Replace(text, "?", "$"+strconv.Itoa(n), 1)
		}
		return text
	}
	return &SQL{
		db: db,
		// The hash of the ID is the primary key: every database compares it exactly.
		create: statement(`CREATE TABLE IF NOT EXISTS TABLE_NAME (id_hash CHAR(64) PRIMARY KEY, owner CHAR(64) NOT NULL, unfinished SMALLINT NOT NULL, found BIGINT NOT NULL, begun BIGINT NOT NULL, ended BIGINT NOT NULL, operation TEXT NOT NULL)`),
		insert: statement(`INSERT INTO TABLE_NAME (id_hash, owner, unfinished, found, begun, ended, operation) VALUES (?, ?, 1, 0, ?, 0, ?)`),
		read:   statement(`SELECT operation FROM TABLE_NAME WHERE id_hash = ?`),
		// The count makes every such update a change, so that all databases count it.
		find: statement(`UPDATE TABLE_NAME SET found = found + 1 WHERE id_hash = ? AND unfinished = 1`),
		// The first outcome stays. The owner tells an operation from one with its ID that was
		// begun after it was forgotten.
		update: statement(`UPDATE TABLE_NAME SET unfinished = 0, ended = ?, operation = ? WHERE id_hash = ? AND owner = ? AND unfinished = 1`),
		// Whichever of this and find is first wins: a row that was found stays.
		release: statement(`DELETE FROM TABLE_NAME WHERE id_hash = ? AND owner = ? AND unfinished = 1 AND found = 0`),
		remove:  statement(`DELETE FROM TABLE_NAME WHERE id_hash = ?`),
		list:    statement(`SELECT operation FROM TABLE_NAME ORDER BY begun, id_hash`),
	}, nil
}

// CreateTable creates the table if there is none. MySQL and MariaDB keep up to 64 KiB in its
// column operation: make it a LONGTEXT there.
func (s *SQL) CreateTable(ctx context.Context) error {
	if _, err := s.db.ExecContext(ctx, s.create); err != nil {
		return fmt.Errorf("journal: create table: %w", err)
	}
	return nil
}

// Begin implements [client.Journal].
func (s *SQL) Begin(ctx context.Context, op client.Operation) (client.Operation, bool, error) {
	text, err := json.Marshal(op)
	if err != nil {
		return op, false, fmt.Errorf("journal: %w", err)
	}
	// A row that is there may be released or ended between two statements. Then it is looked
	// at again.
	for try := range 10 {
		_, inserting := s.db.ExecContext(ctx, s.insert, hash(op.ID), owner(&op), op.Begun.UnixMilli(), string(text))
		if inserting == nil {
			return op, false, nil
		}
		// It is there already, or the database fails.
		stored, err := s.load(ctx, op.ID)
		switch {
		case errors.Is(err, sql.ErrNoRows) && try == 0:
			continue
		case errors.Is(err, sql.ErrNoRows):
			return op, false, fmt.Errorf("journal: insert: %w", inserting)
		case err != nil:
			return op, false, fmt.Errorf("journal: insert: %w; then: %w", inserting, err)
		case isSame(&stored, &op) && stored.Unfinished():
			return op, false, nil // the insert was done, and its reply lost
		case !stored.Unfinished():
			return stored, true, nil
		}
		done, err := s.db.ExecContext(ctx, s.find, hash(op.ID))
		if err != nil {
			return op, false, fmt.Errorf("journal: update: %w", err)
		}
		if n, err := done.RowsAffected(); err != nil || n > 0 {
			return stored, true, err
		}
	}
	return op, false, errors.New("journal: the operation changes all the time; try again")
}

func (s *SQL) load(ctx context.Context, id string) (op client.Operation, err error) {
	var text string
	if err := s.db.QueryRowContext(ctx, s.read, hash(id)).Scan(&text); err != nil {
		return op, err
	}
	return decode(text)
}

func decode(text string) (op client.Operation, err error) {
	decoder := json.NewDecoder(strings.NewReader(text))
	decoder.DisallowUnknownFields() // what this version does not know, it cannot act on
	if err := decoder.Decode(&op); err != nil {
		return op, fmt.Errorf("read an operation: %w; is it of a newer version?", err)
	}
	return op, nil
}

// End implements [client.Journal].
func (s *SQL) End(ctx context.Context, op client.Operation) error {
	text, err := json.Marshal(op)
	if err == nil {
		_, err = s.db.ExecContext(ctx, s.update, op.Ended.UnixMilli(), string(text), hash(op.ID), owner(&op))
	}
	if err != nil {
		return fmt.Errorf("journal: update: %w", err)
	}
	return nil
}

// Release implements [client.Journal].
func (s *SQL) Release(ctx context.Context, op client.Operation) (bool, error) {
	done, err := s.db.ExecContext(ctx, s.release, hash(op.ID), owner(&op))
	if err != nil {
		return false, fmt.Errorf("journal: delete: %w", err)
	}
	n, err := done.RowsAffected()
	return err == nil && n > 0, err
}

// Forget removes an operation, whatever its state. A later call for it is a new operation.
func (s *SQL) Forget(ctx context.Context, id string) error {
	if _, err := s.db.ExecContext(ctx, s.remove, hash(id)); err != nil {
		return fmt.Errorf("journal: delete: %w", err)
	}
	return nil
}

// Operations implements [client.Journal].
func (s *SQL) Operations(ctx context.Context) ([]client.Operation, error) {
	rows, err := s.db.QueryContext(ctx, s.list)
	if err != nil {
		return nil, fmt.Errorf("journal: list: %w", err)
	}
	defer rows.Close()
	var all []client.Operation
	for rows.Next() {
		var text string
		if err := rows.Scan(&text); err != nil {
			return nil, fmt.Errorf("journal: list: %w", err)
		}
		op, err := decode(text)
		if err != nil {
			return nil, fmt.Errorf("journal: list: %w", err)
		}
		all = append(all, op)
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("journal: list: %w", err)
	}
	return all, nil
}

func hash(id string) string {
	sum := sha256.Sum256([]byte(id))
	return hex.EncodeToString(sum[:])
}

// owner names one operation among those that have its ID one after the other.
func owner(op *client.Operation) string {
	return hash(op.Key + "\n" + op.Begun.UTC().Format(time.RFC3339Nano))
}

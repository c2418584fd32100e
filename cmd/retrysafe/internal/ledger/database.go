package ledger

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"iter"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	_ "modernc.org/sqlite" // the driver of the temporary database
)

// schema is one table for both sides. The sequence of the rows is the order in which they came, ours before theirs.
//
// Ids are TEXT only because SQLite sorts texts twice as fast as blobs. It compares both byte by byte, and neither
// validates nor changes what a text has.
const schema = `CREATE TABLE entries (
	seq      INTEGER PRIMARY KEY,
	side     INTEGER NOT NULL, -- 0 is ours, 1 is theirs
	id       TEXT    NOT NULL,
	compared BLOB    NOT NULL, -- the fields in the form of appendCompared: equal bytes mean that the sides agree
	details  BLOB    NOT NULL  -- what else a report shows, in the form of appendDetails
)`

// judge finds the ids on which the sides disagree. An index that is built after all rows were inserted is sorted once.
// The index has all columns that judging needs, so that rows on which both sides agree are never looked up.
const judge = `CREATE INDEX entries_by_id ON entries (id, side, compared);

CREATE TABLE disagreements AS
SELECT id, min(seq) FILTER (WHERE side = 0) AS ours, min(seq) FILTER (WHERE side = 1) AS theirs
FROM entries
GROUP BY id
HAVING NOT (count(*) = 2 AND sum(side) = 1 AND min(compared) = max(compared)) -- one row on each side, and these agree
ORDER BY id`

// listDisagreements has all rows of the ids that disagree: of each id the first rows, ours before theirs, then the
// duplicates of ours, then those of theirs.
const listDisagreements = `SELECT e.id, e.side, e.seq IS d.ours OR e.seq IS d.theirs AS first, d.ours IS NULL OR d.theirs IS NULL AS alone, e.details
FROM disagreements d CROSS JOIN entries e ON e.id = d.id
ORDER BY d.rowid, first DESC, e.side, e.seq`

// looseSchema is the table of the rows without an id, which are listed and not compared.
const looseSchema = `CREATE TABLE loose (seq INTEGER PRIMARY KEY, id TEXT NOT NULL, details BLOB NOT NULL)`

const listLoose = `SELECT id, details FROM loose ORDER BY id, seq`

// pageSize makes sorting a third faster than the usual 4 KiB.
const pageSize = 16 << 10

// The sides of the table.
const sideOurs, sideTheirs = 0, 1

// A database is a temporary SQLite database with the rows of both sides. One transaction has it all and is never
// committed: the rows of short lists are never written to the disk.
type database struct {
	dir    string // has the file, and nothing else
	db     *sql.DB
	conn   *sql.Conn
	stored int64 // bytes of rows
	limit  int64 // of stored
}

// openDatabase makes the file and takes its name away, so that it is gone even if the process is killed. Where the
// system does not allow that for an open file, close does it.
func openDatabase(ctx context.Context, o *Options) (*database, error) {
	d, err := createDatabase(ctx, o)
	if err != nil {
		return nil, err
	}
	_ = os.RemoveAll(d.dir)
	return d, nil
}

func createDatabase(ctx context.Context, o *Options) (*database, error) {
	dir, err := os.MkdirTemp(o.Dir, "ledger-*")
	if err != nil {
		return nil, err
	}
	d := &database{dir: dir, limit: o.disk()}
	if err := d.open(ctx, o.memory()); err != nil {
		d.close()
		return nil, err
	}
	return d, nil
}

func (d *database) open(ctx context.Context, memory int) error {
	path := filepath.Join(d.dir, "entries")
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600) // SQLite would make it readable by others
	if err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	// Nothing reads the file after a crash or beside this connection, so it has no journal, is never flushed, and needs
	// no locks. The cache bounds the memory, and that of each sort.
	q := url.Values{"_pragma": {
		fmt.Sprintf("page_size(%d)", pageSize), "journal_mode(OFF)", "synchronous(OFF)", "locking_mode(EXCLUSIVE)", "temp_store(FILE)",
		fmt.Sprintf("cache_size(-%d)", memory>>10),
	}}
	dsn := url.URL{Scheme: "file", Opaque: (&url.URL{Path: filepath.ToSlash(path)}).EscapedPath(), RawQuery: q.Encode()}
	if d.db, err = sql.Open("sqlite", dsn.String()); err != nil {
		return err
	}
	if d.conn, err = d.db.Conn(ctx); err != nil {
		return err
	}
	return errors.Join(d.exec(ctx, schema), d.exec(ctx, looseSchema), d.exec(ctx, "BEGIN"))
}

func (d *database) exec(ctx context.Context, query string) error {
	_, err := d.conn.ExecContext(ctx, query)
	return err
}

// close removes what the database has on disk. Its errors mean nothing: the file was only ever ours, and is not read
// again.
func (d *database) close() {
	if d.conn != nil {
		_ = d.conn.Close()
	}
	if d.db != nil {
		_ = d.db.Close()
	}
	_ = os.RemoveAll(d.dir)
}

// disagreeing is a row of an id on which the sides disagree.
type disagreeing struct {
	entry  Entry
	theirs bool
	first  bool // of its side with this id
	alone  bool // the other side has no row with this id
}

// disagreements judges the rows that were inserted, and yields those of the ids on which the sides disagree, in the
// order of listDisagreements.
func (d *database) disagreements(ctx context.Context) iter.Seq2[disagreeing, error] {
	return func(yield func(disagreeing, error) bool) {
		if err := d.exec(ctx, judge); err != nil {
			yield(disagreeing{}, err)
			return
		}
		rows, err := d.conn.QueryContext(ctx, listDisagreements)
		if err != nil {
			yield(disagreeing{}, err)
			return
		}
		defer rows.Close()
		for rows.Next() {
			var r disagreeing
			var id string
			var details []byte
			err := rows.Scan(&id, &r.theirs, &r.first, &r.alone, &details)
			if err == nil {
				r.entry, err = decodeEntry(id, details)
			}
			if !yield(r, err) || err != nil {
				return
			}
		}
		if err := rows.Err(); err != nil {
			yield(disagreeing{}, err)
		}
	}
}

// addLoose adds a row without an id. Such rows are few.
func (d *database) addLoose(ctx context.Context, e *Entry) error {
	details := appendDetails(nil, e)
	if d.stored += int64(len(e.ID) + len(details)); d.stored > d.limit {
		return fmt.Errorf("%w: more than %d bytes of rows", ErrTooLarge, d.limit)
	}
	_, err := d.conn.ExecContext(ctx, "INSERT INTO loose (id, details) VALUES (?, ?)", e.ID, details)
	return err
}

// loose yields the rows without an id, by their names.
func (d *database) loose(ctx context.Context) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		rows, err := d.conn.QueryContext(ctx, listLoose)
		if err != nil {
			yield(Entry{}, err)
			return
		}
		defer rows.Close()
		for rows.Next() {
			var id string
			var details []byte
			var e Entry
			err := rows.Scan(&id, &details)
			if err == nil {
				e, err = decodeEntry(id, details)
				e.Unidentified = true
			}
			if !yield(e, err) || err != nil {
				return
			}
		}
		if err := rows.Err(); err != nil {
			yield(Entry{}, err)
		}
	}
}

const (
	// insertRows is how many rows are inserted at a time: one statement with many rows takes half the time of as many
	// statements.
	insertRows    = 400
	insertColumns = 3
	// insertBytes is how many bytes of rows wait to be inserted at most, but for the last of them.
	insertBytes = 256 << 10
)

// An inserter adds the rows of one side.
type inserter struct {
	database *database
	side     int
	prepared *sql.Stmt // inserts insertRows; nil until there are so many
	names    []string  // of the fields of the row at hand
	args     []any
	buffer   []byte // the memory of the arguments
	waiting  int    // bytes of rows in args
}

func insert(side, rows int) string {
	values := strings.Repeat(fmt.Sprintf("(%d, ?, ?, ?), ", side), rows)
	return "INSERT INTO entries (side, id, compared, details) VALUES " + strings.TrimSuffix(values, ", ")
}

func (in *inserter) close() {
	if in.prepared != nil {
		_ = in.prepared.Close()
	}
}

// add inserts e, or has it wait for the next flush.
func (in *inserter) add(e *Entry, o *Options) error {
	in.names = slices.AppendSeq(in.names[:0], maps.Keys(e.Fields))
	slices.Sort(in.names)
	start := len(in.buffer)
	in.buffer = o.appendCompared(in.buffer, in.names, e.Fields)
	if e.Unknown != "" {
		in.buffer = appendUnknown(in.buffer)
	}
	middle := len(in.buffer)
	in.buffer = appendDetails(in.buffer, e)
	end := len(in.buffer)
	size := len(e.ID) + end - start
	if in.database.stored += int64(size); in.database.stored > in.database.limit {
		return fmt.Errorf("%w: more than %d bytes of rows", ErrTooLarge, in.database.limit)
	}
	in.args = append(in.args, e.ID, in.buffer[start:middle:middle], in.buffer[middle:end:end])
	if in.waiting += size; len(in.args) == insertColumns*insertRows || in.waiting >= insertBytes {
		return in.flush()
	}
	return nil
}

// flush inserts the rows that wait. It is not cancelled: that would cost a goroutine each time, and it is short.
func (in *inserter) flush() error {
	ctx, conn := context.Background(), in.database.conn
	var err error
	switch n := len(in.args) / insertColumns; {
	case n == 0:
	case n < insertRows:
		_, err = conn.ExecContext(ctx, insert(in.side, n), in.args...)
	default:
		if in.prepared == nil {
			in.prepared, err = conn.PrepareContext(ctx, insert(in.side, n))
		}
		if err == nil {
			_, err = in.prepared.ExecContext(ctx, in.args...)
		}
	}
	clear(in.args)
	in.args, in.waiting = in.args[:0], 0
	if cap(in.buffer) > 2*insertBytes {
		in.buffer = nil // a large row is not kept
	}
	in.buffer = in.buffer[:0]
	return err
}

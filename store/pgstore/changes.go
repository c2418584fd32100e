package pgstore

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/retrysafe/retrysafe"
)

var _ retrysafe.ChangeFeed = (*Store)(nil)

// changeWait is how long Changes waits at most. Behind a pooler it is the interval at
// which the table is read, and it bounds how late a change is seen.
const changeWait = 400 * time.Millisecond

// changeFeed announces writes and reads those that were announced.
type changeFeed struct {
	conns connPool
	// there says that the database has the tables, and that the role may use them. They
	// may be missing where another program migrates the schema.
	there   bool
	writing sync.Mutex // announced writes of one process take turns, as those of the database do
	decoder swapDecoder
}

// announce is Swap of a write with Announce.
func (f *changeFeed) announce(ctx context.Context, w *retrysafe.Write) (retrysafe.Record, error) {
	requests, some := []settlement{{id: idOf(w.Ref), w: w}}, []int{0}
	f.writing.Lock()
	defer f.writing.Unlock()
	if err := ctx.Err(); err != nil {
		return retrysafe.Record{}, err
	}
	var params arrays
	params.update(requests, some)
	token := newToken()
	var got answer
	applied := false
	err := f.conns.do(ctx, query{statement: &f.conns.s.sql.announce, params: append(params.scalars(), token[:]), each: func(v [][]byte) error {
		got, applied = f.decoder.swapped(&requests[0], v), true
		return nil
	}})
	switch {
	case isLocked(err):
		return retrysafe.Record{}, retrysafe.ErrBusy
	case err != nil:
		return retrysafe.Record{}, err
	case applied:
		return got.Value, got.Err
	}
	return f.refused(ctx, &requests[0])
}

// refused says why a swap was not applied.
func (f *changeFeed) refused(ctx context.Context, m *settlement) (retrysafe.Record, error) {
	var ids arrays
	ids.reset(1)
	ids.column(oidUUID)
	ids.uuid(m.id)
	ids.end()
	got := answer{Err: retrysafe.ErrNotFound}
	err := f.conns.do(ctx, query{statement: &f.conns.s.sql.read, params: ids.params(), each: func(v [][]byte) error {
		got = refused(scanRow(v), m.w)
		return nil
	}}, query{statement: &f.conns.s.sql.confirm})
	if err != nil {
		return retrysafe.Record{}, err
	}
	return got.Value, got.Err
}

// token identifies a change.
type token [16]byte

func newToken() (t token) {
	_, _ = rand.Read(t[:]) // it never fails
	return t
}

// A changeCursor is the last change that was read.
type changeCursor struct {
	n     int64
	token token
}

func (c changeCursor) String() string { return fmt.Sprintf("%d-%x", c.n, c.token[:]) }

func parseCursor(text string) (c changeCursor, err error) {
	number, rest, _ := strings.Cut(text, "-")
	n, bad := strconv.ParseInt(number, 10, 64)
	b, worse := hex.DecodeString(rest)
	if bad != nil || worse != nil || len(b) != len(c.token) {
		return c, fmt.Errorf("%w: %q is no cursor of this store", retrysafe.ErrChangesLost, text)
	}
	return changeCursor{n, token(b)}, nil
}

// Changes implements [retrysafe.ChangeFeed]. It reads a small table. Where there is no
// pooler it also listens, so that it returns as soon as a change is committed. It has a
// connection of its own.
func (s *Store) Changes(ctx context.Context, cursor string) ([]retrysafe.Ref, string, error) {
	if !s.life.Enter() {
		return nil, "", ErrClosed
	}
	defer s.life.Leave()
	if !s.changes.there {
		return nil, "", fmt.Errorf("pgstore: the tables of changes are not there, or this role may not use them: %w", errors.ErrUnsupported)
	}
	c := s.changes.conns.acquire()
	defer s.changes.conns.release(c)
	changed, next, err := s.changes.read(ctx, c, cursor)
	if err == nil && cursor != "" && len(changed) == 0 {
		c.awaitChange(ctx)
		err = ctx.Err()
	}
	if err != nil {
		return nil, "", explain(err)
	}
	return changed, next.String(), nil
}

func (f *changeFeed) read(ctx context.Context, c *conn, cursor string) (changed []retrysafe.Ref, next changeCursor, err error) {
	rows := 0
	if cursor == "" {
		err = c.do(ctx, query{statement: &c.s.sql.lastChange, each: func(v [][]byte) error {
			rows, next = rows+1, changeCursor{int8At(v[0]), token(v[1])}
			return nil
		}})
	} else {
		r := changeReader{}
		if r.at, err = parseCursor(cursor); err != nil {
			return nil, next, err
		}
		r.next = r.at
		err = c.do(ctx, query{statement: &c.s.sql.changes, params: [][]byte{int8Param(r.at.n)}, each: func(v [][]byte) error {
			if rows++; r.lost == nil {
				r.lost = r.row(v)
			}
			return nil
		}})
		changed, next, err = r.changed, r.next, errors.Join(err, r.lost)
	}
	if err == nil && rows == 0 {
		err = errNoLastChange
	}
	return changed, next, err
}

// errNoLastChange refuses to follow: without that row no number is known.
var errNoLastChange = errors.New("the row of retrysafe_last_change is missing; insert it as the migration does")

// A changeReader reads the changes behind a cursor.
type changeReader struct {
	at, next changeCursor
	changed  []retrysafe.Ref
	lost     error
}

// row reads one row. It returns ErrChangesLost if the row does not follow the one before:
// changes were dropped, or the database is another one.
func (r *changeReader) row(v [][]byte) error {
	if v[2] == nil { // nothing is behind the cursor
		if (changeCursor{int8At(v[0]), token(v[1])}) != r.at {
			return retrysafe.ErrChangesLost
		}
		return nil
	}
	if int8At(v[2]) != r.next.n+1 || token(v[3]) != r.next.token {
		return retrysafe.ErrChangesLost
	}
	r.next = changeCursor{int8At(v[2]), token(v[4])}
	if v[5] == nil { // the record was purged, and only it has the name
		return retrysafe.ErrChangesLost
	}
	ref, err := refOf(v[5], v[6])
	r.changed = append(r.changed, ref)
	return err
}

// refOf returns the name in the head of a row.
func refOf(key, head []byte) (retrysafe.Ref, error) {
	first, d, err := open("head", head, key)
	if err != nil {
		return retrysafe.Ref{}, fmt.Errorf("%w: %w", retrysafe.ErrChangesLost, err)
	}
	var r retrysafe.Record
	if decodeHead(&r, first, &d); d.Bad {
		return retrysafe.Ref{}, retrysafe.ErrChangesLost
	}
	return r.Ref, nil
}

// awaitChange waits for the notification of a change, or for changeWait, or until ctx
// ends. If it cannot listen it only waits: the table has every change.
func (c *conn) awaitChange(ctx context.Context) {
	until := time.Now().Add(changeWait)
	if !c.s.pgBouncer && c.listen() {
		if c.notified.Swap(false) {
			return
		}
		if err := c.pg.Conn().SetDeadline(until); err == nil {
			stop := context.AfterFunc(ctx, func() { _ = c.pg.Conn().SetDeadline(time.Now()) })
			err = c.pg.WaitForNotification(context.Background())
			stop()
			if err == nil || pgconn.Timeout(err) {
				c.notified.Store(false)
				return
			}
			c.drop()
		}
	}
	pause(ctx, time.Until(until))
}

// listen has the server notify this connection of changes.
func (c *conn) listen() bool {
	if c.pg == nil || c.pg.IsClosed() {
		return false
	}
	if c.listens {
		return true
	}
	if err := c.pg.Conn().SetDeadline(time.Now().Add(c.s.timeout)); err != nil {
		return false
	}
	_, err := c.pg.Exec(context.Background(), "LISTEN "+changeChannel).ReadAll()
	c.listens = err == nil
	c.notified.Store(c.listens) // a change between the read and this is not notified: read again first
	return c.listens
}

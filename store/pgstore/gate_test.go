package pgstore_test

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"net/url"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/groupcommit"
	"github.com/retrysafe/retrysafe/store/pgstore"
)

// A gate holds up the writes of one key, inside the server, until it is opened: so a
// test knows which statement is under way, and which requests wait behind it.
type gate struct {
	conn *pgx.Conn
	ref  retrysafe.Ref
}

// Where a gate stands.
const (
	beforeWrite  = `CREATE TRIGGER %[1]s BEFORE INSERT OR UPDATE ON retrysafe_keys FOR EACH ROW WHEN (NEW.id = '%[2]s') EXECUTE FUNCTION %[1]s()`
	beforeCommit = `CREATE CONSTRAINT TRIGGER %[1]s AFTER INSERT OR UPDATE ON retrysafe_keys DEFERRABLE INITIALLY DEFERRED FOR EACH ROW WHEN (NEW.id = '%[2]s') EXECUTE FUNCTION %[1]s()`
)

// closeGate closes a gate before the key.
func closeGate(t *testing.T, url, where, key string) *gate {
	t.Helper()
	g := &gate{conn: connect(t, url), ref: retrysafe.Ref{Scope: "tenant", Key: key}}
	id := pgstore.ID(g.ref)
	name := "gate_" + hex.EncodeToString(id[4:])
	g.exec(t, `CREATE TABLE IF NOT EXISTS gates (id uuid PRIMARY KEY, passed bigint)`)
	g.exec(t, `INSERT INTO gates VALUES ($1, 0)`, id)
	// Each look has a snapshot of its own; a sleep is not ended by lock_timeout.
	g.exec(t, fmt.Sprintf(`CREATE FUNCTION %s() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
		WHILE EXISTS (SELECT FROM gates WHERE id = NEW.id) LOOP PERFORM pg_sleep(0.002); END LOOP;
		RETURN NEW; END $$`, name))
	g.exec(t, fmt.Sprintf(where, name, hex.EncodeToString(id[:])))
	return g
}

// open lets all writes through.
func (g *gate) open(t *testing.T) {
	t.Helper()
	g.exec(t, `DELETE FROM gates WHERE id = $1`, pgstore.ID(g.ref))
}

// held returns when a write waits at the gate.
func (g *gate) held(t *testing.T) {
	t.Helper()
	eventually(t, "a write waits at the gate", func() bool {
		return one[int](t, g.conn, `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'PgSleep'`) > 0
	})
}

func (g *gate) exec(t *testing.T, sql string, args ...any) {
	t.Helper()
	exec(t, g.conn, sql, args...)
}

// full returns when a batcher's queue takes no more: all steps that were sent to it
// wait. Ask is refused then. It may have taken the place of one of them before,
// so they come by way of insist.
func full(t *testing.T, ask func(context.Context) error) {
	t.Helper()
	eventually(t, "the queue is full", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Millisecond)
		defer cancel()
		return errors.Is(ask(ctx), groupcommit.ErrFull)
	})
}

// insist takes a step again as often as the queue is full.
func insist(ctx context.Context, step func(context.Context) (retrysafe.Record, error)) (retrysafe.Record, error) {
	for {
		got, err := step(ctx)
		if !errors.Is(err, groupcommit.ErrFull) {
			return got, err
		}
		time.Sleep(time.Millisecond)
	}
}

// unlessBusy repeats a step while another transaction has its row locked: the store
// waits for that commit only briefly, and a caller that gets ErrBusy tries again.
func unlessBusy(step func() error) error {
	for {
		if err := step(); !errors.Is(err, retrysafe.ErrBusy) {
			return err
		}
		time.Sleep(time.Millisecond)
	}
}

// connect opens a connection that ends with the test.
func connect(t testing.TB, url string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	must(t, err)
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

func exec(t testing.TB, conn *pgx.Conn, sql string, args ...any) {
	t.Helper()
	if _, err := conn.Exec(t.Context(), sql, args...); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

// one returns the one value of a query.
func one[T any](t testing.TB, conn *pgx.Conn, sql string, args ...any) (v T) {
	t.Helper()
	if err := conn.QueryRow(t.Context(), sql, args...).Scan(&v); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return v
}

// eventually waits for what must come.
func eventually(t testing.TB, what string, done func() bool) {
	t.Helper()
	within(t, 30*time.Second, what, done)
}

// within is eventually for what takes its time, on a machine that may be slow.
func within(t testing.TB, limit time.Duration, what string, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(limit); !done(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("never: %s", what)
		}
	}
}

// whileMoving waits for done, however long that takes, as long as progress goes on.
func whileMoving(t testing.TB, progress func() int, what string, done func() bool) {
	t.Helper()
	at, since := progress(), time.Now()
	for ; !done(); time.Sleep(2 * time.Millisecond) {
		if now := progress(); now != at {
			at, since = now, time.Now()
		} else if time.Since(since) > 2*patience {
			t.Fatalf("never: %s; for %s it has been at %d", what, 2*patience, at)
		}
	}
}

// newRole makes a role that may connect and nothing else. It goes with the test.
func newRole(t testing.TB, conn *pgx.Conn) string {
	t.Helper()
	role := fmt.Sprintf("clerk_%d", roles.Add(1))
	exec(t, conn, `CREATE ROLE `+role+` LOGIN`)
	t.Cleanup(func() {
		_, err := conn.Exec(context.Background(), `DROP OWNED BY `+role+`; DROP ROLE `+role)
		if err != nil {
			t.Error(err)
		}
	})
	return role
}

var roles atomic.Int64

// as returns the URL for another role.
func as(t testing.TB, address, role string) string {
	t.Helper()
	u, err := url.Parse(address)
	must(t, err)
	u.User = url.User(role)
	return u.String()
}

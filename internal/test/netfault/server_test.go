package netfault_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/retrysafe/retrysafe/internal/test/netfault"
	"github.com/retrysafe/retrysafe/internal/test/testservers"
)

// commitTag is what PostgreSQL answers to COMMIT, and nothing else contains it.
const commitTag = "COMMIT\x00"

// The lost answer: the transaction is committed, and its client cannot know.
func TestACutBeforeTheCommitTagHidesACommit(t *testing.T) {
	t.Parallel()
	address := testservers.Shared(t)
	proxy, conn := throughProxy(t, address)
	direct := connect(t, address)
	mustExec(t, direct, "CREATE TABLE t (n int)")

	for _, f := range []netfault.Fault{netfault.Cut, netfault.Reset, netfault.HalfClose} {
		proxy.Plan(netfault.Before(netfault.ToClient, commitTag, f))
		if err := insertInTx(t.Context(), conn); err == nil {
			t.Errorf("%v: the client was told that it is committed", f)
		}
		if got := count(t, direct); got != 1 {
			t.Errorf("%v: %d rows, want the one that was committed", f, got)
		}
		proxy.Plan(nil)
		mustExec(t, direct, "TRUNCATE t")
		conn = connect(t, via(t, address, proxy))
	}
}

// The lost request: the client gets the same error, and nothing is committed.
func TestACutBeforeTheCommitItselfLeavesNothing(t *testing.T) {
	t.Parallel()
	address := testservers.Shared(t)
	proxy, conn := throughProxy(t, address)
	direct := connect(t, address)
	mustExec(t, direct, "CREATE TABLE t (n int)")

	proxy.Plan(netfault.Before(netfault.ToServer, "commit", netfault.Cut))
	if err := insertInTx(t.Context(), conn); err == nil {
		t.Error("the client was told that it is committed")
	}
	eventually(t, "the server has given the transaction up", func() bool {
		var open int
		err := direct.QueryRow(t.Context(),
			"SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'").Scan(&open)
		return err == nil && open == 0
	})
	if got := count(t, direct); got != 0 {
		t.Errorf("%d rows, want none", got)
	}
}

func TestABlackHoleIsADeadline(t *testing.T) {
	t.Parallel()
	address := testservers.Shared(t)
	for _, f := range []netfault.Fault{netfault.Discard, netfault.Stall} {
		proxy, conn := throughProxy(t, address)
		proxy.Plan(netfault.Always(f))
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		if _, err := conn.Exec(ctx, "SELECT 1"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v: an open connection gives %v, want a deadline", f, err)
		}
		cancel()
		ctx, cancel = context.WithTimeout(t.Context(), 50*time.Millisecond)
		if _, err := pgx.Connect(ctx, via(t, address, proxy)); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v: a new connection gives %v, want a deadline", f, err)
		}
		cancel()
		_ = proxy.Close()
	}
}

// A standby behind a proxy can be cut off while both servers live: the primary
// keeps its commits waiting, and they are through when the link is back.
func TestACommitHangsWhileItsStandbyIsCutOff(t *testing.T) {
	t.Parallel()
	primary := testservers.NewPostgres(t, &testservers.PostgresOptions{InMemory: true})
	conn := connect(t, primary.URL("postgres"))
	mustExec(t, conn, "CREATE TABLE t (n int)")
	link := newProxy(t, primary.Addr())
	testservers.NewStandby(t, primary, &testservers.StandbyOptions{Synchronous: true, Via: link.Addr()})

	link.Strike(netfault.Stall)
	committed := make(chan error, 1)
	go func() { committed <- insertInTx(t.Context(), conn) }()
	watcher := connect(t, primary.URL("postgres"))
	eventually(t, "the commit waits", func() bool {
		var waits bool
		err := watcher.QueryRow(t.Context(), "SELECT count(*) > 0 FROM pg_stat_activity WHERE wait_event = 'SyncRep'").Scan(&waits)
		return err == nil && waits
	})
	if err := link.Heal(); err != nil {
		t.Fatal(err)
	}
	if err := <-committed; err != nil {
		t.Errorf("with the link back, the commit gives %v", err)
	}
}

func TestACutReplyIsNotAWholeOne(t *testing.T) {
	t.Parallel()
	handled := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		handled++
		_, _ = io.WriteString(w, "the body of the answer")
	}))
	defer server.Close()
	proxy := newProxy(t, strings.TrimPrefix(server.URL, "http://"))
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}

	proxy.Plan(netfault.After(netfault.ToClient, "the body", netfault.Cut))
	answer, err := client.Get("http://" + proxy.Addr())
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(answer.Body)
	if string(body) != "the body" || !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("the client got %q and %v, want half a body and an unexpected end", body, err)
	}

	proxy.Plan(netfault.AfterBytes(netfault.ToClient, 0, netfault.Reset))
	if _, err := client.Get("http://" + proxy.Addr()); err == nil {
		t.Error("the client got an answer, want a reset")
	}
	proxy.Plan(nil)
	if answer, err = client.Get("http://" + proxy.Addr()); err != nil || answer.StatusCode != http.StatusOK {
		t.Errorf("without a plan the client got %v", err)
	}
	_ = answer.Body.Close()
	if handled != 3 {
		t.Errorf("the handler ran %d times, want 3: it runs also when its answer is lost", handled)
	}
}

// throughProxy returns a connection to the database at address, and the proxy
// that it goes through.
func throughProxy(t *testing.T, address string) (*netfault.Proxy, *pgx.Conn) {
	t.Helper()
	parsed, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	proxy := newProxy(t, parsed.Host)
	return proxy, connect(t, via(t, address, proxy))
}

func via(t *testing.T, address string, proxy *netfault.Proxy) string {
	t.Helper()
	address, err := testservers.Via(address, proxy.Addr())
	if err != nil {
		t.Fatal(err)
	}
	return address
}

func connect(t *testing.T, address string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel() // it may lead nowhere by now
		_ = conn.Close(ctx)
	})
	return conn
}

func mustExec(t *testing.T, conn *pgx.Conn, sql string) {
	t.Helper()
	if _, err := conn.Exec(t.Context(), sql); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

func insertInTx(ctx context.Context, conn *pgx.Conn) error {
	return pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, "INSERT INTO t VALUES (1)")
		return err
	})
}

func count(t *testing.T, conn *pgx.Conn) (rows int) {
	t.Helper()
	if err := conn.QueryRow(t.Context(), "SELECT count(*) FROM t").Scan(&rows); err != nil {
		t.Fatal(err)
	}
	return rows
}

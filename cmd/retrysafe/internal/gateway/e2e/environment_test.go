package e2e_test

import (
	"encoding/hex"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/test/testservers"
	"github.com/retrysafe/retrysafe/store/pgstore"
)

// movedClock returns the URL of a database whose clock set moves ahead of the real time:
// a schema before pg_catalog has the function that the store reads the time by.
func movedClock(t *testing.T) (address string, set func(ahead time.Duration)) {
	t.Helper()
	address = testservers.Shared(t)
	conn, err := pgx.Connect(t.Context(), address)
	must(t, err)
	t.Cleanup(func() { _ = conn.Close(t.Context()) })
	for _, sql := range []string{
		`CREATE SCHEMA moved`,
		`CREATE TABLE moved.clock AS SELECT interval '0' AS ahead`,
		`CREATE FUNCTION moved.statement_timestamp() RETURNS timestamptz STABLE LANGUAGE sql AS
		 'SELECT pg_catalog.statement_timestamp() + (SELECT c.ahead FROM moved.clock c)'`,
	} {
		_, err = conn.Exec(t.Context(), sql)
		must(t, err)
	}
	u, err := url.Parse(address)
	must(t, err)
	q := u.Query()
	q.Set("search_path", "moved,pg_catalog,public")
	u.RawQuery = q.Encode()
	return u.String(), func(ahead time.Duration) {
		t.Helper()
		_, err := conn.Exec(t.Context(), `UPDATE moved.clock SET ahead = make_interval(secs => $1)`, ahead.Seconds())
		must(t, err)
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// pays sends a payment whose body is made of its key.
func (g *gateway) pays(t *testing.T, path, key string) answer {
	t.Helper()
	got, err := g.post(t.Context(), path, key, bodyOf(key))
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func bodyOf(key string) string { return fmt.Sprintf(`{"order": %q}`, key) }

// slow lets the service wait with payments whose body has the word "slow". Arrived gets
// each of them; let ends the wait.
func (s *service) slow() (arrived chan struct{}, let func()) {
	arrived = make(chan struct{}, 8)
	end := make(chan struct{})
	s.before = func(body string) {
		if strings.Contains(body, "slow") {
			arrived <- struct{}{}
			<-end
		}
	}
	return arrived, func() { close(end) }
}

const day = 24 * time.Hour

// The database's clock is set forward by a day in the middle of an attempt, and back.
// The attempt seems lapsed: its retry is refused, and the service is not called again.
// The answer of the attempt, which was alive all the time, is stored and replayed, and so
// are those whose retention seems to be over. The log names both.
func TestClockOfTheDatabaseSetForward(t *testing.T) {
	t.Parallel()
	s := newService(t)
	arrived, let := s.slow()
	address, set := movedClock(t)
	g := newGateway(t, conf(s, address)) // whose retention is a day, too
	before := g.pays(t, "/payments", "before-the-clock-was-set")
	first := make(chan answer, 1)
	go func() {
		got, _ := g.post(t.Context(), "/payments", "slow-under-way-1", bodyOf("slow-under-way-1"))
		first <- got
	}()
	<-arrived
	set(day + time.Hour)
	if got := g.pays(t, "/payments", "before-the-clock-was-set"); got.body != before.body {
		t.Errorf("an answer whose retention seems to be over was %s, and is %s", before.body, got.body)
	}
	for range 3 {
		if got := g.pays(t, "/payments", "slow-under-way-1"); got.code() != "outcome-unknown" && got.code() != "in-flight" { // by a heartbeat it is in flight again
			t.Errorf("a retry of an attempt that seems lapsed gets %d %s", got.status, got.body)
		}
	}
	meanwhile := g.pays(t, "/payments", "while-the-clock-is-ahead")
	g.logs("clock was set forward")
	let()
	told := <-first
	eventually(t, "the attempt's own answer is replayed", func() bool {
		got := g.pays(t, "/payments", "slow-under-way-1")
		return got.status == http.StatusCreated && (told.status != http.StatusCreated || got.body == told.body)
	})
	set(0)
	after := g.pays(t, "/payments", "when-the-clock-is-right")
	g.logs("clock was set back")
	for key, want := range map[string]answer{"before-the-clock-was-set": before, "while-the-clock-is-ahead": meanwhile, "when-the-clock-is-right": after} {
		if got := g.pays(t, "/payments", key); want.status != http.StatusCreated || got.body != want.body {
			t.Errorf("%s: the answer was %d %s, and is %d %s", key, want.status, want.body, got.status, got.body)
		}
	}
	if s.total() != 4 {
		t.Errorf("the service was called %d times for 4 payments", s.total())
	}
}

// A gateway is killed in the middle of two attempts, and the database's clock is set back
// by a day. Neither key is stuck for a day: the one comes to an end as unknown, the other
// runs again under the same downstream key.
func TestClockOfTheDatabaseSetBack(t *testing.T) {
	t.Parallel()
	s := newService(t)
	arrived, let := s.slow()
	address, set := movedClock(t)
	g := newGateway(t, conf(s, address, "defaults: { lease: 1s }", "janitor: { sweep: 200ms }"))
	before := g.pays(t, "/payments", "before-the-clock-was-set")
	for _, path := range []string{"/payments", "/keyed"} {
		go func() { _, _ = g.post(t.Context(), path, "slow-at"+path, bodyOf("slow-at"+path)) }()
		<-arrived
	}
	g.kill()
	set(-day)
	let()
	g.start()
	eventually(t, "the unprotected attempt ends as unknown", func() bool { return g.pays(t, "/payments", "slow-at/payments").code() == "outcome-unknown" })
	eventually(t, "the keyed attempt runs again", func() bool { return g.pays(t, "/keyed", "slow-at/keyed").status == http.StatusCreated })
	if n, _ := s.called(bodyOf("slow-at/payments")); n != 1 {
		t.Errorf("the service was called %d times for an unprotected payment", n)
	}
	if _, keys := s.called(bodyOf("slow-at/keyed")); keys != 1 {
		t.Errorf("the service saw %d keys for one payment", keys)
	}
	if got := g.pays(t, "/payments", "before-the-clock-was-set"); got.body != before.body {
		t.Errorf("the answer was %s, and is %s", before.body, got.body)
	}
}

// PostgreSQL fails over. Until its standby is promoted it is read-only: new keys are
// refused and nothing runs, stored answers are replayed, and the log names the cause.
// Afterwards gateways go on without a restart, whether their URL asks for the primary or
// not. An attempt that was under way ends with its answer.
func TestFailoverOfTheDatabase(t *testing.T) {
	t.Parallel()
	s := newService(t)
	arrived, let := s.slow()
	primary := testservers.NewPostgres(t, &testservers.PostgresOptions{InMemory: true})
	standby := testservers.NewStandby(t, primary, &testservers.StandbyOptions{Synchronous: true})
	both := fmt.Sprintf("postgres://postgres@%s,%s/postgres?sslmode=disable", primary.Addr(), standby.Addr())
	any := newGateway(t, conf(s, both, "cache: { bytes: 0 }"))
	writer := newGateway(t, conf(s, both+"&target_session_attrs=read-write"))
	before := any.pays(t, "/payments", "before-the-failover-1")
	first := make(chan answer, 1)
	go func() {
		got, _ := writer.post(t.Context(), "/payments", "slow-failover-1", bodyOf("slow-failover-1"))
		first <- got
	}()
	<-arrived
	must(t, primary.Kill())

	calls := s.total()
	for name, g := range map[string]*gateway{"any server": any, "the primary only": writer} {
		for i := range 3 {
			if got := g.pays(t, "/payments", fmt.Sprintf("during-the-failover-%d", i)); got.status != http.StatusServiceUnavailable || got.header.Get("Retry-After") == "" {
				t.Errorf("%s: a new key gets %d %s", name, got.status, got.body)
			}
		}
		eventually(t, name+": the log names the cause and the remedy", func() bool {
			g.pays(t, "/payments", "during-the-failover-1") // the log has one line a second at most
			return strings.Contains(g.log.String(), "read-only") && strings.Contains(g.log.String(), "target_session_attrs=read-write")
		})
	}
	eventually(t, "a stored answer is replayed by the standby", func() bool { return any.pays(t, "/payments", "before-the-failover-1").body == before.body })
	if s.total() != calls {
		t.Errorf("the service was called %d times while nothing could be reserved", s.total()-calls)
	}

	must(t, standby.Promote(t.Context()))
	let()
	<-first
	for key, want := range map[string]string{"before-the-failover-1": before.body, "during-the-failover-1": "", "slow-failover-1": ""} {
		for _, g := range []*gateway{any, writer} {
			eventually(t, key+" is answered", func() bool {
				got := g.pays(t, "/payments", key)
				return got.status == http.StatusCreated && (want == "" || got.body == want)
			})
		}
		if n, _ := s.called(bodyOf(key)); n != 1 {
			t.Errorf("%s: the service was called %d times", key, n)
		}
	}
}

// A server whose default_transaction_read_only is on still takes writes of sessions that
// ask for them, and the store's do: nothing is refused, also after a restart of the
// gateway, and each payment is made once.
func TestDefaultTransactionReadOnlyDoesNotStopTheStore(t *testing.T) {
	t.Parallel()
	s := newService(t)
	pg := testservers.NewPostgres(t, &testservers.PostgresOptions{InMemory: true})
	g := newGateway(t, conf(s, pg.URL("postgres"), "cache: { bytes: 0 }"))
	before := g.pays(t, "/payments", "before-the-setting-1")
	must(t, pg.Configure(t.Context(), "default_transaction_read_only", "on"))
	for range 2 {
		if got := g.pays(t, "/payments", "before-the-setting-1"); got.body != before.body {
			t.Errorf("the answer was %s, and is %d %s", before.body, got.status, got.body)
		}
		if got := g.pays(t, "/payments", "under-the-setting-1"); got.status != http.StatusCreated {
			t.Errorf("a new key gets %d %s", got.status, got.body)
		}
		g.kill()
		g.start()
	}
	if s.total() != 2 {
		t.Errorf("the service was called %d times for 2 payments", s.total())
	}
}

// Two gateways of different versions share a store. What a newer version wrote in a form
// that this one does not know is refused, never run, and the log says so. What an older
// version wrote, with the fingerprint that it had then, is replayed.
func TestTwoVersionsOfTheGatewayOverOneStore(t *testing.T) {
	t.Parallel()
	s := newService(t)
	address := testservers.Shared(t)
	g, other := newGateway(t, conf(s, address)), newGateway(t, conf(s, address))
	ours := g.pays(t, "/payments", "a-key-of-this-version")
	if got := other.pays(t, "/payments", "a-key-of-this-version"); got.body != ours.body || got.header.Get("Idempotent-Replayed") != "true" {
		t.Errorf("the other gateway answers %d %s", got.status, got.body)
	}
	store, err := pgstore.Open(t.Context(), address, nil)
	must(t, err)
	t.Cleanup(func() { _ = store.Close() })
	model := recordOf(t, store, "a-key-of-this-version")
	put := func(key string, change func(*retrysafe.Write)) {
		t.Helper()
		w := model.Update()
		w.Key, w.Owner, w.Term = key, retrysafe.Owner{1}, time.Hour
		change(&w)
		_, err := store.Create(t.Context(), w)
		must(t, err)
	}

	put("answered-by-a-newer-one", func(w *retrysafe.Write) { w.Version++ })
	put("in-flight-at-a-newer-one", func(w *retrysafe.Write) {
		w.Version, w.State, w.Result, w.Term = w.Version+1, retrysafe.StateInProgress, nil, -time.Hour
	})
	for _, key := range []string{"answered-by-a-newer-one", "in-flight-at-a-newer-one"} {
		got, err := g.post(t.Context(), "/payments", key, bodyOf("a-key-of-this-version"))
		if err != nil || got.status != http.StatusServiceUnavailable || got.code() != "record-unreadable" {
			t.Errorf("%s: %d %s, %v", key, got.status, got.body, err)
		}
		if r := recordOf(t, store, key); r.Version != retrysafe.RecordVersion+1 {
			t.Errorf("%s: the record was changed: %+v", key, r)
		}
	}
	g.logs("cannot be read", "newer version")

	// The golden fingerprint of this request, from before fingerprints had the scope.
	const path, body = "/payments?b=2&a=1", `{"amount":1200,"currency":"EUR"}`
	put("answered-by-an-older-one", func(w *retrysafe.Write) {
		w.Fingerprint = retrysafe.Fingerprint{Alg: 1}
		_, err := hex.Decode(w.Fingerprint.Sum[:], []byte("9e1c4e0a53387ff44ca97ecf03dd4710b064f740598dcb021a7861d606231533"))
		must(t, err)
	})
	for _, gate := range []*gateway{g, other} {
		if got, err := gate.post(t.Context(), path, "answered-by-an-older-one", body); err != nil || got.status != http.StatusCreated || got.body != ours.body {
			t.Errorf("an answer of an older version: %d %s, %v", got.status, got.body, err)
		}
		if got, err := gate.post(t.Context(), path, "answered-by-an-older-one", `{"amount":1,"currency":"EUR"}`); err != nil || got.status != http.StatusUnprocessableEntity {
			t.Errorf("another request under a key of an older version: %d %s, %v", got.status, got.body, err)
		}
	}
	if s.total() != 1 {
		t.Errorf("the service was called %d times for one payment", s.total())
	}
}

// recordOf finds the record of a key, in whatever scope it is.
func recordOf(t *testing.T, s *pgstore.Store, key string) retrysafe.Record {
	t.Helper()
	all, err := s.List(t.Context(), retrysafe.Query{Limit: retrysafe.MaxList})
	must(t, err)
	for _, r := range all {
		if r.Key == key {
			return r
		}
	}
	t.Fatalf("there is no record of %s", key)
	return retrysafe.Record{}
}

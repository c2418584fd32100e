package peers_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx"

	"github.com/retrysafe/retrysafe/conform"
	"github.com/retrysafe/retrysafe/internal/test/netfault"
	"github.com/retrysafe/retrysafe/internal/test/porthold"
	"github.com/retrysafe/retrysafe/internal/test/testservers"
)

// A shop is what all APIs of the matrix sell: a sale is a row in a table, so that one in a
// transaction that is rolled back did not happen. X-Test makes it slow, fail, refuse or die.
type shop struct {
	books  *sql.DB // of the shop itself
	keys   *sql.DB // of the recipe, through a network that can fail
	ledger *httptest.Server
	hook   string

	network *netfault.Proxy
}

// An execer is a database, or a transaction in it.
type execer interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

func newShop(t *testing.T) *shop {
	t.Helper()
	at := testservers.Shared(t)
	u, err := url.Parse(at)
	must(t, err)
	s := &shop{hook: porthold.Lent(t)}
	s.network, err = netfault.New(u.Host)
	must(t, err)
	through, err := testservers.Via(at, s.network.Addr())
	must(t, err)
	s.books, s.keys = open(t, at), open(t, through)
	t.Cleanup(func() { must(t, s.network.Close()) })
	s.exec(t, `CREATE TABLE sales (number bigserial PRIMARY KEY, key text NOT NULL)`)
	s.ledger = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var n int
		if err := s.books.QueryRowContext(r.Context(), `SELECT count(*) FROM sales WHERE key = $1 OR $2`, r.URL.Query().Get("key"), r.URL.Path == "/all").Scan(&n); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		fmt.Fprintln(w, n)
	}))
	t.Cleanup(s.ledger.Close)
	return s
}

func open(t *testing.T, at string) *sql.DB {
	t.Helper()
	db, err := sql.Open("pgx", at)
	must(t, err)
	t.Cleanup(func() { must(t, db.Close()) })
	return db
}

func (s *shop) exec(t *testing.T, statement string) {
	t.Helper()
	_, err := s.books.ExecContext(t.Context(), statement)
	must(t, err)
}

// every runs a statement again and again until the test ends, as a job scheduler does.
func (s *shop) every(t *testing.T, pause time.Duration, statement string) {
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for ctx.Err() == nil {
			_, _ = s.books.ExecContext(ctx, statement)
			select {
			case <-ctx.Done():
			case <-time.After(pause):
			}
		}
	}()
	t.Cleanup(func() { stop(); <-ended })
}

// An answer is what a handler gives.
type answer struct {
	status int
	header http.Header
	body   []byte
}

// sell makes a sale on a database or in a transaction.
func (s *shop) sell(ctx context.Context, on execer, r *http.Request, body []byte) answer {
	var order struct{ Amount json.Number }
	if json.Unmarshal(body, &order) != nil || order.Amount == "" {
		return answer{http.StatusBadRequest, http.Header{}, []byte(`{"error":"no amount"}`)}
	}
	switch r.Header.Get("X-Test") {
	case "slow":
		time.Sleep(500 * time.Millisecond)
	case "fail":
		return answer{http.StatusServiceUnavailable, http.Header{}, []byte(`{"error":"failed"}`)}
	case "limit":
		return answer{http.StatusTooManyRequests, http.Header{}, []byte(`{"error":"limited"}`)}
	}
	var n int
	if err := on.QueryRowContext(ctx, `INSERT INTO sales (key) VALUES ($1) RETURNING number`, bare(r)).Scan(&n); err != nil {
		return answer{http.StatusInternalServerError, http.Header{}, []byte(`{"error":"database"}`)}
	}
	s.announce(n)
	if r.Header.Get("X-Test") == "crash" {
		panic(http.ErrAbortHandler)
	}
	return answer{http.StatusCreated, http.Header{
		"Content-Type": {"application/json"}, "Location": {fmt.Sprintf("%s/%d", r.URL.Path, n)}, "Set-Cookie": {fmt.Sprintf("session=%d", n)},
	}, fmt.Appendf(nil, "{ \"id\": \"sale_%06d\",\"amount\": %s }\n", n, order.Amount)}
}

// announce sends the webhook of a sale.
func (s *shop) announce(n int) {
	if res, err := http.Post("http://"+s.hook, "application/json", strings.NewReader(fmt.Sprintf(`{"id": "sale_%06d"}`, n))); err == nil {
		_ = res.Body.Close()
	}
}

// bare returns the key of a request without quotes, for the shop's books.
func bare(r *http.Request) string { return strings.Trim(r.Header.Get("Idempotency-Key"), `"`) }

func (a answer) write(w http.ResponseWriter) {
	for name, values := range a.header {
		w.Header()[name] = values
	}
	w.WriteHeader(a.status)
	_, _ = w.Write(a.body)
}

// handler returns the shop's handler, which has effects outside of the recipe's transactions.
func (s *shop) handler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			panic(http.ErrAbortHandler)
		}
		s.sell(context.WithoutCancel(r.Context()), s.books, r, body).write(w)
	})
}

// tenantOf returns the number of a caller that is known.
func tenantOf(r *http.Request) (int64, bool) {
	n, ok := map[string]int64{"Bearer a": 1, "Bearer b": 2}[r.Header.Get("Authorization")]
	return n, ok
}

// signedIn refuses callers that are not known.
func signedIn(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, ok := tenantOf(r); !ok {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// refuse answers with a problem.
func refuse(w http.ResponseWriter, status int, title string) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]any{"title": title, "status": status})
}

// verified returns the options with which an API that sells for the shop is verified.
func (s *shop) verified(at string) *conform.Options {
	test := func(what string) http.Header { return http.Header{"X-Test": {what}} }
	return &conform.Options{
		URL: at,
		Request: conform.Request{
			Path: "/sales", Header: http.Header{"Authorization": {"Bearer a"}}, Body: []byte(`{"amount": 1200, "currency": "EUR"}`),
		},
		OtherPath: "/transfers", OtherHeader: http.Header{"Authorization": {"Bearer b"}},
		Effects: conform.Effects{URL: s.ledger.URL + "/?key={key}"},
		Slow:    test("slow"), Fail: test("fail"), Limit: test("limit"), Crash: test("crash"),
		Webhooks: s.hook,
		Restart:  func(context.Context) error { return nil }, // all state is in a database, which outlives the process
		Racers:   4, Rate: 1e6, Interval: 50 * time.Millisecond, Patience: 15 * time.Second, Timeout: time.Minute,
	}
}

// overNetwork adds the outage of the recipe's database.
func (s *shop) overNetwork(o *conform.Options) *conform.Options {
	o.StoreDown = func(context.Context) error {
		s.network.Refuse()
		s.network.Strike(netfault.Reset)
		return nil
	}
	o.StoreUp = func(context.Context) error { return s.network.Heal() }
	return o
}

// serve starts an API with the same handler on both endpoints, behind authentication.
func serve(t *testing.T, h http.Handler) string {
	t.Helper()
	mux := http.NewServeMux()
	mux.Handle("POST /sales", signedIn(h))
	mux.Handle("POST /transfers", signedIn(h))
	server := httptest.NewUnstartedServer(mux)
	server.Config.ErrorLog = silent
	server.Start()
	t.Cleanup(server.Close)
	return server.URL
}

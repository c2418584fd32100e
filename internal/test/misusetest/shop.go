// Package misusetest uses guards and transactions in the wrong ways that a busy engineer
// would, over any store with transactions. In each of them an effect happens at most once,
// a client gets no answer that was not committed, and a log line names the remedy.
package misusetest

import (
	"bytes"
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/httpkey"
)

// A Shop is a store and the database that it shares with a service.
type Shop[X any] struct {
	Store retrysafe.TxStore[X]
	// DB is the store's own database.
	DB *sql.DB
	// Exec runs a statement in a transaction of the store's.
	Exec func(ctx context.Context, tx X, statement string) error
	// Endless is a statement that writes and ends only with its context.
	Endless string
	// Join joins a transaction of DB.
	Join func(tx *sql.Tx) retrysafe.Tx
	// Close closes the store and the database.
	Close func() error
}

// OpenShop opens the shop at where. It creates no tables but the store's.
type OpenShop[X any] func(ctx context.Context, where string) (*Shop[X], error)

const (
	// lease is how long a killed owner's record stays in flight.
	lease = time.Second
	// patience bounds what a busy machine makes slow.
	patience = time.Minute

	key = "8e03978e-40d5-43dd-bc93-6894a57f9324"
)

// inTx is the policy of most of the misuses: the one that a reader of the documentation
// writes.
var inTx = retrysafe.Policy{Effects: retrysafe.EffectsInTx, Lapse: retrysafe.LapseRerun, Lease: lease}

// A service is one process that serves orders over a shop.
type service[X any] struct {
	*Shop[X]
	guard *httpkey.Guard
	log   *journal
}

// serve opens a shop as a process would.
func serve[X any](ctx context.Context, open OpenShop[X], where string, policy retrysafe.Policy) (*service[X], error) {
	shop, err := open(ctx, where)
	if err != nil {
		return nil, err
	}
	if _, err := shop.DB.ExecContext(ctx, `CREATE TABLE IF NOT EXISTS orders (name TEXT NOT NULL)`); err != nil {
		return nil, err
	}
	s := &service[X]{Shop: shop, log: new(journal)}
	s.guard, err = s.newGuard(policy)
	return s, err
}

// newGuard returns a guard over the shop's store.
func (s *service[X]) newGuard(policy retrysafe.Policy) (*httpkey.Guard, error) {
	engine, err := retrysafe.New(s.Store, &retrysafe.Options{Policy: policy, StoreTimeout: patience, SettleTimeout: patience})
	if err != nil {
		return nil, err
	}
	return httpkey.New(engine, func(*http.Request) (string, error) { return "acme", nil }, &httpkey.Options{Logger: slog.New(slog.NewTextHandler(s.log, nil))})
}

// own begins a transaction of the handler's own, with an effect in it.
func (s *service[X]) own(r *http.Request) *sql.Tx {
	tx, err := s.DB.BeginTx(context.WithoutCancel(r.Context()), nil)
	if err == nil {
		_, err = tx.ExecContext(r.Context(), insert(r))
	}
	must(err)
	return tx
}

// insert is the effect of a request: a row with its key. There is no unique constraint:
// only the guard prevents a second row.
func insert(r *http.Request) string {
	return `INSERT INTO orders (name) VALUES ('` + r.Header.Get("Idempotency-Key") + `')`
}

// created writes the answer of an order.
func created(w http.ResponseWriter) {
	w.WriteHeader(http.StatusCreated)
	fmt.Fprint(w, "ordered")
}

// response is what a client got.
type response struct {
	status   int
	body     string
	replayed bool
}

func (r response) String() string { return fmt.Sprintf("%d %q", r.status, r.body) }

// post sends an order.
func post(t *testing.T, h http.Handler, key string) response {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/orders", strings.NewReader(`{"book": 1}`))
	r.Header.Set("Idempotency-Key", key)
	r.Header.Set("Content-Type", "application/json")
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return response{w.Code, w.Body.String(), w.Header().Get("Idempotent-Replayed") == "true"}
}

// rows returns how many effects an order had.
func (s *service[X]) rows(t *testing.T, key string) int {
	t.Helper()
	var n int
	if err := s.DB.QueryRowContext(t.Context(), `SELECT count(*) FROM orders WHERE name = '`+key+`'`).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// state returns the state of an order's record.
func (s *service[X]) state(t *testing.T, key string) retrysafe.State {
	t.Helper()
	r, err := s.Store.Load(t.Context(), retrysafe.Ref{Scope: "acme", Key: key})
	if err != nil {
		t.Fatal(err)
	}
	return r.State
}

// afterLapse posts until the order of a killed process is no longer in flight.
func afterLapse(t *testing.T, h http.Handler, key string) response {
	t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		got := post(t, h, key)
		if !strings.Contains(got.body, "in-flight") || time.Now().After(deadline) {
			return got
		}
	}
}

// journal is where a service logs.
type journal struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (j *journal) Write(p []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.Write(p)
}

// names fails unless the log names the operation and the remedy.
func (j *journal) names(t *testing.T, remedy string) {
	t.Helper()
	j.mu.Lock()
	defer j.mu.Unlock()
	text := j.text.String()
	if !strings.Contains(text, "level=ERROR") || !strings.Contains(text, "POST /orders") || !strings.Contains(text, remedy) {
		t.Errorf("the log does not name %q for POST /orders:\n%s", remedy, text)
	}
}

// The environment variable of a child that serves one order and is killed.
const envWhere = "RETRYSAFE_MISUSE_WHERE"

// child returns where the shop is, in a child.
func child() (where string, ok bool) { return os.LookupEnv(envWhere) }

// killed runs this test again in a child process, which kills itself.
func killed(t *testing.T, where string) {
	t.Helper()
	c := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+strings.ReplaceAll(t.Name(), "/", "$/^")+"$")
	c.Env = append(os.Environ(), envWhere+"="+where)
	printed, err := c.CombinedOutput()
	if status, ok := c.ProcessState.Sys().(syscall.WaitStatus); !ok || !status.Signaled() {
		t.Fatalf("the child was not killed: %v\n%s", err, printed)
	}
}

// die kills this process as kill -9 does.
func die() {
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	select {}
}

package webhook_test

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/test/faultstore"
	"github.com/retrysafe/retrysafe/store/memstore"
	"github.com/retrysafe/retrysafe/store/sqlitestore"
	"github.com/retrysafe/retrysafe/webhook"
)

const (
	secret webhook.Secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	next   webhook.Secret = "whsec_bmV4dC1zZWNyZXQtb2YtdGhlLXByb3ZpZGVyLi4u"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// report is the body of the tests' events. Its note must not be logged.
type report struct {
	Scope, Key, ProviderRef string
	Finding                 retrysafe.Finding
	Proof                   retrysafe.Proof
	Status                  int
	Note                    string
}

func (r report) body() []byte {
	text, _ := json.Marshal(r)
	return text
}

// happened and declined report on the key of the tests.
func happened() report {
	return report{Scope: scope, Key: key, Finding: retrysafe.FindingHappened, Status: 201}
}

func declined() report {
	return report{Scope: scope, Key: key, Finding: retrysafe.FindingDeclined, Status: 402}
}

func pending() report { return report{Scope: scope, Key: key} }

const (
	scope = "tenant-1"
	key   = "order-42-of-somebody"
)

// read is the reader of the tests.
func read(_ context.Context, ev webhook.Event) (webhook.Statement, error) {
	var r report
	if err := json.Unmarshal(ev.Body, &r); err != nil {
		return webhook.Statement{}, err
	}
	return webhook.Statement{
		Ref: retrysafe.Ref{Scope: r.Scope, Key: r.Key},
		Evidence: retrysafe.Evidence{
			Finding: r.Finding, ProviderRef: r.ProviderRef, Proof: r.Proof,
			Result: retrysafe.Result{Status: r.Status, Body: []byte("as reported by " + ev.ID)},
		},
	}, nil
}

// desk is an intake over a store, and all that can be seen of it.
type desk struct {
	*webhook.Intake
	t      testing.TB
	store  retrysafe.Store // below the faults
	fault  *faultstore.Store
	engine *retrysafe.Engine
	reads  atomic.Int32
	log    journal
	seen   observer
}

func newDesk(t testing.TB, store retrysafe.Store, reader webhook.Reader, opts *webhook.Options) *desk {
	t.Helper()
	d := &desk{t: t, store: store, fault: faultstore.New(store)}
	var err error
	d.engine, err = retrysafe.New(d.fault, &retrysafe.Options{StoreTimeout: time.Minute}) // the machine may be busy
	must(t, err)
	if reader == nil {
		reader = read
	}
	var o webhook.Options
	if opts != nil {
		o = *opts
	}
	o.StoreTimeout = cmp.Or(o.StoreTimeout, time.Minute)
	o.Logger, o.Observer = slog.New(slog.NewTextHandler(&d.log, nil)), &d.seen
	d.Intake, err = webhook.New("test", d.engine, webhook.Verifier{Secrets: []webhook.Secret{secret}},
		func(ctx context.Context, ev webhook.Event) (webhook.Statement, error) {
			d.reads.Add(1)
			return reader(ctx, ev)
		}, &o)
	must(t, err)
	return d
}

// overStores runs a test over each store that needs no server.
func overStores(t *testing.T, test func(*testing.T, retrysafe.Store)) {
	t.Helper()
	t.Run("memstore", func(t *testing.T) {
		t.Parallel()
		test(t, memstore.New(nil))
	})
	t.Run("sqlitestore", func(t *testing.T) {
		t.Parallel()
		s, err := sqlitestore.Open(t.Context(), filepath.Join(t.TempDir(), "keys.db"), nil)
		must(t, err)
		t.Cleanup(func() { s.Close() })
		test(t, s)
	})
}

// signed returns a delivery as the provider would send it.
func signed(t testing.TB, s webhook.Secret, id string, at time.Time, body []byte) *http.Request {
	t.Helper()
	signature, err := webhook.Sign(s, id, at, body)
	must(t, err)
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/hooks/test", strings.NewReader(string(body)))
	r.Header.Set(webhook.HeaderID, id)
	r.Header.Set(webhook.HeaderTimestamp, strconv.FormatInt(at.Unix(), 10))
	r.Header.Set(webhook.HeaderSignature, signature)
	return r
}

// send brings a request to the intake.
func (d *desk) send(r *http.Request) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	d.ServeHTTP(w, r)
	return w
}

// deliver delivers an event and wants a status and, in the body, a word.
func (d *desk) deliver(id string, r report, status int, word string) *httptest.ResponseRecorder {
	d.t.Helper()
	w := d.send(signed(d.t, secret, id, time.Now(), r.body()))
	if w.Code != status || !strings.Contains(w.Body.String(), `"`+word+`"`) {
		d.t.Fatalf("event %s got %d %s; want %d %q", id, w.Code, w.Body, status, word)
	}
	return w
}

// put stores a record as some attempt or janitor has left it, for an hour or as long as
// it is told.
func (d *desk) put(r retrysafe.Record, term ...time.Duration) retrysafe.Record {
	d.t.Helper()
	if r.Ref == (retrysafe.Ref{}) {
		r.Ref = retrysafe.Ref{Scope: scope, Key: key}
	}
	_, _ = rand.Read(r.Owner[:])
	r.Version, r.Attempt, r.Operation = retrysafe.RecordVersion, 1, "POST /payments"
	if r.Retain == 0 {
		r.Retain = time.Hour
	}
	got, err := d.store.Create(d.t.Context(), retrysafe.Write{Record: r, Term: append(term, time.Hour)[0]})
	must(d.t, err)
	return got
}

func (d *desk) load() retrysafe.Record {
	d.t.Helper()
	r, err := d.store.Load(d.t.Context(), retrysafe.Ref{Scope: scope, Key: key})
	must(d.t, err)
	return r
}

// want wants the key of the tests to be in a state, with an answer that has text in it.
func (d *desk) want(s retrysafe.State, answer string) retrysafe.Record {
	d.t.Helper()
	r := d.load()
	got := ""
	if r.Result != nil {
		got = string(r.Result.Body)
	}
	if r.State != s || got != answer {
		d.t.Fatalf("the key is %s with %q; want %s with %q", r.State, got, s, answer)
	}
	return r
}

// remembered returns how the store remembers an event.
func (d *desk) remembered(id string) (retrysafe.State, bool) {
	r, err := d.store.Load(d.t.Context(), retrysafe.Ref{Scope: retrysafe.SystemScope("webhook/test"), Key: id})
	return r.State, err == nil
}

// journal is where the intake logs.
type journal struct {
	mu   sync.Mutex
	text strings.Builder
}

func (j *journal) Write(p []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.Write(p)
}

func (j *journal) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.String()
}

// observer keeps what it is told.
type observer struct {
	mu     sync.Mutex
	events []retrysafe.Event
}

func (o *observer) Observe(e retrysafe.Event) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.events = append(o.events, e)
}

// kinds returns what it was told of, in order.
func (o *observer) kinds() (kinds []retrysafe.EventKind) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, e := range o.events {
		kinds = append(kinds, e.Kind)
	}
	return kinds
}

func (d *desk) saw(want ...retrysafe.EventKind) {
	d.t.Helper()
	if got := d.seen.kinds(); !slices.Equal(got, want) {
		d.t.Fatalf("the observer was told %v; want %v", got, want)
	}
	for _, e := range d.seen.events {
		if e.Ref.Key == "" || e.Ref.Scope == "" || e.Operation != "POST /payments" || e.Attempt != 1 || e.Revision == 0 || e.State == 0 || (e.Err != nil) != (e.Kind == retrysafe.EventContradicted) {
			d.t.Fatalf("the observer was told %+v", e)
		}
	}
}

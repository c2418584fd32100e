package browser_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/console"
	"github.com/retrysafe/retrysafe/httpkey"
	"github.com/retrysafe/retrysafe/operator"
	"github.com/retrysafe/retrysafe/outbox"
	"github.com/retrysafe/retrysafe/store/memstore"
)

// The people of the tests. A token stands for one of them.
const (
	anna = "anna's token, which is long"
	ben  = "ben's token, which is long too"
	rita = "rita's token may only read"
)

// A site is a console over a store, and an API that clients call over the same store.
type site struct {
	t       *testing.T
	store   *memstore.Store
	service *operator.Service
	url     string // of the console
	api     string // of the API
	latency time.Duration
}

// open starts a site. The console is mounted under prefix.
func open(t *testing.T, prefix string) *site {
	t.Helper()
	s := &site{t: t, store: memstore.New(nil)}
	var err error
	s.service, err = operator.New(s.store, &operator.Options{StoreTimeout: time.Minute})
	must(t, err)
	s.api = s.serveAPI()
	c, err := console.New(console.Options{
		Service: s.service, Outbox: s.store.Outbox(), Prefix: prefix, Logger: slog.New(slog.DiscardHandler),
		Tokens: []console.Token{
			{Name: "anna", Role: "act", Secret: anna}, {Name: "ben", Role: "act", Secret: ben}, {Name: "rita", Role: "read", Secret: rita},
		},
		Overview: console.Overview{Facts: s.facts()},
	})
	must(t, err)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		time.Sleep(s.latency)
		c.ServeHTTP(w, r)
	}))
	t.Cleanup(func() {
		server.Close()
		must(t, c.Close(context.WithoutCancel(t.Context())))
	})
	s.url = server.URL + prefix
	return s
}

// serveAPI serves POST /payments for clients.
func (s *site) serveAPI() string {
	engine, err := retrysafe.New(s.store, &retrysafe.Options{StoreTimeout: time.Minute})
	must(s.t, err)
	guard, err := httpkey.New(engine, func(*http.Request) (string, error) { return "acme", nil }, &httpkey.Options{Logger: slog.New(slog.DiscardHandler)})
	must(s.t, err)
	mux := http.NewServeMux()
	mux.Handle("POST /payments", guard.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusInternalServerError) // what happened is not known
	})))
	server := httptest.NewServer(mux)
	s.t.Cleanup(server.Close)
	return server.URL
}

// pay sends a payment as a client does.
func (s *site) pay(key string) (status int, body string, replayed bool) {
	s.t.Helper()
	r, err := http.NewRequestWithContext(s.t.Context(), http.MethodPost, s.api+"/payments", strings.NewReader(`{"amount": 1200}`))
	must(s.t, err)
	r.Header.Set("Idempotency-Key", `"`+key+`"`)
	r.Header.Set("Content-Type", "application/json")
	answer, err := http.DefaultClient.Do(r)
	must(s.t, err)
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	must(s.t, err)
	return answer.StatusCode, string(text), answer.Header.Get("Idempotent-Replayed") == "true"
}

// put stores a record in a state.
func (s *site) put(state retrysafe.State, scope, key, operation, reason string, term time.Duration) retrysafe.Record {
	s.t.Helper()
	w := retrysafe.Write{Term: term, Record: retrysafe.Record{
		Ref: retrysafe.Ref{Scope: scope, Key: key}, Operation: operation, Fingerprint: retrysafe.Fingerprint{Alg: 1, Sum: [32]byte{1}}, Reason: reason,
		State: state, Version: retrysafe.RecordVersion, Attempt: 1, Retain: 24 * time.Hour, Effects: retrysafe.EffectsUnprotected, Lapse: retrysafe.LapseQuarantine,
	}}
	_, _ = rand.Read(w.Owner[:])
	if state == retrysafe.StateCompleted {
		w.Result = &retrysafe.Result{Status: 201, Header: map[string][]string{"Content-Type": {"application/json"}}, Body: []byte(`{"id":"pay_17","cents":9007199254740993}`)}
	}
	r, err := s.store.Create(s.t.Context(), w)
	must(s.t, err)
	return r
}

// furnish fills the site with what a day brings.
func (s *site) furnish() {
	s.t.Helper()
	for i := range 37 {
		s.put(retrysafe.StateUnknown, "acme", fmt.Sprintf("8e03978e-40d5-43dd-bc93-%012d", i), "POST /charges", "the handler answered 502", time.Minute)
	}
	for i := range 4 {
		s.put(retrysafe.StateUnknown, "globex\x1fanna", fmt.Sprintf("order-%d", i), "POST /transfers", fmt.Sprintf("read tcp 10.0.0.7:%d->10.0.0.9:443: i/o timeout", 40000+i), time.Hour)
	}
	for i := range 6 {
		s.put(retrysafe.StateInProgress, "acme", fmt.Sprintf("running-%d", i), "POST /exports", "", time.Duration(20+7*i)*time.Minute)
	}
	for i := range 120 {
		s.put(retrysafe.StateCompleted, fmt.Sprintf("tenant-%d", i%5), fmt.Sprintf("done-%03d", i), "POST /payments", "", 24*time.Hour)
	}
	disputed := s.put(retrysafe.StateUnknown, "initech", "refund-77", "POST /refunds", "lease lapsed", time.Hour)
	s.act(s.service.Release(s.t.Context(), s.seen(disputed, "ben", "the provider's dashboard does not have it")))
	disputed = s.load(disputed.Ref)
	_, _ = s.service.Resolve(s.t.Context(), s.seen(disputed, "anna", "the bank statement has it"), retrysafe.Result{Status: 201}) // it contradicts the record
	s.letters()
}

// letters adds a dead letter and a failing message to the outbox.
func (s *site) letters() {
	s.t.Helper()
	ctx := s.t.Context()
	tx, _, err := s.store.BeginTx(ctx)
	must(s.t, err)
	must(s.t, tx.(outbox.Enqueuer).Enqueue(ctx,
		outbox.Message{Topic: "payment.created", Group: "acme", Payload: []byte(`{"id": 9007199254740993}`)},
		outbox.Message{Topic: "refund.created", Group: "globex", Payload: []byte(`{"id": 18}`)}))
	must(s.t, tx.Commit(ctx))
	box := s.store.Outbox()
	lease, err := box.Lease(ctx, retrysafe.Owner{1}, time.Minute)
	must(s.t, err)
	due, err := box.Due(ctx, lease.Shards, 10)
	must(s.t, err)
	for i, d := range due {
		ack := outbox.Ack{ID: d.ID, Shard: d.Shard, Group: d.Group, Kind: outbox.AckDead, Tries: 12, Why: "the receiver answered 410 Gone"}
		if i > 0 {
			ack.Kind, ack.Tries, ack.After, ack.Why = outbox.AckRetry, 3, time.Hour, "dial tcp 10.0.0.9:443: connect: connection refused"
		}
		_, err := box.Ack(ctx, []outbox.Ack{ack})
		must(s.t, err)
	}
}

func (s *site) seen(r retrysafe.Record, by, why string) operator.Action {
	return operator.Action{By: by, Why: why, Ref: r.Ref, Revision: r.Revision}
}

func (s *site) act(_ operator.Entry, err error) {
	s.t.Helper()
	must(s.t, err)
}

func (s *site) load(ref retrysafe.Ref) retrysafe.Record {
	s.t.Helper()
	r, err := s.store.Load(s.t.Context(), ref)
	must(s.t, err)
	return r
}

// facts are those of a process at work.
func (s *site) facts() console.Facts {
	return console.Facts{
		API: s.api,
		Checks: func(context.Context) []console.Check {
			return []console.Check{
				{Name: "store", Level: "ok", Text: "answers in 2 ms"},
				{Name: "sweeper", Level: "ok", Text: "last pass 4 s ago, 212 so far"},
				{Name: "reconciler", Level: "warn", Text: "stripe does not answer; asked again in 20 s"},
				{Name: "outbox", Level: "bad", Text: "1 dead letter"},
			}
		},
		LastHour: func() (all []console.Minute) {
			begin := time.Date(2026, 11, 17, 20, 0, 0, 0, time.UTC)
			for i := range int64(60) {
				m := console.Minute{At: begin.Add(time.Duration(i) * time.Minute), Ran: 60 + i*7%31, Replayed: 9 + i*5%13, Refused: i * 3 % 5}
				if i > 38 && i < 46 {
					m.Ran, m.Unknown, m.Failed, m.Replayed = m.Ran/3, 12-i%7, 5, m.Replayed*3
				}
				all = append(all, m)
			}
			return all
		},
		Today: func() console.Today { return console.Today{Prevented: 1284, Contradicted: 1} },
		Config: func() string {
			return "listen: 127.0.0.1:8080\nstore: postgres://app@db/app\nroutes:\n  - match: POST /payments\n    effects: keyed\n    retention: 24h\n"
		},
		Reports: func(context.Context) ([]console.Report, error) {
			return []console.Report{
				{Ledger: "stripe", Day: "2026-11-16", Ended: time.Now().Add(-7 * time.Hour), Differences: map[string]int64{"missing at the provider": 0, "amount differs": 2}},
				{Ledger: "bank", Day: "2026-11-16", Ended: time.Now().Add(-6 * time.Hour), Differences: map[string]int64{"amount differs": 0}},
			}, nil
		},
		Proof: func(context.Context) ([]byte, error) {
			return []byte(`{"program": "retrysafe 0.18", "machine": "2 cores", "size": "change", "seed": 18446744073709551615, "began": "2026-11-17T03:00:00Z", "took_ns": 252000000000, "verdict": "passed",
				"stores": [{"url": "sqlite", "kind": "sqlite", "class": "A"}], "results": [
				{"check": "kill", "shows": "a process that is killed at any moment repeats no effect", "store": "sqlite", "verdict": "passed", "took_ns": 61000000000, "figures": [{"name": "kills", "value": 50}, {"name": "effects", "value": 1204}]},
				{"check": "linear", "shows": "the history of each key is linearizable", "store": "sqlite", "verdict": "passed", "took_ns": 40000000000, "figures": [{"name": "operations", "value": 10000}]},
				{"check": "failover", "shows": "no answer is lost with the primary", "verdict": "skipped", "why": "it needs PostgreSQL", "took_ns": 0}]}`), nil
		},
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

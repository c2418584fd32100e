package main_test

import (
	"database/sql"
	"path/filepath"
	"testing"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/storeurl"
	"github.com/retrysafe/retrysafe/outbox"
	"github.com/retrysafe/retrysafe/store/sealed"
)

// sqlite returns the URL of a store that is there, and the store.
func sqlite(t *testing.T) (string, *storeurl.Opened) {
	t.Helper()
	return opened(t, "sqlite:"+filepath.Join(t.TempDir(), "keys.db"))
}

func opened(t *testing.T, url string) (string, *storeurl.Opened) {
	t.Helper()
	o, err := storeurl.Open(t.Context(), url, nil)
	must(t, err)
	t.Cleanup(func() { must(t, o.Close()) })
	return url, o
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// put stores a record in the state that it has, as the engine would have left it.
func put(t *testing.T, s retrysafe.Store, r retrysafe.Record) retrysafe.Record {
	t.Helper()
	first := r
	first.State, first.Result, first.Reason, first.Inquiry, first.ProviderRef = retrysafe.StateInProgress, nil, "", retrysafe.Inquiry{}, ""
	if r.State == retrysafe.StateAccepted {
		first.State = retrysafe.StateAccepted
	}
	got, err := s.Create(t.Context(), first)
	must(t, err)
	if r.State == retrysafe.StateInProgress || r.State == retrysafe.StateAccepted {
		return got
	}
	r.Revision = got.Revision
	got, err = s.Swap(t.Context(), r)
	must(t, err)
	return got
}

// record returns a record that can be put.
func record(scope, key string, state retrysafe.State) retrysafe.Record {
	r := retrysafe.Record{
		Ref: retrysafe.Ref{Scope: scope, Key: key}, Operation: "POST /charges", Fingerprint: retrysafe.Fingerprint{Alg: 1},
		Owner: retrysafe.Owner{1}, State: state, Version: retrysafe.RecordVersion, Attempt: 1,
		Term: 24 * time.Hour, Retain: 24 * time.Hour,
	}
	switch state {
	case retrysafe.StateCompleted:
		r.Result = &retrysafe.Result{Status: 201, Header: map[string][]string{"Content-Type": {"application/json"}}, Body: []byte(`{"id":"pay_1"}`)}
	case retrysafe.StateUnknown:
		r.Term, r.Reason = time.Hour, "the provider answered 502"
	case retrysafe.StateInProgress:
		r.Term = time.Hour
	case retrysafe.StateAccepted:
		r.Term, r.Request = time.Hour, []byte("request")
	default:
	}
	return r
}

// dead returns the record of an outcome that needs a person.
func dead(scope, key string) retrysafe.Record {
	r := record(scope, key, retrysafe.StateUnknown)
	r.Inquiry = retrysafe.Inquiry{Tries: 12, Dead: true}
	r.Term = 100 * 365 * 24 * time.Hour
	return r.Noted("resolver stripe", "the provider does not answer")
}

func load(t *testing.T, s retrysafe.Store, scope, key string) retrysafe.Record {
	t.Helper()
	r, err := s.Load(t.Context(), retrysafe.Ref{Scope: scope, Key: key})
	must(t, err)
	return r
}

// sealing returns the store through a seal, and the file with its keys.
func sealing(t *testing.T, below retrysafe.Store) (retrysafe.Store, string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "keys.json")
	newShell(t, "").run("config genkeys", path).exits(0)
	ring, err := sealed.LoadKeyring(path)
	must(t, err)
	s, err := sealed.New(below, ring)
	must(t, err)
	return s, path
}

// enqueue puts messages into an outbox.
func enqueue(t *testing.T, s *storeurl.Opened, messages ...outbox.Message) {
	t.Helper()
	tx, _, err := s.Store.(retrysafe.TxStore[*sql.Tx]).BeginTx(t.Context())
	must(t, err)
	must(t, tx.(outbox.Enqueuer).Enqueue(t.Context(), messages...))
	must(t, tx.Commit(t.Context()))
}

// deliver ends every message that is due as fate says.
func deliver(t *testing.T, s *storeurl.Opened, fate outbox.Fate, why string) {
	t.Helper()
	ctx, worker := t.Context(), retrysafe.Owner{9}
	held, err := s.Outbox.Lease(ctx, worker, time.Minute)
	must(t, err)
	due, err := s.Outbox.Due(ctx, held.Shards, 100)
	must(t, err)
	var endings []outbox.Ending
	for _, d := range due {
		endings = append(endings, outbox.Ending{ID: d.ID, Shard: d.Shard, Group: d.Group, Fate: fate, Why: why, After: time.Hour})
	}
	ended, err := s.Outbox.End(ctx, endings)
	must(t, err)
	for _, e := range ended {
		must(t, e.Err)
	}
	_, err = s.Outbox.Lease(ctx, worker, 0)
	must(t, err)
}

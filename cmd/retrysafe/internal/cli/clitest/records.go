package clitest

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

// SQLite returns the URL of a new store, and the store.
func SQLite(t *testing.T) (string, *storeurl.Opened) {
	t.Helper()
	url := "sqlite:" + filepath.Join(t.TempDir(), "keys.db")
	return url, Open(t, url)
}

// Open opens a store for the time of the test.
func Open(t *testing.T, url string) *storeurl.Opened {
	t.Helper()
	o, err := storeurl.Open(t.Context(), url, nil)
	Must(t, err)
	t.Cleanup(func() { Must(t, o.Close()) })
	return o
}

// Put stores a record in the state that it has, as an engine would have left it.
func Put(t *testing.T, s retrysafe.Store, w retrysafe.Write) retrysafe.Record {
	t.Helper()
	first := w
	first.State, first.Result, first.Reason, first.Inquiry, first.ProviderRef = retrysafe.StateInProgress, nil, "", retrysafe.Inquiry{}, ""
	if w.State == retrysafe.StateAccepted {
		first.State = retrysafe.StateAccepted
	}
	got, err := s.Create(t.Context(), first)
	Must(t, err)
	if w.State == retrysafe.StateInProgress || w.State == retrysafe.StateAccepted {
		return got
	}
	w.Expect = got.Fence()
	got, err = s.Swap(t.Context(), w)
	Must(t, err)
	return got
}

// Record returns what stores a record in a state, for [Put].
func Record(scope, key string, state retrysafe.State) retrysafe.Write {
	r := retrysafe.Write{Term: 24 * time.Hour, Record: retrysafe.Record{
		Ref: retrysafe.Ref{Scope: scope, Key: key}, Operation: "POST /charges", Fingerprint: retrysafe.Fingerprint{Alg: 1},
		Owner: retrysafe.Owner{1}, State: state, Version: retrysafe.RecordVersion, Attempt: 1,
		Effects: retrysafe.EffectsUnprotected, Lapse: retrysafe.LapseQuarantine, Retain: 24 * time.Hour,
	}}
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

// Dead returns what stores an unknown outcome that needs a person, for [Put].
func Dead(scope, key string) retrysafe.Write {
	r := Record(scope, key, retrysafe.StateUnknown)
	r.Inquiry = retrysafe.Inquiry{Tries: 12, Dead: true}
	r.Term = 100 * 365 * 24 * time.Hour
	r.AddNote(retrysafe.Note{By: "resolver stripe", Text: "the provider does not answer"})
	return r
}

// Load returns a record of the store.
func Load(t *testing.T, s retrysafe.Store, scope, key string) retrysafe.Record {
	t.Helper()
	r, err := s.Load(t.Context(), retrysafe.Ref{Scope: scope, Key: key})
	Must(t, err)
	return r
}

// Seal returns the store with encryption before it, and the file with the keys.
func Seal(t *testing.T, below retrysafe.Store) (retrysafe.Store, string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "keys.json")
	NewShell(t, "").Run("config genkeys", path).Exits(0)
	ring, err := sealed.LoadKeyring(path)
	Must(t, err)
	s, err := sealed.New(below, ring)
	Must(t, err)
	return s, path
}

// Enqueue puts messages into the outbox of a store.
func Enqueue(t *testing.T, s *storeurl.Opened, messages ...outbox.Message) {
	t.Helper()
	tx, _, err := s.Store.(retrysafe.TxStore[*sql.Tx]).BeginTx(t.Context())
	Must(t, err)
	Must(t, tx.(outbox.Enqueuer).Enqueue(t.Context(), messages...))
	Must(t, tx.Commit(t.Context()))
}

// Deliver ends every message that is due with this fate.
func Deliver(t *testing.T, s *storeurl.Opened, fate outbox.AckKind, why string) {
	t.Helper()
	ctx, worker := t.Context(), retrysafe.Owner{9}
	held, err := s.Outbox.Lease(ctx, worker, time.Minute)
	Must(t, err)
	due, err := s.Outbox.Due(ctx, held.Shards, 100)
	Must(t, err)
	var endings []outbox.Ack
	for _, d := range due {
		endings = append(endings, outbox.Ack{ID: d.ID, Shard: d.Shard, Group: d.Group, Kind: fate, Tries: d.Tries + 1, Why: why, After: time.Hour})
	}
	ended, err := s.Outbox.Ack(ctx, endings)
	Must(t, err)
	for _, e := range ended {
		Must(t, e.Err)
	}
	_, err = s.Outbox.Lease(ctx, worker, 0)
	Must(t, err)
}

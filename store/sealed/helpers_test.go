package sealed_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/store/memstore"
	"github.com/retrysafe/retrysafe/store/sealed"
)

// secret returns a secret that is the same every time and no other's.
func secret(name string) []byte {
	sum := sha256.Sum256([]byte("a secret for tests: " + name))
	return sum[:]
}

func numbered(ids ...uint32) map[uint32][]byte {
	keys := map[uint32][]byte{}
	for _, id := range ids {
		keys[id] = secret(fmt.Sprint("key ", id))
	}
	return keys
}

// ring returns a keyring that writes with current and reads with all.
func ring(t testing.TB, current uint32, all ...uint32) *sealed.Keyring {
	t.Helper()
	keys, err := sealed.NewKeyring(secret("index"), current, numbered(all...))
	if err != nil {
		t.Fatal(err)
	}
	return keys
}

func over(t testing.TB, below retrysafe.Store, keys *sealed.Keyring) retrysafe.Store {
	t.Helper()
	s, err := sealed.New(below, keys)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// pair returns a sealing store under key 1 and the store below it.
func pair(t testing.TB) (s retrysafe.Store, below *memstore.Store) {
	t.Helper()
	below = memstore.New(nil)
	return over(t, below, ring(t, 1, 1)), below
}

func owner(n byte) (o retrysafe.Owner) {
	o[0], o[15] = 'o', n
	return o
}

// full returns the write that creates a record with every field that is sealed.
func full(scope, key string) retrysafe.Write {
	return retrysafe.Write{Record: retrysafe.Record{
		Ref:         retrysafe.Ref{Scope: scope, Key: key},
		Operation:   "POST /payments",
		Fingerprint: retrysafe.Fingerprint{Alg: 1, Sum: sha256.Sum256([]byte("intent"))},
		State:       retrysafe.StateCompleted,
		Version:     retrysafe.RecordVersion,
		Owner:       owner(1),
		Attempt:     1,
		Request:     []byte("the request of " + key),
		Checkpoint:  retrysafe.Checkpoint{Phase: "charged", Data: []byte("the checkpoint of " + key)},
		Result: &retrysafe.Result{
			Status: 201,
			Header: map[string][]string{
				"Content-Type": {"application/json"},
				"Link":         {"<first link of " + key + ">", "<second link of " + key + ">"},
			},
			Body: []byte(`{"answer":"of ` + key + `"}`),
		},
		ProviderRef: "ch_1",
		Reason:      "the reason of " + key,
		Inquiry: retrysafe.Inquiry{Tries: 2, Dead: true, Disputed: true, Notes: []retrysafe.Note{
			{At: time.UnixMicro(1).UTC(), By: "operator of " + key, State: retrysafe.StateUnknown, Text: "the evidence of " + key, ID: "the action of " + key},
			{By: "resolver", State: retrysafe.StateUnknown},
		}},
		Retain: 24 * time.Hour,
	}, Term: time.Hour}
}

func create(t testing.TB, s retrysafe.Store, w retrysafe.Write) retrysafe.Record {
	t.Helper()
	got, err := s.Create(t.Context(), w)
	if err != nil {
		t.Fatalf("create: %v", err)
	}
	return got
}

func load(t testing.TB, s retrysafe.Store, ref retrysafe.Ref) retrysafe.Record {
	t.Helper()
	got, err := s.Load(t.Context(), ref)
	if err != nil {
		t.Fatalf("load: %v", err)
	}
	return got
}

func list(t testing.TB, s retrysafe.Store, q retrysafe.Query) []retrysafe.Record {
	t.Helper()
	got, err := s.List(t.Context(), q)
	if err != nil {
		t.Fatalf("list: %v", err)
	}
	return got
}

// only returns the one record that the store below holds.
func only(t testing.TB, below retrysafe.Store) retrysafe.Record {
	t.Helper()
	all := list(t, below, retrysafe.Query{})
	if len(all) != 1 {
		t.Fatalf("the store below holds %d records, want 1", len(all))
	}
	return all[0]
}

// lowered returns the record below that a sealing store keeps for r, which it
// tells by its owner.
func lowered(t testing.TB, below retrysafe.Store, who retrysafe.Owner) retrysafe.Record {
	t.Helper()
	for _, r := range list(t, below, retrysafe.Query{}) {
		if r.Owner == who {
			return r
		}
	}
	t.Fatalf("the store below holds no record of owner %s", who)
	return retrysafe.Record{}
}

// A tap is a store that shows what is handed to it, and may bend what it
// returns.
type tap struct {
	retrysafe.Store
	see  func(retrysafe.Write)
	bend func(*retrysafe.Record)
}

func (s *tap) Create(ctx context.Context, w retrysafe.Write) (retrysafe.Record, error) {
	return s.pass(ctx, w, s.Store.Create)
}

func (s *tap) Swap(ctx context.Context, w retrysafe.Write) (retrysafe.Record, error) {
	return s.pass(ctx, w, s.Store.Swap)
}

func (s *tap) pass(ctx context.Context, w retrysafe.Write, step func(context.Context, retrysafe.Write) (retrysafe.Record, error)) (retrysafe.Record, error) {
	if s.see != nil {
		s.see(w)
	}
	got, err := step(ctx, w)
	if s.bend != nil {
		s.bend(&got)
	}
	return got, err
}

// overwrite puts r in the place of what the store below holds, whole, as a person
// with access to the database can.
func overwrite(t testing.TB, below retrysafe.Store, r retrysafe.Record) {
	t.Helper()
	w := r.Update()
	w.Overwrite, w.Term = true, time.Hour
	if _, err := below.Swap(t.Context(), w); err != nil {
		t.Fatalf("overwrite: %v", err)
	}
}

// same reports a difference between what came back and what was stored, in the
// fields that a caller gives.
func same(t testing.TB, got, want retrysafe.Record) {
	t.Helper()
	if got.Ref != want.Ref {
		t.Errorf("Ref = %q, want %q", got.Ref, want.Ref)
	}
	sameBytes(t, "KeyText", got.KeyText, want.KeyText)
	sameBytes(t, "Request", got.Request, want.Request)
	sameBytes(t, "Checkpoint.Data", got.Checkpoint.Data, want.Checkpoint.Data)
	if got.Checkpoint.Phase != want.Checkpoint.Phase || got.Reason != want.Reason {
		t.Errorf("Phase, Reason = %q, %q, want %q, %q", got.Checkpoint.Phase, got.Reason, want.Checkpoint.Phase, want.Reason)
	}
	if got.Inquiry.Tries != want.Inquiry.Tries || got.Inquiry.Dead != want.Inquiry.Dead || got.Inquiry.Disputed != want.Inquiry.Disputed || !slices.Equal(got.Inquiry.Notes, want.Inquiry.Notes) {
		t.Errorf("Inquiry = %+v, want %+v", got.Inquiry, want.Inquiry)
	}
	if !got.Result.Equal(want.Result) {
		t.Errorf("Result = %+v, want %+v", got.Result, want.Result)
	}
	if got.Operation != want.Operation || got.Fingerprint != want.Fingerprint || got.State != want.State ||
		got.Version != want.Version || got.ProviderRef != want.ProviderRef || got.Attempt != want.Attempt || got.Retain != want.Retain {
		t.Errorf("plain fields = %+v, want %+v", got, want)
	}
}

func sameBytes(t testing.TB, field string, got, want []byte) {
	t.Helper()
	if !bytes.Equal(got, want) || (got == nil) != (want == nil) {
		t.Errorf("%s = %#v, want %#v", field, got, want)
	}
}

// refused reports an error that is not the refusal of an unreadable record, or
// that could be taken for something else as well, or that tells a secret.
func refused(t testing.TB, what string, err error) {
	t.Helper()
	if !errors.Is(err, retrysafe.ErrUnreadable) {
		t.Errorf("%s: error = %v, want one that wraps ErrUnreadable", what, err)
		return
	}
	for _, other := range []error{retrysafe.ErrExists, retrysafe.ErrConflict, retrysafe.ErrNotFound} {
		if errors.Is(err, other) {
			t.Errorf("%s: error %q is also %q, so that a caller would decide by a record that cannot be read", what, err, other)
		}
	}
	for _, told := range []string{"the request of", "the reason of", "the evidence of", "the action of", "order-", "tenant-", string(secret("key 1"))} {
		if strings.Contains(err.Error(), told) {
			t.Errorf("%s: error %q tells of the record", what, err)
		}
	}
}

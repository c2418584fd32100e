package sealed_test

import (
	"errors"
	"testing"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/store/memstore"
)

// What goes down sealed comes up as it was, from every method that returns a
// record.
func TestRecordComesBackAsItWas(t *testing.T) {
	t.Parallel()
	s, _ := pair(t)
	want := full("tenant-a", "order-1")

	same(t, create(t, s, want), want.Record)
	same(t, create(t, s, want), want.Record) // the same step twice recognises itself
	same(t, load(t, s, want.Ref), want.Record)
	same(t, list(t, s, retrysafe.Query{})[0], want.Record)

	other := want
	other.Owner, other.Request = owner(2), []byte("another request")
	got, err := s.Create(t.Context(), other)
	if !errors.Is(err, retrysafe.ErrExists) {
		t.Errorf("create of a stored key: error = %v, want ErrExists", err)
	}
	same(t, got, want.Record)

	other.Owner = owner(1)
	other.Expect = retrysafe.Fence{Revision: got.Revision - 1, Owner: owner(1)}
	got, err = s.Swap(t.Context(), other)
	if !errors.Is(err, retrysafe.ErrConflict) {
		t.Errorf("swap of another revision: error = %v, want ErrConflict", err)
	}
	same(t, got, want.Record)
}

// Nil and empty are different in a request and a checkpoint, also for stores
// below that cannot tell them apart in a column.
func TestNilAndEmptyStayApart(t *testing.T) {
	t.Parallel()
	s, below := pair(t)
	r := full("tenant-a", "order-1")
	r.Request, r.Checkpoint, r.Reason, r.Inquiry = nil, retrysafe.Checkpoint{Phase: "begun"}, "", retrysafe.Inquiry{}
	r.Result = &retrysafe.Result{Status: 204, Omitted: true}
	same(t, create(t, s, r), r.Record)
	if raw := only(t, below); raw.Request != nil || raw.Reason != "" || !raw.Inquiry.IsZero() || raw.Result.Header != nil {
		t.Errorf("the store below holds %+v, want what is nil to stay nil", raw)
	}

	s, below = pair(t)
	r.Request, r.Checkpoint, r.KeyText = []byte{}, retrysafe.Checkpoint{Data: []byte{}}, []byte{}
	r.Result = &retrysafe.Result{Header: map[string][]string{"X-Empty": {""}, "X-None": {}}, Body: []byte{}}
	same(t, create(t, s, r), r.Record)
	if raw := only(t, below); len(raw.Request) == 0 || len(raw.Checkpoint.Data) == 0 || len(raw.Result.Body) == 0 {
		t.Errorf("the store below holds %+v, want what is empty to be sealed", raw)
	}

	s, below = pair(t)
	r.Request, r.Checkpoint, r.Result = nil, retrysafe.Checkpoint{}, nil
	same(t, create(t, s, r), r.Record)
	if raw := only(t, below); !raw.Checkpoint.IsZero() || raw.Result != nil {
		t.Errorf("the store below holds %+v, want a zero Checkpoint and no Result", raw)
	}
}

// Names are opaque bytes, and a caller's own KeyText survives, so that one
// sealing store may stand on another.
func TestSealingTwice(t *testing.T) {
	t.Parallel()
	below := memstore.New(nil)
	s := over(t, over(t, below, ring(t, 1, 1)), ring(t, 2, 2))
	want := full("tenant-\x00\xff", "order-\n\"")
	want.KeyText = []byte("of the caller")
	same(t, create(t, s, want), want.Record)
	same(t, load(t, s, want.Ref), want.Record)
}

// A heartbeat sends nothing that is large, and what it does not send stays as
// it was stored, whatever it holds.
func TestStepKeepsWhatBelongsToTheAttempt(t *testing.T) {
	t.Parallel()
	below := memstore.New(nil)
	var sent retrysafe.Write
	s := over(t, &tap{Store: below, see: func(w retrysafe.Write) { sent = w }}, ring(t, 1, 1))
	want := full("tenant-a", "order-1")
	want.State, want.Result, want.Reason, want.Inquiry = retrysafe.StateInProgress, nil, "", retrysafe.Inquiry{}
	stored := create(t, s, want)
	before := only(t, below)

	for _, checkpoint := range []retrysafe.Checkpoint{{}, stored.Checkpoint, {Phase: "not set", Data: []byte("not set")}} {
		beat := stored.Update()
		beat.Checkpoint, beat.Request, beat.KeyText = checkpoint, []byte("not this one"), []byte("nor this")
		beat.Operation, beat.Term = "another", want.Term
		got, err := s.Swap(t.Context(), beat)
		if err != nil {
			t.Fatal(err)
		}
		same(t, got, want.Record)
		if sent.KeyText != nil || sent.Request != nil || !sent.Checkpoint.IsZero() || sent.Result != nil || sent.Reason != "" || !sent.Inquiry.IsZero() {
			t.Errorf("a heartbeat sends %+v, want nothing that is sealed", sent)
		}
		after := only(t, below)
		sameBytes(t, "KeyText below", after.KeyText, before.KeyText)
		sameBytes(t, "Request below", after.Request, before.Request)
		sameBytes(t, "Checkpoint below", after.Checkpoint.Data, before.Checkpoint.Data)
		stored = got
	}
}

// The version of a record may move on with a step while the envelopes that the
// step keeps stay as they are: a rolling upgrade must not make them unreadable.
func TestStepMayRaiseTheVersion(t *testing.T) {
	t.Parallel()
	s, _ := pair(t)
	want := create(t, s, full("tenant-a", "order-1")).Update()
	want.Version++
	want.Checkpoint = retrysafe.Checkpoint{}
	if _, err := s.Swap(t.Context(), want); err != nil {
		t.Fatal(err)
	}
	want.Checkpoint = full("tenant-a", "order-1").Checkpoint
	same(t, load(t, s, want.Ref), want.Record)
}

// A record that was loaded may be swapped back as it is: it is sealed once more
// from its plaintext, never twice. After that the answer still equals the stored one.
func TestSwapBackWhatWasLoaded(t *testing.T) {
	t.Parallel()
	s, below := pair(t)
	want := full("tenant-a", "order-1")
	create(t, s, want)
	size := len(only(t, below).Result.Body)
	for range 3 {
		w := load(t, s, want.Ref).Update()
		w.Term, w.SetCheckpoint = want.Term, true
		got, err := s.Swap(t.Context(), w)
		if err != nil {
			t.Fatal(err)
		}
		same(t, got, want.Record)
		if !got.Result.Equal(want.Result) {
			t.Error("an owner does not recognise its own answer after a round trip")
		}
	}
	if got := len(only(t, below).Result.Body); got != size {
		t.Errorf("the sealed answer has %d bytes after three swaps, want %d as at first", got, size)
	}
}

// A claim writes all of the record anew, so nothing of the former attempt is
// left below.
func TestClaimSealsAnew(t *testing.T) {
	t.Parallel()
	s, below := pair(t)
	r := create(t, s, full("tenant-a", "order-1"))
	before := only(t, below)

	next := full("tenant-a", "order-1")
	next.Expect, next.Overwrite, next.Owner, next.Attempt = r.Fence(), true, owner(2), 2
	next.State, next.Result, next.Reason, next.Checkpoint = retrysafe.StateInProgress, nil, "", retrysafe.Checkpoint{}
	next.Inquiry = retrysafe.Inquiry{}
	next.Request = []byte("the next request")
	got, err := s.Swap(t.Context(), next)
	if err != nil {
		t.Fatal(err)
	}
	same(t, got, next.Record)
	if got.Owner != owner(2) {
		t.Errorf("Owner = %s, want the claim's", got.Owner)
	}
	after := only(t, below)
	if string(after.KeyText) == string(before.KeyText) || string(after.Request) == string(before.Request) {
		t.Error("an envelope of the former attempt is still below after a claim")
	}
	if !after.Checkpoint.IsZero() || after.Result != nil || after.Reason != "" || !after.Inquiry.IsZero() {
		t.Errorf("the store below holds %+v, want nothing of the former attempt", after)
	}
}

// Errors of the store below come up as they are.
func TestErrorsOfTheStoreBelow(t *testing.T) {
	t.Parallel()
	s, _ := pair(t)
	ref := retrysafe.Ref{Scope: "tenant-a", Key: "order-1"}
	if _, err := s.Load(t.Context(), ref); !errors.Is(err, retrysafe.ErrNotFound) {
		t.Errorf("load of a free key: error = %v, want ErrNotFound", err)
	}
	if _, err := s.Swap(t.Context(), full(ref.Scope, ref.Key)); !errors.Is(err, retrysafe.ErrNotFound) {
		t.Errorf("swap of a free key: error = %v, want ErrNotFound", err)
	}
	s = over(t, memstore.New(&memstore.Options{MaxRecords: 1}), ring(t, 1, 1))
	create(t, s, full("tenant-a", "order-1"))
	if _, err := s.Create(t.Context(), full("tenant-a", "order-2")); !errors.Is(err, retrysafe.ErrFull) {
		t.Errorf("create in a full store: error = %v, want ErrFull", err)
	}
}

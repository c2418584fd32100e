package sealed_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/store/memstore"
)

// stranded returns a store that cannot read w's record, which another has sealed with
// key 1, and one that can. Both can read what is sealed with key 2.
func stranded(t testing.TB, w retrysafe.Write) (without, with retrysafe.Store, below *memstore.Store) {
	t.Helper()
	below = memstore.New(nil)
	create(t, over(t, below, ring(t, 1, 1)), w)
	return over(t, below, ring(t, 2, 2)), over(t, below, ring(t, 2, 1, 2)), below
}

// lapsed is an attempt whose owner has gone silent.
func lapsed(scope, key string) retrysafe.Write {
	r := full(scope, key)
	r.State, r.Result, r.Reason, r.Term = retrysafe.StateInProgress, nil, "", 0
	return r
}

// One record that cannot be read hides no other, and is shown for what it is: a
// reader of records that looks at its Version does not act upon it.
func TestListShowsWhatCannotBeRead(t *testing.T) {
	t.Parallel()
	without, _, _ := stranded(t, full("tenant-a", "order-1"))
	for i := range 5 {
		r := full("tenant-a", fmt.Sprint("order-new-", i))
		r.Owner = owner(byte(10 + i))
		create(t, without, r)
	}
	for _, q := range []retrysafe.Query{{}, {Scope: "tenant-a"}} {
		all := list(t, without, q)
		if len(all) != 6 {
			t.Fatalf("the list has %d records, want 6", len(all))
		}
		for _, r := range all {
			if r.Owner != owner(1) {
				if r.Version != retrysafe.RecordVersion || r.Result == nil || r.Request == nil {
					t.Errorf("%q is listed as %+v beside one that cannot be read", r.Ref, r)
				}
				continue
			}
			if q.Scope != "" && r.Scope != q.Scope {
				t.Errorf("in the list of %q a record has scope %q", q.Scope, r.Scope)
			}
			if r.Version != 0 || r.Request != nil || !r.Checkpoint.IsZero() || r.KeyText != nil || r.Inquiry.Notes != nil {
				t.Errorf("a record that cannot be read is listed as %+v, want Version 0 and nothing sealed", r)
			}
			if !r.Result.Equal(&retrysafe.Result{Status: 201, Omitted: true}) {
				t.Errorf("its answer is listed as %+v, want the status and no more", r.Result)
			}
			if !strings.Contains(r.Reason, "sealed with key 1, which is not in the keyring") {
				t.Errorf("its Reason is %q, want words for the operator", r.Reason)
			}
			if r.State != retrysafe.StateCompleted || r.Operation != "POST /payments" || r.ProviderRef != "ch_1" || r.Revision == 0 ||
				r.Inquiry.Tries != 2 || !r.Inquiry.Dead {
				t.Errorf("its plain fields are lost: %+v", r)
			}
		}
	}
}

// Where only another field is damaged, the scope is known and shown.
func TestFaceKeepsTheScopeIfItOpens(t *testing.T) {
	t.Parallel()
	s, below := pair(t)
	create(t, s, full("tenant-a", "order-1"))
	raw := only(t, below)
	raw.Request = slices.Clone(raw.Request)
	raw.Request[20] ^= 1
	overwrite(t, below, raw)
	face := list(t, s, retrysafe.Query{})[0]
	if face.Scope != "tenant-a" || face.Key == "order-1" {
		t.Errorf("listed as %q, want the true scope and a handle", face.Ref)
	}
}

// Paging goes on behind a record that cannot be read.
func TestPagingPastWhatCannotBeRead(t *testing.T) {
	t.Parallel()
	below := memstore.New(nil)
	one, two := over(t, below, ring(t, 1, 1)), over(t, below, ring(t, 2, 2))
	for i := range 20 {
		create(t, []retrysafe.Store{one, two}[i%2], full("tenant-a", fmt.Sprint("order-", i)))
	}
	var revisions []int64
	q := retrysafe.Query{Limit: 1}
	for page := list(t, two, q); len(page) > 0; page = list(t, two, q) {
		revisions = append(revisions, page[0].Revision)
		q.After = page[0].Ref
	}
	slices.Sort(revisions)
	if got := len(slices.Compact(revisions)); got != 20 {
		t.Errorf("paging one by one shows %d records, want 20", got)
	}
}

// A sweeper moves a lapsed attempt that it cannot read. What is sealed stays as
// it is, so that with the key back the record is whole.
func TestSweeperMovesWhatItCannotRead(t *testing.T) {
	t.Parallel()
	want := lapsed("tenant-a", "order-1")
	without, with, _ := stranded(t, want)
	due := list(t, without, retrysafe.Query{Due: true, States: []retrysafe.State{retrysafe.StateInProgress}})
	if len(due) != 1 {
		t.Fatalf("%d records are due, want 1", len(due))
	}
	r := due[0].Update()
	r.State, r.Reason, r.Term = retrysafe.StateUnknown, "lease lapsed", time.Minute
	r.Checkpoint.Phase, r.SetCheckpoint = "by a sweeper that has not seen the stored one", true
	got, err := without.Swap(t.Context(), r)
	if err != nil {
		t.Fatalf("a sweeper cannot move a lapsed record that it cannot read: %v", err)
	}
	if got.Ref != r.Ref || got.State != retrysafe.StateUnknown || got.Version != 0 || got.Revision == r.Revision {
		t.Errorf("moved, it is %+v, want it unknown under the same handle", got)
	}

	want.State, want.Reason = retrysafe.StateUnknown, "lease lapsed"
	same(t, load(t, with, want.Ref), want.Record)

	r.State = retrysafe.StateRetryable
	if got, err = without.Swap(t.Context(), r); !errors.Is(err, retrysafe.ErrConflict) || got.State != retrysafe.StateUnknown {
		t.Errorf("a second move by the same revision = %+v, %v, want ErrConflict and what is stored", got, err)
	}
}

// What an operator notes with the move is kept, for the time when the key is back.
func TestMoveKeepsItsNote(t *testing.T) {
	t.Parallel()
	want := lapsed("tenant-a", "order-1")
	without, with, _ := stranded(t, want)
	r := list(t, without, retrysafe.Query{})[0].Update()
	r.State, r.Term = retrysafe.StateUnknown, time.Minute
	r.AddNote(retrysafe.Note{By: "anna", Text: "looked into", ID: "1"})
	if _, err := without.Swap(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	notes := load(t, with, want.Ref).Inquiry.Notes
	if !slices.ContainsFunc(notes, func(n retrysafe.Note) bool { return n.By == "anna" && n.Text == "looked into" && n.ID == "1" }) {
		t.Errorf("the notes are %+v, and one of anna's is missing", notes)
	}
}

// A lapsed attempt that is to fail gets its error answer, and its Reason is kept when
// the write gives none.
func TestMoveWritesAnAnswerAndKeepsTheReason(t *testing.T) {
	t.Parallel()
	want := lapsed("tenant-a", "order-1")
	want.Reason = "the reason of before"
	without, with, _ := stranded(t, want)
	r := list(t, without, retrysafe.Query{})[0].Update()
	r.State, r.Term = retrysafe.StateCompleted, time.Hour
	r.Result = &retrysafe.Result{Status: 500, Body: []byte("stopped without an answer")}
	if _, err := without.Swap(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	want.State, want.Result = r.State, r.Result
	same(t, load(t, with, want.Ref), want.Record)

	// From now on the answer stands, also when a write changes other fields.
	r = list(t, without, retrysafe.Query{})[0].Update()
	r.ProviderRef, r.Term = "ch_2", time.Hour
	if _, err := without.Swap(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	want.ProviderRef = "ch_2"
	same(t, load(t, with, want.Ref), want.Record)
}

// A process that cannot read a record neither runs it, nor replaces its answer, nor
// states that an unknown outcome did not happen.
func TestMoveRefuses(t *testing.T) {
	t.Parallel()
	unknown := lapsed("tenant-a", "order-1")
	unknown.State = retrysafe.StateUnknown
	accepted := lapsed("tenant-a", "order-1")
	accepted.State = retrysafe.StateAccepted
	cases := map[string]struct {
		stored retrysafe.Write
		move   func(*retrysafe.Write)
	}{
		"a worker's claim": {accepted, func(r *retrysafe.Write) {
			r.State, r.Overwrite, r.Owner, r.Attempt = retrysafe.StateInProgress, true, owner(9), 1
		}},
		"not found at the provider":  {unknown, func(r *retrysafe.Write) { r.State = retrysafe.StateRetryable }},
		"an unknown outcome expired": {unknown, func(r *retrysafe.Write) { r.State = retrysafe.StateExpired }},
		"another answer": {full("tenant-a", "order-1"), func(r *retrysafe.Write) {
			r.Result = &retrysafe.Result{Status: 200}
		}},
		"no answer": {full("tenant-a", "order-1"), func(r *retrysafe.Write) { r.Result = nil }},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			without, with, _ := stranded(t, c.stored)
			r := list(t, without, retrysafe.Query{})[0].Update()
			r.Term = time.Hour
			c.move(&r)
			_, err := without.Swap(t.Context(), r)
			refused(t, "swap", err)
			same(t, load(t, with, c.stored.Ref), c.stored.Record)
		})
	}
}

// An answer that cannot be read any more may still be erased; its key stays.
func TestW62ErasureWithoutTheKey(t *testing.T) {
	t.Parallel()
	want := full("tenant-a", "order-1")
	without, with, below := stranded(t, want)
	r := list(t, without, retrysafe.Query{})[0].Update()
	r.State, r.Result, r.Reason, r.Term = retrysafe.StateExpired, nil, "erased", time.Hour
	if _, err := without.Swap(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	if raw := only(t, below); raw.Result != nil {
		t.Error("the erased answer is still below")
	}
	want.State, want.Result, want.Reason = retrysafe.StateExpired, nil, "erased"
	same(t, load(t, with, want.Ref), want.Record)
}

// A handle works for a process that has the encryption key too: Load returns the true
// record, and a swap by the handle gets a conflict with that record.
func TestHandleWithTheKeyBack(t *testing.T) {
	t.Parallel()
	want := full("tenant-a", "order-1")
	without, with, _ := stranded(t, want)
	face := list(t, without, retrysafe.Query{})[0]
	same(t, load(t, with, face.Ref), want.Record)
	got, err := with.Swap(t.Context(), face.Update())
	if !errors.Is(err, retrysafe.ErrConflict) {
		t.Errorf("swap of a face with the key: error = %v, want ErrConflict", err)
	}
	same(t, got, want.Record)

	got, err = without.Load(t.Context(), face.Ref)
	refused(t, "load by handle", err)
	if got.Ref != face.Ref || got.Reason != face.Reason {
		t.Errorf("load by handle = %+v, want the same face", got)
	}
}

// A handle is worth nothing outside the scope beside which it was shown, is
// never a key that a client made, and never becomes a new record.
func TestHandleCannotBeForged(t *testing.T) {
	t.Parallel()
	without, with, below := stranded(t, full("tenant-a", "order-1"))
	face := list(t, without, retrysafe.Query{Scope: "tenant-a"})[0]

	elsewhere := retrysafe.Ref{Scope: "tenant-b", Key: face.Key}
	if _, err := with.Load(t.Context(), elsewhere); !errors.Is(err, retrysafe.ErrNotFound) {
		t.Errorf("a handle of tenant-a used by tenant-b: error = %v, want ErrNotFound", err)
	}
	r := full("tenant-a", "x")
	r.Ref, r.Owner = face.Ref, owner(2)
	_, err := with.Create(t.Context(), r)
	refused(t, "create by handle", err)

	for i, key := range []string{"unreadable.", "unreadable.AAAA", "unreadable.not base64!", face.Key + "A", face.Key[:len(face.Key)-2], elsewhere.Key} {
		r := full("tenant-b", key)
		r.Owner = owner(byte(10 + i))
		create(t, with, r)
		same(t, load(t, with, r.Ref), r.Record)
	}
	if got := len(list(t, below, retrysafe.Query{})); got != 7 {
		t.Errorf("the store below holds %d records, want 7", got)
	}
}

// A handle does not find a purged record.
func TestHandleOfAPurgedRecord(t *testing.T) {
	t.Parallel()
	r := full("tenant-a", "order-1")
	r.Term = 0
	without, _, _ := stranded(t, r)
	face := list(t, without, retrysafe.Query{})[0]
	if n, err := without.Purge(t.Context(), 1); n != 1 || err != nil {
		t.Fatalf("Purge = %d, %v", n, err)
	}
	if _, err := without.Load(t.Context(), face.Ref); !errors.Is(err, retrysafe.ErrNotFound) {
		t.Errorf("load: error = %v, want ErrNotFound", err)
	}
	if _, err := without.Swap(t.Context(), face.Update()); !errors.Is(err, retrysafe.ErrNotFound) {
		t.Errorf("swap: error = %v, want ErrNotFound", err)
	}
}

// A record that was stored before sealing began is shown, and can be moved out
// of the way.
func TestUnsealedRecordIsShown(t *testing.T) {
	t.Parallel()
	s, below := pair(t)
	create(t, below, lapsed("tenant-a", "order-1"))
	r := list(t, s, retrysafe.Query{})[0].Update()
	if r.Version != 0 || !strings.Contains(r.Reason, "is not sealed") {
		t.Errorf("listed as %+v, want Version 0 and a reason that says it is not sealed", r)
	}
	r.State, r.Reason, r.Term = retrysafe.StateUnknown, "lease lapsed", time.Minute
	if got, err := s.Swap(t.Context(), r); err != nil || got.State != retrysafe.StateUnknown {
		t.Errorf("swap = %+v, %v, want it unknown", got, err)
	}
}

// A process that cannot read a record keeps its notes, unless it adds a note itself.
func TestMoveKeepsTheNotesOrReplacesThem(t *testing.T) {
	t.Parallel()
	want := lapsed("tenant-a", "order-1")
	without, with, _ := stranded(t, want)
	r := list(t, without, retrysafe.Query{})[0].Update()
	r.State, r.Reason, r.Term = retrysafe.StateUnknown, "lease lapsed", time.Minute
	if _, err := without.Swap(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	want.State, want.Reason = r.State, r.Reason
	same(t, load(t, with, want.Ref), want.Record)

	r = list(t, without, retrysafe.Query{})[0].Update()
	r.AddNote(retrysafe.Note{By: "operator anna", Text: "the key is lost", ID: "a-1"})
	r.Inquiry.Tries, r.Term = 3, time.Minute
	if _, err := without.Swap(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	got := load(t, with, want.Ref).Inquiry
	if len(got.Notes) != 1 || got.Notes[0].By != "operator anna" || got.Notes[0].Text != "the key is lost" || got.Notes[0].ID != "a-1" || got.Tries != 3 || !got.Dead {
		t.Errorf("the inquiry is %+v, want the one of the operator", got)
	}
}

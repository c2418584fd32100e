package memstore_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/store/memstore"
)

// reservation returns a record of an attempt that has just begun.
func reservation(key string) retrysafe.Write {
	r := benchRecord(key)
	copy(r.Owner[:], key)
	return r
}

// moved returns r in another state, for term.
func moved(r retrysafe.Write, state retrysafe.State, term time.Duration) retrysafe.Write {
	r.State, r.Term, r.Result = state, term, nil
	if state == retrysafe.StateCompleted {
		r.Result = &retrysafe.Result{Status: 201}
	}
	return r
}

// saved returns the write that stores a checkpoint of a running attempt.
func saved(r retrysafe.Record, c retrysafe.Checkpoint) retrysafe.Write {
	w := r.Update()
	w.Checkpoint, w.SetCheckpoint, w.Term = c, true, time.Hour
	return w
}

func mustCreate(t *testing.T, s retrysafe.Store, r retrysafe.Write) retrysafe.Record {
	t.Helper()
	got, err := s.Create(t.Context(), r)
	if err != nil {
		t.Fatalf("Create(%q): %v", r.Key, err)
	}
	return got
}

func mustSwap(t *testing.T, s retrysafe.Swapper, r retrysafe.Write) retrysafe.Record {
	t.Helper()
	got, err := s.Swap(t.Context(), r)
	if err != nil {
		t.Fatalf("Swap(%q): %v", r.Key, err)
	}
	return got
}

func wantErr(t *testing.T, step string, got, want error) {
	t.Helper()
	if !errors.Is(got, want) {
		t.Fatalf("%s: got %v, want %v", step, got, want)
	}
}

func TestFullStoreRefusesNewKeys(t *testing.T) {
	t.Parallel()
	s := memstore.New(&memstore.Options{MaxRecords: 2})
	first := mustCreate(t, s, reservation("a"))
	mustCreate(t, s, reservation("b"))

	_, err := s.Create(t.Context(), reservation("c"))
	wantErr(t, "Create", err, retrysafe.ErrFull)
	for _, word := range []string{"2 of 2 records", "MaxRecords", "MaxBytes", "store on disk"} {
		if !strings.Contains(err.Error(), word) {
			t.Errorf("the error does not say %q: %v", word, err)
		}
	}
	// What is there goes on: a retry is answered, an attempt settles.
	other := reservation("a")
	other.Owner[0]++
	_, err = s.Create(t.Context(), other)
	wantErr(t, "retry", err, retrysafe.ErrExists)
	mustSwap(t, s, moved(first.Update(), retrysafe.StateCompleted, time.Hour))
}

func TestFullStoreForgetsOnlyWhatIsDueAndForgettable(t *testing.T) {
	t.Parallel()
	c := newClock()
	s := memstore.New(&memstore.Options{MaxRecords: 6, Now: c.Now})
	for state := retrysafe.StateAccepted; state <= retrysafe.StateExpired; state++ {
		mustCreate(t, s, moved(reservation(state.String()), state, time.Minute))
	}
	_, err := s.Create(t.Context(), reservation("early"))
	wantErr(t, "Create before anything is due", err, retrysafe.ErrFull)

	c.Advance(time.Minute)
	for i := range 3 { // Completed, Retryable and Expired make room for three
		mustCreate(t, s, reservation(fmt.Sprint("new", i)))
	}
	_, err = s.Create(t.Context(), reservation("late"))
	wantErr(t, "Create when only what must stay is left", err, retrysafe.ErrFull)
	for _, state := range []retrysafe.State{retrysafe.StateAccepted, retrysafe.StateInProgress, retrysafe.StateUnknown} {
		if _, err := s.Load(t.Context(), reservation(state.String()).Ref); err != nil {
			t.Errorf("the record in state %v: %v", state, err)
		}
	}
}

func TestBoundHoldsInARace(t *testing.T) {
	t.Parallel()
	const limit = 50
	s := memstore.New(&memstore.Options{MaxRecords: limit})
	var created, refused atomic.Int64
	var wg sync.WaitGroup
	for i := range 200 {
		wg.Go(func() {
			switch _, err := s.Create(t.Context(), reservation(fmt.Sprint(i))); {
			case err == nil:
				created.Add(1)
			case errors.Is(err, retrysafe.ErrFull):
				refused.Add(1)
			}
		})
	}
	wg.Wait()
	if created.Load() != limit || refused.Load() != 150 {
		t.Errorf("created %d and refused %d, want %d and 150", created.Load(), refused.Load(), limit)
	}
}

// Room is met in the order of what a refusal costs: new work first, then the
// steps of a running attempt, an answer never.
func TestReserveIsForAnswers(t *testing.T) {
	t.Parallel()
	const maxBytes = 1 << 20
	s := memstore.New(&memstore.Options{MaxBytes: maxBytes})
	running := mustCreate(t, s, reservation("running"))
	answered := mustCreate(t, s, reservation("answered"))
	retryable := mustSwap(t, s, moved(mustCreate(t, s, reservation("retryable")).Update(), retrysafe.StateRetryable, time.Hour))

	// New work is refused while an eighth is still free.
	large := reservation("large")
	large.Request = make([]byte, maxBytes*7/8)
	_, err := s.Create(t.Context(), large)
	wantErr(t, "Create into the reserve", err, retrysafe.ErrFull)
	large.Request = make([]byte, maxBytes*7/8-4000)
	mustCreate(t, s, large)
	claim := moved(retryable.Update(), retrysafe.StateInProgress, time.Hour)
	claim.Owner, claim.Overwrite, claim.Attempt, claim.Request = retrysafe.Owner{9}, true, 2, make([]byte, 4000)
	_, err = s.Swap(t.Context(), claim)
	wantErr(t, "claim that grows into the reserve", err, retrysafe.ErrFull)
	if got, _ := s.Load(t.Context(), retryable.Ref); got.Revision != retryable.Revision {
		t.Error("the refused claim changed the record")
	}
	claim.Request = nil
	mustSwap(t, s, claim)

	// A running attempt's checkpoint may use the reserve, and no more.
	running = mustSwap(t, s, saved(running, retrysafe.Checkpoint{Phase: "p", Data: make([]byte, maxBytes/8-4000)}))
	_, err = s.Swap(t.Context(), saved(running, retrysafe.Checkpoint{Phase: "p", Data: make([]byte, maxBytes/8+4000)}))
	wantErr(t, "checkpoint over the limit", err, retrysafe.ErrFull)

	// An answer is kept, whatever its size.
	done := moved(answered.Update(), retrysafe.StateCompleted, time.Hour)
	done.Result = &retrysafe.Result{Status: 200, Header: map[string][]string{"A": {"b", "c"}}, Body: make([]byte, 2*maxBytes)}
	stored := mustSwap(t, s, done)

	// Over the limit a heartbeat and what shrinks are welcome, and every end is.
	beat := running.Update()
	beat.Term = time.Hour
	running = mustSwap(t, s, beat)
	running = mustSwap(t, s, saved(running, retrysafe.Checkpoint{Phase: "small"}))
	running.Reason = "may have happened"
	mustSwap(t, s, moved(running.Update(), retrysafe.StateUnknown, time.Hour))
	_, err = s.Create(t.Context(), reservation("new"))
	wantErr(t, "Create over the limit", err, retrysafe.ErrFull)

	mustSwap(t, s, moved(stored.Update(), retrysafe.StateExpired, time.Hour))
	mustCreate(t, s, reservation("new"))
}

// Notes take room as answers do, and like them are kept in a full store: what
// has lapsed is swept there too.
func TestNotesAreChargedAndNeverRefused(t *testing.T) {
	t.Parallel()
	s := memstore.New(&memstore.Options{MaxBytes: 64 << 10})
	noted := reservation("noted")
	for range 20 {
		noted.AddNote(retrysafe.Note{By: "resolver", Text: strings.Repeat("x", 500)})
	}
	noted.Inquiry.Notes = append(noted.Inquiry.Notes, retrysafe.Note{Text: strings.Repeat("x", 40<<10)})
	first := mustCreate(t, s, noted)
	other := reservation("other")
	other.Inquiry = noted.Inquiry
	_, err := s.Create(t.Context(), other)
	wantErr(t, "Create with notes that do not fit", err, retrysafe.ErrFull)

	for _, state := range []retrysafe.State{retrysafe.StateUnknown, retrysafe.StateUnknown, retrysafe.StateAccepted, retrysafe.StateRetryable} {
		next := moved(first.Update(), state, time.Hour)
		next.Inquiry.Notes = append(next.Inquiry.Notes, retrysafe.Note{By: "sweeper", Text: strings.Repeat("x", 40<<10)})
		first = mustSwap(t, s, next)
	}
	last := first.Update()
	last.Inquiry, last.Term = retrysafe.Inquiry{}, time.Hour
	mustSwap(t, s, last)
	mustCreate(t, s, other)
}

func TestStepForgetsToMakeRoom(t *testing.T) {
	t.Parallel()
	c := newClock()
	s := memstore.New(&memstore.Options{MaxBytes: 100_000, Now: c.Now})
	old := reservation("old")
	old.Request = make([]byte, 80_000)
	mustCreate(t, s, moved(old, retrysafe.StateRetryable, time.Minute))
	running := saved(mustCreate(t, s, reservation("running")), retrysafe.Checkpoint{Phase: "p", Data: make([]byte, 50_000)})
	_, err := s.Swap(t.Context(), running)
	wantErr(t, "Swap into a full store", err, retrysafe.ErrFull)
	c.Advance(time.Minute)
	mustSwap(t, s, running)
}

// Whatever a store has been through, what it forgets frees all its room.
func TestRoomComesBack(t *testing.T) {
	t.Parallel()
	c := newClock()
	s := memstore.New(&memstore.Options{MaxBytes: 64 << 10, Now: c.Now})
	fill := func() (n int) {
		for {
			r, err := s.Create(t.Context(), reservation(fmt.Sprint("k", n)))
			if err != nil {
				wantErr(t, "Create", err, retrysafe.ErrFull)
				return n
			}
			if r, err = s.Swap(t.Context(), saved(r, retrysafe.Checkpoint{Phase: "p", Data: make([]byte, 9)})); err == nil {
				mustSwap(t, s, moved(r.Update(), retrysafe.StateCompleted, time.Minute))
			}
			n++
		}
	}
	first := fill()
	for range 5 {
		c.Advance(time.Hour)
		n, err := s.Purge(t.Context(), 1_000_000)
		if n != first || err != nil {
			t.Fatalf("Purge: got %d, %v, want %d", n, err, first)
		}
		if again := fill(); again != first {
			t.Fatalf("the store took %d records at first and %d after a purge", first, again)
		}
	}
}

// What is charged is given back, whichever way plain steps, transactions,
// rollbacks and purges come.
// A transaction that is rolled back leaves the count as it was, of new records and of those
// that it has changed.
func TestRolledBackTransactionIsNotCharged(t *testing.T) {
	t.Parallel()
	s := memstore.New(nil)
	r := mustCreate(t, s, reservation("k"))
	records, bytes := s.Used()
	tx, err := s.Begin(t.Context())
	wantErr(t, "begin", err, nil)
	mustSwap(t, tx, saved(r, retrysafe.Checkpoint{Phase: "charged", Data: make([]byte, 1000)}))
	_, err = tx.Create(t.Context(), reservation("new"))
	wantErr(t, "create", err, nil)
	if n, b := s.Used(); n != records+1 || b <= bytes+1000 {
		t.Errorf("an open transaction has %d records and %d bytes charged", n-records, b-bytes)
	}
	wantErr(t, "rollback", tx.Rollback(t.Context()), nil)
	if n, b := s.Used(); n != records || b != bytes {
		t.Errorf("after the rollback there are %d records and %d bytes, want %d and %d", n, b, records, bytes)
	}
}

// A record that needs the room of many is admitted if that many are due: they are forgotten
// a batch at a time.
func TestLargeRecordTakesTheRoomOfMany(t *testing.T) {
	t.Parallel()
	c := newClock()
	s := memstore.New(&memstore.Options{Now: c.Now, MaxBytes: 1 << 20})
	for n := 0; ; n++ {
		w := reservation(fmt.Sprint(n))
		got, err := s.Create(t.Context(), w)
		if errors.Is(err, retrysafe.ErrFull) {
			break
		}
		wantErr(t, "create", err, nil)
		end := got.Update()
		end.State, end.Result, end.Term = retrysafe.StateCompleted, &retrysafe.Result{Status: 201}, time.Minute
		mustSwap(t, s, end)
	}
	c.Advance(time.Hour)
	large := reservation("large")
	large.Request = make([]byte, 700<<10)
	mustCreate(t, s, large)
}

func TestNothingIsChargedForAnEmptyStore(t *testing.T) {
	t.Parallel()
	c := newClock()
	s := memstore.New(&memstore.Options{Now: c.Now, MaxRecords: 30, MaxBytes: 60_000})
	var wg sync.WaitGroup
	for worker := range 4 {
		wg.Go(func() {
			random := rand.New(rand.NewPCG(1, uint64(worker)))
			for range 2000 {
				chaos(t, s, random)
				if c.Advance(time.Second); random.IntN(20) == 0 {
					s.Purge(t.Context(), random.IntN(10))
				}
			}
		})
	}
	wg.Wait()
	all, err := s.List(t.Context(), retrysafe.Query{Limit: 1000})
	wantErr(t, "List", err, nil)
	if records, _ := s.Used(); int(records) != len(all) {
		t.Errorf("charged for %d records, there are %d", records, len(all))
	}
	for _, r := range all {
		mustSwap(t, s, moved(r.Update(), retrysafe.StateExpired, 0))
	}
	if n, err := s.Purge(t.Context(), 1000); n != len(all) || err != nil {
		t.Errorf("Purge: got %d, %v, want %d", n, err, len(all))
	}
	if records, bytes := s.Used(); records != 0 || bytes != 0 {
		t.Errorf("an empty store is charged for %d records and %d bytes", records, bytes)
	}
}

// chaos takes a few random steps, plainly or in a transaction. Most are refused
// for one reason or another.
func chaos(t *testing.T, s *memstore.Store, random *rand.Rand) {
	var steps retrysafe.Swapper = s
	create := s.Create
	end := func() {}
	if random.IntN(2) == 0 {
		tx, err := s.Begin(t.Context())
		if err != nil {
			t.Error(err)
			return
		}
		steps = tx
		create = func(ctx context.Context, w retrysafe.Write) (retrysafe.Record, error) { // a Create that is refused would end it
			r, err := tx.Reserve(ctx, w.Ref)
			if errors.Is(err, retrysafe.ErrNotFound) {
				return tx.Create(ctx, w)
			}
			return r, err
		}
		end = func() {
			if random.IntN(2) == 0 || tx.Commit(t.Context()) != nil {
				tx.Rollback(t.Context())
			}
		}
	}
	defer end()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	for range 1 + random.IntN(4) {
		fresh := reservation(fmt.Sprint(random.IntN(40)))
		fresh.Request = make([]byte, random.IntN(2000))
		r, err := create(ctx, fresh)
		if err != nil && !errors.Is(err, retrysafe.ErrExists) {
			return
		}
		for range random.IntN(3) {
			w := moved(r.Update(), retrysafe.StateAccepted+retrysafe.State(random.IntN(6)), time.Minute)
			w.Checkpoint, w.SetCheckpoint = retrysafe.Checkpoint{Phase: "p", Data: make([]byte, random.IntN(3000))}, true
			if random.IntN(3) == 0 {
				w.Owner, w.Overwrite, w.Attempt, w.Request = retrysafe.Owner{byte(random.Uint32())}, true, 2, make([]byte, random.IntN(2000))
			}
			if r, err = steps.Swap(ctx, w); err != nil {
				return
			}
		}
	}
}

// A record that grows in a transaction is charged as one that grows outside of one.
func TestGrowthInATransactionIsChargedOnce(t *testing.T) {
	t.Parallel()
	used := func(inTx bool) int64 {
		s := memstore.New(nil)
		begun := mustCreate(t, s, reservation("k"))
		next := moved(begun.Update(), retrysafe.StateCompleted, time.Hour)
		next.Result = &retrysafe.Result{Status: 201, Body: make([]byte, 10_000)}
		if !inTx {
			mustSwap(t, s, next)
		} else {
			tx, err := s.Begin(t.Context())
			wantErr(t, "Begin", err, nil)
			_, err = tx.Swap(t.Context(), next)
			wantErr(t, "Swap", err, nil)
			wantErr(t, "Commit", tx.Commit(t.Context()), nil)
		}
		_, bytes := s.Used()
		return bytes
	}
	if plain, inTx := used(false), used(true); plain != inTx {
		t.Errorf("it is charged %d bytes, and %d in a transaction", plain, inTx)
	}
}

// Room that a smaller record frees is free at Commit, and no other key has it before: after
// a rollback the larger record is still there.
func TestRoomOfASmallerRecordIsFreeAtCommit(t *testing.T) {
	t.Parallel()
	s := memstore.New(nil)
	begun := mustCreate(t, s, reservation("k"))
	begun = mustSwap(t, s, saved(begun, retrysafe.Checkpoint{Phase: "p", Data: make([]byte, 10_000)}))
	_, before := s.Used()
	tx, err := s.Begin(t.Context())
	wantErr(t, "Begin", err, nil)
	_, err = tx.Swap(t.Context(), saved(begun, retrysafe.Checkpoint{Phase: "p"}))
	wantErr(t, "Swap", err, nil)
	if _, bytes := s.Used(); bytes != before {
		t.Errorf("before the commit %d bytes are charged, want %d", bytes, before)
	}
	wantErr(t, "Commit", tx.Commit(t.Context()), nil)
	if _, bytes := s.Used(); bytes != before-10_000 {
		t.Errorf("after the commit %d bytes are charged, want %d", bytes, before-10_000)
	}
}

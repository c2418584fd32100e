package redistier_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/store/memstore"
)

// withoutFeed is a store whose changes cannot be followed.
func withoutFeed(s retrysafe.Store) retrysafe.Store { return struct{ retrysafe.Store }{s} }

// How long a record is trusted is decided by the process that uses it, also if the one that has
// stored it would trust it for longer.
func TestRecordIsTrustedForMaxAge(t *testing.T) {
	t.Parallel()
	below, opts := withoutFeed(newBelow()), options()
	opts.MaxAge = time.Hour
	short := *opts
	short.MaxAge = time.Microsecond
	patient, impatient := open(t, below, opts), open(t, below, &short)
	rec := kept(t, patient, below)
	changed := erase(t, below, rec)
	within(t, "the store below is asked", func() bool {
		got, err := impatient.Load(t.Context(), rec.Ref)
		must(t, err)
		return got.Revision == changed.Revision
	})
}

// A record that is due is not used from Redis: its key may be another request's by now.
func TestRecordThatIsDueIsNotUsed(t *testing.T) {
	t.Parallel()
	below, opts := withoutFeed(newBelow()), options()
	s := open(t, below, opts)
	w := answered(t, below, "key").Update()
	w.Term = time.Second
	rec, err := below.Swap(t.Context(), w)
	must(t, err)
	within(t, "the record is due", func() bool {
		before, _ := s.Hits()
		got, err := s.Load(t.Context(), rec.Ref)
		must(t, err)
		if after, _ := s.Hits(); after > before && got.Due() {
			t.Fatalf("a record that was due at %v is used from Redis at %v", got.Deadline, got.ReadAt)
		}
		return got.Due()
	})
}

// A record from Redis has the time at which it is read, by the clock of the store below: by that
// an engine knows how long an answer is still good.
func TestTimeGoesOnForARecordInRedis(t *testing.T) {
	t.Parallel()
	below := withoutFeed(newBelow())
	s := open(t, below, options())
	rec := kept(t, s, below)
	before, err := below.Load(t.Context(), rec.Ref)
	must(t, err)
	within(t, "a record from Redis was read later", func() bool {
		got, err := s.Load(t.Context(), rec.Ref)
		must(t, err)
		return got.ReadAt.After(before.ReadAt)
	})
	if hits, misses := s.Hits(); misses != 1 {
		t.Errorf("%d hits and %d misses, want a single miss", hits, misses)
	}
}

// A record over MaxBytes is not kept, and one up to that is.
func TestLargeRecordsAreNotKept(t *testing.T) {
	t.Parallel()
	below, opts := &counted{Store: memstore.New(nil)}, options()
	opts.MaxBytes = 1000
	s := open(t, below, opts)
	small, large := answered(t, below.Store, "small"), answered(t, below.Store, strings.Repeat("large", 200))
	for range 3 {
		for _, rec := range []retrysafe.Record{small, large} {
			got, err := s.Load(t.Context(), rec.Ref)
			must(t, err)
			if got.Revision != rec.Revision {
				t.Errorf("Load: revision %d, want %d", got.Revision, rec.Revision)
			}
		}
	}
	if n := below.loads.Load(); n != 4 {
		t.Errorf("the store below was asked %d times, want 1 for the small record and 3 for the large one", n)
	}
}

// What is forgotten is dropped for all processes.
func TestForgottenRecordIsReadAgain(t *testing.T) {
	t.Parallel()
	below, opts := withoutFeed(newBelow()), options()
	s, other := open(t, below, opts), open(t, below, opts)
	changed := erase(t, below, kept(t, s, below))
	other.Forget(changed.Ref)
	used(t, s, changed)
}

// A reservation that is sent again when its record is completed recognises itself from Redis too.
func TestReservationRecognisesItselfFromRedis(t *testing.T) {
	t.Parallel()
	below := withoutFeed(newBelow())
	s := open(t, below, options())
	rec := kept(t, s, below)
	w := newWrite("key")
	if _, err := s.Create(t.Context(), w); !errors.Is(err, retrysafe.ErrExists) {
		t.Errorf("Create by another = %v, want ErrExists", err)
	}
	w.Owner = rec.Owner
	if got, err := s.Create(t.Context(), w); err != nil || got.Revision != rec.Revision {
		t.Errorf("Create sent again: %v, revision %d, want %d", err, got.Revision, rec.Revision)
	}
	if hits, _ := s.Hits(); hits != 3 {
		t.Errorf("%d hits, want 3", hits)
	}
}

package tiered_test

import (
	"errors"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/store/tiered"
)

// Whatever is stored, in whatever order and size, the cache stays within its
// bounds and its books are right.
func TestMemoryIsBounded(t *testing.T) {
	t.Parallel()
	for seed := range uint64(20) {
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			t.Parallel()
			random := rand.New(rand.NewPCG(seed, 1))
			maxBytes := int64(1) << (10 + random.IntN(12))
			b := newBed(t, tiered.Options{MaxBytes: maxBytes, MaxAge: 10 * time.Second})
			for i := range 1000 {
				key := retrysafe.Ref{Scope: "acct_1", Key: strconv.Itoa(random.IntN(200))}
				switch random.IntN(10) {
				case 0:
					b.cache.Forget(key)
				case 1:
					b.Advance(time.Duration(random.IntN(int(4 * time.Second))))
				case 2:
					if random.IntN(20) == 0 {
						b.cache.Flush()
					}
				case 3, 4, 5:
					if r, err := b.mem.Load(t.Context(), key); err == nil {
						swap(t, b.cache, settled(body(random, maxBytes), r))
					}
				default:
					r := with(body(random, maxBytes), reservation(key, 1))
					for n := range random.IntN(20) {
						r.Result.Header[strconv.Itoa(n)] = []string{"one", "two"}
					}
					for range random.IntN(3) {
						r.AddNote(retrysafe.Note{By: "somebody", Text: body(random, maxBytes), ID: "a-1"})
					}
					if _, err := b.cache.Create(t.Context(), r); err != nil {
						t.Fatal(err)
					}
				}
				if got := b.cache.Stats().Bytes; got > maxBytes {
					t.Fatalf("step %d: %d bytes are cached, more than %d", i, got, maxBytes)
				}
				if err := tiered.Audit(b.cache); err != nil {
					t.Fatalf("step %d: %v", i, err)
				}
			}
		})
	}
}

// body returns one that is small most often, and now and then too large.
func body(random *rand.Rand, maxBytes int64) string {
	if random.IntN(4) > 0 {
		return "small"
	}
	return strings.Repeat("x", random.IntN(int(maxBytes)/32))
}

func TestLargeAnswerIsNotCached(t *testing.T) {
	t.Parallel()
	b := newBed(t, tiered.Options{MaxBytes: 1 << 20})
	complete(t, b.cache, ref, strings.Repeat("x", 16<<10))
	b.replays("too large", strings.Repeat("x", 16<<10), 1)
	b.replays("too large, again", strings.Repeat("x", 16<<10), 1)
	other := retrysafe.Ref{Scope: "acct_1", Key: "other"}
	complete(t, b.cache, other, strings.Repeat("x", 14<<10))
	if s := b.cache.Stats(); s.Entries != 1 || s.Bytes < 14<<10 {
		t.Errorf("got %+v, want the smaller one cached", s)
	}
}

// Notes count: an answer with many of them is as large as they are.
func TestNotesAreCharged(t *testing.T) {
	t.Parallel()
	b := newBed(t, tiered.Options{MaxBytes: 1 << 20})
	r := with("paid", reservation(ref, 1))
	for range 8 {
		r.AddNote(retrysafe.Note{By: "somebody", Text: strings.Repeat("x", 500), ID: strings.Repeat("i", 50)})
	}
	if _, err := b.cache.Create(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	if s := b.cache.Stats(); s.Entries != 1 || s.Bytes < 8*550 {
		t.Errorf("got %+v, want one entry with its notes", s)
	}
	for range 24 {
		r.AddNote(retrysafe.Note{By: "somebody", Text: strings.Repeat("x", 500), ID: strings.Repeat("i", 50)})
	}
	r.Key = "too large"
	if _, err := b.cache.Create(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	if s := b.cache.Stats(); s.Entries != 1 {
		t.Errorf("got %+v, want what is too large by its notes not cached", s)
	}
}

// Answers that are never replayed are evicted before those that are, and so are
// those that were replayed long ago.
func TestRetriedAnswersStay(t *testing.T) {
	t.Parallel()
	b := newBed(t, tiered.Options{MaxBytes: 1 << 20})
	key := func(scope string, i int) retrysafe.Ref { return retrysafe.Ref{Scope: scope, Key: strconv.Itoa(i)} }
	const hot, cold = 40, 300
	asks := func(scope string, n int) int {
		b.count()
		for i := range n {
			if _, err := retry(t.Context(), b.cache, key(scope, i)); !errors.Is(err, retrysafe.ErrExists) {
				t.Fatal(err)
			}
		}
		return b.count()
	}
	for i := range hot {
		complete(t, b.cache, key("hot", i), "paid")
	}
	for i := range cold {
		complete(t, b.cache, key("cold", i), "paid")
	}
	if n := asks("cold", cold); n != 0 {
		t.Fatalf("%d of %d are not cached from the start", n, cold)
	}
	for i := range 5000 {
		complete(t, b.cache, key("never", i), "paid")
		if i%10 > 0 {
			continue
		}
		if n := asks("hot", hot); n > 0 {
			t.Fatalf("after %d others: %d of %d that are retried all the time had to go", i, n, hot)
		}
	}
	if n := asks("cold", cold); n != cold {
		t.Errorf("%d of %d that were retried once stayed", cold-n, cold)
	}
}

// When everything is asked for, something has to go all the same.
func TestEverythingUsedStillMakesRoom(t *testing.T) {
	t.Parallel()
	b := newBed(t, tiered.Options{MaxBytes: 256 << 10})
	for i := range 2000 {
		key := retrysafe.Ref{Scope: "acct_1", Key: strconv.Itoa(i)}
		complete(t, b.cache, key, "paid")
		for j := max(0, i-300); j <= i; j += 7 {
			if _, err := retry(t.Context(), b.cache, retrysafe.Ref{Scope: "acct_1", Key: strconv.Itoa(j)}); !errors.Is(err, retrysafe.ErrExists) {
				t.Fatal(err)
			}
		}
	}
	if err := tiered.Audit(b.cache); err != nil {
		t.Error(err)
	}
	if s := b.cache.Stats(); s.Evicted == 0 || s.Entries == 0 {
		t.Errorf("got %+v", s)
	}
}

// What is no longer trusted does not stay for long where others come.
func TestOldAnswersLeave(t *testing.T) {
	t.Parallel()
	b := newBed(t, tiered.Options{})
	for i := range 1000 {
		complete(t, b.cache, retrysafe.Ref{Scope: "old", Key: strconv.Itoa(i)}, "paid")
	}
	b.Advance(time.Minute)
	for i := range 1000 {
		complete(t, b.cache, retrysafe.Ref{Scope: "new", Key: strconv.Itoa(i)}, "paid")
	}
	if s := b.cache.Stats(); s.Entries != 1000 || s.Evicted != 0 {
		t.Errorf("got %+v, want the new ones and nothing else", s)
	}
}

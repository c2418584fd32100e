package redistier_test

import (
	"crypto/rand"
	"testing"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/test/leftover"
	"github.com/retrysafe/retrysafe/internal/test/testservers"
	"github.com/retrysafe/retrysafe/store/memstore"
	"github.com/retrysafe/retrysafe/store/redistier"
)

const patience = time.Minute

func TestMain(m *testing.M) {
	testservers.Main(m)
	leftover.None()
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func within(t testing.TB, what string, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !done(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %s", patience, what)
		}
	}
}

// options are those of a tier that no other test shares, on a machine with much else to do.
func options() *redistier.Options {
	return &redistier.Options{Prefix: "test-" + rand.Text()[:12], Timeout: patience}
}

// open opens a tier on the shared server, which is closed with the test.
func open(t testing.TB, below retrysafe.Store, opts *redistier.Options) *redistier.Store {
	t.Helper()
	return openAt(t, testservers.SharedRedis(t), below, opts)
}

func openAt(t testing.TB, addr string, below retrysafe.Store, opts *redistier.Options) *redistier.Store {
	t.Helper()
	s, err := redistier.Open("redis://"+addr, below, opts)
	must(t, err)
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func newWrite(key string) retrysafe.Write {
	w := retrysafe.Write{Record: retrysafe.Record{
		Ref: retrysafe.Ref{Scope: "tenant", Key: key}, Operation: "POST /payments", State: retrysafe.StateInProgress,
		Lapse: retrysafe.LapseResume, Effects: retrysafe.EffectsKeyed, Version: retrysafe.RecordVersion, Attempt: 1, Retain: time.Hour,
	}, Term: time.Hour}
	_, _ = rand.Read(w.Owner[:])
	return w
}

// newBelow returns a store that keeps times as those on disk do, to the microsecond.
func newBelow() *memstore.Store {
	return memstore.New(&memstore.Options{Now: func() time.Time { return time.Now().Truncate(time.Microsecond) }})
}

// answered stores a completed record in a store.
func answered(t testing.TB, s retrysafe.Store, key string) retrysafe.Record {
	t.Helper()
	r, err := s.Create(t.Context(), newWrite(key))
	must(t, err)
	w := r.Update()
	w.State, w.Result, w.Term = retrysafe.StateCompleted, &retrysafe.Result{Status: 201, Body: []byte("paid " + key)}, time.Hour
	r, err = s.Swap(t.Context(), w)
	must(t, err)
	return r
}

package telemetry_test

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/telemetry"
)

// TestW83_KeysNeverBecomeLabels: whatever happens to however many keys, there are as
// many series as after the first, and none holds a key, a hash of one, or a body.
func TestW83_KeysNeverBecomeLabels(t *testing.T) {
	t.Parallel()
	m := telemetry.New(&telemetry.Options{Tenants: 10})
	m.Routes("POST /payments")
	w := newWorld(t, m.Observer())
	w.show(m)
	var keys []string
	each := func(n int) {
		for range n {
			key := fmt.Sprintf("order-%08d-of-alice@example.com", len(keys))
			keys = append(keys, key)
			w.everything(t, m, key)
		}
	}
	each(1)
	first := shown(t, m)
	each(500)
	all := shown(t, m)
	if got, want := slices.Sorted(maps.Keys(all)), slices.Sorted(maps.Keys(first)); !slices.Equal(got, want) {
		t.Errorf("%d keys have made %d series of %d", len(keys), len(got), len(want))
	}
	if n := all["api_idempotency_reserve_created_total"]; int(n) < len(keys) {
		t.Errorf("%v reservations were counted of %d keys; nothing has happened", n, len(keys))
	}
	text := scrape(t, m)
	for _, secret := range []string{"order-", "alice", "example.com", "private matter"} {
		if strings.Contains(text, secret) {
			t.Errorf("the scrape tells %q", secret)
		}
	}
	for _, key := range keys {
		if strings.Contains(text, retrysafe.HashKey(key)) {
			t.Fatalf("the scrape has the hash of %s", key)
		}
	}
}

// everything lets happen to a key what can: it runs, is replayed, misused, found to
// be in flight, refused for its form, lost by a crashed owner, settled and forgotten.
func (w *world) everything(t *testing.T, m *telemetry.Metrics, key string) {
	t.Helper()
	for _, body := range []string{"a private matter", "a private matter", "another private matter"} {
		m.Exchange("POST /payments", "fresh", w.post(key, body), time.Millisecond)
	}
	w.post(key+","+key, "a private matter")
	crashed := retrysafe.Call{Ref: retrysafe.Ref{Scope: "tenant", Key: "crashed " + key}, Operation: "POST /payments"}
	must(w.store.Create(t.Context(), retrysafe.Write{Term: time.Minute, Record: retrysafe.Record{ // by an owner that will never beat
		Ref: crashed.Ref, Operation: crashed.Operation, State: retrysafe.StateInProgress, Version: retrysafe.RecordVersion,
		Owner: retrysafe.Owner{1}, Attempt: 1, Retain: time.Hour,
	}}))(t)
	if _, err := w.engine.Do(t.Context(), crashed, func(context.Context, *retrysafe.Execution) (retrysafe.Result, error) {
		return retrysafe.Result{Status: http.StatusCreated}, nil
	}); err == nil {
		t.Fatal("a key in flight has run")
	}
	w.pass(time.Hour)
	once(t, w.sweeper)
	w.pass(time.Hour)
	once(t, w.reconciler)
	w.pass(72 * time.Hour)
	once(t, w.reaper)
}

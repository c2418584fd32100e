package redisstore_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/test/leftover"
	"github.com/retrysafe/retrysafe/internal/test/testservers"
	"github.com/retrysafe/retrysafe/store/redisstore"
)

// patience is for a machine with much else to do: nothing that works takes as long.
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

// open opens a store that is closed with the test.
func open(t testing.TB, url string, opts *redisstore.Options) *redisstore.Store {
	t.Helper()
	var o redisstore.Options
	if opts != nil {
		o = *opts
	}
	if o.Timeout == 0 && o.MinReplicas == 0 { // steps that wait for replicas wait for as long as half of it
		o.Timeout = patience
	}
	s, err := redisstore.Open(t.Context(), url, &o)
	must(t, err)
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// shared returns the URL of the shared server and a prefix that no other test has.
func shared(t testing.TB) (url string, opts *redisstore.Options) {
	t.Helper()
	return "redis://" + testservers.SharedRedis(t), &redisstore.Options{Prefix: "test-" + rand.Text()[:12]}
}

func within(t testing.TB, what string, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !done(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %s", patience, what)
		}
	}
}

func newWrite(key string) retrysafe.Write {
	w := retrysafe.Write{Record: retrysafe.Record{
		Ref: retrysafe.Ref{Scope: "tenant", Key: key}, Operation: "POST /payments", State: retrysafe.StateInProgress,
		Lapse: retrysafe.LapseResume, Effects: retrysafe.EffectsKeyed, Version: retrysafe.RecordVersion, Attempt: 1, Retain: time.Hour,
	}, Term: time.Hour}
	_, _ = rand.Read(w.Owner[:])
	return w
}

// complete returns the write that settles a record.
func complete(r retrysafe.Record, body string) retrysafe.Write {
	w := r.Update()
	w.State, w.Result, w.Term = retrysafe.StateCompleted, &retrysafe.Result{Status: 201, Body: []byte(body)}, time.Hour
	return w
}

// eventually sends a step until the store can say how it ended.
func eventually(t testing.TB, what string, do func(ctx context.Context) error) error {
	t.Helper()
	var err error
	within(t, what, func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		err = do(ctx)
		for _, known := range []error{nil, retrysafe.ErrExists, retrysafe.ErrConflict, retrysafe.ErrNotFound, redisstore.ErrDataLost} {
			if errors.Is(err, known) {
				return true
			}
		}
		return false
	})
	return err
}

func refOf(n int) retrysafe.Ref { return retrysafe.Ref{Scope: "tenant", Key: fmt.Sprint("key ", n)} }

package httpkey_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/retrysafe/retrysafe"
)

func TestHTTP2RunsOnceAndReplays(t *testing.T) {
	t.Parallel()
	b := setup(t)
	s := b.overHTTP2(t)
	first := send(t, s, key, `{"b":1,"a":2}`)
	first.ran(t, 1, false)
	again := send(t, s, key, `{"a":2,"b":1}`)
	again.ran(t, 1, true)
	again.same(t, first)
	send(t, s, key, `{}`).refused(t, 422, "key-reused")
	send(t, s, "", `{}`).refused(t, 400, "key-missing")
}

// A stream that the client resets is a client that hangs up.
func TestW49_StreamResetLosesNothing(t *testing.T) {
	t.Parallel()
	started, gone, finished := make(chan struct{}), make(chan struct{}), make(chan struct{})
	b := setup(t)
	guarded := b.guard.Handler(b.counted(func(w http.ResponseWriter, r *http.Request) {
		close(started)
		<-gone
		if err := r.Context().Err(); err != nil {
			t.Errorf("the handler's context ended with the stream: %v", err)
		}
		b.created(w, r)
	}))
	b.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ProtoMajor != 2 {
			t.Errorf("this is %s", r.Proto)
		}
		if r.Header.Get("X-First") == "" {
			guarded.ServeHTTP(w, r)
			return
		}
		defer close(finished)
		go func() {
			<-r.Context().Done() // RST_STREAM has arrived
			close(gone)
		}()
		guarded.ServeHTTP(w, r)
	})
	s := b.overHTTP2(t)
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-started
		cancel()
	}()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, s.URL+"/payments", strings.NewReader(`{}`))
	must(t, err)
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Idempotency-Key", key)
	r.Header.Set("X-First", "yes")
	if res, err := s.Client().Do(r); err == nil {
		t.Errorf("got %d", res.StatusCode)
	}
	<-finished
	if got := b.state(t).State; got != retrysafe.StateCompleted {
		t.Fatalf("the record is %s, want completed", got)
	}
	send(t, s, key, `{}`).ran(t, 1, true)
}

// A client that resets the stream in the middle of the answer gets all of it
// the next time.
func TestW49_StreamResetWhileTheAnswerIsWritten(t *testing.T) {
	t.Parallel()
	text := strings.Repeat("0123456789abcdef", 1<<18)
	finished := make(chan struct{}, 2)
	b := setup(t, func(c *config) { c.MaxResponse = 8 << 20 }, withHandler(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, text) }))
	guarded := b.Handler
	b.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() { finished <- struct{}{} }()
		guarded.ServeHTTP(w, r)
	})
	s := b.overHTTP2(t)
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.URL+"/payments", strings.NewReader(`{}`))
	must(t, err)
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Idempotency-Key", key)
	res, err := s.Client().Do(r)
	must(t, err)
	if _, err := res.Body.Read(make([]byte, 1000)); err != nil {
		t.Fatal(err)
	}
	must(t, res.Body.Close()) // resets the stream
	<-finished
	got := send(t, s, key, `{}`)
	if got.status != 200 || got.body != text || got.header.Get("Idempotent-Replayed") != "true" {
		t.Errorf("got %d, %d bytes, %v", got.status, len(got.body), got.header)
	}
	b.ranTimes(t, 1)
}

// A body that the client cuts off by a reset was never a request.
func TestW49_StreamResetInTheBodyLeavesNoRecord(t *testing.T) {
	t.Parallel()
	finished := make(chan struct{})
	b := setup(t)
	guarded := b.Handler
	b.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer close(finished)
		guarded.ServeHTTP(w, r)
	})
	s := b.overHTTP2(t)
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.URL+"/payments", brokenReader{})
	must(t, err)
	r.Header.Set("Idempotency-Key", key)
	if res, err := s.Client().Do(r); err == nil {
		t.Errorf("got %d", res.StatusCode)
	}
	<-finished
	b.untouched(t)
}

func TestW47_InformationalOverHTTP2(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.Handler = b.guard.Handler(b.counted(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusEarlyHints)
		w.WriteHeader(http.StatusProcessing)
		b.created(w, r)
	}))
	s := b.overHTTP2(t)
	send(t, s, key, `{}`).ran(t, 1, false)
	send(t, s, key, `{}`).ran(t, 1, true)
}

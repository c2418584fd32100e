package httpkey_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/textproto"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/httpkey"
	"github.com/retrysafe/retrysafe/internal/test/faultstore"
)

func through(c *config) { c.Stream = httpkey.StreamThrough }

func TestW46_ResponseOverTheLimitIsNeverASecondRun(t *testing.T) {
	t.Parallel()
	for name, write := range map[string]func(io.Writer){
		"one write":    func(w io.Writer) { fmt.Fprint(w, strings.Repeat("x", 101)) },
		"many writes":  func(w io.Writer) { fmt.Fprint(w, "x"); fmt.Fprint(w, strings.Repeat("x", 99)); fmt.Fprint(w, "x") },
		"io.Copy":      func(w io.Writer) { _, _ = io.Copy(w, strings.NewReader(strings.Repeat("x", 101))) },
		"WriteString":  func(w io.Writer) { _, _ = io.WriteString(w, strings.Repeat("x", 100)); _, _ = io.WriteString(w, "x") },
		"a long tail":  func(w io.Writer) { fmt.Fprint(w, strings.Repeat("x", 101)); _, _ = io.WriteString(w, "") },
		"empty writes": func(w io.Writer) { fmt.Fprint(w, strings.Repeat("x", 101)); _, _ = w.Write(nil) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, func(c *config) { c.MaxResponse = 100 }, withHandler(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Location", "/exports/1")
				w.Header().Set("Content-Length", "101")
				w.WriteHeader(201)
				write(w)
			}))
			s := b.serve(t)
			first := send(t, s, key, `{}`)
			if first.status != 201 || first.body != strings.Repeat("x", 101) || first.header.Get("Location") != "/exports/1" || first.header.Get("Idempotency-Expires") == "" {
				t.Errorf("the first client got %d %v, %d bytes", first.status, first.header, len(first.body))
			}
			for range 2 {
				got := send(t, s, key, `{}`)
				p := got.refused(t, 201, "response-not-stored")
				if p.Retryable || p.SafeNewKey || p.Status != 201 || got.header.Get("Location") != "/exports/1" || got.header.Get("Idempotent-Replayed") != "true" ||
					got.header.Get("Idempotency-Expires") != first.header.Get("Idempotency-Expires") {
					t.Errorf("a retry got %v %s", got.header, got.body)
				}
			}
			b.ranTimes(t, 1)
		})
	}
}

// An answer that is not stored because it is too large is in the log and in the counts: a
// retry that is refused is too late a sign. An attempt that failed has no answer to store.
func TestResponseOverTheLimitIsLoggedAndCounted(t *testing.T) {
	t.Parallel()
	status := http.StatusCreated
	b := setup(t, func(c *config) { c.MaxResponse = 100 }, withHandler(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", "250")
		w.WriteHeader(status)
		fmt.Fprint(w, strings.Repeat("x", 125))
		fmt.Fprint(w, strings.Repeat("x", 125))
	}))
	b.post(t, key, `{}`)
	if n := b.guard.Counts()["response-not-stored (observed)"]; n != 1 {
		t.Errorf("it is counted %d times", n)
	}
	log := b.log.String()
	for _, part := range []string{"level=WARN", "sent and not stored", "size=250", "limit=100", "key=" + retrysafe.HashKey(key), "scope=" + retrysafe.HashKey("acme"), "max_response", "Location"} {
		if strings.Count(log, part) != 1 {
			t.Errorf("the log does not say %q once: %s", part, log)
		}
	}
	if strings.Contains(log, key) {
		t.Errorf("the log has the key: %s", log)
	}
	status = http.StatusBadGateway
	b.post(t, other, `{}`)
	if n := b.guard.Counts()["response-not-stored (observed)"]; n != 1 {
		t.Errorf("a failed attempt is counted: %d", n)
	}
}

// Once a response goes to the client directly no write of it is too large.
func TestW46_ResponseOverTheLimitGoesOn(t *testing.T) {
	t.Parallel()
	b := setup(t, func(c *config) { c.MaxResponse = 100 }, withHandler(func(w http.ResponseWriter, _ *http.Request) {
		for range 3 {
			if _, err := fmt.Fprint(w, strings.Repeat("x", 101)); err != nil {
				t.Errorf("Write = %v", err)
			}
		}
	}))
	if got := b.post(t, key, `{}`); got.body != strings.Repeat("x", 303) {
		t.Errorf("the client got %d bytes, want 303", len(got.body))
	}
}

// No memory is taken for a length that is only announced and that no response may have.
func TestAnnouncedLengthBeyondTheLimitCostsNothing(t *testing.T) {
	t.Parallel()
	b := setup(t, withHandler(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "9000000000000000000")
		fmt.Fprint(w, "short")
	}))
	if got := b.post(t, key, `{}`); got.status != 200 || got.body != "short" {
		t.Errorf("the client got %d %s", got.status, got.body)
	}
}

func TestW46_ResponseOfExactlyTheLimitIsStored(t *testing.T) {
	t.Parallel()
	b := setup(t, func(c *config) { c.MaxResponse = 100 }, withHandler(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, strings.Repeat("x", 100))
	}))
	first := b.post(t, key, `{}`)
	b.post(t, key, `{}`).same(t, first)
	if len(first.body) != 100 {
		t.Errorf("got %d bytes", len(first.body))
	}
}

// A large answer whose outcome cannot be stored is not shown either.
func TestW46_LargeAnswerIsDurableBeforeItIsSent(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		lose   bool
		status int
	}{{false, 201}, {true, 201}, {false, 409}, {true, 409}} {
		lose := c.lose
		b := setup(t, quickSettle, func(c *config) { c.MaxResponse = 10 })
		b.Handler = b.guard.Handler(b.counted(func(w http.ResponseWriter, _ *http.Request) {
			if lose {
				b.take(t, retrysafe.StateInProgress)
			} else {
				b.fault.Plan(faultstore.FailAll(faultstore.LoseRequest))
			}
			w.WriteHeader(c.status)
			if _, err := fmt.Fprint(w, "much more than ten bytes"); err == nil {
				t.Error("the handler is not told that its answer is not stored")
			}
			if _, err := fmt.Fprint(w, "x"); err == nil {
				t.Error("the handler may go on writing")
			}
		}))
		got := b.post(t, key, `{}`)
		if lose {
			got.refused(t, 409, "in-flight")
			continue
		}
		got.refused(t, 503, "outcome-pending")
		b.fault.Plan(nil)
		must(t, b.engine.Drain(t.Context()))
		b.post(t, key, `{}`).refused(t, c.status, "response-not-stored")
		b.ranTimes(t, 1)
	}
}

// A large failure is settled by what it proves, as a small one is.
func TestW46_LargeFailureIsAFailure(t *testing.T) {
	t.Parallel()
	for status, want := range map[int]retrysafe.State{500: retrysafe.StateUnknown, 429: retrysafe.StateRetryable, 404: retrysafe.StateCompleted} {
		b := setup(t, func(c *config) { c.MaxResponse = 10 }, withHandler(func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, "much more than ten bytes", status)
		}))
		if got := b.post(t, key, `{}`); got.status != status || got.body != "much more than ten bytes\n" {
			t.Errorf("got %d %s", got.status, got.body)
		}
		if got := b.state(t).State; got != want {
			t.Errorf("after %d the record is %s, want %s", status, got, want)
		}
	}
}

func TestW46_HeldFlushDoesNothing(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.Handler = b.guard.Handler(b.counted(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(201)
		fmt.Fprint(w, "first ")
		w.(http.Flusher).Flush()
		if err := http.NewResponseController(w).Flush(); err != nil {
			t.Errorf("Flush = %v", err)
		}
		if got := b.state(t).State; got != retrysafe.StateInProgress {
			t.Errorf("the record is %s in the middle", got)
		}
		fmt.Fprint(w, "second")
	}))
	first := b.post(t, key, `{}`)
	if first.body != "first second" {
		t.Errorf("got %q", first.body)
	}
	b.post(t, key, `{}`).same(t, first)
}

func TestW46_StreamGoesThrough(t *testing.T) {
	t.Parallel()
	seen := make(chan struct{})
	b := setup(t, through)
	b.Handler = b.guard.Handler(b.counted(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		w.Header().Set("Location", "/streams/1")
		fmt.Fprint(w, "data: 1\n\n")
		w.(http.Flusher).Flush()
		if got := b.state(t).State; got != retrysafe.StateCompleted {
			t.Errorf("the stream began while the record is %s", got)
		}
		<-seen // the client has the first event before there is a second
		fmt.Fprint(w, "data: 2\n\n")
		_, _ = io.WriteString(w, "data: 3\n\n")
		if err := http.NewResponseController(w).Flush(); err != nil {
			t.Errorf("Flush = %v", err)
		}
	}))
	s := b.serve(t)
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.URL, http.NoBody)
	must(t, err)
	r.Header.Set("Idempotency-Key", key)
	res, err := s.Client().Do(r)
	must(t, err)
	in := bufio.NewReader(res.Body)
	line, err := in.ReadString('\n')
	must(t, err)
	if line != "data: 1\n" || res.StatusCode != 200 || res.Header.Get("Idempotency-Expires") == "" {
		t.Errorf("got %d %q %v", res.StatusCode, line, res.Header)
	}
	close(seen)
	rest, err := io.ReadAll(in)
	must(t, err)
	res.Body.Close()
	if string(rest) != "\ndata: 2\n\ndata: 3\n\n" {
		t.Errorf("got %q", rest)
	}
	again := b.do(r.Clone(t.Context()))
	again.refused(t, 422, "key-reused") // another path
	got := send(t, s, key, "", func(r *http.Request) { r.URL.Path = ""; r.Header.Del("Content-Type") })
	got.refused(t, 200, "response-not-stored")
	if got.header.Get("Location") != "/streams/1" {
		t.Errorf("Location is %q", got.header.Get("Location"))
	}
	b.ranTimes(t, 1)
}

// deaf is a connection that cannot flush.
type deaf struct{ http.ResponseWriter }

// A handler that streams learns that its connection cannot.
func TestW46_StreamThatCannotBeFlushedIsTold(t *testing.T) {
	t.Parallel()
	b := setup(t, through, withHandler(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, "data")
		if err := http.NewResponseController(w).Flush(); !errors.Is(err, http.ErrNotSupported) {
			t.Errorf("Flush = %v", err)
		}
	}))
	b.ServeHTTP(deaf{httptest.NewRecorder()}, request(t, key, `{}`))
	b.ranTimes(t, 1)
}

// An answer without a body loses nothing by being flushed.
func TestW46_FlushedAnswerWithoutABodyIsStoredWhole(t *testing.T) {
	t.Parallel()
	b := setup(t, through, withHandler(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Location", "/payments/1")
		w.WriteHeader(http.StatusNoContent)
		w.(http.Flusher).Flush()
	}))
	s := b.serve(t)
	first := send(t, s, key, `{}`)
	again := send(t, s, key, `{}`)
	again.same(t, first)
	if again.status != 204 || again.header.Get("Link") != "" || again.header.Get("Content-Type") != "" {
		t.Errorf("a retry got %d %v", again.status, again.header)
	}
}

func TestW46_PanicInAStreamCutsIt(t *testing.T) {
	t.Parallel()
	b := setup(t, through, withHandler(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, "half")
		w.(http.Flusher).Flush()
		panic("out of coffee")
	}))
	s := b.serve(t)
	if got := send(t, s, key, `{}`); !strings.Contains(got.body, "EOF") {
		t.Errorf("the client takes %q for whole", got.body)
	}
	send(t, s, key, `{}`).refused(t, 200, "response-not-stored")
	if !strings.Contains(b.log.String(), "out of coffee") {
		t.Error("the panic is not logged")
	}
	b.ranTimes(t, 1)
}

func TestW46_HijackIsRefused(t *testing.T) {
	t.Parallel()
	b := setup(t, withHandler(func(w http.ResponseWriter, _ *http.Request) {
		if _, _, err := w.(http.Hijacker).Hijack(); !errors.Is(err, http.ErrNotSupported) {
			t.Errorf("Hijack = %v", err)
		}
		if _, _, err := http.NewResponseController(w).Hijack(); !errors.Is(err, http.ErrNotSupported) {
			t.Errorf("Hijack = %v", err)
		}
		w.WriteHeader(http.StatusTeapot)
	}))
	s := b.serve(t)
	first := send(t, s, key, `{}`)
	if first.status != http.StatusTeapot {
		t.Errorf("got %d", first.status)
	}
	send(t, s, key, `{}`).same(t, first)
}

func TestW47_InformationalResponsesGoOutAtOnce(t *testing.T) {
	t.Parallel()
	hinted := make(chan struct{})
	b := setup(t)
	h := b.guard.Handler(b.counted(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Link", "</style.css>; rel=preload")
		w.WriteHeader(http.StatusEarlyHints)
		select {
		case <-hinted:
		case <-r.Context().Done():
		}
		w.Header().Del("Link")
		b.created(w, r)
	}))
	b.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Outer", "kept")
		h.ServeHTTP(w, r)
	})
	s := b.serve(t)
	var early []string
	trace := &httptrace.ClientTrace{Got1xxResponse: func(code int, header textproto.MIMEHeader) error {
		early = append(early, fmt.Sprint(code, header["Link"]))
		close(hinted)
		return nil
	}}
	first := send(t, s, key, `{}`, func(r *http.Request) { *r = *r.WithContext(httptrace.WithClientTrace(r.Context(), trace)) })
	first.ran(t, 1, false)
	if len(early) != 1 || early[0] != "103 [</style.css>; rel=preload]" || first.header.Get("Link") != "" || first.header.Get("X-Outer") != "kept" {
		t.Errorf("got %q, then %v", early, first.header)
	}
	again := send(t, s, key, `{}`, func(r *http.Request) { *r = *r.WithContext(httptrace.WithClientTrace(r.Context(), trace)) })
	again.ran(t, 1, true) // a second hint would close hinted twice
}

func TestW47_OnlyTheFirstStatusCounts(t *testing.T) {
	t.Parallel()
	b := setup(t, withHandler(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(201)
		w.Header().Set("Location", "/too/late")
		w.WriteHeader(500)
		fmt.Fprint(w, "ok")
		w.WriteHeader(404)
	}))
	first := b.post(t, key, `{}`)
	if first.status != 201 || first.header.Get("Location") != "" {
		t.Errorf("got %d %v", first.status, first.header)
	}
	b.post(t, key, `{}`).same(t, first)
}

func TestW47_StatusThatCannotBe(t *testing.T) {
	t.Parallel()
	for _, status := range []int{0, 99, 1000, -1, http.StatusSwitchingProtocols} {
		for _, stream := range []httpkey.StreamPolicy{httpkey.StreamHold, httpkey.StreamThrough} {
			b := setup(t, func(c *config) { c.Stream = stream }, withHandler(func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(status)
				if _, err := fmt.Fprint(w, "text"); err == nil {
					t.Error("the handler is not told")
				}
				w.(http.Flusher).Flush()
			}))
			b.post(t, key, `{}`).refused(t, 500, "attempt-unknown")
			b.post(t, key, `{}`).refused(t, 409, "outcome-unknown")
		}
	}
}

func TestResponseControllerReachesTheConnection(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.Handler = b.guard.Handler(b.counted(func(w http.ResponseWriter, r *http.Request) {
		c := http.NewResponseController(w)
		if err := errors.Join(c.SetReadDeadline(time.Now().Add(time.Hour)), c.EnableFullDuplex()); err != nil {
			t.Errorf("ResponseController: %v", err)
		}
		if r.Header.Get("X-Cut") != "" {
			if err := c.SetWriteDeadline(time.Unix(1, 0)); err != nil {
				t.Errorf("SetWriteDeadline: %v", err)
			}
		}
		b.created(w, r)
	}))
	s := b.serve(t)
	got := talk(t, s, "POST /payments HTTP/1.1\r\nHost: x\r\nX-Cut: yes\r\nContent-Type: application/json\r\nIdempotency-Key: "+key+"\r\nContent-Length: 2\r\n\r\n{}")
	if len(got) != 0 {
		t.Errorf("got %+v over a connection whose deadline has passed", got)
	}
	send(t, s, key, `{}`).ran(t, 1, true) // and the answer is safe
	// What the connection cannot do is said.
	b.Handler = b.guard.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if err := http.NewResponseController(w).SetReadDeadline(time.Now()); !errors.Is(err, http.ErrNotSupported) {
			t.Errorf("SetReadDeadline on a recorder = %v", err)
		}
	}))
	b.ServeHTTP(httptest.NewRecorder(), request(t, other, `{}`))
}

// A response that was held is sent with its length, whatever its size, and so is its replay.
func TestHeldResponsesHaveALength(t *testing.T) {
	t.Parallel()
	for _, n := range []int{0, 10, 2049, 5000} {
		b := setup(t, withHandler(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, strings.Repeat("x", n)) }))
		s := b.serve(t)
		for range 2 {
			if got := send(t, s, key, `{}`); got.header.Get("Content-Length") != strconv.Itoa(n) || len(got.body) != n {
				t.Errorf("%d bytes: got %d with %v", n, len(got.body), got.header)
			}
		}
	}
}

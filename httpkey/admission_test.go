package httpkey_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/httpkey"
)

// full is how code around a guard refuses a request.
type full struct{}

func (full) Error() string { return "no room" }

func (full) Problem() *httpkey.Problem {
	return &httpkey.Problem{Code: "no-room", Status: http.StatusServiceUnavailable, Title: "No room", Retryable: true, RetryAfter: time.Second}
}

// failing is a body of which only the beginning can be read.
type failing struct {
	io.Reader
	err error
}

func (f failing) Read(p []byte) (int, error) {
	n, err := f.Reader.Read(p)
	if errors.Is(err, io.EOF) {
		err = f.err
	}
	return n, err
}

func (failing) Close() error { return nil }

// A problem in an error of the scope or of the body is what the client is told; nothing is
// reserved.
func TestProblemAroundAGuardIsTheRefusal(t *testing.T) {
	t.Parallel()
	b := setup(t)
	got := b.post(t, key, `{}`, func(r *http.Request) {
		r.Body = failing{strings.NewReader(`{"a":`), fmt.Errorf("read: %w", full{})}
	})
	if p := got.refused(t, http.StatusServiceUnavailable, "no-room"); !p.Retryable || got.header.Get("Retry-After") != "1" {
		t.Errorf("told %+v", p)
	}
	b.untouched(t)

	b = setup(t, func(c *config) {
		c.scope = func(*http.Request) (string, error) { return "", full{} }
	})
	b.post(t, key, `{}`).refused(t, http.StatusServiceUnavailable, "no-room")
	b.untouched(t)
	if log := b.log.String(); strings.Contains(log, "not identified") {
		t.Errorf("it is logged as another refusal:\n%s", log)
	}
}

// A length that is announced costs no memory before anything has arrived.
func TestAnnouncedLengthAllocatesNothing(t *testing.T) {
	b := setup(t, func(c *config) { c.MaxRequest = 64 << 20 })
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range 8 {
		r := request(t, key, "")
		r.Body, r.ContentLength = failing{strings.NewReader("{"), io.ErrUnexpectedEOF}, 32<<20
		b.do(r).refused(t, http.StatusBadRequest, "body-unreadable")
	}
	runtime.ReadMemStats(&after)
	if grown := after.TotalAlloc - before.TotalAlloc; grown > 4<<20 {
		t.Errorf("eight bodies that never came took %d bytes", grown)
	}
	body := `{"text":"` + strings.Repeat("x", 1<<20) + `"}` // one that comes is read whole
	b.post(t, key, body).ran(t, 1, false)
	b.post(t, key, body).ran(t, 1, true)
	b.post(t, key, body[:len(body)-2]+`y"}`).refused(t, http.StatusUnprocessableEntity, "key-reused")
}

// owned writes bytes that the handler does not use again, as a proxy does.
func owned(w http.ResponseWriter, p []byte) error {
	n, err := w.(interface{ WriteOwned(p []byte) (int, error) }).WriteOwned(p)
	if err == nil && n != len(p) {
		return fmt.Errorf("WriteOwned of %d bytes = %d", len(p), n)
	}
	return err
}

// Bytes that a proxy gives away are held without a copy, and are a part of the response
// like all others, wherever they stand in it.
func TestOwnedBytesAreAPartOfTheResponse(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		write func(w http.ResponseWriter) error
		want  string
	}{
		"alone": {func(w http.ResponseWriter) error {
			p := []byte("bytes")
			err := owned(w, p)
			p[0] = 'B' // to see that there is no copy
			return err
		}, "Bytes"},
		"none": {func(w http.ResponseWriter) error { return owned(w, nil) }, ""},
		"first": {func(w http.ResponseWriter) error {
			err := owned(w, []byte("one "))
			fmt.Fprint(w, "two")
			return err
		}, "one two"},
		"last": {func(w http.ResponseWriter) error {
			fmt.Fprint(w, "one ")
			return owned(w, []byte("two"))
		}, "one two"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, withHandler(func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(http.StatusCreated)
				if err := c.write(w); err != nil {
					t.Errorf("WriteOwned = %v", err)
				}
			}))
			for _, replayed := range []string{"", "true"} {
				got := b.post(t, key, `{}`)
				if got.status != http.StatusCreated || got.body != c.want || got.header.Get("Idempotent-Replayed") != replayed {
					t.Errorf("got %d %q, replayed %q; want 201 %q, %q", got.status, got.body, got.header.Get("Idempotent-Replayed"), c.want, replayed)
				}
			}
			b.ranTimes(t, 1)
		})
	}
}

// Bytes that a proxy gives away count against the limit, and nothing is held beyond it.
func TestW46_OwnedBytesOverTheLimitAreNeverASecondRun(t *testing.T) {
	t.Parallel()
	b := setup(t, func(c *config) { c.MaxResponse = 100 }, withHandler(func(w http.ResponseWriter, _ *http.Request) {
		for _, n := range []int{101, 1} {
			if err := owned(w, []byte(strings.Repeat("x", n))); err != nil {
				t.Errorf("WriteOwned = %v", err)
			}
		}
	}))
	if got := b.post(t, key, `{}`); got.status != http.StatusOK || got.body != strings.Repeat("x", 102) {
		t.Errorf("the client got %d and %d bytes, want 200 and 102", got.status, len(got.body))
	}
	b.post(t, key, `{}`).refused(t, http.StatusOK, "response-not-stored")
	b.ranTimes(t, 1)
}

// A response that may have no body takes none of a proxy's either.
func TestOwnedBytesOfAResponseWithoutABody(t *testing.T) {
	t.Parallel()
	b := setup(t, withHandler(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusNoContent)
		if err := owned(w, []byte("x")); !errors.Is(err, http.ErrBodyNotAllowed) {
			t.Errorf("WriteOwned = %v", err)
		}
	}))
	if got := b.post(t, key, `{}`); got.status != http.StatusNoContent || got.body != "" {
		t.Errorf("the client got %d %q", got.status, got.body)
	}
}

// A proxy that cannot hold an answer has it sent and not stored; a retry does not run
// again.
func TestW46_OmittedAnswerIsNeverASecondRun(t *testing.T) {
	t.Parallel()
	b := setup(t, withHandler(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusCreated)
		_, _ = io.WriteString(w, "first ")
		if err := w.(interface{ Omit() error }).Omit(); err != nil {
			t.Errorf("omit: %v", err)
		}
		_, _ = io.WriteString(w, "second")
		if err := w.(interface{ Omit() error }).Omit(); err != nil {
			t.Errorf("omit again: %v", err)
		}
	}))
	if got := b.post(t, key, `{}`); got.status != http.StatusCreated || got.body != "first second" {
		t.Errorf("got %d %q", got.status, got.body)
	}
	if r := b.state(t); r.State != retrysafe.StateCompleted || !r.Result.Omitted {
		t.Errorf("the record is %+v", r)
	}
	b.post(t, key, `{}`).refused(t, http.StatusCreated, "response-not-stored")
	b.ranTimes(t, 1)
}

// Before anything is written the status is a 200, as with net/http.
func TestW46_OmittedAnswerWithoutAStatusIsA200(t *testing.T) {
	t.Parallel()
	b := setup(t, withHandler(func(w http.ResponseWriter, _ *http.Request) {
		if err := w.(interface{ Omit() error }).Omit(); err != nil {
			t.Errorf("omit: %v", err)
		}
		_, _ = io.WriteString(w, "all")
	}))
	if got := b.post(t, key, `{}`); got.status != http.StatusOK || got.body != "all" {
		t.Errorf("got %d %q", got.status, got.body)
	}
	b.post(t, key, `{}`).refused(t, http.StatusOK, "response-not-stored")
	b.ranTimes(t, 1)
}

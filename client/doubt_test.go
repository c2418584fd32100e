package client_test

import (
	"context"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/retrysafe/retrysafe/client"
)

// An attempt that may have been executed stays so when a later one was certainly not: the
// error says it, and the journal keeps the operation.
func TestDoubtOutlivesAttemptsThatWereNotSent(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		first   func() *http.Response // nil: no connection
		happens bool
	}{
		{"the answer is lost", broken, true},
		{"it fails", is(503, ""), true},
		{"it is in flight", is(409, "", "Retry-After", "0"), true},
		{"it is accepted", is(202, "", "Retry-After", "0", "Location", "/status"), true},
		{"it is too early", is(425, ""), false},
		{"it is one too many", is(429, ""), false},
		{"there is no connection", nil, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			j := openJournal(t, t.TempDir()+"/journal")
			first := c.first
			o := client.Options{Journal: j, MaxTries: 3, Base: roundTrip(func(r *http.Request) (*http.Response, error) {
				answer := first
				if first = nil; answer == nil {
					return nil, io.ErrUnexpectedEOF
				}
				contextTrace(r.Context())()
				if response := answer(); response != nil {
					return response, nil
				}
				return nil, io.ErrUnexpectedEOF
			})}
			_, err := newClient(t, o).Do("order-1", post(t, "http://127.0.0.1/", "1"))
			if e := as[*client.ExhaustedError](t, err); e.MayHaveHappened != c.happens {
				t.Errorf("%+v: %v", e, err)
			}
			ops, err := j.Operations(t.Context())
			must(t, err)
			if kept := len(ops) == 1 && ops[0].Unfinished(); kept != c.happens {
				t.Errorf("the journal has %+v", ops)
			}
		})
	}
}

// What the status resource says about the operation holds. If it fails or does not know the
// key, the request itself is sent again.
func TestWhatTheStatusResourceSays(t *testing.T) {
	t.Parallel()
	const replay = "Idempotent-Replayed"
	accepted := is(202, "", "Retry-After", "0", "Location", "/status")
	for name, c := range map[string]struct {
		answers []func() *http.Response // after the first, which is a 202 with the place
		sent    string
		want    int // 0: the outcome is unknown
	}{
		"the answer":                {[]func() *http.Response{is(201, "", replay, "true")}, "POST GET", 201},
		"an answer without a mark":  {[]func() *http.Response{is(201, "")}, "POST GET", 201},
		"still accepted":            {[]func() *http.Response{accepted, accepted, is(201, "", replay, "true")}, "POST GET GET GET", 201},
		"accepted, without a place": {[]func() *http.Response{is(202, ""), is(201, "", replay, "true")}, "POST GET GET", 201},
		"a 202 that is the answer":  {[]func() *http.Response{is(202, "", replay, "true")}, "POST GET", 202},
		"in flight":                 {[]func() *http.Response{is(409, "", "Retry-After", "0"), is(201, "", replay, "true")}, "POST GET GET", 201},
		"it fails":                  {[]func() *http.Response{is(503, ""), is(201, "", replay, "true")}, "POST GET POST", 201},
		"it does not know the key":  {[]func() *http.Response{is(404, ""), accepted, is(201, "", replay, "true")}, "POST GET POST POST", 201},
		"it allows no GET":          {[]func() *http.Response{is(405, ""), is(201, "", replay, "true")}, "POST GET POST", 201},
		"it is gone":                {[]func() *http.Response{is(410, ""), is(201, "", replay, "true")}, "POST GET POST", 201},
		"a 404 that is the answer":  {[]func() *http.Response{is(404, "", replay, "true")}, "POST GET", 404},
		"the outcome is unknown":    {[]func() *http.Response{is(409, `{"code":"outcome-unknown"}`)}, "POST GET", 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var methods []string
			o := client.Options{Base: roundTrip(func(r *http.Request) (*http.Response, error) {
				answer := accepted
				if len(methods) > 0 {
					answer = c.answers[min(len(methods), len(c.answers))-1]
				}
				methods = append(methods, r.Method)
				if get := r.Method == http.MethodGet; get != (r.URL.Path == "/status") || get != (r.Body == nil) || get != (r.Header.Get("Content-Type") == "") {
					t.Errorf("%s %s with %v", r.Method, r.URL, r.Header)
				}
				return answer(), nil
			})}
			response, err := newClient(t, o).Do("", post(t, "http://127.0.0.1/", "1"))
			if c.want == 0 {
				as[*client.UnknownError](t, err)
			} else if err != nil || response.StatusCode != c.want {
				t.Errorf("%v, %v", response, err)
			}
			if got := strings.Join(methods, " "); got != c.sent {
				t.Errorf("sent %s, want %s", got, c.sent)
			}
		})
	}
}

// The credentials of a request go to no other host, and to no connection without TLS.
func TestTheStatusResourceIsOnTheSameOrigin(t *testing.T) {
	t.Parallel()
	for _, place := range []string{"http://127.0.0.1/status", "https://127.0.0.2/status"} {
		sent := 0
		c := newClient(t, client.Options{Base: roundTrip(func(r *http.Request) (*http.Response, error) {
			if r.Method != http.MethodPost || r.URL.String() != "https://127.0.0.1/" {
				t.Errorf("sent %s %s", r.Method, r.URL)
			}
			if sent++; sent == 1 {
				return answer(202, "", "Retry-After", "0", "Location", place), nil
			}
			return answer(201, "", "Idempotent-Replayed", "true"), nil
		})})
		if response, err := c.Do("", post(t, "https://127.0.0.1/", "1")); err != nil || response.StatusCode != 201 || sent != 2 {
			t.Errorf("%v, %v, sent %d times", response, err, sent)
		}
	}
}

// The refusal of a key that belongs to another request is the end of the operation, in the
// journal too.
func TestAMismatchEndsTheOperation(t *testing.T) {
	t.Parallel()
	j := openJournal(t, t.TempDir()+"/journal")
	sent := 0
	c := newClient(t, client.Options{Journal: j, Base: roundTrip(func(*http.Request) (*http.Response, error) {
		sent++
		return answer(422, `{"code":"key-reused","title":"it is another's"}`), nil
	})})
	for range 2 { // the second from the journal
		_, err := c.Do("order-1", post(t, "http://127.0.0.1/", "1"))
		if e := as[*client.MismatchError](t, err); e.Status != 422 || e.Operation != "order-1" || e.Detail != "it is another's" {
			t.Errorf("%+v", e)
		}
	}
	must(t, c.Resume(t.Context(), func(op client.Operation, _ *http.Response, err error) { t.Errorf("%s is resumed: %v", op.ID, err) }))
	if sent != 1 {
		t.Errorf("%d requests were sent", sent)
	}
}

// watchedBody is a body that counts how often it was closed.
type watchedBody struct {
	io.Reader
	closed *int
}

func (b watchedBody) Close() error { *b.closed++; return nil }

// An answer that is not returned is closed, also if it is too large to be read: its
// connection is free for the next attempt.
func TestAnswersThatAreNotReturnedAreClosed(t *testing.T) {
	t.Parallel()
	const large = "more than the client holds"
	attempts := []func() *http.Response{
		is(503, large), is(409, large, "Retry-After", "0"), is(202, large, "Retry-After", "0", "Location", "/status"), is(503, large), is(429, large), is(201, large),
	}
	var bodies, closed, begun int
	base := roundTrip(func(*http.Request) (*http.Response, error) {
		if closed != bodies {
			t.Errorf("attempt %d begins with %d answers open", begun, bodies-closed)
		}
		begun++
		bodies++
		response := attempts[begun-1]()
		response.Body = watchedBody{strings.NewReader(large), &closed}
		return response, nil
	})
	c := newClient(t, client.Options{Base: base, MaxAnswer: 4})
	response, err := c.Do("", post(t, "http://127.0.0.1/", "1"))
	must(t, err)
	if text, err := io.ReadAll(response.Body); string(text) != large || err != nil || bodies-closed != 1 {
		t.Errorf("got %q, %v with %d answers open", text, err, bodies-closed)
	}
	must(t, response.Body.Close())
	attempts, begun = []func() *http.Response{is(503, large)}, 0
	_, err = newClient(t, client.Options{Base: base, MaxAnswer: 4, MaxTries: 1}).Do("", post(t, "http://127.0.0.1/", "1"))
	if as[*client.ExhaustedError](t, err); closed != bodies {
		t.Errorf("%d answers are open in the end", bodies-closed)
	}
}

// The time of an attempt does not bound how long the caller reads a large answer. An answer of
// just the limit is not a large one: it is there whole, and its attempt is over.
func TestLargeAnswersMayTakeTheirTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for size, large := range map[int]bool{4: false, 5: true} {
			var attempt, whole context.Context
			base := roundTrip(func(r *http.Request) (*http.Response, error) {
				attempt = r.Context()
				return is(201, strings.Repeat("x", size))(), nil
			})
			response, err := newClient(t, client.Options{Base: base, MaxAnswer: 4, AttemptTimeout: time.Second, OnAttempt: func(r *http.Request, _ int) { whole = r.Context() }}).Do("", post(t, "http://127.0.0.1/", "1"))
			must(t, err)
			time.Sleep(time.Minute)
			if open := attempt.Err() == nil; open != large {
				t.Errorf("%d bytes: the attempt is open: %v, want %v", size, open, large)
			}
			must(t, response.Body.Close())
			if attempt.Err() == nil || whole.Err() == nil {
				t.Errorf("%d bytes: the attempt goes on after its answer was closed", size)
			}
		}
	})
}

// Each attempt has a number of its own, also one that only asks for a request in flight.
func TestAttemptsHaveNumbers(t *testing.T) {
	t.Parallel()
	answers := []func() *http.Response{is(409, "", "Retry-After", "0"), is(503, "", "Retry-After", "0"), is(409, "", "Retry-After", "0"), is(201, "")}
	var numbers []int
	c := newClient(t, client.Options{
		Base:      roundTrip(func(*http.Request) (*http.Response, error) { return answers[len(numbers)-1](), nil }),
		OnAttempt: func(_ *http.Request, n int) { numbers = append(numbers, n) },
	})
	response, err := c.Do("", post(t, "http://127.0.0.1/", "1"))
	must(t, err)
	must(t, response.Body.Close())
	if !slices.Equal(numbers, []int{0, 1, 2, 3}) {
		t.Errorf("the attempts are %v", numbers)
	}
}

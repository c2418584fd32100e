package httpsink

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/outbox"
)

// A Response is what an endpoint said.
type Response struct {
	Status int
	Header http.Header
	// Body is what came of it, at most [Options.MaxBody].
	Body []byte
	// Err says why the body is not whole: it was cut, or errTooLong.
	Err error
}

var errTooLong = errors.New("its body is longer than the bound")

// kept are the headers of a response that an answer keeps. What belongs to the
// session between us and the endpoint is not for those who retry.
var kept = []string{
	"Content-Type", "Content-Encoding", "Content-Language", "Content-Disposition", "Location", "ETag", "Last-Modified",
}

// Answer returns the response as what retries of a key get. A body that was too
// long is left out, and the answer says so.
func (r *Response) Answer() *retrysafe.Result {
	answer := &retrysafe.Result{Status: r.Status, Header: map[string][]string{}, Body: r.Body}
	for _, name := range kept {
		if values := r.Header.Values(name); len(values) > 0 {
			answer.Header[name] = values
		}
	}
	if errors.Is(r.Err, errTooLong) {
		answer.Body, answer.Omitted = nil, true
	}
	return answer
}

// read reads a response up to a bound.
func read(response *http.Response, bound int64) *Response {
	r := &Response{Status: response.StatusCode, Header: response.Header}
	r.Body, r.Err = io.ReadAll(io.LimitReader(response.Body, bound+1))
	if int64(len(r.Body)) > bound {
		r.Body, r.Err = r.Body[:bound], errTooLong
	}
	return r
}

// A StatusError is an answer that is no success.
type StatusError struct {
	Status int
	// Body is the beginning of what came with it.
	Body string
}

func (e *StatusError) Error() string {
	s := fmt.Sprintf("the endpoint answered %d %s", e.Status, http.StatusText(e.Status))
	if e.Status == http.StatusUnprocessableEntity {
		s += ": the message, or its key for another one, is refused; this is a bug of the sender"
	}
	if e.Body != "" {
		s += fmt.Sprintf(": %q", e.Body)
	}
	return s
}

// receipt says what a response means for its message.
func receipt(d *outbox.Delivery, r *Response, now time.Time) outbox.Receipt {
	if r.Status >= 200 && r.Status < 300 {
		switch {
		case d.Settles == nil:
			return outbox.Receipt{} // it arrived, whatever became of the body
		case r.Err != nil && !errors.Is(r.Err, errTooLong):
			return outbox.Receipt{Err: fmt.Errorf("the endpoint answered %d, but its answer was cut: %w", r.Status, r.Err)}
		}
		return outbox.Receipt{Answer: r.Answer()}
	}
	err := error(&StatusError{r.Status, string(r.Body[:min(len(r.Body), 200)])})
	if !curable(r.Status) {
		return outbox.Receipt{Err: outbox.Permanent(err)}
	}
	return outbox.Receipt{Err: err, After: retryAfter(r.Header, now)}
}

// curable reports whether the same message may be taken later. What is wrong with
// the endpoint, such as a credential that has expired, is mended without touching
// the message; else it would bury all that is on its way.
func curable(status int) bool {
	switch status {
	case http.StatusRequestTimeout, http.StatusConflict, http.StatusMisdirectedRequest, http.StatusLocked, http.StatusTooEarly, http.StatusTooManyRequests,
		http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound, http.StatusProxyAuthRequired:
		return true
	}
	return status < 400 || status >= 500
}

// longestWait is more than any outbox waits.
const longestWait = 365 * 24 * time.Hour

// retryAfter returns how long an endpoint wants us to wait.
func retryAfter(h http.Header, now time.Time) time.Duration {
	value := h.Get("Retry-After")
	if seconds, err := strconv.ParseUint(value, 10, 64); err == nil {
		return time.Duration(min(seconds, uint64(longestWait/time.Second))) * time.Second
	}
	if at, err := http.ParseTime(value); err == nil {
		return min(max(at.Sub(now), 0), longestWait)
	}
	return 0
}

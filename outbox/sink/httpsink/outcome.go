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

// A Response is the response of an endpoint.
type Response struct {
	Status int
	Header http.Header
	// Body is what was read of the body, at most [Options.MaxBody].
	Body []byte
	// Err says why the body is incomplete: reading failed, or it is longer than the
	// limit.
	Err error
}

var errTooLong = errors.New("its body is longer than the limit")

// kept are the headers of a response that an answer keeps. Headers of the exchange
// between the sink and the endpoint, such as cookies, are not replayed to clients.
var kept = []string{
	"Content-Type", "Content-Encoding", "Content-Language", "Content-Disposition", "Location", "ETag", "Last-Modified",
}

// Answer returns the response as the answer that retries of a key get. A body that was
// too long is left out, and the answer says so.
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

// read reads a response, up to limit bytes of its body.
func read(response *http.Response, limit int64) *Response {
	r := &Response{Status: response.StatusCode, Header: response.Header}
	r.Body, r.Err = io.ReadAll(io.LimitReader(response.Body, limit+1))
	if int64(len(r.Body)) > limit {
		r.Body, r.Err = r.Body[:limit], errTooLong
	}
	return r
}

// A StatusError is a response whose status is not 2xx.
type StatusError struct {
	Status int
	// Body is the beginning of the response's body.
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

// receipt returns what a response means for its message.
func receipt(d *outbox.Delivery, r *Response, now time.Time) outbox.Receipt {
	if r.Status >= 200 && r.Status < 300 {
		switch {
		case d.Settles == nil:
			return outbox.Receipt{} // the message has arrived, also if the body was cut
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

// curable reports whether the endpoint may accept the same message later. A fault of the
// endpoint, such as an expired credential, is repaired without changing the message;
// treated as final it would make all messages of that time dead letters.
func curable(status int) bool {
	switch status {
	case http.StatusRequestTimeout, http.StatusConflict, http.StatusMisdirectedRequest, http.StatusLocked, http.StatusTooEarly, http.StatusTooManyRequests,
		http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound, http.StatusProxyAuthRequired:
		return true
	}
	return status < 400 || status >= 500
}

// longestWait is longer than any outbox waits.
const longestWait = 365 * 24 * time.Hour

// retryAfter returns how long the endpoint asks the sender to wait.
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

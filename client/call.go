package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"
)

// A call is the work on one operation, from its first attempt in this call to its end.
type call struct {
	c      *Client
	op     *Operation
	secret http.Header // of the caller's request, not in the journal
	target *url.URL
	began  time.Time

	doubt bool     // an attempt may have been executed
	sent  int      // attempts
	tries int      // attempts that count: those that were not told to come back
	polls int      // how often it was told to
	asked *url.URL // the status resource, where the answer will be; nil: the request is sent again
	alone bool     // there is no status resource that knows the key

	// What the last attempt gave.
	response *http.Response
	body     []byte
	streamed bool // there is more than body
	err      error

	settled bool // the response is the operation's final answer
}

// newCall returns the call for an operation. Doubt says that it may have been sent before.
func (c *Client) newCall(op *Operation, secret http.Header, doubt bool) *call {
	return &call{c: c, op: op, secret: secret, doubt: doubt}
}

// run sends the operation until there is a final answer, or a reason to stop.
func (k *call) run(ctx context.Context) (*http.Response, error) {
	var err error
	if k.target, err = url.Parse(k.op.URL); err != nil {
		return nil, fmt.Errorf("client: %w; nothing was sent", err)
	}
	if !k.op.Profile.known() {
		return nil, fmt.Errorf("client: the journal has the unknown profile %q; is it of a newer version?", k.op.Profile)
	}
	for k.began = time.Now(); ; {
		if k.doubt && k.tooOld() {
			return nil, &UnknownError{Operation: k.name(), Key: k.op.Key, TooOld: true}
		}
		if err := ctx.Err(); err != nil {
			return nil, k.exhausted(context.Cause(ctx))
		}
		if err := k.attempt(ctx); err != nil {
			return nil, err
		}
		response, err := k.judge(ctx)
		if response != nil || err != nil {
			return response, err
		}
	}
}

// tooOld reports whether the API may have forgotten the key.
func (k *call) tooOld() bool {
	now := time.Now()
	return now.Sub(k.op.Begun) > k.c.retention.window(k.target.Host, k.c.o.Window) || !k.op.Expires.IsZero() && now.After(k.op.Expires)
}

// judge looks at what the last attempt gave. It returns the final answer, or why the call is
// over; without either there is another attempt, for which it has waited.
func (k *call) judge(ctx context.Context) (*http.Response, error) {
	if k.response == nil {
		if k.op.Profile == KeysIgnored && k.doubt {
			return nil, k.exhausted(k.err)
		}
		return k.ask(ctx)
	}
	s := readSigns(k.response, k.body)
	k.noteExpiry()
	m := classify(k.op.Profile, k.response, s, k.doubt)
	if k.asked != nil {
		m = k.fromStatusResource(m)
	}
	if m == again {
		k.doubt = true
	}
	switch m {
	case final:
		if k.c.o.CheckRetry != nil && !replayed(k.response.Header) {
			return k.ask(ctx)
		}
		return k.finish(), nil
	case refused:
		switch {
		case k.c.o.CheckRetry != nil: // it may know how to log in again
			return k.ask(ctx)
		case k.doubt:
			return nil, k.exhausted(nil)
		}
		return k.answer(), nil
	case again, later:
		if k.op.Profile == KeysIgnored && !k.mayRepeat() {
			return k.answer(), nil
		}
		return k.ask(ctx)
	case inFlight, accepted:
		k.doubt = true
		return nil, k.poll(ctx, m)
	case mismatch:
		k.finish()
		k.drop()
		return nil, &MismatchError{Operation: k.name(), Key: k.op.Key, Status: k.response.StatusCode, Detail: s.detail}
	case unknown:
		k.doubt = true
		k.drop()
		return nil, &UnknownError{Operation: k.name(), Key: k.op.Key, Status: k.response.StatusCode, Detail: s.detail}
	case tooOld:
		k.doubt = true
		k.drop()
		return nil, &UnknownError{Operation: k.name(), Key: k.op.Key, Status: k.response.StatusCode, Detail: s.detail, TooOld: true}
	}
	return k.finish(), nil
}

// fromStatusResource corrects what an answer of the status resource means. Where it does not
// know the key, or says that the attempt failed, the request itself is sent again.
func (k *call) fromStatusResource(m meaning) meaning {
	status := k.response.StatusCode
	switch {
	case m == final && !replayed(k.response.Header) && (status == http.StatusNotFound || status == http.StatusMethodNotAllowed || status == http.StatusGone):
		k.asked, k.alone = nil, true
		return again
	case m == again:
		k.asked = nil
	case m == final && status == http.StatusAccepted && !replayed(k.response.Header):
		return accepted
	}
	return m
}

// mayRepeat reports whether the last answer proves to an API without keys that the request
// was not executed.
func (k *call) mayRepeat() bool {
	return !k.doubt && (k.response.StatusCode == http.StatusTooManyRequests || k.response.StatusCode == http.StatusTooEarly)
}

// ask decides whether to try again after an attempt without a final answer, and waits.
func (k *call) ask(ctx context.Context) (*http.Response, error) {
	if k.c.o.CheckRetry != nil {
		more, err := k.c.o.CheckRetry(ctx, k.response, k.err)
		if k.response != nil && !k.streamed {
			k.response.Body = io.NopCloser(bytes.NewReader(k.body)) // the hook may have read it
		}
		if k.response != nil && !notExecuted(k.response.StatusCode) {
			k.doubt = true
			more = more && k.op.Profile != KeysIgnored
		}
		switch {
		case more:
		case err != nil:
			return nil, k.exhausted(err)
		case k.response == nil:
			return nil, k.exhausted(k.err)
		case notExecuted(k.response.StatusCode) && k.doubt:
			return nil, k.exhausted(nil)
		case notExecuted(k.response.StatusCode):
			return k.answer(), nil
		default:
			return k.finish(), nil
		}
	}
	if k.tries >= k.c.o.MaxTries {
		return nil, k.exhausted(errTries)
	}
	if !k.c.budget.spend() {
		return nil, k.exhausted(errBudget)
	}
	wait := k.c.backoff(k.tries, k.response)
	if time.Since(k.began)+wait > k.c.o.MaxElapsed {
		return nil, k.exhausted(errTime)
	}
	k.drop()
	if err := sleep(ctx, wait); err != nil {
		return nil, k.exhausted(err)
	}
	return nil, nil
}

// poll waits for a request that is being executed. It is not a retry: the API said when to
// come back.
func (k *call) poll(ctx context.Context, m meaning) error {
	k.tries--
	k.polls++
	wait := k.c.backoff(min(k.polls, 4), k.response) // not the longest waits: the answer may be there soon
	if place := k.response.Header.Get("Location"); m == accepted && place != "" && k.asked == nil && !k.alone {
		if at, err := k.target.Parse(place); err == nil && at.Scheme == k.target.Scheme && at.Host == k.target.Host {
			k.asked = at // credentials go to no other host
		}
	}
	over := &InFlightError{Operation: k.name(), Key: k.op.Key, RetryAfter: wait}
	k.drop()
	if time.Since(k.began)+wait > k.c.o.MaxElapsed {
		return over
	}
	over.Err = sleep(ctx, wait)
	if over.Err != nil {
		return over
	}
	return nil
}

// finish notes that the last answer is the operation's, and returns it.
func (k *call) finish() *http.Response {
	k.settled = true
	k.c.budget.restore()
	return k.answer()
}

// answer returns the last answer. Its request is what was sent, by which a redirect finds its
// key, without credentials.
func (k *call) answer() *http.Response {
	k.response.Request = &http.Request{Method: k.op.Method, URL: k.target, Host: k.op.Host, Header: k.op.Header.Clone()}
	return k.response
}

// drop gives up an answer that is not returned.
func (k *call) drop() {
	if k.response != nil {
		k.response.Body.Close()
	}
}

// noteExpiry notes when the API will forget the key.
func (k *call) noteExpiry() {
	h := k.response.Header
	at, err := http.ParseTime(h.Get("Idempotency-Expires"))
	if err != nil {
		return
	}
	k.op.Expires = at.UTC()
	if !replayed(h) {
		k.c.retention.learn(k.target.Host, at.Sub(serverTime(h)))
	}
}

// name returns the operation's ID for messages. An ID that is only the key is not shown.
func (k *call) name() string {
	if k.op.ID == k.op.Key {
		return ""
	}
	return k.op.ID
}

// exhausted returns the error of a call that ends without a final answer.
func (k *call) exhausted(why error) *ExhaustedError {
	e := &ExhaustedError{Operation: k.name(), Key: k.op.Key, Tries: k.sent, MayHaveHappened: k.doubt, Err: why}
	if k.response != nil {
		e.Status = k.response.StatusCode
		k.drop()
	}
	switch {
	case why == nil:
		e.Err = k.err
	case k.err != nil && !errors.Is(k.err, why) && !errors.Is(why, k.err):
		e.Err = fmt.Errorf("%w: %w", why, k.err)
	}
	return e
}

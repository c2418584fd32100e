package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/textproto"
	"net/url"
	"time"
)

// Options are the optional settings of a [Client]. The zero value of each field is its
// default.
type Options struct {
	// Base sends the requests. Default: a transport like [http.DefaultTransport].
	Base http.RoundTripper
	// Profile is that of the API. Default: [IETF].
	Profile Profile
	// Header is the name of the key's header. Default: Idempotency-Key.
	Header string
	// Journal stores operations before they are sent. Default: none, operations end with
	// the process.
	Journal Journal
	// Authorize adds credentials to a request before each attempt, such as a token that may
	// have been renewed since the last one. [Client.Resume] needs it, because a journal has
	// no credentials. An error ends the call.
	Authorize func(*http.Request) error
	// Private names further headers that a journal must not contain. Authorization, Cookie
	// and headers whose names look like a secret (token, api-key, signature and the like)
	// never are in it.
	Private []string

	// MaxTries is how often an operation is sent in one call. Default: 9. Asking again about
	// a request that is in flight does not count.
	MaxTries int
	// MaxElapsed bounds the time of one call. Default: 10 minutes. An attempt that is under
	// way is not interrupted by it.
	MaxElapsed time.Duration
	// AttemptTimeout bounds one attempt, with the body of its answer. Default: 30 s.
	AttemptTimeout time.Duration
	// MinWait and MaxWait bound the time between two attempts: a random time up to MinWait,
	// doubled with each attempt up to MaxWait, and at least what Retry-After says. Defaults:
	// 500 ms, 60 s.
	MinWait, MaxWait time.Duration
	// Budget is how many retries all calls together may make without a final answer. Each
	// final answer restores one. It keeps many callers from overloading an API that is down.
	// Default: 100; negative: without limit.
	Budget int
	// Window is how long after its beginning an operation may still be sent. It has to be
	// shorter than the time for which the API remembers a key: after that the API would
	// execute a retry as a new request. Default: 20 hours. If the API announces a shorter
	// time by Idempotency-Expires, that one holds.
	Window time.Duration
	// MaxBody bounds the body of a request, which is held in memory. Default: 16 MiB.
	MaxBody int64
	// MaxAnswer bounds the body of an answer that is held in memory until it is complete.
	// Default: 16 MiB. A larger one is passed on as it arrives: it may end early.
	MaxAnswer int64

	// CheckRetry decides whether an attempt is repeated, in place of the status. If it returns
	// false, the answer is final, or the call ends with the error. It is not asked about what
	// the key's own contract decides: replays, mismatches, requests in flight or of an unknown
	// outcome. It has the type of the hook of go-retryablehttp.
	CheckRetry func(ctx context.Context, response *http.Response, err error) (bool, error)
	// Backoff returns the time before the next attempt, in place of the random one. It has
	// the type of the hook of go-retryablehttp.
	Backoff func(least, most time.Duration, attempt int, response *http.Response) time.Duration
	// OnAttempt is told of each attempt before it is sent, counted from 0.
	OnAttempt func(request *http.Request, attempt int)
}

// A Client sends requests with keys. Its methods may be called concurrently.
type Client struct {
	o         Options
	budget    budget
	retention retention
}

var _ http.RoundTripper = (*Client)(nil)

// New returns a client. It starts nothing.
func New(o *Options) (*Client, error) {
	c := new(Client)
	if o != nil {
		c.o = *o
	}
	if c.o.Profile = cmp.Or(c.o.Profile, IETF); !c.o.Profile.known() {
		return nil, fmt.Errorf("client: there is no profile %q; it is one of %s, %s, %s", c.o.Profile, IETF, Stripe, KeysIgnored)
	}
	for _, d := range []struct {
		name  string
		field *time.Duration
		value time.Duration
	}{
		{"MaxElapsed", &c.o.MaxElapsed, 10 * time.Minute}, {"AttemptTimeout", &c.o.AttemptTimeout, 30 * time.Second},
		{"MinWait", &c.o.MinWait, 500 * time.Millisecond}, {"MaxWait", &c.o.MaxWait, time.Minute}, {"Window", &c.o.Window, 20 * time.Hour},
	} {
		if *d.field < 0 {
			return nil, fmt.Errorf("client: Options.%s is negative; leave it out for the default of %s", d.name, d.value)
		}
		*d.field = cmp.Or(*d.field, d.value)
	}
	if c.o.MaxTries < 0 || c.o.MaxBody < 0 || c.o.MaxAnswer < 0 {
		return nil, errors.New("client: Options.MaxTries, MaxBody or MaxAnswer is negative; leave it out for its default")
	}
	c.o.MaxTries = cmp.Or(c.o.MaxTries, 9)
	c.o.MaxBody, c.o.MaxAnswer = cmp.Or(c.o.MaxBody, 16<<20), cmp.Or(c.o.MaxAnswer, 16<<20)
	c.o.MaxWait = max(c.o.MaxWait, c.o.MinWait)
	c.o.Header = textproto.CanonicalMIMEHeaderKey(cmp.Or(c.o.Header, "Idempotency-Key"))
	c.budget.limit = float64(cmp.Or(c.o.Budget, 100))
	if c.o.Base == nil {
		c.o.Base = http.DefaultTransport
		if t, ok := http.DefaultTransport.(*http.Transport); ok {
			c.o.Base = t.Clone()
		}
	}
	return c, nil
}

// Do sends a request for an operation, and returns its final answer or an error about the
// operation. It follows no redirects. The operation is the caller's own name for what the
// request does, such as an order number; it may be empty, see [WithOperation].
//
// The body of the answer is complete, unless it is larger than [Options.MaxAnswer]. The caller
// closes it.
func (c *Client) Do(operation string, r *http.Request) (*http.Response, error) {
	if operation != "" {
		r = r.WithContext(WithOperation(r.Context(), operation))
	}
	plain := http.Client{
		Transport:     c,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	response, err := plain.Do(r)
	if wrapped, ok := errors.AsType[*url.Error](err); ok {
		err = wrapped.Err
	}
	return response, err
}

// RoundTrip sends a request with a key until there is a final answer. POST and PATCH have a
// key, and every request that comes with the key's header, whose value is used as it is. All
// other requests go to [Options.Base] as they are.
func (c *Client) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method != http.MethodPost && r.Method != http.MethodPatch && len(r.Header[c.o.Header]) == 0 {
		return c.o.Base.RoundTrip(r)
	}
	op, secret, err := c.newOperation(r)
	if err != nil {
		return nil, err
	}
	if c.o.Journal == nil || r.Response != nil { // a redirect continues an operation, under its key
		return c.newCall(op, secret, false).run(r.Context())
	}
	return c.runJournaled(r.Context(), op, secret)
}

// Replayed reports whether an answer is marked as that of an earlier request: by the API, or
// because it comes from the journal.
func Replayed(response *http.Response) bool { return replayed(response.Header) }

// Package neverresend sends each HTTP request once.
//
// [http.Transport] takes a request with an Idempotency-Key for one that may be sent
// again, and does so by itself when a kept-alive connection dies, also after the
// server has executed it. Whoever counts attempts must not have that: behind
// [Transport] the error comes back, and the caller decides.
package neverresend

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptrace"
	"strings"
	"sync/atomic"
)

// ErrNotSent says that there was no connection to send the request on, so its
// receiver cannot have seen it. An error without this mark proves nothing.
var ErrNotSent = errors.New("request was not sent")

// Transport returns a transport that sends each request to next at most once. It
// sends one again only where not a byte of it was written.
func Transport(next http.RoundTripper) http.RoundTripper { return &transport{next} }

type transport struct{ next http.RoundTripper }

func (t *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	var connected atomic.Bool
	once := r.WithContext(noting(r.Context(), &connected))
	once.GetBody = nil // a body that cannot be had again is not sent again
	if once.Body == nil || once.Body == http.NoBody {
		once.Header = unmarked(once.Header)
	}
	response, err := t.next.RoundTrip(once)
	if err != nil && !connected.Load() {
		err = fmt.Errorf("%w: %w", ErrNotSent, err)
	}
	return response, err
}

// noting returns a context in which connected becomes true as soon as the request
// has a connection.
func noting(ctx context.Context, connected *atomic.Bool) context.Context {
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GotConn: func(httptrace.GotConnInfo) { connected.Store(true) },
	})
}

// marks are the entries of a header map by which [http.Transport] takes a request
// without a body for one that it may repeat.
var marks = [...]string{"Idempotency-Key", "X-Idempotency-Key"}

// unmarked returns h with these in lower case: to a server they are the same
// headers, while the transport does not find them. A body that only pretends to be
// one would do too, but goes out in chunks, which not every server takes.
func unmarked(h http.Header) http.Header {
	own := false
	for _, name := range marks {
		values, ok := h[name]
		if !ok {
			continue
		}
		if !own {
			h, own = maps.Clone(h), true
		}
		delete(h, name)
		lower := strings.ToLower(name)
		h[lower] = append(h[lower][:len(h[lower]):len(h[lower])], values...)
	}
	return h
}

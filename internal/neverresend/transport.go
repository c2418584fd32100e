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
	"io"
	"net/http"
	"net/http/httptrace"
	"sync/atomic"
)

// ErrNotSent says that there was no connection to send the request on, so its
// receiver cannot have seen it. An error without this mark proves nothing.
var ErrNotSent = errors.New("request was not sent")

// Transport returns a transport that sends each request to next at most once. It
// makes the body one that cannot be had again, so that a POST without one goes out
// as an empty body in chunks.
func Transport(next http.RoundTripper) http.RoundTripper { return &transport{next} }

type transport struct{ next http.RoundTripper }

func (t *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	var connected atomic.Bool
	once := r.WithContext(noting(r.Context(), &connected))
	once.GetBody = nil
	if once.Body == nil || once.Body == http.NoBody {
		once.Body = empty{http.NoBody}
		once.ContentLength = 0
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

// empty is a body without bytes that the transport does not know to be one.
type empty struct{ io.ReadCloser }

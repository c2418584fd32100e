// Package neverresend sends each HTTP request once.
//
// [http.Transport] considers a request with an Idempotency-Key repeatable, and sends it
// again by itself when a kept-alive connection breaks, also after the server has
// executed it. A caller that counts attempts must not have that: [Transport] returns
// the error instead, and the caller decides.
package neverresend

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/http/httptrace"
	"strings"
	"sync/atomic"
)

// ErrNotSent says that no byte of the request was sent, because there was no connection to
// send it on or the connection accepted nothing. Its receiver cannot have seen it. An error
// without this mark proves nothing.
var ErrNotSent = errors.New("request was not sent")

// Transport returns a transport that sends each request to next at most once. It sends
// one again only if not a byte of it was written.
func Transport(next http.RoundTripper) http.RoundTripper { return &transport{next} }

type transport struct{ next http.RoundTripper }

func (t *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	s := new(sending)
	ctx, empty := r.Context(), r.Body == nil || r.Body == http.NoBody
	if empty {
		ctx, s.giveUp = context.WithCancel(ctx) // it ends with the caller's
	}
	once := r.WithContext(httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GotConn: s.gotConn, WroteHeaders: func() { s.written.Store(true) },
	}))
	once.GetBody = nil // without it a body cannot be sent again
	if empty {
		once.Header = unmarked(once.Header)
	}
	response, err := t.next.RoundTrip(once)
	switch {
	case err == nil:
	case !s.connected.Load():
		err = fmt.Errorf("%w: %w", ErrNotSent, err)
	case s.returned.Load():
		err = errReturned
	}
	if err != nil && empty {
		s.giveUp()
	}
	return response, err
}

// errReturned: the server has reset the stream, or sent GOAWAY, in a way that
// [http.Transport] takes for a promise that nothing was executed. Some of these are no
// such promise, and the others cannot be checked.
var errReturned = errors.New("the server gave the request back; it may have executed it, so it is not sent again")

// A sending is the state of one request.
type sending struct {
	connected, written, returned atomic.Bool
	giveUp                       context.CancelFunc // nil if there is a body
}

// gotConn is called when the request has a connection. If it was written to another
// before, HTTP/2's transport is about to send it again. It does so without a look at
// headers, but not when the request's context has ended. In HTTP/1 the headers that
// were written need not have left the process, and the marks decide whether they are
// written again.
func (s *sending) gotConn(c httptrace.GotConnInfo) {
	s.connected.Store(true)
	if s.giveUp != nil && s.written.Load() && isHTTP2(c.Conn) {
		s.returned.Store(true)
		s.giveUp()
	}
}

func isHTTP2(c net.Conn) bool {
	secure, ok := c.(*tls.Conn)
	return ok && secure.ConnectionState().NegotiatedProtocol == "h2"
}

// marks are the keys of a header map by which [http.Transport] considers a request
// without a body repeatable.
var marks = [...]string{"Idempotency-Key", "X-Idempotency-Key"}

// unmarked returns h with the marks in lower case: to a server they are the same
// headers, but the transport does not find them. A fake body would prevent the
// repetition too, but is sent in chunks, which not every server accepts.
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

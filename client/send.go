package client

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"maps"
	"net/http"
	"net/http/httptrace"
	"strings"
	"sync/atomic"
)

// A sending is one request on its way. [http.Transport] considers a request with a key
// repeatable, and sends it again by itself when a kept-alive connection breaks, also after
// the API has executed it. That would be an attempt without a wait, outside of any limit, so a
// sending takes away what the transport needs for it.
type sending struct {
	connected, written, returned atomic.Bool
	giveUp                       context.CancelFunc
	empty                        bool
}

// errReturned: an HTTP/2 server gave the request back in a way that [http.Transport] takes
// for a promise that nothing was executed.
var errReturned = errors.New("the server gave the request back")

// once sends the request at most once, and returns its answer. If the error is not nil,
// reached says whether the API may have received the request.
func once(base http.RoundTripper, r *http.Request, body []byte) (response *http.Response, reached bool, err error) {
	s := &sending{empty: len(body) == 0}
	ctx, cancel := context.WithCancel(r.Context())
	s.giveUp = cancel
	r = r.WithContext(httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GotConn: s.gotConn, WroteHeaders: func() { s.written.Store(true) },
	}))
	if s.empty {
		r.Header = unmarked(r.Header)
	} else {
		r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	}
	r.GetBody = nil // without it a body cannot be sent again
	if response, err = base.RoundTrip(r); err != nil {
		cancel()
		if s.returned.Load() {
			err = errReturned
		}
		return nil, s.connected.Load(), err
	}
	response.Body = &canceling{response.Body, cancel}
	return response, true, nil
}

// gotConn is called when the request has a connection. If a request without a body was
// written to another before, HTTP/2's transport is about to send it again, which it does not
// do when the request's context has ended.
func (s *sending) gotConn(c httptrace.GotConnInfo) {
	s.connected.Store(true)
	if secure, ok := c.Conn.(*tls.Conn); ok && s.empty && s.written.Load() && secure.ConnectionState().NegotiatedProtocol == "h2" {
		s.returned.Store(true)
		s.giveUp()
	}
}

// unmarked returns h with the names in lower case by which [http.Transport] considers a
// request without a body repeatable. To a server they are the same headers.
func unmarked(h http.Header) http.Header {
	h = maps.Clone(h)
	for _, name := range []string{"Idempotency-Key", "X-Idempotency-Key"} {
		if values, ok := h[name]; ok {
			delete(h, name)
			h[strings.ToLower(name)] = values
		}
	}
	return h
}

// canceling is a body whose request ends with it.
type canceling struct {
	io.ReadCloser
	cancel context.CancelFunc
}

func (b *canceling) Close() error {
	defer b.cancel()
	return b.ReadCloser.Close()
}

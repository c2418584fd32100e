package client

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"time"
)

// attempt sends one request. An error means that the call is over.
func (k *call) attempt(ctx context.Context) error {
	method, target, body := k.op.Method, k.target, k.op.Body
	if k.asked != nil {
		method, target, body = http.MethodGet, k.asked, nil
	}
	ctx, cancel := context.WithCancelCause(ctx)
	timer := time.AfterFunc(k.c.o.AttemptTimeout, func() { cancel(errAttempt) })
	end := func() { timer.Stop(); cancel(nil) }
	r := (&http.Request{Method: method, URL: target, Host: k.op.Host, Header: k.header(), Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1}).WithContext(ctx)
	if k.c.o.Authorize != nil {
		if err := k.c.o.Authorize(r); err != nil {
			end()
			return k.exhausted(fmt.Errorf("authorize: %w", err))
		}
	}
	if k.c.o.OnAttempt != nil {
		k.c.o.OnAttempt(r, k.sent)
	}
	k.sent++
	k.tries++
	k.response, k.body, k.streamed = nil, nil, false
	response, reached, err := once(k.c.o.Base, r, body)
	if err == nil {
		body, err = io.ReadAll(io.LimitReader(response.Body, k.c.o.MaxAnswer+1))
		if err != nil { // the answer was cut off
			response.Body.Close()
		}
	}
	if k.err = err; err != nil {
		end()
		k.doubt = k.doubt || reached
		return nil
	}
	k.response, k.body = response, body
	if int64(len(body)) > k.c.o.MaxAnswer {
		timer.Stop()
		k.streamed = true
		response.Body = &rest{io.MultiReader(bytes.NewReader(body), response.Body), response.Body, end}
		return nil
	}
	response.Body.Close()
	end()
	response.Body = io.NopCloser(bytes.NewReader(body))
	return nil
}

// rest is a body of which the beginning was read already.
type rest struct {
	io.Reader
	body io.Closer
	end  func()
}

func (r *rest) Close() error {
	defer r.end()
	return r.body.Close()
}

// header returns the headers of a request: those of the operation, and credentials.
func (k *call) header() http.Header {
	h := k.op.Header.Clone()
	maps.Copy(h, k.secret)
	if k.asked != nil {
		for _, name := range []string{"Content-Type", "Content-Encoding", "Content-Length"} {
			h.Del(name)
		}
	}
	return h
}

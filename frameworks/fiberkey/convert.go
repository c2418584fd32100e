package fiberkey

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/gofiber/fiber/v3"
	"github.com/valyala/fasthttp"
)

// request returns a copy of the request: fasthttp uses its memory for the next one, and the
// store keeps the key.
func request(c fiber.Ctx) (*http.Request, error) {
	in := c.Request()
	target := string(in.RequestURI())
	u, err := url.ParseRequestURI(target)
	if err != nil {
		return nil, err
	}
	r := &http.Request{
		Method: c.Method(), URL: u, RequestURI: target, Host: string(in.Host()), Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: make(http.Header), Body: &body{c: c}, ContentLength: int64(in.Header.ContentLength()),
	}
	for name, value := range in.Header.All() {
		r.Header.Add(string(name), string(value))
	}
	if ctx := c.Context(); ctx != context.Background() {
		r = r.WithContext(ctx)
	}
	return r, nil
}

// body reads the request's body, and leaves it to the handler.
type body struct {
	bytes.Reader
	c    fiber.Ctx
	read bool
}

func (b *body) Read(p []byte) (int, error) {
	if in := b.c.Request(); !b.read {
		b.read = true
		if in.IsBodyStream() {
			limit := b.c.App().Config().BodyLimit
			all, err := io.ReadAll(io.LimitReader(in.BodyStream(), int64(limit)+1))
			if len(all) > limit {
				err = &http.MaxBytesError{Limit: int64(limit)}
			}
			if err != nil {
				return 0, err
			}
			in.SetBodyRaw(all)
		}
		b.Reset(in.Body())
	}
	return b.Reader.Read(p)
}

func (*body) Close() error { return nil }

// copyOut writes a response of fiber to the guard, which copies it. An empty 200 is not
// written: it is what a handler leaves that does nothing.
func copyOut(w http.ResponseWriter, out *fasthttp.Response) {
	h := w.Header()
	for name, value := range out.Header.All() {
		h.Add(string(name), string(value))
	}
	if out.StatusCode() != http.StatusOK || len(h) > 0 || len(out.Body()) > 0 {
		w.WriteHeader(out.StatusCode())
		_, _ = w.Write(out.Body()) // if the guard refuses it, it fails the attempt
	}
}

// client is the client's response as the guard writes it. It is sent when the handler's own
// response is out of the way.
type client struct {
	header http.Header
	status int
	body   []byte
}

func (w *client) Header() http.Header {
	if w.header == nil {
		w.header = make(http.Header)
	}
	return w.header
}

func (w *client) WriteHeader(status int) {
	if w.status == 0 && status >= 200 {
		w.status = status
	}
}

func (w *client) Write(p []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	w.body = append(w.body, p...)
	return len(p), nil
}

// send hands the response to fiber. Fasthttp counts the length, and has trailers only in
// streams.
func (w *client) send(out *fasthttp.Response) {
	if w.status != 0 {
		out.SetStatusCode(w.status)
	}
	if len(w.body) > 0 {
		out.SetBodyRaw(w.body)
	}
	for name, values := range w.header {
		if name == "Content-Length" || strings.HasPrefix(name, http.TrailerPrefix) {
			continue
		}
		if name != "Vary" { // to which middleware before the guard may have added
			out.Header.Del(name)
		}
		for _, value := range values {
			out.Header.Add(name, value)
		}
	}
}

package httpkey

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
)

// maxRatio bounds how much larger a decoded body may be than the encoded one,
// beyond a first allowance of decodeFree bytes.
const (
	maxRatio   = 100
	decodeFree = 64 << 10
)

var (
	errTooLarge = errors.New("body is over the limit")
	errEncoding = errors.New("content encoding is not supported")
)

// readBody reads the whole body of a request into buf, before anything is reserved. If
// the client disconnects half-way, no record is left.
func (g *Guard) readBody(r *http.Request, buf []byte) ([]byte, error) {
	limit := g.o.MaxRequest
	lines := r.Header["Content-Encoding"]
	encoded := slices.ContainsFunc(lines, isEncoding)
	if encoded && (g.o.Encoded != EncodedDecodeGzip || !strings.EqualFold(lines[0], "gzip") || len(lines) > 1) {
		return nil, errEncoding
	}
	if r.ContentLength > limit {
		return nil, errTooLarge
	}
	if r.Body == nil || r.Body == http.NoBody { // ContentLength may be wrong: outer middleware may have replaced the body
		return buf[:0], nil
	}
	if n := min(r.ContentLength, trustedLength); n > 0 && int64(cap(buf)) < n+1 {
		buf = make([]byte, 0, n+1) // one more byte, so that the read that returns EOF needs no larger buffer
	}
	body, err := readAll(r.Body, buf[:0], limit, r.ContentLength)
	if err != nil || !encoded || len(body) == 0 {
		return body, err
	}
	return g.gunzip(body, limit)
}

// trustedLength is how much memory is allocated for a body before any of it has arrived.
// Beyond it memory follows what arrives: a length that is only announced costs nothing.
const trustedLength = 16 << 10

// isEncoding reports whether a line of Content-Encoding names an encoding.
func isEncoding(line string) bool { return line != "" && !strings.EqualFold(line, "identity") }

// readAll is io.ReadAll into buf with a limit. Length is how much should come, and
// negative if that is not known.
func readAll(r io.Reader, buf []byte, limit, length int64) ([]byte, error) {
	for {
		switch left := length + 1 - int64(len(buf)); { // with the byte for the read that returns EOF
		case len(buf) < cap(buf):
		case left > 0:
			buf = slices.Grow(buf, int(min(left, int64(max(len(buf), 512)))))
		default:
			buf = append(buf, 0)[:len(buf)]
		}
		n, err := r.Read(buf[len(buf):cap(buf)])
		buf = buf[:len(buf)+n]
		switch {
		case int64(len(buf)) > limit:
			return nil, errTooLarge
		case errors.Is(err, io.EOF):
			return buf, nil
		case err != nil:
			return nil, err
		}
	}
}

// gunzip decodes body under the size limit and a limit on the ratio.
func (g *Guard) gunzip(body []byte, limit int64) ([]byte, error) {
	zr, err := gzip.NewReader(bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	return readAll(zr, nil, min(limit, decodeFree+maxRatio*int64(len(body))), -1)
}

// heldBody is the body that a handler reads: the bytes that were fingerprinted.
type heldBody struct{ bytes.Reader }

func (*heldBody) Close() error { return nil }

// withBody returns the request that the handler gets: in the attempt's context, with the
// body that was read.
func (x *exchange) withBody(ctx context.Context, r *http.Request, body []byte) *http.Request {
	r = r.WithContext(ctx)
	x.body.Reset(body)
	r.Body = &x.body
	r.ContentLength = int64(len(body))
	r.TransferEncoding = nil
	if len(r.Header["Content-Encoding"]) > 0 && !strings.EqualFold(r.Header["Content-Encoding"][0], "identity") {
		r.Header = r.Header.Clone()
		r.Header.Del("Content-Encoding")
		r.Header.Del("Content-Length")
	}
	return r
}

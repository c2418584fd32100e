package httpkey

import (
	"context"
	"encoding/binary"
	"errors"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/retrysafe/retrysafe"
	frame "github.com/retrysafe/retrysafe/internal/fields"
)

// storedVersion is the version of the encoding below. It is the first byte of a stored
// request.
const storedVersion = 1

var (
	// errNewerRequest: a newer version of this program has stored the request, and can
	// run it.
	errNewerRequest = errors.New("the request is stored in an encoding that is not known here")
	errBadRequest   = errors.New("the stored request is damaged")
)

// storedRequest is what is stored of a request for a worker.
type storedRequest struct {
	method, host, uri    string
	path, rawPath, query string
	pattern              string
	values               []pathValue // what the pattern's wildcards matched
	header               http.Header
	body                 []byte
}

type pathValue struct{ name, value string }

// encodeRequest returns the encoding of a request.
func (g *Guard) encodeRequest(r *http.Request, body []byte) []byte {
	s := storedRequest{
		method: r.Method, host: r.Host, uri: r.RequestURI,
		path: r.URL.Path, rawPath: r.URL.RawPath, query: r.URL.RawQuery,
		pattern: r.Pattern, header: make(http.Header), body: body,
	}
	for _, name := range wildcards(r.Pattern) {
		s.values = append(s.values, pathValue{name, r.PathValue(name)})
	}
	for _, name := range g.kept {
		if values := r.Header[name]; len(values) > 0 {
			s.header[name] = values
		}
	}
	return s.append(make([]byte, 0, len(body)+512))
}

// wildcards returns the names of a pattern's wildcards.
func wildcards(pattern string) []string {
	var names []string
	for segment := range strings.SplitSeq(pattern, "/") {
		name, ok := strings.CutPrefix(segment, "{")
		if name = strings.TrimSuffix(strings.TrimSuffix(name, "}"), "..."); ok && name != "$" {
			names = append(names, name)
		}
	}
	return names
}

// append appends the encoding of s to b.
func (s *storedRequest) append(b []byte) []byte {
	b = append(b, storedVersion)
	for _, text := range [...]string{s.method, s.host, s.uri, s.path, s.rawPath, s.query, s.pattern} {
		b = frame.Append(b, text)
	}
	b = binary.AppendUvarint(b, uint64(len(s.values)))
	for _, v := range s.values {
		b = frame.Append(frame.Append(b, v.name), v.value)
	}
	b = binary.AppendUvarint(b, uint64(len(s.header)))
	for _, name := range slices.Sorted(maps.Keys(s.header)) {
		b = appendList(frame.Append(b, name), s.header[name])
	}
	return frame.Append(b, s.body)
}

// parseStored is the inverse of append. What it returns shares memory with b.
func parseStored(b []byte) (s storedRequest, err error) {
	d := frame.Reader{Rest: b}
	if version := d.Byte(); !d.Bad && version != storedVersion {
		return s, errNewerRequest
	}
	for _, text := range [...]*string{&s.method, &s.host, &s.uri, &s.path, &s.rawPath, &s.query, &s.pattern} {
		*text = string(d.Bytes())
	}
	for range d.Count() {
		s.values = append(s.values, pathValue{string(d.Bytes()), string(d.Bytes())})
	}
	s.header = make(http.Header)
	for range d.Count() {
		name := string(d.Bytes())
		values := make([]string, d.Count())
		for i := range values {
			values[i] = string(d.Bytes())
		}
		s.header[name] = values
	}
	s.body = d.Bytes()
	if d.Bad || len(d.Rest) > 0 || s.method == "" {
		return storedRequest{}, errBadRequest
	}
	return s, nil
}

// request returns the request without its body. It has no connection, so it has neither
// a remote address nor a TLS state.
func (s *storedRequest) request(ctx context.Context) *http.Request {
	r := (&http.Request{
		Method: s.method, Host: s.host, RequestURI: s.uri, Pattern: s.pattern,
		URL:   &url.URL{Path: s.path, RawPath: s.rawPath, RawQuery: s.query},
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: s.header.Clone(), Body: http.NoBody,
	}).WithContext(ctx)
	for _, v := range s.values {
		r.SetPathValue(v.name, v.value)
	}
	return r
}

// StoredBody returns the body of the request that is stored with an accepted record, and
// whether there is one. The record of a request that was run at once has none.
func StoredBody(r *retrysafe.Record) ([]byte, bool) {
	if len(r.Request) == 0 {
		return nil, false
	}
	s, err := parseStored(r.Request)
	return s.body, err == nil
}

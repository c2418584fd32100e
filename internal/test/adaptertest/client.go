package adaptertest

import (
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
)

// A client sends requests to the service.
type client struct {
	t    testing.TB
	url  string
	http *http.Client
}

func newClient(t testing.TB, url string) *client {
	transport := &http.Transport{DisableCompression: true}
	t.Cleanup(transport.CloseIdleConnections)
	return &client{t, url, &http.Client{Transport: transport}}
}

// A response is an answer, read whole.
type response struct {
	status int
	header http.Header
	body   string
}

// post sends a POST of JSON under a key. Header is names and values, in turn.
func (c *client) post(path, key, body string, header ...string) *response {
	return c.do(http.MethodPost, path, key, body, header...)
}

func (c *client) do(method, path, key, body string, header ...string) *response {
	c.t.Helper()
	r, err := http.NewRequestWithContext(c.t.Context(), method, c.url+path, strings.NewReader(body))
	if err != nil {
		c.t.Fatal(err)
	}
	r.GetBody = nil // the transport sends nothing a second time
	r.Header.Set("Content-Type", "application/json")
	if key != "" {
		r.Header.Set("Idempotency-Key", key)
	}
	for ; len(header) > 1; header = header[2:] {
		r.Header.Set(header[0], header[1])
	}
	res, err := c.http.Do(r)
	if err != nil {
		c.t.Error(err)
		return &response{}
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		c.t.Errorf("%s %s: read the answer: %v", method, path, err)
	}
	return &response{res.StatusCode, res.Header, string(text)}
}

// problem fails unless the response is the refusal with this status and code.
func (r *response) problem(t testing.TB, status int, code string) {
	t.Helper()
	if r.status != status || !strings.Contains(r.body, `"code":"`+code+`"`) || !strings.Contains(r.header.Get("Link"), "/"+code) ||
		r.header.Get("Content-Type") != "application/problem+json" {
		t.Fatalf("got %d %v %.300q, want %d %s", r.status, r.header, r.body, status, code)
	}
}

// replays fails unless r is the stored first answer: status, body and headers are the
// same, but for the headers that mark a replay and those that are not stored.
func (r *response) replays(t testing.TB, first *response, unstored ...string) {
	t.Helper()
	if r.status != first.status || r.body != first.body {
		t.Fatalf("got %d %.100q, want %d %.100q", r.status, r.body, first.status, first.body)
	}
	if r.header.Get("Idempotent-Replayed") != "true" || r.header.Get("Cache-Control") != "no-store" {
		t.Errorf("the answer is not marked as a replay: %v", r.header)
	}
	except := append([]string{"Date", "Idempotent-Replayed", "Cache-Control"}, unstored...)
	got, want := without(r.header, except), without(first.header, except)
	if !maps.EqualFunc(got, want, slices.Equal) {
		t.Errorf("the retry gets the headers\n%v, want\n%v", got, want)
	}
}

func without(h http.Header, names []string) http.Header {
	h = h.Clone()
	for _, name := range names {
		delete(h, name)
	}
	return h
}

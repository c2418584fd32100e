package clitest

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
)

// A Resolver is an endpoint for reconcile run that replies as it is told, by key.
type Resolver struct {
	*httptest.Server
	mu     sync.Mutex
	says   map[string]string
	status int
	asked  []map[string]any
	header http.Header
}

// NewResolver starts an endpoint for the time of the test.
func NewResolver(t *testing.T) *Resolver {
	t.Helper()
	r := &Resolver{says: map[string]string{}, status: http.StatusOK}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		r.mu.Lock()
		defer r.mu.Unlock()
		var q map[string]any
		body, _ := io.ReadAll(req.Body)
		if err := json.Unmarshal(body, &q); err != nil || req.Method != http.MethodPost || req.Header.Get("Content-Type") != "application/json" {
			t.Errorf("asked by %s %q", req.Method, body)
		}
		r.asked, r.header = append(r.asked, q), req.Header.Clone()
		w.WriteHeader(r.status)
		_, _ = io.WriteString(w, r.says[fmt.Sprint(q["key"])])
	}))
	t.Cleanup(r.Close)
	return r
}

// Reply sets the reply to questions about a key.
func (r *Resolver) Reply(key, body string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.says[key] = body
}

// ReplyStatus sets the status of all replies.
func (r *Resolver) ReplyStatus(status int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.status = status
}

// Questions returns what the endpoint was asked, and the header of the last question.
func (r *Resolver) Questions() ([]map[string]any, http.Header) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.asked), r.header
}

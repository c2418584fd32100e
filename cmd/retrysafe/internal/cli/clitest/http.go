package clitest

import (
	"io"
	"net/http"
	"strings"
	"testing"
)

// Post sends a POST with a key and a bearer token, and returns status and body.
func Post(t *testing.T, url, token, key, body string) (int, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(body))
	Must(t, err)
	r.Header.Set("Authorization", "Bearer "+token)
	r.Header.Set("Idempotency-Key", `"`+key+`"`)
	r.Header.Set("Content-Type", "application/json")
	return Send(t, r)
}

// Get sends a GET, with a bearer token if there is one, and returns status and body.
func Get(t *testing.T, url, token string) (int, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
	Must(t, err)
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	return Send(t, r)
}

// Send sends a request and returns status and body.
func Send(t *testing.T, r *http.Request) (int, string) {
	t.Helper()
	got, err := http.DefaultClient.Do(r)
	Must(t, err)
	defer got.Body.Close()
	body, err := io.ReadAll(got.Body)
	Must(t, err)
	return got.StatusCode, string(body)
}

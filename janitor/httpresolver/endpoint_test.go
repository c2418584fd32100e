package httpresolver_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/janitor/httpresolver"
)

// Only a whole reply with status 200 is evidence: an endpoint that is not there, that redirects, or whose reply breaks
// off, must not pass for a provider that knows nothing of the operation.
func TestOnlyAWholeReplyIsEvidence(t *testing.T) {
	t.Parallel()
	const verdict = `{"verdict":"tombstoned","evidence":"it is gone"}`
	for name, c := range map[string]struct {
		handler http.HandlerFunc
		want    retrysafe.Finding
		err     string
	}{
		"whole": {func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, verdict) }, retrysafe.FindingNotHappened, ""},
		"still unknown": {func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, `{"verdict":"still_unknown","evidence":"asked the desk"}`)
		}, retrysafe.FindingUnknown, ""},
		"201": {func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusCreated)
			_, _ = io.WriteString(w, verdict)
		}, retrysafe.FindingUnknown, "status 201"},
		"404": {func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusNotFound)
			_, _ = io.WriteString(w, verdict)
		}, retrysafe.FindingUnknown, "status 404"},
		"500": {func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusInternalServerError)
			_, _ = io.WriteString(w, verdict)
		}, retrysafe.FindingUnknown, "status 500"},
		"cut": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "1000")
			_, _ = io.WriteString(w, verdict)
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		}, retrysafe.FindingUnknown, "read the resolver's reply"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Method != http.MethodPost || r.Header.Get("Content-Type") != "application/json" || r.Header.Get("Accept") != "application/json" {
					t.Errorf("%s with %v", r.Method, r.Header)
				}
				c.handler(w, r)
			}))
			defer server.Close()
			r, err := httpresolver.New(server.URL, opts())
			must(t, err)
			v, err := r.Resolve(t.Context(), unknown(2*time.Hour))
			if c.err == "" && err != nil || c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)) {
				t.Fatalf("Resolve = %v, want %q", err, c.err)
			}
			if v.Finding != c.want || v.By != "resolver stripe" || c.err != "" && v.Proof != retrysafe.ProofNone {
				t.Errorf("got %+v", v)
			}
			if name == "still unknown" && v.Text != "asked the desk" {
				t.Errorf("the text is %q", v.Text)
			}
		})
	}
}

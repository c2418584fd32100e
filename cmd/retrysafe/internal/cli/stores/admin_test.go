package stores_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/adminclient"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli/clitest"
)

// newGateway starts an admin API that knows the token of anna, and answers everything else
// as it is told. It returns the URL.
func newGateway(t *testing.T, answer http.HandlerFunc) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if strings.HasSuffix(r.URL.Path, "/whoami") {
			_, _ = io.WriteString(w, `{"name": "anna", "role": "act"}`)
			return
		}
		answer(w, r)
	}))
	t.Cleanup(s.Close)
	return s.URL
}

// What a gateway says of an action decides the exit code. If it is not certain that nothing
// was done, it is 4.
func TestAnswersOfAGatewayAreUnderstood(t *testing.T) {
	t.Parallel()
	const problem = "application/problem+json"
	for name, c := range map[string]struct {
		status     int
		kind, body string
		code       int
		says       string
	}{
		"done":             {200, "application/json", `{"entry": {"id": "a", "by": "anna", "verb": "release", "outcome": "done"}}`, 0, "released"},
		"done before":      {200, "application/json", `{"entry": {"id": "a", "by": "anna", "verb": "release", "outcome": "done"}, "replayed": true}`, 0, "this was done before"},
		"refused":          {409, problem, `{"status": 409, "code": "refused", "detail": "no", "entry": {"id": "a", "verb": "release", "outcome": "refused", "code": "live", "text": "it runs"}}`, 1, "wait for the end of its lease"},
		"invalid":          {400, problem, `{"status": 400, "code": "invalid-request", "detail": "the reason is too long"}`, 2, "the reason is too long"},
		"another action":   {409, problem, `{"status": 409, "code": "other-action", "detail": "the ID belongs to another action"}`, 2, "leave out --id"},
		"store away":       {503, problem, `{"status": 503, "code": "store-unavailable", "detail": "no connection"}`, 3, "nothing was done"},
		"forbidden":        {403, problem, `{"status": 403, "code": "forbidden", "detail": "the role of the token does not allow it"}`, 1, "check the token and its role"},
		"unauthorized":     {401, problem, `{"status": 401, "code": "unauthorized", "detail": "the token is wrong"}`, 1, "check the token and its role"},
		"forbidden, bare":  {403, "text/plain", "no", 1, "access denied"},
		"too large":        {413, problem, `{"status": 413, "code": "too-large", "detail": "it is too large"}`, 2, "it is too large"},
		"not known":        {504, problem, `{"status": 504, "code": "outcome-unknown", "detail": "the store did not confirm it"}`, 4, "--revision 5 --id "},
		"error":            {500, problem, `{"status": 500, "code": "internal", "detail": "it failed"}`, 4, "it is not known whether it was done"},
		"an error in JSON": {500, "application/json", `{"entry": {"id": "a", "by": "anna", "verb": "release", "outcome": "done"}}`, 4, "it is not known whether it was done"},
		"a proxy":          {502, "text/html", "<h1>Bad Gateway</h1>", 4, "it is not known whether it was done"},
		"broken":           {200, "application/json", `{"entry": `, 4, "it is not known whether it was done"},
		"a broken problem": {409, problem, `{"status": `, 4, "it is not known whether it was done"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := newGateway(t, func(w http.ResponseWriter, r *http.Request) {
				if r.Method != http.MethodPost { // the record is not there any more
					w.Header().Set("Content-Type", problem)
					w.WriteHeader(http.StatusNotFound)
					_, _ = io.WriteString(w, `{"status": 404, "code": "not-found", "detail": "it is not there"}`)
					return
				}
				w.Header().Set("Content-Type", c.kind)
				w.WriteHeader(c.status)
				_, _ = io.WriteString(w, c.body)
			})
			here := clitest.NewShell(t, "").With("RETRYSAFE_ADMIN_TOKEN", "a-token-of-anna-only")
			here.Run("keys release t k --revision 5 --why x --yes --admin " + url).Exits(c.code).Says(c.says).Hides("--by")
		})
	}
}

// A command waits for the end of what it has begun in a gateway, and says how it ended.
func TestCommandsWaitForAGateway(t *testing.T) {
	t.Parallel()
	const entry = `"entry": {"id": "night", "by": "anna", "verb": "quarantine", "outcome": "done", "report": {"looked": 7, "quarantined": 6, "moved": 1}}`
	for name, c := range map[string]struct {
		last string
		code int
		says string
	}{
		"done":        {`{"state": "done", ` + entry + `}`, 0, "set aside 6 of 7"},
		"done before": {`{"state": "done", "replayed": true, ` + entry + `}`, 0, "this was done before"},
		"no entry":    {`{"state": "done"}`, 4, "--id night"},
		"interrupted": {`{"state": "interrupted"}`, 4, "--id night"},
		"invalid":     {`{"state": "interrupted", "problem": {"status": 400, "code": "invalid-request", "detail": "the reason is too long"}}`, 2, "the reason is too long"},
		"ended":       {`{"state": "open"}`, 4, "the gateway has ended meanwhile"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var asked atomic.Int64
			url := newGateway(t, func(w http.ResponseWriter, r *http.Request) {
				switch {
				case strings.HasSuffix(r.URL.Path, "/survey"):
					_, _ = io.WriteString(w, `{"looked": 7, "quarantined": 7}`)
				case r.Method == http.MethodPost:
					_, _ = io.WriteString(w, `{"id": "night", "state": "running"}`)
				case !strings.HasSuffix(r.URL.Path, "/quarantines/night"):
					t.Errorf("it asks for %s", r.URL)
				case asked.Add(1) == 1:
					w.WriteHeader(http.StatusBadGateway) // it may not answer for a moment
				case asked.Load() == 2:
					_, _ = io.WriteString(w, `{"id": "night", "state": "running", "report": {"looked": 3}}`)
				default:
					_, _ = io.WriteString(w, c.last)
				}
			})
			here := clitest.NewShell(t, "").With("RETRYSAFE_ADMIN_TOKEN", "a-token-of-anna-only")
			here.Run("keys quarantine --id night --why x --yes --admin " + url).Exits(c.code).Says(c.says).Hides("--by")
			if n := asked.Load(); n != 3 {
				t.Errorf("it has asked %d times, want 3", n)
			}
		})
	}
}

// The token goes to the address that the command line names, and nowhere else.
func TestTokenOfAGatewayGoesNowhereElse(t *testing.T) {
	t.Parallel()
	var elsewhere atomic.Int64
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { elsewhere.Add(1) }))
	t.Cleanup(other.Close)
	var seen atomic.Value
	moved := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen.Store(fmt.Sprint(r.URL.Path, " ", r.Header.Get("Authorization")))
		http.Redirect(w, r, other.URL, http.StatusTemporaryRedirect)
	}))
	t.Cleanup(moved.Close)
	here := clitest.NewShell(t, "").With("RETRYSAFE_ADMIN_TOKEN", "a-token-of-anna-only")
	for _, path := range []string{"/ops", "/ops/", "/ops/api/v1", "/ops/api/v1/"} {
		here.Run("keys list --admin "+moved.URL+path).Exits(3).Says("status 307", "not the admin API").InOneLine()
		if seen.Load() != "/ops/api/v1/whoami Bearer a-token-of-anna-only" || elsewhere.Load() != 0 {
			t.Errorf("%s: the gateway got %v, and another server %d requests", path, seen.Load(), elsewhere.Load())
		}
	}
	for address, clear := range map[string]bool{
		"http://gateway.internal:8081": true, "http://192.0.2.1:8081": true, "https://gateway.internal:8081": false,
		"http://localhost:8081": false, "http://127.0.0.1:8081": false, "http://[::1]:8081": false, "unix:/run/admin.sock": false,
	} {
		c, err := adminclient.New(address, "token")
		if err != nil || c.InClearText() != clear {
			t.Errorf("%s: in clear text %v, %v", address, !clear, err)
		}
	}
	for _, address := range []string{"https://anna:secret@gateway", "https://gateway?token=secret", "https://gateway#secret", "ftp://gateway", "https://"} {
		if _, err := adminclient.New(address, "token"); err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v", address, err)
		}
	}
	here.Run("keys list --admin "+strings.Replace(moved.URL, "127.0.0.1", "0.0.0.0", 1)).Exits(3).Says("warning: the token crosses the network to http://0.0.0.0:", "in clear text; use https")
	here.With("RETRYSAFE_ADMIN_TOKEN", "two words").Run("keys list --admin " + moved.URL).Exits(2).Says("no token has").InOneLine()
}

package console_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/console"
	"github.com/retrysafe/retrysafe/outbox"
)

// A browser keeps cookies and follows no redirects.
type browser struct {
	*site
	client http.Client
}

func (s *site) browser() *browser {
	jar, err := cookiejar.New(nil)
	must(s.t, err)
	return &browser{s, http.Client{Jar: jar, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}}
}

// do sends a form, or asks for a page if there is none, and wants a status and a word.
func (b *browser) do(path string, form url.Values, status int, word string) *http.Response {
	b.t.Helper()
	method := http.MethodPost
	if form == nil {
		method = http.MethodGet
	}
	r, err := http.NewRequestWithContext(b.t.Context(), method, strings.TrimSuffix(b.url, "/api/v1")+path, strings.NewReader(form.Encode()))
	must(b.t, err)
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	res, err := b.client.Do(r)
	must(b.t, err)
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	must(b.t, err)
	if res.StatusCode != status || !strings.Contains(string(text), word) {
		b.t.Fatalf("%s %s: got %d, want %d with %q:\n%s", method, path, res.StatusCode, status, word, text)
	}
	return res
}

// A person logs in with a token, sees the pages until the logout, and nothing before and
// after. What the page of the login needs is there without one.
func TestLoginIsASession(t *testing.T) {
	t.Parallel()
	s := start(t)
	b := s.browser()
	b.do("/", nil, 401, "token")
	b.do("/keys", nil, 401, "token")
	b.do("/logout", url.Values{}, 401, "token")
	b.do("/login", url.Values{"token": {"a-token-that-is-wrong"}}, 401, "The token is wrong.")
	b.do("/keys", nil, 401, "token")
	if len(b.client.Jar.Cookies(must2(url.Parse(s.url)))) != 0 {
		t.Error("a wrong token begins a session")
	}
	b.do("/theme", url.Values{"theme": {"dark"}}, 303, "")
	b.do("/assets/console.css", nil, 200, "")
	for next, want := range map[string]string{"/retrysafe/keys": "/retrysafe/keys", "": "/retrysafe/", "https://elsewhere.example/": "/retrysafe/"} {
		if res := b.do("/login", url.Values{"token": {anna}, "next": {next}}, 303, ""); res.Header.Get("Location") != want {
			t.Errorf("the login goes on at %q, want %q", res.Header.Get("Location"), want)
		}
	}
	b.do("/keys", nil, 200, "anna")
	other := s.browser()
	other.do("/keys", nil, 401, "token") // the session is of one browser
	b.do("/login", url.Values{"token": {bert}}, 303, "")
	b.do("/keys", nil, 200, "bert")
	if res := b.do("/logout", url.Values{}, 303, ""); res.Header.Get("Location") != "/retrysafe/" {
		t.Errorf("the logout goes on at %q", res.Header.Get("Location"))
	}
	b.do("/keys", nil, 401, "token")
	for tries := 0; ; tries++ { // those before count too
		if tries > 10_000 {
			t.Fatal("wrong tokens are not limited")
		}
		r, err := b.client.PostForm(strings.TrimSuffix(s.url, "/api/v1")+"/login", url.Values{"token": {"a-token-that-is-wrong"}})
		must(t, err)
		r.Body.Close()
		if r.StatusCode == http.StatusTooManyRequests {
			break
		}
	}
}

func must2[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// The receiver's memory of keys, as the options give it, refuses to send an old letter
// again.
func TestWindowIsThatOfTheOptions(t *testing.T) {
	t.Parallel()
	s := start(t, func(o *console.Options) { o.Window = time.Nanosecond })
	s.enqueue(outbox.Message{Topic: "mail", Payload: []byte("m")})
	held, err := s.box.Lease(t.Context(), retrysafe.Owner{9}, time.Minute)
	must(t, err)
	due, err := s.box.Due(t.Context(), held.Shards, 10)
	must(t, err)
	_, err = s.box.Ack(t.Context(), []outbox.Ack{{ID: due[0].ID, Shard: due[0].Shard, Kind: outbox.AckDead, Tries: 1, Why: "refused"}})
	must(t, err)
	letters, err := s.box.DeadLetters(t.Context(), 0, 1)
	must(t, err)
	path := fmt.Sprint("/outbox/messages/", letters[0].ID)
	s.wants(s.send(anna, "POST", path+"/redrive", map[string]any{"revision": letters[0].Revision, "why": "again"}), 409, "redrive of an old letter")
	s.wants(s.send(anna, "POST", path+"/redrive", map[string]any{"revision": letters[0].Revision, "why": "again", "force": true}), 200, "redrive by force")
}

package webhook_test

import (
	"crypto"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/store/memstore"
	"github.com/retrysafe/retrysafe/webhook"
)

// The example of GitHub's documentation.
const (
	githubSecret    = webhook.Secret("It's a Secret to Everybody")
	githubBody      = "Hello, World!"
	githubSignature = "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"
)

// Signatures of hmacBody by Python's hmac, with hmacSecret.
const (
	hmacSecret = webhook.Secret("8f742231b10e8888abcd99yyyzzz85a5")
	hmacBody   = `{"id":"evt-1","n":1}`
)

func headers(pairs ...string) http.Header {
	h := http.Header{}
	for i := 0; i < len(pairs); i += 2 {
		h.Add(pairs[i], pairs[i+1])
	}
	return h
}

func signHMAC(s webhook.Secret, text string) string {
	m := hmac.New(sha256.New, []byte(plain(s)))
	m.Write([]byte(text))
	return hex.EncodeToString(m.Sum(nil))
}

func TestGitHub(t *testing.T) {
	t.Parallel()
	g := webhook.GitHub(next, githubSecret)
	must(t, g.Check())
	const name, id = "X-Hub-Signature-256", "X-GitHub-Delivery"
	for _, c := range []struct {
		what   string
		header http.Header
		body   string
		want   error
	}{
		{"as signed", headers(name, githubSignature, id, "72d3162e"), githubBody, nil},
		{"another body", headers(name, githubSignature, id, "72d3162e"), githubBody + " ", webhook.ErrForged},
		{"without the prefix", headers(name, githubSignature[7:], id, "72d3162e"), githubBody, webhook.ErrForged},
		{"half of it", headers(name, githubSignature[:40], id, "72d3162e"), githubBody, webhook.ErrForged},
		{"empty", headers(name, "sha256=", id, "72d3162e"), githubBody, webhook.ErrForged},
		{"no signature", headers(id, "72d3162e"), githubBody, webhook.ErrMalformed},
		{"two signatures", headers(name, githubSignature, name, githubSignature, id, "72d3162e"), githubBody, webhook.ErrMalformed},
		{"no id", headers(name, githubSignature), githubBody, webhook.ErrMalformed},
	} {
		ev, err := g.Verify(c.header, []byte(c.body))
		if !errors.Is(err, c.want) || (err == nil) != (c.want == nil) || err == nil && ev.ID != "72d3162e" {
			t.Errorf("%s: %+v, %v; want %v", c.what, ev, err, c.want)
		}
	}
	if _, err := webhook.GitHub(next).Verify(headers(name, githubSignature, id, "1"), []byte(githubBody)); !errors.Is(err, webhook.ErrForged) {
		t.Errorf("a secret that is not known: %v", err)
	}
}

func TestHMAC(t *testing.T) {
	t.Parallel()
	at := time.Unix(1531420618, 0)
	slack := webhook.HMAC{
		Secrets: []webhook.Secret{hmacSecret}, Header: "X-Signature", Prefix: "v0=", Signed: "v0:{timestamp}:{body}",
		TimestampHeader: "X-Time", IDPointer: "/id", Now: func() time.Time { return at },
	}
	good := "v0=" + signHMAC(hmacSecret, "v0:1531420618:"+hmacBody)
	if good != "v0=10f129178a0d4b7198ceb78aaa3d643cbc84d662fb2fdc6cc847715b27e65e3d" {
		t.Errorf("the vector is %s", good)
	}
	for _, c := range []struct {
		what string
		h    http.Header
		want error
	}{
		{"as signed", headers("X-Signature", good, "X-Time", "1531420618"), nil},
		{"beside others", headers("X-Signature", "v1=00, v0=00,"+good, "X-Time", "1531420618"), nil},
		{"before others", headers("X-Signature", good+", v0=00, v1=00", "X-Time", "1531420618"), nil},
		{"beside others, with spaces only", headers("X-Signature", "v1=00 "+good+" v0=00", "X-Time", "1531420618"), nil},
		{"another time", headers("X-Signature", good, "X-Time", "1531420619"), webhook.ErrForged},
		{"no time", headers("X-Signature", good), webhook.ErrMalformed},
		{"a time that is no number", headers("X-Signature", "v0="+signHMAC(hmacSecret, "v0:noon:"+hmacBody), "X-Time", "noon"), webhook.ErrMalformed},
		{"too late", headers("X-Signature", "v0="+signHMAC(hmacSecret, "v0:1531420317:"+hmacBody), "X-Time", "1531420317"), webhook.ErrLate},
		{"too early", headers("X-Signature", "v0="+signHMAC(hmacSecret, "v0:1531420919:"+hmacBody), "X-Time", "1531420919"), webhook.ErrLate},
	} {
		ev, err := slack.Verify(c.h, []byte(hmacBody))
		if !errors.Is(err, c.want) || (err == nil) != (c.want == nil) || err == nil && (ev.ID != "evt-1" || !ev.At.Equal(at)) {
			t.Errorf("%s: %+v, %v; want %v", c.what, ev, err, c.want)
		}
	}
	if _, err := slack.Verify(headers("X-Signature", "v0="+signHMAC(hmacSecret, "v0:1531420618:{}"), "X-Time", "1531420618"), []byte("{}")); !errors.Is(err, webhook.ErrMalformed) {
		t.Errorf("a body without an id: %v", err)
	}

	if _, err := slack.Verify(headers("X-Signature", "v0="+signHMAC(hmacSecret, "v0:1531420618:id"), "X-Time", "1531420618"), []byte("id")); !errors.Is(err, webhook.ErrMalformed) {
		t.Errorf("a body that is not JSON: %v", err)
	}

	// While secrets are replaced, either may have signed, in whatever order they stand.
	for _, secrets := range [][]webhook.Secret{{hmacSecret, githubSecret}, {githubSecret, hmacSecret}} {
		rotated := slack
		rotated.Secrets = secrets
		if _, err := rotated.Verify(headers("X-Signature", good, "X-Time", "1531420618"), []byte(hmacBody)); err != nil {
			t.Errorf("one of two secrets has signed: %v", err)
		}
	}

	long := webhook.HMAC{Secrets: []webhook.Secret{hmacSecret}, Hash: crypto.SHA512, Header: "X-Signature", Base64: true}
	ev, err := long.Verify(headers("X-Signature", "sqUdGAg2Cy62rfacZvZ5FSGurMO5BoRfh5V3KkVwVW65vmA1Kh/k34HDwONYGy/j7Hdbw2GoxMID1PdBRbhzPA=="), []byte(hmacBody))
	if err != nil || !strings.HasPrefix(ev.ID, "sha256 ") {
		t.Errorf("SHA-512 in base64: %+v, %v", ev, err)
	}
	if _, err := long.Verify(headers("X-Signature", signHMAC(hmacSecret, hmacBody)), []byte(hmacBody)); !errors.Is(err, webhook.ErrForged) {
		t.Errorf("a signature of another hash: %v", err)
	}
}

// A scheme that could not tell events apart, or verifies nothing, is refused.
func TestHMACIsChecked(t *testing.T) {
	t.Parallel()
	for what, change := range map[string]func(*webhook.HMAC){
		"no secret":                  func(s *webhook.HMAC) { s.Secrets = nil },
		"a short secret":             func(s *webhook.HMAC) { s.Secrets = []webhook.Secret{"hunter2"} },
		"no header":                  func(s *webhook.HMAC) { s.Header = "" },
		"a weak hash":                func(s *webhook.HMAC) { s.Hash = crypto.SHA1 },
		"nothing of the body":        func(s *webhook.HMAC) { s.Signed = "{timestamp}"; s.TimestampHeader = "T" },
		"text behind the body":       func(s *webhook.HMAC) { s.Signed = "{body}." },
		"no body at all":             func(s *webhook.HMAC) { s.Signed, s.TimestampHeader = "v0:{timestamp}:", "T" },
		"an unknown place behind":    func(s *webhook.HMAC) { s.Signed, s.TimestampHeader = "{timestamp}.{id}.{body}", "T" },
		"an unknown place":           func(s *webhook.HMAC) { s.Signed = "{id}.{body}" },
		"a time that is not signed":  func(s *webhook.HMAC) { s.TimestampHeader = "T" },
		"a signed time from nowhere": func(s *webhook.HMAC) { s.Signed = "{timestamp}.{body}" },
		"nothing between them":       func(s *webhook.HMAC) { s.Signed, s.TimestampHeader = "{timestamp}{body}", "T" },
		"a digit between them":       func(s *webhook.HMAC) { s.Signed, s.TimestampHeader = "{timestamp}0{body}", "T" },
		"two ids":                    func(s *webhook.HMAC) { s.IDHeader, s.IDPointer = "X-Id", "/id" },
		"an id that is no pointer":   func(s *webhook.HMAC) { s.IDPointer = "id" },
		"a tolerance without a time": func(s *webhook.HMAC) { s.Tolerance = time.Minute },
	} {
		s := webhook.HMAC{Secrets: []webhook.Secret{hmacSecret}, Header: "X-Signature"}
		must(t, s.Check())
		change(&s)
		want := s.Check()
		if want == nil {
			t.Errorf("%s is accepted", what)
			continue
		}
		h := headers("X-Signature", signHMAC(hmacSecret, hmacBody), "T", "1531420618", "X-Id", "evt-1")
		if _, err := s.Verify(h, []byte(hmacBody)); err == nil || err.Error() != want.Error() {
			t.Errorf("%s: Verify says %v; want %v", what, err, want)
		}
	}
}

// An id in the body is signed with it: the event is remembered by its id, also if the
// provider has changed other bytes since.
func TestSignedIDIsTheEvents(t *testing.T) {
	t.Parallel()
	d := newDesk(t, memstore.New(nil), nil, nil)
	intake, err := webhook.New("signed", d.engine, webhook.HMAC{Secrets: []webhook.Secret{hmacSecret}, Header: "X-Signature", IDPointer: "/id"}, read, nil)
	must(t, err)
	d.put(retrysafe.Record{State: retrysafe.StateUnknown})
	for i, c := range []struct {
		body   string
		status int
	}{
		{`{"id":"","Note":"no id"}`, 400},
		{strings.Replace(string(happened().body()), "{", `{"id":"evt-1",`, 1), 200},
		{strings.Replace(string(happened().body()), "{", `{"id":"evt-1","pending":0,`, 1), 200},
	} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/hooks/signed", strings.NewReader(c.body))
		r.Header.Set("X-Signature", signHMAC(hmacSecret, c.body))
		w := httptest.NewRecorder()
		intake.ServeHTTP(w, r)
		if replayed := w.Header().Get("Idempotent-Replayed") != ""; w.Code != c.status || replayed != (i == 2) {
			t.Errorf("%s got %d %s, replayed: %v", c.body, w.Code, w.Body, replayed)
		}
	}
}

// The signature does not cover the header with the id, so a recorded event is not taken
// in again under another id: it may say that an attempt before this one did not happen.
func TestRecordedEventUnderAnotherIDIsARedelivery(t *testing.T) {
	t.Parallel()
	d := newDesk(t, memstore.New(nil), nil, nil)
	intake, err := webhook.New("github", d.engine, webhook.GitHub(githubSecret), read, nil)
	must(t, err)
	body := string(report{Scope: scope, Key: key, Finding: retrysafe.FindingNotHappened, Proof: retrysafe.ProofTombstone}.body())
	send := func(id string) *httptest.ResponseRecorder {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/hooks/github", strings.NewReader(body))
		r.Header.Set("X-Hub-Signature-256", "sha256="+signHMAC(githubSecret, body))
		r.Header.Set("X-GitHub-Delivery", id)
		w := httptest.NewRecorder()
		intake.ServeHTTP(w, r)
		return w
	}
	first := d.put(retrysafe.Record{State: retrysafe.StateUnknown})
	if w := send("1"); w.Code != 200 || !strings.Contains(w.Body.String(), "settled") {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	r := d.want(retrysafe.StateRetryable, "").Update()
	r.State, r.Term, r.Attempt = retrysafe.StateUnknown, time.Hour, first.Attempt+1 // the second attempt
	_, err = d.store.Swap(t.Context(), r)
	must(t, err)
	if w := send("2"); w.Code != 200 || w.Header().Get("Idempotent-Replayed") != "true" {
		t.Errorf("%d %v %s", w.Code, w.Header(), w.Body)
	}
	d.want(retrysafe.StateUnknown, "")
}

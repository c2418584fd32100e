package httpkey

import (
	"errors"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/test/hammer"
)

var storedExamples = []storedRequest{
	{method: "POST", header: http.Header{}, body: []byte{}},
	{
		method: "PATCH", host: "api.example", uri: "/v1/a%2Fb?q=1", path: "/a/b", rawPath: "/a%2Fb", query: "q=1",
		pattern: "PATCH /{name}", values: []pathValue{{"name", "a/b"}},
		header: http.Header{"Accept": {"text/plain", "*/*"}, "Content-Type": {"application/octet-stream"}, "Prefer": {""}},
		body:   []byte{0, 255, '\n', 0},
	},
}

func TestStoredRequestComesBack(t *testing.T) {
	t.Parallel()
	for _, want := range storedExamples {
		text := want.append(nil)
		got, err := parseStored(text)
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("got %+v, %v, want %+v", got, err, want)
		}
		for n := range text {
			if _, err := parseStored(text[:n]); !errors.Is(err, errBadRequest) {
				t.Errorf("cut at %d of %d: %v", n, len(text), err)
			}
		}
		for version := range 256 {
			text[0] = byte(version)
			if _, err := parseStored(text); (err == nil) != (version == storedVersion) || err != nil && !errors.Is(err, errNewerRequest) {
				t.Errorf("version %d: %v", version, err)
			}
		}
	}
}

// Any bytes are refused or are a request, and that one is stored as it is read.
func FuzzStoredRequest(f *testing.F) {
	for _, s := range storedExamples {
		hammer.Add(f, s.append(nil))
	}
	hammer.Add(f, []byte{storedVersion, 1, 'G', 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1})
	hammer.Fuzz(f, func(t *testing.T, text []byte) {
		s, err := parseStored(text)
		if err != nil {
			return
		}
		again, err := parseStored(s.append(nil))
		if err != nil || !reflect.DeepEqual(again, s) {
			t.Fatalf("%+v is stored as %+v, %v", s, again, err)
		}
		if r := s.request(t.Context()); r.Method != s.method || r.URL.RawQuery != s.query {
			t.Fatalf("%+v becomes %+v", s, r)
		}
	})
}

func TestWildcardsOfAPattern(t *testing.T) {
	t.Parallel()
	for pattern, want := range map[string][]string{
		"": nil, "POST /": nil, "/a/{$}": nil, "POST h.example/{a}/b/{c...}": {"a", "c"},
	} {
		if got := wildcards(pattern); !reflect.DeepEqual(got, want) {
			t.Errorf("%q has %q, want %q", pattern, got, want)
		}
	}
}

func TestCredentialsAreKnownByTheirNames(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"Authorization", "Proxy-Authorization", "Cookie", "x-api-key", "Apikey", "X-Auth-Token", "X-Amz-Security-Token", "X-Csrf-Token", "X-Goog-Api-Key", "Client-Secret", "X-Auth-Request-User", "X-Auth"} {
		if !isCredential(name) {
			t.Errorf("%s passes for no credential", name)
		}
	}
	for _, name := range slices.Concat(keptAlways, []string{"Idempotency-Key", "X-Author", "Stripe-Version", "X-Tenant"}) {
		if isCredential(name) {
			t.Errorf("%s is taken for a credential", name)
		}
	}
}

func TestHandsAreBounded(t *testing.T) {
	t.Parallel()
	var s skips
	now := time.Now()
	ref := func(i int) retrysafe.Ref { return retrysafe.Ref{Scope: "acme", Key: strconv.Itoa(i)} }
	for i := range maxSkips + 100 {
		if !s.start(ref(i), now) || s.start(ref(i), now) {
			t.Fatal("what is in hand is taken once")
		}
		s.failed(ref(i), now)
	}
	if len(s.all) > maxSkips {
		t.Errorf("%d are remembered", len(s.all))
	}
	if s.start(ref(0), now) || !s.start(ref(0), now.Add(firstDelay)) {
		t.Error("what failed rests, and then does not")
	}
	s.evict(now.Add(time.Hour))
	if len(s.all) != 1 {
		t.Errorf("%d are remembered an hour later, want the one in hand", len(s.all))
	}
	s.done(ref(0))
	if len(s.all) != 0 {
		t.Error("what is done is remembered")
	}
	for range 20 { // however often it fails, it is tried again within the longest delay
		if !s.start(ref(0), now) {
			t.Fatalf("it rests at %v", now)
		}
		s.failed(ref(0), now)
		now = now.Add(longestDelay)
	}
}

// The body of a stored request is found in its record; a record without one, or with one
// that cannot be read, has none.
func TestStoredBody(t *testing.T) {
	t.Parallel()
	for _, want := range storedExamples {
		if got, ok := StoredBody(retrysafe.Record{Request: want.append(nil)}); !ok || !slices.Equal(got, want.body) {
			t.Errorf("got %q, %v, want %q", got, ok, want.body)
		}
	}
	for _, request := range [][]byte{nil, {}, {99, 1, 2}, []byte("POST /")} {
		if got, ok := StoredBody(retrysafe.Record{Request: request}); ok {
			t.Errorf("%q has the body %q", request, got)
		}
	}
}

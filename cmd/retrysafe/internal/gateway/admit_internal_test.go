package gateway

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/gateway/admission"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/gateway/tenant"
)

// A growing answer is charged for what it has grown by, and for nothing if there is no
// memory for it.
func TestGrowingAnswerIsChargedOnce(t *testing.T) {
	t.Parallel()
	b := admission.New(1<<20, 10)
	var other admission.Claim // alone a request may hold anything
	x := &proxied{answer: answerFree}
	if other.Open(b, "other", netip.Addr{}, 1) != admission.LimitNone || x.claim.Open(b, "tenant", netip.Addr{}, requestCost) != admission.LimitNone {
		t.Fatal("refused")
	}
	before := b.Memory().Used
	for _, c := range []struct {
		size, charged int64 // of one copy
		held          bool
	}{
		{answerFree, 0, true},
		{answerFree + 1, answerStep - answerFree, true},
		{answerStep, answerStep - answerFree, true},
		{answerStep + 1, 2*answerStep - answerFree, true},
		{3 * answerStep, 3*answerStep - answerFree, true},
		{2 * answerStep, 3*answerStep - answerFree, true},
		{1 << 20, 3*answerStep - answerFree, false},
		{4 * answerStep, 4*answerStep - answerFree, true},
	} {
		if held := x.holdAnswer(c.size); held != c.held {
			t.Errorf("an answer of %d bytes may be held: %v", c.size, held)
		}
		if got := b.Memory().Used - before; got != answerCopies*c.charged {
			t.Errorf("an answer of %d bytes is charged %d, want %d", c.size, got, answerCopies*c.charged)
		}
	}
	x.claim.Close()
	if used := b.Memory().Used; used != 1 {
		t.Errorf("%d bytes are left over", used-1)
	}
	if !x.holdAnswer(1 << 30) {
		t.Error("an answer of a request that is run later is not held")
	}
}

// A body is charged for what has arrived of it, in steps.
func TestBodyIsChargedAsItArrives(t *testing.T) {
	t.Parallel()
	b := admission.New(1<<20, 10)
	x := new(proxied)
	if limit := x.claim.Open(b, "tenant", netip.Addr{}, requestCost); limit != admission.LimitNone {
		t.Fatal(limit)
	}
	const steps = 5
	body := &arrivingBody{ReadCloser: io.NopCloser(strings.NewReader(strings.Repeat("x", bodyFree+steps*bodyStep))), x: x, room: bodyFree}
	for step := range int64(steps + 1) {
		size := int64(bodyStep)
		if step == 0 {
			size = bodyFree
		}
		if n, err := io.CopyN(io.Discard, body, size); n != size || err != nil {
			t.Fatalf("%d bytes, %v", n, err)
		}
		if used := b.Memory().Used; used != requestCost+step*bodyStep {
			t.Errorf("after %d steps %d bytes are charged", step, used)
		}
	}
}

// An answer that is not held goes on only after its outcome was stored without it.
func TestOmittedAnswerWaitsForItsOutcome(t *testing.T) {
	t.Parallel()
	broken := errors.New("the store is down")
	body := &streamedBody{strings.NewReader("answer"), &upstreamCall{w: omitter{httptest.NewRecorder(), broken}}, true}
	if n, err := body.Read(make([]byte, 10)); n != 0 || !errors.Is(err, broken) {
		t.Errorf("%d bytes and %v of an answer whose outcome is not stored", n, err)
	}
	body = &streamedBody{strings.NewReader("answer"), &upstreamCall{w: omitter{httptest.NewRecorder(), nil}}, true}
	if text, err := io.ReadAll(body); string(text) != "answer" || err != nil {
		t.Errorf("%q, %v", text, err)
	}
}

type omitter struct {
	http.ResponseWriter
	err error
}

func (o omitter) Omit() error { return o.err }

// Memory that the next attempt does not get is given to the guard; a copy is made of the
// other, and by a writer that knows of no such gift.
func TestLargeAnswerIsGivenToTheGuard(t *testing.T) {
	t.Parallel()
	body := []byte("answer")
	for name, c := range map[string]struct {
		w     http.ResponseWriter
		owned bool
		given int
	}{
		"large":          {&taker{ResponseWriter: httptest.NewRecorder()}, true, len(body)},
		"small":          {&taker{ResponseWriter: httptest.NewRecorder()}, false, 0},
		"another writer": {httptest.NewRecorder(), true, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if err := relayHeld(c.w, &http.Response{StatusCode: http.StatusOK}, body, c.owned); err != nil {
				t.Fatal(err)
			}
			given := 0
			recorder, _ := c.w.(*httptest.ResponseRecorder)
			if w, ok := c.w.(*taker); ok {
				given, recorder = w.given, w.ResponseWriter.(*httptest.ResponseRecorder)
			}
			if got := recorder.Body.String(); got != "answer" || given != c.given {
				t.Errorf("wrote %q, of which %d bytes were given, want %d", got, given, c.given)
			}
		})
	}
	for size, reused := range map[int]bool{0: true, maxReused: true, maxReused + 1: false} {
		if a := (&upstreamCall{body: make([]byte, 0, size)}); a.reusesBody() != reused {
			t.Errorf("memory of %d bytes is used again: %v", size, !reused)
		}
	}
}

// taker counts the bytes that it was given.
type taker struct {
	http.ResponseWriter
	given int
}

func (w *taker) WriteOwned(p []byte) (int, error) {
	w.given += len(p)
	return w.Write(p)
}

// Each request counts for a tenant or an address. Where a proxy hides the address of a
// caller, it counts for its tenant, and never for none.
func TestConsumerOfARequest(t *testing.T) {
	t.Parallel()
	verified, bearer, none := tenants{}, tenants{byAddress: true}, tenants{byAddress: true, oneTenant: true}
	const client, proxy = "192.0.2.1:5000", "10.0.0.1:5000"
	for _, c := range []struct {
		of                      tenants
		remote, forwarded, want string
	}{
		{verified, client, "", "tenant invalid IP"},
		{verified, proxy, "198.51.100.7", "tenant invalid IP"},
		{bearer, client, "", "tenant 192.0.2.1"},
		{bearer, client, "198.51.100.7", "tenant 192.0.2.1"},
		{bearer, proxy, "198.51.100.7", "tenant 198.51.100.7"},
		{bearer, proxy, "192.0.2.9, 2001:db8:1:2:3::4", "tenant 2001:db8:1:2::"},
		{bearer, proxy, "", "tenant invalid IP"},
		{bearer, proxy, "198.51.100.7, unknown", "tenant invalid IP"},
		{none, client, "", " 192.0.2.1"},
		{none, proxy, "198.51.100.7", " 198.51.100.7"},
		{none, proxy, "", "tenant invalid IP"},
		{none, proxy, "unknown", "tenant invalid IP"},
	} {
		g := &Gateway{tenants: c.of}
		g.tenants.trusted = tenant.TrustedProxies([]netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")})
		r := &http.Request{RemoteAddr: c.remote, Header: http.Header{}}
		if c.forwarded != "" {
			r.Header.Set("X-Forwarded-For", c.forwarded)
		}
		name, address := g.consumer(r, "tenant")
		if got := strings.Join([]string{name, address.String()}, " "); got != c.want {
			t.Errorf("%+v: it counts for %q", c, got)
		}
	}
}

// A tenant that has nothing at the upstream takes no memory.
func TestSlotsOfTenantsAreForgotten(t *testing.T) {
	t.Parallel()
	s := tenantSlots{max: 2}
	for range 2 {
		for i, name := range []string{"a", "a", "a", "b"} {
			if s.acquire(name) != (i != 2) {
				t.Fatalf("after %d held are %v", i, s.held)
			}
		}
		if !s.full("a") || s.full("b") {
			t.Errorf("held are %v", s.held)
		}
		for _, name := range []string{"a", "b", "a"} {
			s.release(name)
		}
		if len(s.held) != 0 {
			t.Errorf("remembered are %v", s.held)
		}
	}
}

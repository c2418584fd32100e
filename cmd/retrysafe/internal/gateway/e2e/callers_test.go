package e2e_test

import (
	"crypto/ed25519"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/retrysafe/retrysafe/internal/test/rawh2"
)

// A space in the query, which would end the target in the service's request line, and an
// :authority that is no host are refused in HTTP/2 as they are in HTTP/1.
func TestHTTP2TargetsThatHTTP1RefusesReachNoService(t *testing.T) {
	t.Parallel()
	s := newService(t)
	g := newGateway(t, conf(s, "memory:", `  - { match: "POST /off", off: true }`)+certificate(t))
	for _, c := range []struct{ target, authority string }{
		{"/off?a=b HTTP/1.1", "x"}, {"/off x", "x"}, {"/off?a\r\nX: y", "x"}, {"/off#/payments", "x"},
		{"/off", "x/y"}, {"/off", "x y"}, {"/off", "me@x"}, {"/off", ""},
	} {
		for _, protocol := range []string{"http/1.1", "h2"} {
			conn, err := (&tls.Dialer{
				NetDialer: &net.Dialer{Deadline: time.Now().Add(time.Minute)},
				Config:    &tls.Config{InsecureSkipVerify: true, NextProtos: []string{protocol}},
			}).DialContext(t.Context(), "tcp", g.addr)
			if err != nil {
				t.Fatal(err)
			}
			_ = conn.SetDeadline(time.Now().Add(time.Minute))
			var status int
			if protocol == "h2" {
				status = rawh2.New(t, conn).Request("POST", c.target, c.authority, "authorization", "Bearer me")
			} else {
				status = exchange(t, conn, fmt.Sprintf("POST %s HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer me\r\nContent-Length: 0\r\n\r\n", c.target, c.authority))
			}
			_ = conn.Close()
			if status != http.StatusBadRequest && (protocol != "h2" || status != rawh2.WasReset) {
				t.Errorf("%q of %q over %s: %d", c.target, c.authority, protocol, status)
			}
		}
	}
	if n := s.total(); n != 0 {
		t.Errorf("%d of them reached the service", n)
	}
}

// The tenants 1 and "1" of a claim are two: one does not get the answers of the other.
func TestClaimsOfTwoTypesAreTwoTenants(t *testing.T) {
	t.Parallel()
	public, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	encode := base64.RawURLEncoding.EncodeToString
	file := filepath.Join(t.TempDir(), "jwks.json")
	if err := os.WriteFile(file, fmt.Appendf(nil, `{"keys":[{"kty":"OKP","crv":"Ed25519","kid":"1","use":"sig","alg":"EdDSA","x":%q}]}`, encode(public)), 0o600); err != nil {
		t.Fatal(err)
	}
	s := newService(t)
	g := newGateway(t, fmt.Sprintf("upstream: %s\nstore: \"memory:\"\ntenant: { from: jwt, claim: org, jwks: %q, issuer: issuer, audience: gateway }\n"+
		"routes:\n  - { match: \"POST /payments\" }\n", s.URL, file))
	bodies := make(map[string]bool)
	for _, org := range []any{"1", 1, "acme"} {
		claims, err := json.Marshal(map[string]any{"iss": "issuer", "aud": "gateway", "org": org, "exp": time.Now().Add(time.Hour).Unix()})
		if err != nil {
			t.Fatal(err)
		}
		signed := encode([]byte(`{"alg":"EdDSA","kid":"1"}`)) + "." + encode(claims)
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, g.url+"/payments", strings.NewReader("{}"))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer "+signed+"."+encode(ed25519.Sign(private, []byte(signed))))
		r.Header.Set("Idempotency-Key", `"a-key-that-is-fine-1"`)
		got, err := send(r)
		switch {
		case err != nil:
			t.Fatal(err)
		case got.status == http.StatusCreated && bodies[got.body], got.status != http.StatusCreated && got.status != http.StatusForbidden:
			t.Errorf("tenant %#v gets %d %s", org, got.status, got.body)
		case got.status == http.StatusCreated:
			bodies[got.body] = true
		}
	}
	if len(bodies) < 2 {
		t.Errorf("only %d tenants were served", len(bodies))
	}
}

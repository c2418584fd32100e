package tenant_test

import (
	"crypto/ed25519"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/gateway/tenant"
)

// The proxy on this machine sets the tenant's header. From any other address the
// header is refused.
func ExampleHeader() {
	scope := tenant.Header("X-Tenant-Id", []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")})
	r := httptest.NewRequest(http.MethodPost, "/payments", nil)
	r.Header.Set("X-Tenant-Id", "acme")

	r.RemoteAddr = "127.0.0.1:40312"
	fmt.Println(scope(r))
	r.RemoteAddr = "203.0.113.9:40312"
	_, err := scope(r)
	fmt.Println(errors.Is(err, tenant.ErrUntrusted), err)
	// Output:
	// header:acme <nil>
	// true the request comes from an address that may not name a tenant
}

func ExampleBearer() {
	scope := tenant.Bearer()
	r := httptest.NewRequest(http.MethodPost, "/payments", nil)
	_, err := scope(r)
	fmt.Println(err)
	r.Header.Set("Authorization", "Bearer demo-a")
	fmt.Println(scope(r))
	// Output:
	// the request does not say whose it is: send "Authorization: Bearer TOKEN"
	// bearer:sIW9buLs0NNsglkwnzAnhbtjTCfMdLJrnHAZA_IfBFQ <nil>
}

func ExampleNone() {
	fmt.Println(tenant.None()(httptest.NewRequest(http.MethodPost, "/payments", nil)))
	// Output: none <nil>
}

// The tenant is the organisation in a token, and a key belongs to one of its users.
func ExampleNewJWT() {
	public, private, _ := ed25519.GenerateKey(nil)
	issuer := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, `{"keys":[{"kty":"OKP","crv":"Ed25519","kid":"1","x":%q}]}`, base64.RawURLEncoding.EncodeToString(public))
	}))
	defer issuer.Close()

	verified, err := tenant.NewJWT(tenant.Options{
		Claim: "org.id", JWKS: issuer.URL, Issuer: "https://login.example.com/", Audience: "payments",
		Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	user := verified.Claim("sub")

	token := jwt.NewWithClaims(jwt.SigningMethodEdDSA, jwt.MapClaims{
		"iss": "https://login.example.com/", "aud": "payments", "exp": time.Now().Add(time.Minute).Unix(),
		"org": map[string]any{"id": 42}, "sub": "alice",
	})
	token.Header["kid"] = "1"
	signed, _ := token.SignedString(private)
	r := httptest.NewRequest(http.MethodPost, "/payments", nil)
	r.Header.Set("Authorization", "Bearer "+signed)
	fmt.Println(verified.Tenant(r))
	fmt.Println(user(r))
	// Output:
	// jwt-number:42 <nil>
	// jwt:alice <nil>
}

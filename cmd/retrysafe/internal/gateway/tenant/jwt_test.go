package tenant_test

import (
	"crypto/elliptic"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/gateway/tenant"
)

func TestJWTAcceptsWhatItsIssuerSigned(t *testing.T) {
	t.Parallel()
	all := []signer{
		{id: "ed", method: jwt.SigningMethodEdDSA, private: edPrivate()},
		{id: "rsa", method: jwt.SigningMethodRS256, private: rsaPrivate()},
		{id: "rsa-pinned", method: jwt.SigningMethodRS256, private: rsaOther(), extra: map[string]any{"alg": "RS256"}},
		{id: "p256", method: jwt.SigningMethodES256, private: newEC(elliptic.P256())},
		{id: "p384", method: jwt.SigningMethodES384, private: newEC(elliptic.P384())},
		{id: "p521", method: jwt.SigningMethodES512, private: newEC(elliptic.P521())},
		{id: "ops", method: jwt.SigningMethodEdDSA, private: newEd(), extra: map[string]any{"key_ops": []string{"verify"}}},
	}
	is := newIssuer(t)
	is.publish(all...)
	j := is.jwt(t, func(o *tenant.Options) { o.Algorithms = []string{"RS256", "PS256", "ES256", "ES384", "ES512", "EdDSA"} })
	all = append(all, signer{id: "rsa", method: jwt.SigningMethodPS256, private: rsaPrivate()})
	for _, s := range all {
		if got, err := j.Tenant(bearing(is.token(t, by(s)))); got != "jwt:acme" || err != nil {
			t.Errorf("%s with %s: got %q, %v", s.id, s.method.Alg(), got, err)
		}
		if got, err := j.Tenant(bearing(is.token(t, by(s), header("kid", nil)))); got != "jwt:acme" || err != nil {
			t.Errorf("%s without its id: got %q, %v", s.id, got, err)
		}
	}
	if n := is.hits.Load(); n != 1 {
		t.Errorf("the keys were read %d times", n)
	}
}

// Without a choice of algorithms there are three, and no other one that a key could be used
// with.
func TestAlgorithmsByDefault(t *testing.T) {
	t.Parallel()
	is := newIssuer(t)
	p256, p384 := newEC(elliptic.P256()), newEC(elliptic.P384())
	is.publish(
		signer{id: "ed", method: jwt.SigningMethodEdDSA, private: edPrivate()}, signer{id: "rsa", method: jwt.SigningMethodRS256, private: rsaPrivate()},
		signer{id: "p256", method: jwt.SigningMethodES256, private: p256}, signer{id: "p384", method: jwt.SigningMethodES384, private: p384},
	)
	j := is.jwt(t, func(o *tenant.Options) { o.Algorithms = nil })
	for _, c := range []struct {
		signer
		ok bool
	}{
		{signer{id: "ed", method: jwt.SigningMethodEdDSA, private: edPrivate()}, true},
		{signer{id: "rsa", method: jwt.SigningMethodRS256, private: rsaPrivate()}, true},
		{signer{id: "p256", method: jwt.SigningMethodES256, private: p256}, true},
		{signer{id: "rsa", method: jwt.SigningMethodRS512, private: rsaPrivate()}, false},
		{signer{id: "rsa", method: jwt.SigningMethodPS256, private: rsaPrivate()}, false},
		{signer{id: "p384", method: jwt.SigningMethodES384, private: p384}, false},
	} {
		if _, err := j.Tenant(bearing(is.token(t, by(c.signer)))); (err == nil) != c.ok {
			t.Errorf("%s: %v", c.method.Alg(), err)
		}
	}
}

// A token is verified once, and what is refused is not remembered.
func TestVerifiedTokenIsRemembered(t *testing.T) {
	t.Parallel()
	is := newIssuer(t)
	j := is.jwt(t)
	good, bad := is.token(t), is.token(t, with("aud", "another"))
	for range 2 {
		if _, err := j.Tenant(bearing(good)); err != nil {
			t.Error(err)
		}
		if _, err := j.Tenant(bearing(bad)); err == nil {
			t.Error("a token for another audience is accepted")
		}
		if !j.Remembers(good) || j.Remembers(bad) {
			t.Errorf("the good token is remembered: %t, the bad one: %t", j.Remembers(good), j.Remembers(bad))
		}
	}
}

func TestJWTRefusesWhatDoesNotHold(t *testing.T) {
	t.Parallel()
	clock := newClock()
	after := func(d time.Duration) int64 { return clock.now().Add(d).Unix() }
	for name, c := range map[string]struct {
		change func(*draft)
		err    error
	}{
		"nothing wrong":                 {func(*draft) {}, nil},
		"expired":                       {with("exp", after(-time.Hour)), tenant.ErrExpired},
		"expired a second ago":          {with("exp", after(-time.Second)), tenant.ErrExpired},
		"expires now":                   {with("exp", after(0)), tenant.ErrExpired},
		"expires in 1970":               {with("exp", 0), tenant.ErrExpired},
		"never expires":                 {with("exp", nil), tenant.ErrInvalid},
		"expires at a text":             {with("exp", "2099-01-01"), tenant.ErrInvalid},
		"issued within the leeway":      {with("iat", after(tenant.Leeway-2*time.Second)), nil},
		"issued in the future":          {with("iat", after(time.Hour)), tenant.ErrInvalid},
		"valid within the leeway":       {with("nbf", after(tenant.Leeway-2*time.Second)), nil},
		"valid in the future":           {with("nbf", after(time.Hour)), tenant.ErrInvalid},
		"no nbf and iat":                {func(d *draft) { delete(d.claims, "nbf"); delete(d.claims, "iat") }, nil},
		"another issuer":                {with("iss", "https://login.example.org/"), tenant.ErrInvalid},
		"a longer issuer":               {with("iss", issuerName+"x"), tenant.ErrInvalid},
		"an issuer without its slash":   {with("iss", strings.TrimSuffix(issuerName, "/")), tenant.ErrInvalid},
		"no issuer":                     {with("iss", nil), tenant.ErrInvalid},
		"an empty issuer":               {with("iss", ""), tenant.ErrInvalid},
		"issuers":                       {with("iss", []string{issuerName}), tenant.ErrInvalid},
		"another audience":              {with("aud", "https://api.example.org/"), tenant.ErrInvalid},
		"one of many audiences":         {with("aud", []string{"x", audienceName}), nil},
		"none of many audiences":        {with("aud", []string{"x", "y"}), tenant.ErrInvalid},
		"no audience":                   {with("aud", nil), tenant.ErrInvalid},
		"an empty audience":             {with("aud", []string{}), tenant.ErrInvalid},
		"an audience that is none":      {with("aud", map[string]any{"a": audienceName}), tenant.ErrInvalid},
		"expired, from another issuer":  {func(d *draft) { d.claims["exp"], d.claims["iss"] = 1, "x" }, tenant.ErrInvalid},
		"something that must be known":  {header("crit", []string{"exp"}), tenant.ErrInvalid},
		"a key id that is a number":     {header("kid", 1), tenant.ErrInvalid},
		"a key id that is null":         {func(d *draft) { d.header["kid"] = nil }, tenant.ErrInvalid},
		"a key id that nobody has":      {header("kid", "nobody"), tenant.ErrInvalid},
		"an empty key id":               {header("kid", ""), tenant.ErrInvalid},
		"a key id with a space":         {header("kid", "ed-1 "), tenant.ErrInvalid},
		"a key id of another case":      {header("kid", "ED-1"), tenant.ErrInvalid},
		"an algorithm that nobody has":  {header("alg", "XX256"), tenant.ErrInvalid},
		"an algorithm in another case":  {header("alg", "eddsa"), tenant.ErrInvalid},
		"no algorithm":                  {header("alg", nil), tenant.ErrInvalid},
		"a claim in another case":       {func(d *draft) { d.claims["EXP"] = d.claims["exp"]; delete(d.claims, "exp") }, tenant.ErrInvalid},
		"a tenant's claim in a capital": {func(d *draft) { d.claims["Org"] = "acme"; delete(d.claims, "org") }, tenant.ErrInvalid},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			is := newIssuer(t)
			j := is.jwt(t)
			j.SetNow(clock.now)
			token := is.token(t, at(clock), c.change)
			for _, when := range []string{"first", "again"} {
				got, err := j.Tenant(bearing(token))
				if !errors.Is(err, c.err) || (err == nil) != (got == "jwt:acme") {
					t.Errorf("%s: got %q, %v; want %v", when, got, err, c.err)
				}
				quiet(t, err, token)
			}
		})
	}
}

// quiet fails if an error shows any part of a token.
func quiet(t *testing.T, err error, token string) {
	t.Helper()
	if err == nil {
		return
	}
	for part := range strings.SplitSeq(token, ".") {
		if len(part) > 3 && strings.Contains(err.Error(), part) {
			t.Errorf("the error %q shows the token", err)
		}
	}
	if strings.Contains(err.Error(), "alice") || strings.Contains(err.Error(), "invalid character") {
		t.Errorf("the error %q shows what the token says", err)
	}
}

func TestJWTRefusesWhatIsNoToken(t *testing.T) {
	t.Parallel()
	is := newIssuer(t)
	j := is.jwt(t)
	good := is.token(t)
	parts := strings.Split(good, ".")
	object := func(text string) string { return b64([]byte(text)) }
	for name, token := range map[string]string{
		"a word":                 "demo-a",
		"dots":                   "..",
		"two parts":              parts[0] + "." + parts[1],
		"four parts":             good + ".e30",
		"five parts":             good + ".e30.e30",
		"no signature":           parts[0] + "." + parts[1] + ".",
		"no claims":              parts[0] + ".." + parts[2],
		"padding":                good + "==",
		"another alphabet":       parts[0] + "." + parts[1] + "." + strings.Repeat("+/", 43),
		"a header that is none":  object(`[]`) + "." + parts[1] + "." + parts[2],
		"claims that are none":   parts[0] + "." + object(`[]`) + "." + parts[2],
		"null claims":            parts[0] + "." + object(`null`) + "." + parts[2],
		"claims and more claims": parts[0] + "." + object(`{}{}`) + "." + parts[2],
		"deep claims":            parts[0] + "." + object(strings.Repeat(`{"a":`, 1500)+"1"+strings.Repeat(`}`, 1500)) + "." + parts[2],
		"broken claims":          parts[0] + "." + object(`{"org":"acme"`) + "." + parts[2],
	} {
		got, err := j.Tenant(bearing(token))
		if got != "" || !errors.Is(err, tenant.ErrInvalid) {
			t.Errorf("%s: got %q, %v", name, got, err)
		}
		quiet(t, err, token)
	}
	if got, err := j.Tenant(bearing(good)); got != "jwt:acme" || err != nil {
		t.Errorf("the good one: got %q, %v", got, err)
	}
}

func TestClaims(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", tenant.MaxName)
	type object = map[string]any
	for name, c := range map[string]struct {
		claim  string
		claims object
		want   string // without its kind; empty: refused
	}{
		"a string":                     {"org", object{"org": "acme"}, "acme"},
		"as it is":                     {"org", object{"org": "Acme GmbH & Söhne"}, "Acme GmbH & Söhne"},
		"an integer":                   {"org", object{"org": 42}, "number:42"},
		"zero":                         {"org", object{"org": 0}, "number:0"},
		"a negative integer":           {"org", object{"org": -7}, "number:-7"},
		"an integer beyond floats":     {"org", object{"org": json.Number("9007199254740993")}, "number:9007199254740993"},
		"its neighbour":                {"org", object{"org": json.Number("9007199254740992")}, "number:9007199254740992"},
		"an integer beyond 64 bits":    {"org", object{"org": json.Number("123456789012345678901234567890")}, "number:123456789012345678901234567890"},
		"a fraction":                   {"org", object{"org": 1.5}, ""},
		"an integer as a fraction":     {"org", object{"org": json.Number("1.0")}, ""},
		"an integer with an exponent":  {"org", object{"org": json.Number("1e2")}, ""},
		"an integer with an Exponent":  {"org", object{"org": json.Number("1E2")}, ""},
		"minus zero":                   {"org", object{"org": json.Number("-0")}, ""},
		"a long integer":               {"org", object{"org": json.Number("1" + strings.Repeat("0", tenant.MaxName))}, ""},
		"true":                         {"org", object{"org": true}, ""},
		"null":                         {"org", object{"org": nil}, ""},
		"a list":                       {"org", object{"org": []string{"acme"}}, ""},
		"an object":                    {"org", object{"org": object{"id": "acme"}}, ""},
		"nothing":                      {"org", object{}, ""},
		"an empty string":              {"org", object{"org": ""}, ""},
		"spaces":                       {"org", object{"org": "  "}, ""},
		"a space before":               {"org", object{"org": " acme"}, ""},
		"a space after":                {"org", object{"org": "acme "}, ""},
		"a new line":                   {"org", object{"org": "acme\numbrella"}, ""},
		"a zero byte":                  {"org", object{"org": "\x00retrysafe/operator"}, ""},
		"a separator":                  {"org", object{"org": "acme\x1fby\x1falice"}, ""},
		"delete":                       {"org", object{"org": "acme\x7f"}, ""},
		"a later control character":    {"org", object{"org": "acme\u0085"}, ""},
		"a zero-width space":           {"org", object{"org": "ac\u200bme"}, ""},
		"text that turns around":       {"org", object{"org": "ac\u202eme"}, ""},
		"what JSON could not read":     {"org", object{"org": json.RawMessage(`"ac\ud800me"`)}, ""},
		"as long as it may be":         {"org", object{"org": long}, long},
		"too long":                     {"org", object{"org": long + "x"}, ""},
		"nested":                       {"org.id", object{"org": object{"id": "acme"}}, "acme"},
		"nested twice":                 {"a.b.c", object{"a": object{"b": object{"c": 7}}}, "number:7"},
		"nested in a string":           {"org.id", object{"org": "acme"}, ""},
		"not nested":                   {"org.id", object{"org": "umbrella", "id": "acme"}, ""},
		"not nested at all":            {"org.id", object{"id": "acme"}, ""},
		"with a colon":                 {"urn:org.id", object{"urn:org": object{"id": "acme"}, "urn:org.id": "umbrella"}, "acme"},
		"nested in a list":             {"org.0", object{"org": []string{"acme"}}, ""},
		"nested in nothing":            {"a.b.c", object{}, ""},
		"a dot is never in a name":     {"org.id", object{"org.id": "acme"}, ""},
		"nor does it change the place": {"org.id", object{"org.id": "umbrella", "org": object{"id": "acme"}}, "acme"},
		"a URL":                        {"https://example.com/org.id", object{"https://example.com/org.id": "acme"}, "acme"},
		"a pointer":                    {"/org.id", object{"org.id": "acme"}, "acme"},
		"a pointer into an object":     {"/https:~1~1example.com~1claims/a~0b", object{"https://example.com/claims": object{"a~b": "acme"}}, "acme"},
		"a pointer that is escaped":    {"/~01", object{"~1": "acme"}, "acme"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			is := newIssuer(t)
			j := is.jwt(t, func(o *tenant.Options) { o.Claim = c.claim })
			change := []func(*draft){with("org", nil)}
			for n, v := range c.claims {
				change = append(change, func(d *draft) { d.claims[n] = v })
			}
			r := bearing(is.token(t, change...))
			for what, f := range map[string]tenant.Func{"tenant": j.Tenant, "claim": j.Claim(c.claim)} {
				got, err := f(r)
				want := "jwt:" + c.want
				if strings.HasPrefix(c.want, "number:") {
					want = "jwt-" + c.want
				}
				if c.want != "" && (got != want || err != nil) {
					t.Errorf("%s: got %q, %v; want %q", what, got, err, c.want)
				}
				if c.want == "" && (got != "" || !errors.Is(err, tenant.ErrInvalid)) {
					t.Errorf("%s: got %q, %v; want it refused", what, got, err)
				}
			}
		})
	}
}

// A claim may be asked for at any time, also of tokens that are remembered already;
// one that cannot be a claim's name is in no token.
func TestClaimOfARememberedToken(t *testing.T) {
	t.Parallel()
	is := newIssuer(t)
	j := is.jwt(t)
	r := bearing(is.token(t, with("mail", "alice@example.com"), with("", "nameless")))
	for range 2 {
		if got, err := j.Tenant(r); got != "jwt:acme" || err != nil {
			t.Fatalf("got %q, %v", got, err)
		}
	}
	sub, mail := j.Claim("sub"), j.Claim("mail")
	for range 2 {
		if got, err := sub(r); got != "jwt:alice" || err != nil {
			t.Errorf("got %q, %v", got, err)
		}
		if got, err := mail(r); got != "jwt:alice@example.com" || err != nil {
			t.Errorf("got %q, %v", got, err)
		}
	}
	for _, name := range []string{"", ".", "a.", ".a", "a..b", "/", "//", "/a/", "nothing"} {
		if got, err := j.Claim(name)(r); got != "" || !errors.Is(err, tenant.ErrInvalid) {
			t.Errorf("claim %q: got %q, %v", name, got, err)
		}
	}
}

func TestNewJWTRefusesWhatIsNotSafe(t *testing.T) {
	t.Parallel()
	jwks := func(s string) func(*tenant.Options) { return func(o *tenant.Options) { o.JWKS = s } }
	algorithms := func(s ...string) func(*tenant.Options) { return func(o *tenant.Options) { o.Algorithms = s } }
	for name, c := range map[string]struct {
		change func(*tenant.Options)
		want   string // in the error; empty: accepted
	}{
		"nothing wrong":            {func(*tenant.Options) {}, ""},
		"no claim":                 {func(o *tenant.Options) { o.Claim = "" }, "claim is required"},
		"a claim without a name":   {func(o *tenant.Options) { o.Claim = "org..id" }, "part without a name"},
		"no issuer":                {func(o *tenant.Options) { o.Issuer = "" }, "issuer is required"},
		"no audience":              {func(o *tenant.Options) { o.Audience = "" }, "audience is required"},
		"a negative refresh":       {func(o *tenant.Options) { o.Refresh = -1 }, "refresh is negative"},
		"algorithm none":           {algorithms("none"), "cannot be used with public keys"},
		"a shared secret":          {algorithms("RS256", "HS256"), "cannot be used with public keys"},
		"an unknown algorithm":     {algorithms("rs256"), "cannot be used with public keys"},
		"an empty algorithm":       {algorithms(""), "cannot be used with public keys"},
		"no keys":                  {jwks(""), "jwks is required"},
		"https":                    {jwks("https://login.example.com/jwks"), ""},
		"HTTPS":                    {jwks("HTTPS://login.example.com/jwks"), ""},
		"a file":                   {jwks("keys/jwks.json"), ""},
		"a file as a URL":          {jwks("file:///etc/retrysafe/jwks.json"), ""},
		"http of this machine":     {jwks("http://localhost:8080/jwks"), ""},
		"http of 127.0.0.1":        {jwks("http://127.0.0.1/jwks"), ""},
		"http of ::1":              {jwks("http://[::1]:80/jwks"), ""},
		"http of 127.0.0.1 in v6":  {jwks("http://[::ffff:127.0.0.1]:80/jwks"), ""},
		"plain http":               {jwks("http://login.example.com/jwks"), "use https"},
		"http of a private net":    {jwks("http://10.0.0.1/jwks"), "use https"},
		"http of all addresses":    {jwks("http://0.0.0.0/jwks"), "use https"},
		"almost this machine":      {jwks("http://localhost.example.com/jwks"), "use https"},
		"this machine as a user":   {jwks("http://localhost@example.com/jwks"), "user or password"},
		"a password":               {jwks("https://me:secret@login.example.com/jwks"), "user or password"},
		"another scheme":           {jwks("ftp://login.example.com/jwks"), "https URL"},
		"data":                     {jwks("data://x/,{}"), "https URL"},
		"no host":                  {jwks("https:///jwks"), "https URL"},
		"a file of another host":   {jwks("file://example.com/jwks"), "https URL"},
		"a file without a name":    {jwks("file://"), "https URL"},
		"a URL that cannot be one": {jwks("https://login.example.com:port/jwks?key=secret"), "not a URL"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := tenant.Options{Claim: "org", JWKS: "jwks.json", Issuer: issuerName, Audience: audienceName}
			c.change(&o)
			j, err := tenant.NewJWT(o)
			switch {
			case c.want == "" && (err != nil || j == nil):
				t.Errorf("got %v", err)
			case c.want != "" && (err == nil || j != nil || !strings.Contains(err.Error(), c.want)):
				t.Errorf("got %v, want one with %q", err, c.want)
			case err != nil && strings.Contains(err.Error(), "secret"):
				t.Errorf("the error %q shows a secret", err)
			}
		})
	}
}

var _ tenant.Func = (*tenant.JWT)(nil).Tenant

var _ func(*http.Request) (string, error) = tenant.Func(nil)

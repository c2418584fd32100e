package tenant_test

import (
	"errors"
	"regexp"
	"strings"
	"testing"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/gateway/tenant"
)

func TestBearerHashesTheToken(t *testing.T) {
	t.Parallel()
	const token = "sk_live_4eC39HqLyjWDarjtT1zdp7dc"
	bearer := tenant.Bearer()
	scope := must1[string](t)(bearer(bearing(token)))
	if !regexp.MustCompile(`^bearer:[A-Za-z0-9_-]{43}$`).MatchString(scope) {
		t.Errorf("the scope is %q", scope)
	}
	// It is stored: another one in a later version would let every retry run again.
	if want := "bearer:Q7NU2FDRnvpRrV4pZpjZEkmFGHF6X_7DIXCthIuTIlU"; scope != want {
		t.Errorf("the scope is %q, it was %q", scope, want)
	}
	for _, same := range []string{"bearer " + token, "BEARER " + token, "Bearer   " + token} {
		if got, err := bearer(request([2]string{"Authorization", same})); got != scope || err != nil {
			t.Errorf("%q: got %q, %v; want the same scope", same, got, err)
		}
	}
	for _, other := range []string{token + "x", strings.ToLower(token), token[1:], strings.Repeat("a", tenant.MaxToken)} {
		if got, err := bearer(bearing(other)); got == scope || err != nil {
			t.Errorf("%.40q: got %q, %v; want another scope", other, got, err)
		}
	}
}

// notTokens are Authorization headers that show no token.
var notTokens = map[string]struct {
	lines []string
	err   error
}{
	"none":               {nil, tenant.ErrMissing},
	"empty":              {[]string{""}, tenant.ErrMissing},
	"only the scheme":    {[]string{"Bearer"}, tenant.ErrMissing},
	"scheme and space":   {[]string{"Bearer "}, tenant.ErrMissing},
	"scheme and spaces":  {[]string{"Bearer   "}, tenant.ErrMissing},
	"another scheme":     {[]string{"Basic c2VjcmV0OnNlY3JldA=="}, tenant.ErrInvalid},
	"a longer scheme":    {[]string{"BearerX secret"}, tenant.ErrInvalid},
	"only a token":       {[]string{"secret"}, tenant.ErrInvalid},
	"two lines":          {[]string{"Bearer secret", "Bearer secret"}, tenant.ErrInvalid},
	"two schemes":        {[]string{"Basic c2VjcmV0", "Bearer secret"}, tenant.ErrInvalid},
	"two tokens":         {[]string{"Bearer secret secret"}, tenant.ErrInvalid},
	"joined lines":       {[]string{"Bearer secret, Bearer secret"}, tenant.ErrInvalid},
	"a tab":              {[]string{"Bearer\tsecret"}, tenant.ErrInvalid},
	"a tab and a space":  {[]string{"Bearer \tsecret"}, tenant.ErrInvalid},
	"a space before":     {[]string{" Bearer secret"}, tenant.ErrInvalid},
	"a space after":      {[]string{"Bearer secret "}, tenant.ErrInvalid},
	"a control byte":     {[]string{"Bearer secret\x01"}, tenant.ErrInvalid},
	"beyond ASCII":       {[]string{"Bearer secrét"}, tenant.ErrInvalid},
	"longer than it may": {[]string{"Bearer " + strings.Repeat("a", tenant.MaxToken+1)}, tenant.ErrInvalid},
}

func TestBearerWithoutATokenIsRefused(t *testing.T) {
	t.Parallel()
	verified := newIssuer(t).jwt(t)
	for kind, f := range map[string]tenant.Func{"bearer": tenant.Bearer(), "jwt": verified.Tenant, "claim": verified.Claim("sub")} {
		for name, c := range notTokens {
			r := request()
			r.Header["Authorization"] = c.lines
			got, err := f(r)
			if got != "" || !errors.Is(err, c.err) {
				t.Errorf("%s, %s: got %q, %v; want %v", kind, name, got, err, c.err)
			} else if challenged, ok := errors.AsType[interface {
				error
				Challenge() string
			}](err); !ok || !strings.HasPrefix(challenged.Challenge(), "Bearer ") {
				t.Errorf("%s, %s: the client is not asked for a token: %v", kind, name, err)
			} else if strings.Contains(err.Error(), "secr") || strings.Contains(err.Error(), "c2Vj") {
				t.Errorf("%s, %s: the error %q shows what was sent", kind, name, err)
			}
		}
	}
}

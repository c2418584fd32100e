package config

import (
	"net/url"
	"slices"
	"strings"
)

const (
	noTenant = "it is missing, and has no default: the keys of tenants that are not told apart collide, and one gets the other's answers. "
	// tenantInFile and tenantByFlag are the choices, as a file and as the command line has them.
	tenantInFile = "Choose {from: header, name: X-Tenant-Id}, which a trusted proxy sets; " +
		"{from: bearer}, a hash of the caller's token; " +
		"{from: jwt, claim: org, jwks: URL, issuer: …, audience: …}, a claim of a verified token; " +
		"or {from: none}, where all callers are one tenant"
	tenantByFlag = "Choose --tenant header:X-Tenant-Id, which a trusted proxy sets; " +
		"--tenant bearer, a hash of the caller's token; " +
		"a claim of a verified token, in a file (--config); " +
		"or --tenant none, where all callers are one tenant"
)

func (k *checker) tenant() {
	t := &k.Tenant
	switch t.From {
	case "":
		choices := tenantInFile
		if k.src.withoutFile() {
			choices = tenantByFlag
		}
		k.refuse("tenant", "%s", noTenant+choices)
		return
	case "header":
		k.header("tenant.name", t.Name, "it is missing; it is the header that names the tenant, such as X-Tenant-Id")
		if t.Principal != "" {
			k.header("tenant.principal", t.Principal, "")
		}
		if len(t.TrustedProxies) == 0 {
			k.refuse("tenant.trusted_proxies", "there are none, so no request could say which tenant it is from; name the proxy's addresses")
		}
	case "jwt":
		k.token()
	case "bearer", "none":
	default:
		k.refuse("tenant.from", "%s is none of header, bearer, jwt, none", quote(t.From))
		return
	}
	for _, f := range []struct{ name, value, kinds string }{
		{"name", t.Name, "header"},
		{"principal", t.Principal, "header, jwt"},
		{"claim", t.Claim, "jwt"},
		{"jwks", t.JWKS, "jwt"},
		{"issuer", t.Issuer, "jwt"},
		{"audience", t.Audience, "jwt"},
		{"algorithms", strings.Join(t.Algorithms, " "), "jwt"},
	} {
		if f.value != "" && !strings.Contains(f.kinds, t.From) {
			k.refuse("tenant."+f.name, "it is for from: %s, but this is from: %s", strings.ReplaceAll(f.kinds, ", ", " or "), t.From)
		}
	}
}

// token checks what is needed to believe a JWT.
func (k *checker) token() {
	t := &k.Tenant
	for _, f := range []struct{ name, value, what string }{
		{"claim", t.Claim, "the claim that names the tenant, such as org or org.id"},
		{"jwks", t.JWKS, "the URL, or the file, of the keys that tokens are signed with"},
		{"issuer", t.Issuer, "who must have issued a token (iss)"},
		{"audience", t.Audience, "for whom a token must be (aud); one that is for another service is none here"},
	} {
		if f.value == "" {
			k.refuse("tenant."+f.name, "it is missing; it is %s", f.what)
		}
	}
	if scheme, _, ok := strings.Cut(t.JWKS, "://"); ok {
		u, err := url.Parse(t.JWKS)
		switch {
		case err != nil || u.Host == "" || u.User != nil || scheme != "https" && scheme != "http":
			k.refuse("tenant.jwks", "it is neither a URL such as https://login.example.com/jwks.json nor a file")
		case scheme == "http" && !loopback(u.Hostname()):
			k.refuse("tenant.jwks", "keys that come over plain http from another machine can be anybody's; use https")
		}
	}
	if len(t.Algorithms) == 0 {
		k.refuse("tenant.algorithms", "there are none, so no token could be believed")
	}
	for i, a := range t.Algorithms {
		if !slices.Contains(algorithms, a) {
			k.refuse(element("tenant.algorithms", i), "%s is none of %s", quote(a), strings.Join(algorithms, ", "))
		}
	}
}

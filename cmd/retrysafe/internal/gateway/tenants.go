package gateway

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/gateway/config"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/gateway/tenant"
)

// tenants find out which tenant a request belongs to.
type tenants struct {
	tenant    tenant.Func
	principal tenant.Func // nil: nothing names one
	ready     func() error
	header    string   // canonical, where a header names the tenant
	names     []string // all headers by which callers are told apart, canonical
	trusted   tenant.Proxies
	byAddress bool // what a caller holds is counted for its address, too
	oneTenant bool // all callers are one
}

// makeTenants makes what tells callers apart from the configuration.
func (g *Gateway) makeTenants(c *config.Config, p *Parts) error {
	t := &g.tenants
	t.ready = func() error { return nil }
	t.trusted = tenant.TrustedProxies(c.Tenant.TrustedProxies)
	switch from := c.Tenant.From; {
	case p.Tenant != nil:
	case from == "header":
		if c.Tenant.Name == "" {
			return errors.New("tenant: from header needs the header's name")
		}
		t.tenant = tenant.Header(c.Tenant.Name, c.Tenant.TrustedProxies)
		t.header = http.CanonicalHeaderKey(c.Tenant.Name)
		t.names = []string{t.header}
		if c.Tenant.Principal != "" {
			t.principal = tenant.Header(c.Tenant.Principal, c.Tenant.TrustedProxies)
			t.names = append(t.names, http.CanonicalHeaderKey(c.Tenant.Principal))
		}
	case from == "bearer":
		t.tenant, t.byAddress = tenant.Bearer(), true
	case from == "jwt":
		jwt, err := tenant.NewJWT(tenant.Options{
			Claim: c.Tenant.Claim, JWKS: c.Tenant.JWKS, Issuer: c.Tenant.Issuer, Audience: c.Tenant.Audience,
			Algorithms: c.Tenant.Algorithms, Logger: g.logger,
		})
		if err != nil {
			return fmt.Errorf("tenant: %w", err)
		}
		t.tenant, t.ready = jwt.Tenant, jwt.Ready
		if c.Tenant.Principal != "" {
			t.principal = jwt.Claim(c.Tenant.Principal)
		}
		g.duties = append(g.duties, func(ctx context.Context) error { return jwt.Run(ctx) })
	case from == "none":
		t.tenant, t.byAddress, t.oneTenant = tenant.None(), true, true
	default:
		return errors.New("tenant: nothing says how callers are told apart; keys of two callers would meet")
	}
	if fix := unidentifiedFix(&c.Tenant); fix != "" {
		t.tenant, t.principal = withFix(t.tenant, fix), withFix(t.principal, principalFix(&c.Tenant))
	}
	if p.Tenant != nil {
		t.tenant = p.Tenant
	}
	if p.Principal != nil {
		t.principal = p.Principal
	}
	return nil
}

// unidentifiedFix returns what an operator does if callers are not identified that should be.
func unidentifiedFix(c *config.Tenant) string {
	switch c.From {
	case "header":
		return "tenant.from is header: the proxy in front must set " + c.Name + ", and its address must be one of tenant.trusted_proxies; if callers are told apart in another way, change tenant.from"
	case "bearer":
		return "tenant.from is bearer: the client must send a token; if callers are told apart in another way, change tenant.from"
	case "jwt":
		return "tenant.from is jwt: the client must send a token that tenant.jwks, tenant.issuer, tenant.audience and tenant.claim accept; if callers are told apart in another way, change tenant.from"
	default:
		return ""
	}
}

// principalFix returns what an operator does if the tenant of a request is known and its
// principal is not.
func principalFix(c *config.Tenant) string {
	if c.From == "jwt" {
		return "tenant.principal is " + c.Principal + ": the client must send a token that has this claim"
	}
	return "tenant.principal is " + c.Principal + ": the proxy in front must set this header"
}

// withFix returns f with errors that say what an operator does about them; the guard logs it.
func withFix(f tenant.Func, fix string) tenant.Func {
	if f == nil {
		return nil
	}
	return func(r *http.Request) (string, error) {
		name, err := f(r)
		if err != nil {
			err = &unidentifiedError{err, fix}
		}
		return name, err
	}
}

// An unidentifiedError is an error of a [tenant.Func] with its remedy.
type unidentifiedError struct {
	error
	fix string
}

func (e *unidentifiedError) Unwrap() error { return e.error }

// Fix returns what an operator does about the error.
func (e *unidentifiedError) Fix() string { return e.fix }

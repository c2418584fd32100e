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
	tokens    bool // callers are told apart by what they hold, which is not stored
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
		t.tenant, t.tokens, t.byAddress = tenant.Bearer(), true, true
	case from == "jwt":
		jwt, err := tenant.NewJWT(tenant.Options{
			Claim: c.Tenant.Claim, JWKS: c.Tenant.JWKS, Issuer: c.Tenant.Issuer, Audience: c.Tenant.Audience,
			Algorithms: c.Tenant.Algorithms, Logger: g.logger,
		})
		if err != nil {
			return fmt.Errorf("tenant: %w", err)
		}
		t.tenant, t.ready, t.tokens = jwt.Tenant, jwt.Ready, true
		if c.Tenant.Principal != "" {
			t.principal = jwt.Claim(c.Tenant.Principal)
		}
		g.duties = append(g.duties, func(ctx context.Context) error { return jwt.Run(ctx) })
	case from == "none":
		t.tenant, t.byAddress, t.oneTenant = tenant.None(), true, true
	default:
		return errors.New("tenant: nothing says how callers are told apart; keys of two callers would meet")
	}
	if p.Tenant != nil {
		t.tenant = p.Tenant
	}
	if p.Principal != nil {
		t.principal = p.Principal
	}
	return nil
}

package config

import (
	"net/netip"
	"time"

	"github.com/retrysafe/retrysafe"
)

// Default returns what holds where nothing is said. It lacks what has no
// default: an upstream and a tenant.
func Default() Config {
	return Config{
		Listen:  "127.0.0.1:8080",
		Store:   "sqlite:retrysafe.db",
		Profile: "ietf",

		StoreTimeout: defaultStoreTimeout,
		Tenant: Tenant{TrustedProxies: []netip.Prefix{
			netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128"),
		}},
		Defaults: Settings{
			Required: true,
			Policy: retrysafe.Policy{
				Effects: retrysafe.EffectsUnprotected, InFlight: retrysafe.InFlightConflict, OnExpired: retrysafe.ExpiredRerun,
				Lease: 30 * time.Second, MaxRun: defaultMaxRun, Retention: 24 * time.Hour,
				Wait: 5 * time.Second, Reconcile: 30 * time.Second, Patience: time.Hour,
			},
			KeyHeader:  "Idempotency-Key",
			Timeout:    defaultTimeout,
			MaxRequest: 1 << 20, MaxResponse: 1 << 20,
			MinKeyLength: 16, ShortKeys: "warn", PersonalData: "warn", AmbiguousPaths: AmbiguousRefuse,
		},
		Server: Server{
			MaxHeader: 64 << 10, MaxConnections: 10_000, MinBodyRate: 1 << 10,
			ReadHeader: 10 * time.Second, ReadBody: time.Minute, Write: 2 * time.Minute, Idle: 2 * time.Minute,
			Drain: 30 * time.Second, UpstreamConnections: 256, DialTimeout: 5 * time.Second,
		},
		Cache:   Cache{Bytes: 32 << 20, MaxAge: time.Minute},
		Janitor: Janitor{Sweep: 2 * time.Second, Reap: time.Minute},

		Reconcile: defaultReconcile(),
		Tracing:   defaultTracing(),
	}
}

const (
	defaultMaxRun    = 10 * time.Minute
	defaultTimeout   = 30 * time.Second
	defaultTombstone = 30 * day
)

// complete fills in the defaults that depend on something else.
func (c *Config) complete() {
	said := c.src.said
	c.completeWebhooks()
	c.completeRoom()
	c.Defaults.complete(said("defaults.max_run"), said("defaults.timeout"))
	gone, bound := c.Defaults.Policy.OnExpired == retrysafe.ExpiredGone, c.Defaults.BindPrincipal
	for i := range c.Routes {
		r, path := &c.Routes[i], element("routes", i)
		r.Settings.complete(said("defaults.max_run") || said(path+".max_run"), said("defaults.timeout") || said(path+".timeout"))
		gone, bound = gone || r.Policy.OnExpired == retrysafe.ExpiredGone, bound || r.BindPrincipal
	}
	if gone && !said("janitor.tombstone") {
		c.Janitor.Tombstone = defaultTombstone
	}
	if t := &c.Tenant; bound && t.Principal == "" {
		t.Principal = map[string]string{"header": "X-Principal-Id", "jwt": "sub"}[t.From]
	}
	if t := &c.Tenant; t.From == "jwt" && len(t.Algorithms) == 0 {
		t.Algorithms = []string{"RS256", "ES256", "EdDSA"}
	}
}

func (s *Settings) complete(maxRun, timeout bool) {
	if s.Policy.Lapse == 0 { // by the effects; an upstream has no checkpoints to resume from
		s.Policy.Lapse = retrysafe.LapseQuarantine
		if s.Policy.Effects == retrysafe.EffectsKeyed {
			s.Policy.Lapse = retrysafe.LapseRerun
		}
	}
	if !maxRun {
		s.Policy.MaxRun = max(defaultMaxRun, s.Policy.Lease)
	}
	if !timeout {
		s.Timeout = min(defaultTimeout, s.Policy.MaxRun)
	}
}

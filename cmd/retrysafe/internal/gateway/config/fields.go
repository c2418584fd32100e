package config

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/retrysafe/retrysafe"
)

// The names of the file, and what each of them fills. Reading, printing and the
// suggestions in messages all go by these tables.

func (c *Config) fields() section {
	return section{
		{"listen", text(&c.Listen)},
		{"upstream", text(&c.Upstream)},
		{"store", secretText(&c.Store, redactStore)},
		{"store_file", text(&c.StoreFile)},
		{"store_timeout", span(&c.StoreTimeout)},
		{"profile", words(&c.Profile, "ietf", "stripe")},
		{"tenant", tenant{&c.Tenant}},
		{"defaults", c.Defaults.fields()},
		{"routes", routes{c}},
		{"limits", c.Limits.fields()},
		{"encryption", section{{"keys_file", text(&c.Encryption.KeysFile)}}},
		{"admin", section{
			{"listen", text(&c.Admin.Listen)},
			{"socket", text(&c.Admin.Socket)},
			{"tokens", c.Admin.tokenFields()},
			{"token", secretText(&c.Admin.Token, redactAll)},
			{"token_file", text(&c.Admin.TokenFile)},
			{"metrics_token", secretText(&c.Admin.MetricsToken, redactAll)},
			{"metrics_token_file", text(&c.Admin.MetricsTokenFile)},
			{"proof", text(&c.Admin.Proof)},
			{"tls", c.Admin.TLS.fields()},
		}},
		{"tls", c.TLS.fields()},
		{"upstream_tls", section{
			{"ca_file", text(&c.UpstreamTLS.CAFile)},
			{"server_name", text(&c.UpstreamTLS.ServerName)},
			{"cert_file", text(&c.UpstreamTLS.CertFile)},
			{"key_file", text(&c.UpstreamTLS.KeyFile)},
		}},
		{"server", c.Server.fields()},
		{"cache", section{
			{"bytes", room(&c.Cache.Bytes)},
			{"max_age", span(&c.Cache.MaxAge)},
			{"shared", secretText(&c.Cache.Shared, redactStore)},
		}},
		{"janitor", section{
			{"off", flag(&c.Janitor.Off)},
			{"sweep", span(&c.Janitor.Sweep)},
			{"reap", span(&c.Janitor.Reap)},
			{"tombstone", span(&c.Janitor.Tombstone)},
		}},
		{"reconcile", c.Reconcile.fields()},
		{"webhooks", c.webhookFields()},
		{"metrics", section{{"tenants", count(&c.Metrics.Tenants)}}},
		{"tracing", c.Tracing.fields()},
		{"ledger", sections[Ledger]{&c.Ledger, newLedger, (*Ledger).fields}},
	}
}

func (t *TLS) fields() section {
	return section{
		{"cert_file", text(&t.CertFile)},
		{"key_file", text(&t.KeyFile)},
	}
}

func (t *Tenant) fields() section {
	return section{
		{"from", words(&t.From, "header", "bearer", "jwt", "none")},
		{"name", text(&t.Name)},
		{"trusted_proxies", list[netip.Prefix]{&t.TrustedProxies, prefix}},
		{"principal", text(&t.Principal)},
		{"claim", text(&t.Claim)},
		{"jwks", text(&t.JWKS)},
		{"issuer", text(&t.Issuer)},
		{"audience", text(&t.Audience)},
		{"algorithms", list[string]{&t.Algorithms, func(to *string) value { return words(to, algorithms...) }}},
	}
}

// algorithms are the asymmetric signature algorithms: the public key alone verifies them.
var algorithms = []string{"RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"}

func (l *Limits) fields() section {
	return section{
		{"new_keys_per_second", rate(&l.NewKeysPerSecond)},
		{"new_keys_burst", count(&l.NewKeysBurst)},
		{"lookups_per_second", rate(&l.LookupsPerSecond)},
		{"active_keys", count(&l.ActiveKeys)},
		{"in_flight", count(&l.InFlight)},
	}
}

func (s *Server) fields() section {
	return section{
		{"max_header", size(&s.MaxHeader)},
		{"max_connections", count(&s.MaxConnections)},
		{"max_memory", size(&s.MaxMemory)},
		{"min_body_rate", size(&s.MinBodyRate)},
		{"read_header", span(&s.ReadHeader)},
		{"read_body", span(&s.ReadBody)},
		{"write", span(&s.Write)},
		{"idle", span(&s.Idle)},
		{"drain", span(&s.Drain)},
		{"drain_delay", span(&s.DrainDelay)},
		{"upstream_connections", count(&s.UpstreamConnections)},
		{"dial_timeout", span(&s.DialTimeout)},
	}
}

func (r *Route) fields() section {
	return append(section{{"match", text(&r.Match)}}, r.Settings.fields()...)
}

func (s *Settings) fields() section {
	p := &s.Policy
	return section{
		{"off", flag(&s.Off)},
		{"observe", flag(&s.Observe)},
		{"required", flag(&s.Required)},
		{"async", flag(&s.Async)},

		{"effects", oneOf(&p.Effects, map[string]string{"in_tx": noTx},
			option[retrysafe.Effects]{"unprotected", retrysafe.EffectsUnprotected},
			option[retrysafe.Effects]{"keyed", retrysafe.EffectsKeyed})},
		{"lapse", oneOf(&p.Lapse, nil,
			option[retrysafe.Lapse]{"quarantine", retrysafe.LapseQuarantine},
			option[retrysafe.Lapse]{"resume", retrysafe.LapseResume},
			option[retrysafe.Lapse]{"rerun", retrysafe.LapseRerun},
			option[retrysafe.Lapse]{"fail", retrysafe.LapseFail})},
		{"on_5xx", oneOf(&p.OnFailure, nil,
			option[retrysafe.FailurePolicy]{"by_proof", retrysafe.FailureByProof},
			option[retrysafe.FailurePolicy]{"retry", retrysafe.FailureRetry},
			option[retrysafe.FailurePolicy]{"store", retrysafe.FailureStore})},
		{"in_flight", oneOf(&p.InFlight, nil,
			option[retrysafe.InFlightPolicy]{"conflict", retrysafe.InFlightConflict},
			option[retrysafe.InFlightPolicy]{"wait", retrysafe.InFlightWait},
			option[retrysafe.InFlightPolicy]{"accepted", retrysafe.InFlightAccept})},
		{"on_expired", oneOf(&p.OnExpired, nil,
			option[retrysafe.ExpiredPolicy]{"run_again", retrysafe.ExpiredRerun},
			option[retrysafe.ExpiredPolicy]{"gone", retrysafe.ExpiredGone})},
		{"async_reserve", flag(&p.AsyncReserve)},
		{"lease", span(&p.Lease)},
		{"max_run", span(&p.MaxRun)},
		{"retention", span(&p.Retention)},
		{"wait", span(&p.Wait)},
		{"reconcile", span(&p.Reconcile)},
		{"patience", span(&p.Patience)},

		{"key_header", text(&s.KeyHeader)},
		{"forward_key", text(&s.ForwardKey)},
		{"derive_key", text(&s.DeriveKey)},
		{"scope", oneOf(&s.PerOperation, nil, option[bool]{"tenant", false}, option[bool]{"operation", true})},
		{"bind", oneOf(&s.BindPrincipal, nil, option[bool]{"none", false}, option[bool]{"principal", true})},

		{"timeout", span(&s.Timeout)},
		{"max_request", size(&s.MaxRequest)},
		{"max_response", size(&s.MaxResponse)},
		{"concurrency", count(&s.Concurrency)},
		{"decode", flag(&s.Decode)},
		{"stream", flag(&s.Stream)},
		{"close_delimited", flag(&s.CloseDelimited)},

		{"include", texts(&s.Include)},
		{"exclude", texts(&s.Exclude)},
		{"fingerprint_headers", texts(&s.FingerprintHeaders)},
		{"replay_headers", texts(&s.ReplayHeaders)},
		{"keep_headers", texts(&s.KeepHeaders)},
		{"keep_credentials", texts(&s.KeepCredentials)},
		{"strict", flag(&s.Strict)},
		{"min_key_length", count(&s.MinKeyLength)},
		{"short_keys", words(&s.ShortKeys, "ignore", "warn", "refuse")},
		{"personal_data", words(&s.PersonalData, "ignore", "warn", "refuse")},
		{"first_sent", firstSent(&s.FirstSent)},
		{"ambiguous_paths", words(&s.AmbiguousPaths, AmbiguousRefuse, AmbiguousGuard)},
	}
}

const noTx = "cannot be had of a gateway: it has no part in its upstream's transactions, so the answer cannot commit together with the effect; use keyed, or unprotected"

// homesOf says which sections have a field of this name.
func homesOf(name string) string {
	var homes []string
	if slices.Contains(new(Settings).fields().names(), name) {
		homes = append(homes, "defaults or a route")
	}
	for _, f := range new(Config).fields() {
		s, ok := f.value.(section)
		if t, is := f.value.(tenant); is {
			s, ok = t.to.fields(), true
		}
		if l, is := f.value.(interface{ standard() section }); is {
			s, ok = l.standard(), true
		}
		if ok && f.name != "defaults" && s.find(name) != nil {
			homes = append(homes, f.name)
		}
	}
	if new(Config).fields().find(name) != nil {
		homes = append(homes, "the top of the file")
	}
	return strings.Join(homes, ", or ")
}

package config

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/retrysafe/retrysafe"
)

// Warnings returns what works but may not be what was meant, one line each with
// its place in the file: what is found here, and more that others have found.
func (c *Config) Warnings(more ...Note) []string {
	w := &warner{Config: c, notes: slices.Clone(more)}
	if c.src != nil {
		w.notes = slices.Concat(c.src.notes, more)
	}
	w.tenant()
	w.listeners()
	w.store()
	w.settings()
	w.reconcile()
	return c.src.lines(w.notes)
}

type warner struct {
	*Config
	notes []Note
}

func (w *warner) warn(path, format string, args ...any) {
	w.notes = append(w.notes, Note{path, fmt.Sprintf(format, args...)})
}

func (w *warner) tenant() {
	t := &w.Tenant
	if t.From == "none" {
		w.warn("tenant", "all callers are one tenant: a caller that knows a key gets its answer")
	}
	if t.From != "header" {
		return
	}
	for i, p := range t.TrustedProxies {
		if p.Bits() == 0 {
			w.warn(element("tenant.trusted_proxies", i), "every client may say which tenant it is")
		}
	}
	local := !slices.ContainsFunc(t.TrustedProxies, func(p netip.Prefix) bool { return !p.Addr().IsLoopback() })
	if local && exposed(w.Listen) {
		w.warn("tenant.trusted_proxies", "requests come in at %s from other machines too, but only this machine is trusted to set %s: all others are refused", w.Listen, t.Name)
	}
}

// exposed reports whether other machines can connect to an address.
func exposed(address string) bool {
	host, _, err := net.SplitHostPort(address)
	return err == nil && !loopback(host)
}

func (w *warner) listeners() {
	if exposed(w.Listen) && w.TLS == (TLS{}) && (w.Tenant.From == "bearer" || w.Tenant.From == "jwt") {
		w.warn("listen", "tokens cross the network in clear text; add tls, or let a proxy on this machine end it")
	}
	if w.Admin.Listen == "" && w.Admin.Socket == "" && len(w.Admin.People()) > 0 {
		w.warn("admin", "there is a token but no listen, so there is no listener for operators")
	}
	if w.Admin.Listen != "" && exposed(w.Admin.Listen) && w.Admin.TLS == (TLS{}) {
		w.warn("admin.listen", "the operators' token crosses the network in clear text; add admin.tls, or listen on 127.0.0.1")
	}
}

func (w *warner) store() {
	if strings.HasPrefix(w.Store, "memory:") {
		w.warn("store", "what is in memory is gone when the process ends, and a retry after that runs again")
	}
	if l := &w.Limits; l.LookupsPerSecond > 0 && l.LookupsPerSecond < l.NewKeysPerSecond {
		w.warn("limits.lookups_per_second", "it counts all requests, new keys included, so new_keys_per_second is never reached")
	}
}

// settings warns of what the defaults and the routes say. What a route has from
// the defaults is said once.
func (w *warner) settings() {
	told := map[string]bool{}
	for _, n := range w.notesOf(&w.Defaults) {
		told[n.Path+n.Text] = true
		w.warn(child("defaults", n.Path), "%s", n.Text)
	}
	for i := range w.Routes {
		s := &w.Routes[i].Settings
		if s.Off {
			// A route that is listed under defaults that are off is probably meant to be guarded.
			if off := child(element("routes", i), "off"); w.Defaults.Off && !w.src.said(off) {
				w.warn(off, "it is off because the defaults are: its requests pass unguarded, unless it says off: false")
			}
			continue
		}
		for _, n := range w.notesOf(s) {
			if !told[n.Path+n.Text] {
				w.warn(child(element("routes", i), n.Path), "%s", n.Text)
			}
		}
	}
}

func (w *warner) notesOf(s *Settings) []Note {
	var notes []Note
	add := func(path, format string, args ...any) {
		notes = append(notes, Note{path, fmt.Sprintf(format, args...)})
	}
	p := &s.Policy
	for _, text := range p.Caveats() {
		add(caveatField(text), "%s", text)
	}
	if p.Lease < 3*time.Second {
		add("lease", "%s is short: a pause of the process or of the store makes an attempt look abandoned", printSpan(p.Lease))
	}
	if p.Lapse == retrysafe.LapseResume {
		add("lapse", "an upstream behind a gateway has no checkpoints to resume from: this is the same as rerun")
	}
	if s.Timeout > p.MaxRun {
		add("timeout", "%s is longer than max_run %s, which ends the attempt first", printSpan(s.Timeout), printSpan(p.MaxRun))
	}
	if s.Timeout > w.Server.Drain {
		add("timeout", "%s is longer than server.drain %s: a request that is slow when the gateway stops does not get its answer", printSpan(s.Timeout), printSpan(w.Server.Drain))
	}
	if p.OnExpired == retrysafe.ExpiredGone && (w.Janitor.Tombstone == 0 && !w.Janitor.Off) {
		add("on_expired", "gone lasts for as long as a key is remembered, and janitor.tombstone is 0: it is forgotten as soon as it expires")
	}
	if s.Async && w.Encryption.KeysFile == "" {
		add("async", "requests are stored as they come, and there is no encryption")
	}
	isToken := func(name string) bool { return strings.EqualFold(name, "Authorization") }
	if s.Async && (w.Tenant.From == "bearer" || w.Tenant.From == "jwt") && !slices.ContainsFunc(s.KeepCredentials, isToken) {
		add("async", "requests are run later without the token that their callers are told apart by: name Authorization in keep_credentials if the service needs it")
	}
	if !s.Async && len(s.KeepHeaders)+len(s.KeepCredentials) > 0 && !w.anyAsync() {
		add("keep_headers", "only requests of async routes are kept, and there is no such route")
	}
	return notes
}

// caveatField returns the field that a caveat of a policy is about.
func caveatField(text string) string {
	switch {
	case strings.HasPrefix(text, "retention"):
		return "retention"
	case strings.HasPrefix(text, "reservations"):
		return "async_reserve"
	case strings.HasPrefix(text, "a server error"):
		return "on_5xx"
	}
	return ""
}

func (w *warner) anyAsync() bool {
	return slices.ContainsFunc(w.Routes, func(r Route) bool { return r.Async })
}

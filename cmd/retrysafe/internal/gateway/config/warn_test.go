package config_test

import (
	"strings"
	"testing"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/gateway/config"
)

func TestWarnings(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ text, want string }{
		{least, ""},
		{"upstream: http://h\ntenant: none", "gw.yaml:2:9: tenant: all callers are one tenant: a caller that knows a key gets its answer"},
		{"listen: ':80'\nupstream: http://h\ntenant: header:X-Org", "gw.yaml:3:9: tenant.trusted_proxies: requests come in at :80 from other machines too, but only this machine is trusted to set X-Org: all others are refused"},
		{"listen: ':80'\nupstream: http://h\ntenant: {from: header, name: X-Org, trusted_proxies: [10.0.0.0/8]}", ""},
		{"upstream: http://h\ntenant: {from: header, name: X-Org, trusted_proxies: [0.0.0.0/0]}", "gw.yaml:2:55: tenant.trusted_proxies[0]: every client may say which tenant it is"},
		{least + "listen: 10.0.0.1:80", "gw.yaml:3:9: listen: tokens cross the network in clear text; add tls, or let a proxy on this machine end it"},
		{least + "listen: 10.0.0.1:80\ntls: {cert_file: a, key_file: b}", ""},
		{least + "listen: localhost:80", ""},
		{least + "admin: {token: " + token + "}", "gw.yaml:3:1: admin: there is a token but no listen, so there is no listener for operators"},
		{least + "admin: {listen: ':81', token: " + token + "}", "gw.yaml:3:17: admin.listen: the operators' token crosses the network in clear text; add admin.tls, or listen on 127.0.0.1"},
		{least + "admin: {listen: ':81', token: " + token + ", tls: {cert_file: a, key_file: b}}", ""},
		{least + "store: 'memory:'", "gw.yaml:3:8: store: what is in memory is gone when the process ends, and a retry after that runs again"},
		{least + "limits: {new_keys_per_second: 5, lookups_per_second: 3}", "gw.yaml:3:54: limits.lookups_per_second: it counts all requests, new keys included, so new_keys_per_second is never reached"},
		{least + "defaults: {retention: 10m}\nroutes: [{match: POST /a}, {match: POST /b, retention: 5m}]", `gw.yaml:3:23: defaults.retention: retention 10m0s is under an hour: a client that comes back later runs the operation again
gw.yaml:4:56: routes[1].retention: retention 5m0s is under an hour: a client that comes back later runs the operation again`},
		{least + "routes: [{match: POST /a, on_5xx: retry}, {match: POST /b, off: true, on_5xx: retry}]", "gw.yaml:3:35: routes[0].on_5xx: a server error of an unprotected operation is taken as proof that nothing happened: outside the at-most-once guarantee"},
		{least + "defaults: {effects: keyed, forward_key: K, async_reserve: true, lapse: resume}", `gw.yaml:3:59: defaults.async_reserve: reservations are asynchronous: a crash of the store's server may forget an attempt that is running, and a retry runs it again at once, whatever Lapse says
gw.yaml:3:72: defaults.lapse: an upstream behind a gateway has no checkpoints to resume from: this is the same as rerun`},
		{least + "defaults: {lease: 2s}", "gw.yaml:3:19: defaults.lease: 2s is short: a pause of the process or of the store makes an attempt look abandoned"},
		{least + "defaults: {max_run: 1m, timeout: 2m}\nserver: {drain: 5m}", "gw.yaml:3:34: defaults.timeout: 2m is longer than max_run 1m, which ends the attempt first"},
		{least + "server: {drain: 5s}", "gw.yaml:1:1: defaults.timeout: 30s is longer than server.drain 5s: a request that is slow when the gateway stops does not get its answer"},
		{least + "defaults: {on_expired: gone}", ""},
		{least + "defaults: {on_expired: gone}\njanitor: {tombstone: 0s}", "gw.yaml:3:24: defaults.on_expired: gone lasts for as long as a key is remembered, and janitor.tombstone is 0: it is forgotten as soon as it expires"},
		{least + "routes: [{match: POST /a, async: true}]", `gw.yaml:3:34: routes[0].async: requests are stored as they come, and there is no encryption
gw.yaml:3:34: routes[0].async: requests are run later without the token that their callers are told apart by: name Authorization in keep_credentials if the service needs it`},
		{"upstream: http://h\ntenant: none\nroutes: [{match: POST /a, async: true}]\nencryption: {keys_file: k}", "gw.yaml:2:9: tenant: all callers are one tenant: a caller that knows a key gets its answer"},
		{least + "defaults: {async: true, keep_credentials: [authorization]}\nencryption: {keys_file: k}", ""},
		{least + "defaults: {off: true}\nroutes: [{match: POST /a, timeout: 5s}, {match: POST /b, off: false}, {match: POST /c, off: true}]", "gw.yaml:4:10: routes[0].off: it is off because the defaults are: its requests pass unguarded, unless it says off: false"},
		{least + "routes: [{match: POST /a, keep_headers: [X]}]", "gw.yaml:3:27: routes[0].keep_headers: only requests of async routes are kept, and there is no such route"},
	} {
		if got := strings.Join(parse(t, c.text).Warnings(), "\n"); got != c.want {
			t.Errorf("%s\n\ngot\n\t%s\nwant\n\t%s\n", c.text, got, c.want)
		}
	}
}

func TestWarningsWithoutAFile(t *testing.T) {
	t.Parallel()
	c := config.Default()
	c.Tenant.From = "none"
	if got := c.Warnings(); len(got) != 1 || !strings.HasPrefix(got[0], "tenant: all callers are one tenant") {
		t.Errorf("got %q", got)
	}
}

// What others have found stands with the rest, in the order of the file.
func TestWarningsOfOthers(t *testing.T) {
	t.Parallel()
	c := parse(t, least+"store: 'memory:'\nroutes:\n- match: POST /a\n  max_response: 2MiB\n- {match: POST /b, retention: 5m}\n")
	got := strings.Join(c.Warnings(config.Note{Path: "routes[0].max_response", Text: "it is large"}), "\n")
	want := []string{"gw.yaml:3:8: store: ", "gw.yaml:6:17: routes[0].max_response: it is large", "gw.yaml:7:31: routes[1].retention: "}
	for i, line := range strings.Split(got, "\n") {
		if i >= len(want) || !strings.HasPrefix(line, want[i]) {
			t.Errorf("got\n%s\nwant lines that begin with %q", got, want)
			break
		}
	}
}

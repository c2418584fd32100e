package config_test

import (
	"strings"
	"testing"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/gateway/config"
)

// What bounds nothing, and what could not work, is refused with the name of its field.
func TestFieldsThatCannotWorkAreNamed(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ text, field string }{
		{"server: {read_header: 0s}", "server.read_header"},
		{"server: {read_body: 0s}", "server.read_body"},
		{"server: {write: 0s}", "server.write"},
		{"server: {idle: 0s}", "server.idle"},
		{"server: {drain: 0s}", "server.drain"},
		{"server: {dial_timeout: 0s}", "server.dial_timeout"},
		{"server: {max_header: 0}", "server.max_header"},
		{"server: {max_connections: 0}", "server.max_connections"},
		{"server: {upstream_connections: 0}", "server.upstream_connections"},
		{"server: {max_memory: 64KiB}", "server.max_memory"},
		{"cache: {max_age: 0s}", "cache.max_age"},
		{"janitor: {sweep: 0s}", "janitor.sweep"},
		{"janitor: {reap: 0s}", "janitor.reap"},
		{"janitor: {tombstone: -1h}", "janitor.tombstone"},
		{"limits: {new_keys_per_second: -1}", "limits.new_keys_per_second"},
		{"limits: {new_keys_burst: -1}", "limits.new_keys_burst"},
		{"limits: {lookups_per_second: -1}", "limits.lookups_per_second"},
		{"limits: {active_keys: -1}", "limits.active_keys"},
		{"limits: {in_flight: -1}", "limits.in_flight"},
		{"defaults: {min_key_length: 0}", "defaults.min_key_length"},
		{"defaults: {min_key_length: 256}", "defaults.min_key_length"},
		{"defaults: {concurrency: -1}", "defaults.concurrency"},
		{"defaults: {key_header: 'a{b'}", "defaults.key_header"},
		{"defaults: {key_header: 'a\u00e9'}", "defaults.key_header"},
		{"listen: 'a b:80'", "listen"},
		{"listen: 'a/b:80'", "listen"},
		{"listen: 127.0.0.1:8080\nadmin: {listen: 0.0.0.0:8080, token: 0123456789abcdef}", "admin.listen"},
		{"listen: 0.0.0.0:8080\nadmin: {listen: 127.0.0.1:8080, token: 0123456789abcdef}", "admin.listen"},
		{"upstream: http:///path", "upstream"},
		{"upstream: http://127.0.0.1:99999", "upstream"},
		{"upstream: https://api.example.com\nupstream_tls: {cert_file: a.pem}", "upstream_tls.key_file"},
		{"upstream: https://api.example.com\nupstream_tls: {key_file: a.pem}", "upstream_tls.cert_file"},
		{"tls: {cert_file: a.pem}", "tls.key_file"},
		{"admin: {listen: ':8081', token: 0123456789abcdef, tls: {key_file: a.pem}}", "admin.tls.cert_file"},
		{"routes: [{match: POST api.example.com/.retrysafe/x}]", "routes[0].match"},
		{"routes: [{match: POST /x}, {match: 'POST /{a}/b'}, {match: 'POST /a/{b}'}]", "routes[2].match"},
		{"tenant: {from: header, name: X-A, principal: X-B}\ndefaults: {key_header: x-b}", "defaults.key_header"},
		{"tenant: {from: header, name: X-A, principal: 'a b'}", "tenant.principal"},
		{"tenant: {from: jwt, claim: org, issuer: i, audience: a, jwks: 'https:///keys'}", "tenant.jwks"},
		{"tenant: {from: jwt, claim: org, issuer: i, audience: a, jwks: 'https://u:p@login.example.com/keys'}", "tenant.jwks"},
		{"tenant: 'bearer:x'", "tenant"},
		{"tenant: 'none:x'", "tenant"},
		{"admin: {listen: ':8081', tokens: [{name: ' a', role: read, token: 0123456789abcdef}]}", "admin.tokens[0].name"},
		{"admin: {listen: ':8081', tokens: [{name: 'a ', role: read, token: 0123456789abcdef}]}", "admin.tokens[0].name"},
		{"defaults: {retention: 106751d24h}", "defaults.retention"},
		{"defaults: {retention: 1d+1h}", "defaults.retention"},
		{"defaults: {retention: 1d-1h}", "defaults.retention"},
		{"tenant: {from: header, name: X-A}\ndefaults: {effects: keyed, forward_key: x-a}", "defaults.forward_key"},
	} {
		text := c.text + "\n"
		for name, said := range map[string]string{"upstream:": "upstream: http://127.0.0.1:9000\n", "tenant:": "tenant: bearer\n"} {
			if !strings.HasPrefix(text, name) {
				text += said
			}
		}
		_, err := config.Parse("gw.yaml", []byte(text), nil)
		if err == nil || strings.Contains(err.Error(), "\n") || !strings.Contains(err.Error(), ": "+c.field+": ") {
			t.Errorf("%s: want one error about %s, got %v", c.text, c.field, err)
		}
	}
}

// Where the store has little room, the limits of bodies that the file does not say are
// lowered: for an answer, and on asynchronous routes for the request beside it.
func TestBodiesHaveTheRoomThatTheStoreHas(t *testing.T) {
	t.Parallel()
	const room = 350 << 10
	for _, c := range []struct {
		text              string
		request, response int64 // of the route
	}{
		{"routes: [{match: POST /a}]", 1 << 20, room},
		{"routes: [{match: POST /a, async: true}]", room / 2, room / 2},
		{"defaults: {async: true}\nroutes: [{match: POST /a}]", room / 2, room / 2},
		{"defaults: {max_response: 200KiB}\nroutes: [{match: POST /a}]", 1 << 20, 200 << 10},
		{"defaults: {max_response: 200KiB}\nroutes: [{match: POST /a, async: true, max_request: 100KiB}]", 100 << 10, 200 << 10},
		{"routes: [{match: POST /a, async: true, max_request: 10KiB, max_response: 300KiB}]", 10 << 10, 300 << 10},
		{"routes: [{match: POST /a, max_request: 2MiB}]", 2 << 20, room},
	} {
		text := "upstream: http://127.0.0.1:9000\ntenant: bearer\nstore: dynamodb://eu-central-1/keys\n" + c.text
		got, err := config.Parse("gw.yaml", []byte(text), nil)
		if err != nil {
			t.Errorf("%s: %v", c.text, err)
			continue
		}
		if r := got.Routes[0]; r.MaxRequest != c.request || r.MaxResponse != c.response {
			t.Errorf("%s: a request has %d bytes and an answer %d; want %d and %d", c.text, r.MaxRequest, r.MaxResponse, c.request, c.response)
		}
	}
}

// What a file says stays, on each route, and the rest follows from it.
func TestRoutesFollowWhatIsSaid(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		text string
		of   func(c *config.Config, r *config.Route) any
		want any
	}{
		{"tenant: {from: header, name: X-A, principal: X-B}\ndefaults: {bind: principal}", principal, "X-B"},
		{"tenant: {from: header, name: X-A}\ndefaults: {bind: principal}", principal, "X-Principal-Id"},
		{"tenant: {from: header, name: X-A}", principal, ""},
		{"defaults: {max_run: 1h}", maxRun, time.Hour},
		{"defaults: {lease: 20m}", maxRun, 20 * time.Minute},
		{"routes: [{match: POST /a, max_run: 2h}]", maxRun, 2 * time.Hour},
		{"routes: [{match: POST /a, lease: 20m}]", maxRun, 20 * time.Minute},
		{"defaults: {timeout: 2m}", timeout, 2 * time.Minute},
		{"routes: [{match: POST /a, timeout: 1m}]", timeout, time.Minute},
		{"routes: [{match: POST /a, lease: 10s, max_run: 20s}]", timeout, 20 * time.Second},
		{"defaults: {effects: keyed, forward_key: X-K}", lapse, retrysafe.LapseRerun},
		{"routes: [{match: POST /a, effects: keyed, forward_key: X-K}]", lapse, retrysafe.LapseRerun},
		{"defaults: {effects: keyed, forward_key: X-K, lapse: quarantine}", lapse, retrysafe.LapseQuarantine},
		{"", lapse, retrysafe.LapseQuarantine},
		{"defaults: {effects: keyed, forward_key: X-K}\nroutes: [{match: POST /a, derive_key: X-D}]", keys, [2]string{"", "X-D"}},
		{"defaults: {effects: keyed, derive_key: X-D}\nroutes: [{match: POST /a, forward_key: X-K}]", keys, [2]string{"X-K", ""}},
		{"defaults: {observe: true}\nroutes: [{match: POST /a, off: true}]", ways, [2]bool{true, false}},
		{"defaults: {off: true}\nroutes: [{match: POST /a, observe: true}]", ways, [2]bool{false, true}},
		{"defaults: {ambiguous_paths: guard}\nroutes: [{match: POST /a, off: true}]", paths, config.AmbiguousRefuse},
		{"defaults: {ambiguous_paths: guard}\nroutes: [{match: POST /a, observe: true}]", paths, config.AmbiguousRefuse},
		{"defaults: {ambiguous_paths: guard}\nroutes: [{match: POST /a, required: false}]", paths, config.AmbiguousRefuse},
		{"defaults: {ambiguous_paths: guard}", paths, config.AmbiguousGuard},
		{"defaults: {on_expired: gone}", tombstone, 30 * 24 * time.Hour},
		{"routes: [{match: POST /a, on_expired: gone}]", tombstone, 30 * 24 * time.Hour},
		{"janitor: {tombstone: 1h}\nroutes: [{match: POST /a, on_expired: gone}]", tombstone, time.Hour},
		{"", tombstone, time.Duration(0)},
	} {
		text := "upstream: http://127.0.0.1:9000\n" + c.text + "\n"
		if !strings.Contains(text, "tenant:") {
			text += "tenant: bearer\n"
		}
		if !strings.Contains(text, "routes:") {
			text += "routes: [{match: POST /a}]\n"
		}
		got, err := config.Parse("gw.yaml", []byte(text), nil)
		if err != nil {
			t.Errorf("%s: %v", c.text, err)
			continue
		}
		if got := c.of(got, &got.Routes[0]); got != c.want {
			t.Errorf("%s: got %v, want %v", c.text, got, c.want)
		}
	}
}

func principal(c *config.Config, _ *config.Route) any { return c.Tenant.Principal }
func tombstone(c *config.Config, _ *config.Route) any { return c.Janitor.Tombstone }
func maxRun(_ *config.Config, r *config.Route) any    { return r.Policy.MaxRun }
func timeout(_ *config.Config, r *config.Route) any   { return r.Timeout }
func lapse(_ *config.Config, r *config.Route) any     { return r.Policy.Lapse }
func keys(_ *config.Config, r *config.Route) any      { return [2]string{r.ForwardKey, r.DeriveKey} }
func ways(_ *config.Config, r *config.Route) any      { return [2]bool{r.Off, r.Observe} }
func paths(_ *config.Config, r *config.Route) any     { return r.AmbiguousPaths }

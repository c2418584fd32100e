package config_test

import (
	"strings"
	"testing"

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

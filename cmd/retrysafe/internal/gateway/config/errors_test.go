package config_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/gateway/config"
)

const noTenant = "it is missing, and has no default: the keys of tenants that are not told apart collide, and one gets the other's answers. " +
	"Choose {from: header, name: X-Tenant-Id}, which a trusted proxy sets; {from: bearer}, a hash of the caller's token; " +
	"{from: jwt, claim: org, jwks: URL, issuer: …, audience: …}, a claim of a verified token; or {from: none}, where all callers are one tenant"

func sortedLines(text string) string {
	lines := strings.Split(text, "\n")
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// Each file is wrong in the words that stand below it. Those that begin with a
// plus have an upstream and a tenant on their first two lines.
func TestWhatIsWrongIsSaidWithItsPlace(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ text, want string }{
		// The file as such
		{"", "gw.yaml:1:1: upstream: it is missing; it is the service that is guarded, such as http://127.0.0.1:9000\ngw.yaml:1:1: tenant: " + noTenant},
		{"- a", `gw.yaml:1:1: a list is where fields belong: name: value`},
		{"just words", `gw.yaml:1:1: "just words" is where fields belong: name: value`},
		{"+a: 1\n---\nb: 1", "gw.yaml:4:1: a second document begins here; a configuration is one"},
		{"+defaults:\n\tlease: 3s", "gw.yaml:4:2: this is not YAML: the line is indented by a tab; use spaces"},
		{"+defaults:\n  lease: 3s\n retention: 3h\n", "gw.yaml:5:2: this is not YAML: did not find expected key"},
		{"+routes: [\n  {match: POST /a}\nlisten: :80", "gw.yaml:3:1: this is not YAML: did not find expected ',' or ']'"},
		{"store: memory:", "gw.yaml:1:1: this is not YAML: a value that ends with a colon needs quotes: \"memory:\""},
		{"a: b: c", "gw.yaml:1:1: this is not YAML: mapping values are not allowed in this context"},
		{"+listen: \"\x01\"", "gw.yaml:3:1: this is not YAML: control characters are not allowed"},
		{"+listen: *x", "gw.yaml:3:1: this is not YAML: unknown anchor 'x' referenced"},

		// Names
		{"+lissten: :80", "gw.yaml:3:1: lissten: there is no such field; did you mean listen?"},
		{"+upstreamTls: {}", "gw.yaml:3:1: upstreamTls: there is no such field; did you mean upstream_tls?"},
		{"+routes: [{match: POST /a, on-5xx: store}]", "gw.yaml:3:27: routes[0].on-5xx: there is no such field; did you mean on_5xx?"},
		{"+retention: 3h", "gw.yaml:3:1: retention: this field does not belong here but to defaults or a route, or webhooks"},
		{"+defaults: {drain: 3s}", "gw.yaml:3:12: defaults.drain: this field does not belong here but to server"},
		{"+claim: org", "gw.yaml:3:1: claim: this field does not belong here but to tenant"},
		{"+server: {upstream: http://h}", "gw.yaml:3:10: server.upstream: this field does not belong here but to the top of the file"},
		{"+defaults: {lease: '" + strings.Repeat("x", 100) + "'}", `gw.yaml:3:19: defaults.lease: "` + strings.Repeat("x", 60) + `…" is not a duration such as 30s, 15m, 24h or 7d`},
		{"+cache: {colour: red}", "gw.yaml:3:9: cache.colour: there is no such field; there are bytes, max_age, shared"},
		{"+listen: :80\nlisten: :81", "gw.yaml:4:1: listen: it is there twice; the first is on line 3"},
		{"+? [a, b]\n: c", "gw.yaml:3:3: a list is where a field's name belongs"},

		// Types
		{"+listen: [a]", "gw.yaml:3:9: listen: a list is where a single value belongs"},
		{"+listen:", "gw.yaml:3:8: listen: has no value; give it one, or leave the field out"},
		{"+listen: 8080", `gw.yaml:3:9: listen: "8080" is a number where a text belongs; put it in quotes`},
		{"+listen: true", `gw.yaml:3:9: listen: "true" is not a text; put it in quotes`},
		{"+listen: !!binary aGk=", `gw.yaml:3:9: listen: "aGk=" is not a text; put it in quotes`},
		{"+listen: 2026-01-01", `gw.yaml:3:9: listen: "2026-01-01" is not a text; put it in quotes`},
		{"+server: 3", `gw.yaml:3:9: server: "3" is where fields belong: name: value`},
		{"+routes: {match: POST /a}", "gw.yaml:3:9: routes: a mapping is where a list belongs: [a, b], or [] for none"},
		{"+defaults: {include: /a}", `gw.yaml:3:21: defaults.include: "/a" is where a list belongs: [a, b], or [] for none`},
		{"+defaults: {off: yes}", `gw.yaml:3:17: defaults.off: "yes" is neither true nor false; did you mean true?`},
		{"+defaults: {off: flase}", `gw.yaml:3:17: defaults.off: "flase" is neither true nor false; did you mean false?`},
		{"+defaults: {off: 'true'}", `gw.yaml:3:17: defaults.off: "true" is a text; write it without quotes`},
		{"+defaults: {lease: 30}", `gw.yaml:3:19: defaults.lease: "30" has no unit; write a duration such as 30s, 15m, 24h or 7d`},
		{"+defaults: {lease: 5 minutes}", `gw.yaml:3:19: defaults.lease: "5 minutes" is not a duration such as 30s, 15m, 24h or 7d`},
		{"+defaults: {retention: 999999999d}", `gw.yaml:3:23: defaults.retention: "999999999d" is not a duration such as 30s, 15m, 24h or 7d`},
		{"+defaults: {retention: 1d-3h}", `gw.yaml:3:23: defaults.retention: "1d-3h" is not a duration such as 30s, 15m, 24h or 7d`},
		{"+defaults: {max_request: 1Mb}", `gw.yaml:3:25: defaults.max_request: "1Mb" is not a size such as 65536, 64KiB, 64KB or 1MiB`},
		{"+defaults: {max_request: -1}", `gw.yaml:3:25: defaults.max_request: "-1" is not a size such as 65536, 64KiB, 64KB or 1MiB`},
		{"+defaults: {max_request: 9999999999GiB}", `gw.yaml:3:25: defaults.max_request: "9999999999GiB" is not a size such as 65536, 64KiB, 64KB or 1MiB`},
		{"+limits: {active_keys: 1e5}", `gw.yaml:3:23: limits.active_keys: "1e5" is not a whole number such as 100`},
		{"+limits: {active_keys: '5'}", `gw.yaml:3:23: limits.active_keys: "5" is a text; write it without quotes`},
		{"+limits: {new_keys_per_second: .nan}", `gw.yaml:3:31: limits.new_keys_per_second: ".nan" is not a number such as 100 or 0.5`},
		{"+limits: {new_keys_per_second: '5'}", `gw.yaml:3:31: limits.new_keys_per_second: "5" is a text; write it without quotes`},
		{"+defaults: {on_5xx: retyr}", `gw.yaml:3:20: defaults.on_5xx: "retyr" is none of by_proof, retry, store; did you mean retry?`},
		{"+defaults: {in_flight: queue}", `gw.yaml:3:23: defaults.in_flight: "queue" is none of conflict, wait, accepted`},
		{"+profile: IETF", `gw.yaml:3:10: profile: "IETF" is none of ietf, stripe; did you mean ietf?`},
		{"+defaults: &d {lease: 3}\nserver: {idle: *d}", "gw.yaml:3:22: defaults.lease: \"3\" has no unit; write a duration such as 3s, 15m, 24h or 7d\ngw.yaml:4:16: server.idle: a mapping is where a single value belongs"},

		// Addresses
		{"+listen: '8080'", `gw.yaml:3:9: listen: "8080" is not an address to listen on such as 127.0.0.1:8080, [::1]:8080 or :8080`},
		{"+listen: localhost:http", `gw.yaml:3:9: listen: "localhost:http" is not an address to listen on such as 127.0.0.1:8080, [::1]:8080 or :8080`},
		{"upstream: localhost:9000\ntenant: none", "gw.yaml:1:11: upstream: it is not a URL of a service such as http://127.0.0.1:9000 or https://api.example.com; did you mean http://localhost:9000?"},
		{"upstream: http://u:p@h\ntenant: none", "gw.yaml:1:11: upstream: it has a user or a password in it, which would not be sent"},
		{"upstream: http://h/?a=b\ntenant: none", `gw.yaml:1:11: upstream: "http://h/?a=b" has something behind its path; queries are the requests' own`},
		{"upstream: http://127.0.0.1:8080\ntenant: none", `gw.yaml:1:11: upstream: "127.0.0.1:8080" is where this gateway itself listens`},
		{"+upstream_tls: {ca_file: ca.pem}", `gw.yaml:3:1: upstream_tls: it is for an https upstream, but that is "http://127.0.0.1:9000"`},
		{"+store: keys.db", `gw.yaml:3:8: store: it is no store's URL; did you mean sqlite:keys.db? a store is "memory:", "sqlite:FILE", "postgres://user:password@host/database", "mysql://user:password@host/database", "redis://user:password@host" or "dynamodb://REGION/TABLE"`},
		{"+store: dynamodb://eu-central-1/keys\ndefaults: {max_response: 1MiB}", `gw.yaml:4:26: defaults.max_response: a record of a dynamodb store has room for an answer of 350KiB; write 350KiB or less: a larger answer is sent, and a retry gets only the fact that it ran`},
		{"+store: dynamodb://eu-central-1/keys\nroutes: [{match: POST /a, async: true, max_request: 300KiB}]", `gw.yaml:4:53: routes[0].max_request: a record of a dynamodb store has room for 350KiB, and an asynchronous route keeps the request beside the answer; let max_request and max_response have 350KiB together`},
		{"+tls: {cert_file: c.pem}", "gw.yaml:3:1: tls.key_file: it is missing; a certificate is of no use without its key"},
		{"+admin: {tls: {key_file: k.pem}}", "gw.yaml:3:9: admin.tls.cert_file: it is missing; a key is of no use without its certificate"},
		{"+admin: {listen: ':8081'}", "gw.yaml:3:1: admin.token: it is missing; a request to admin.listen must show a token of at least 16 characters: token: ${RETRYSAFE_ADMIN_TOKEN}, or token_file"},
		{"+admin: {listen: ':8081', token: secret}", "gw.yaml:3:33: admin.token: the token has 6 characters; it takes at least 16: openssl rand -hex 32"},
		{"+admin: {listen: '127.0.0.1:8080', token: 0123456789abcdef}", `gw.yaml:3:17: admin.listen: clients come in at "127.0.0.1:8080" already; operators need a port of their own`},
		{"+admin: {listen: ':8080', token: 0123456789abcdef}", `gw.yaml:3:17: admin.listen: clients come in at "127.0.0.1:8080" already; operators need a port of their own`},
		{"+admin: {listen: 'localhost:8080', token: 0123456789abcdef}", `gw.yaml:3:17: admin.listen: clients come in at "127.0.0.1:8080" already; operators need a port of their own`},
		{"+listen: '[::]:8080'\nadmin: {listen: '127.0.0.1:08080', token: 0123456789abcdef}", `gw.yaml:4:17: admin.listen: clients come in at "[::]:8080" already; operators need a port of their own`},
		{"+listen: localhost:8080\nadmin: {listen: '[::1]:8080', token: 0123456789abcdef}", `gw.yaml:4:17: admin.listen: clients come in at "localhost:8080" already; operators need a port of their own`},
		{"+encryption: {keys_file: ''}", "gw.yaml:3:25: encryption.keys_file: it is empty; name the file with the keys, or leave the section out"},

		// Tenants
		{"upstream: http://h", "gw.yaml:1:1: tenant: " + noTenant},
		{"upstream: http://h\ntenant:", "gw.yaml:2:8: tenant: " + noTenant},
		{"upstream: http://h\ntenant: beerer", `gw.yaml:2:9: tenant: "beerer" is none of header:NAME, bearer, jwt:CLAIM, none; did you mean bearer?`},
		{"upstream: http://h\ntenant: heder:X-Org", `gw.yaml:2:9: tenant: "heder:X-Org" is none of header:NAME, bearer, jwt:CLAIM, none; did you mean header?`},
		{"upstream: http://h\ntenant: header", `gw.yaml:2:9: tenant: "header" is none of header:NAME, bearer, jwt:CLAIM, none`},
		{"upstream: http://h\ntenant: {from: heder}", `gw.yaml:2:16: tenant.from: "heder" is none of header, bearer, jwt, none; did you mean header?`},
		{"upstream: http://h\ntennant: {from: header}", "gw.yaml:2:1: tennant: there is no such field; did you mean tenant?"},
		{"upstream: http://h\ntenant: {from: header}", "gw.yaml:2:1: tenant.name: it is missing; it is the header that names the tenant, such as X-Tenant-Id"},
		{"upstream: http://h\ntenant: {from: header, name: 'X Y'}", `gw.yaml:2:30: tenant.name: "X Y" is not the name of a header`},
		{"upstream: http://h\ntenant: header:Host", `gw.yaml:2:9: tenant.name: "Host" means something else already; use a header of its own`},
		{"upstream: http://h\ntenant: header:TE", `gw.yaml:2:9: tenant.name: "TE" means something else already; use a header of its own`},
		{"upstream: http://h\ntenant: {from: header, name: X, trusted_proxies: []}", "gw.yaml:2:33: tenant.trusted_proxies: there are none, so no request could say which tenant it is from; name the proxy's addresses"},
		{"upstream: http://h\ntenant: {from: none, trusted_proxies: [10.0.0.1, 10.1.2.3/8, all, '::ffff:10.0.0.0/104']}", `gw.yaml:2:50: tenant.trusted_proxies[1]: "10.1.2.3/8" has bits behind its mask; did you mean 10.0.0.0/8?
gw.yaml:2:62: tenant.trusted_proxies[2]: "all" is not a range of addresses such as 10.0.0.0/8 or fd00::/8, nor an address
gw.yaml:2:67: tenant.trusted_proxies[3]: "::ffff:10.0.0.0/104" is an IPv4 address in IPv6's clothes; write it as IPv4`},
		{"upstream: http://h\ntenant: {from: bearer, name: X-Tenant}", "gw.yaml:2:30: tenant.name: it is for from: header, but this is from: bearer"},
		{"upstream: http://h\ntenant: {from: none, principal: sub}", "gw.yaml:2:33: tenant.principal: it is for from: header or jwt, but this is from: none"},
		{"upstream: http://h\ntenant: {from: jwt, jwks: 'http://h/keys', algorithms: [HS256]}", `gw.yaml:2:1: tenant.claim: it is missing; it is the claim that names the tenant, such as org or org.id
gw.yaml:2:1: tenant.issuer: it is missing; it is who must have issued a token (iss)
gw.yaml:2:1: tenant.audience: it is missing; it is for whom a token must be (aud); one that is for another service is none here
gw.yaml:2:27: tenant.jwks: keys that come over plain http from another machine can be anybody's; use https
gw.yaml:2:57: tenant.algorithms[0]: "HS256" is none of RS256, RS384, RS512, PS256, PS384, PS512, ES256, ES384, ES512, EdDSA; did you mean RS256?`},
		{"upstream: http://h\ntenant: {from: jwt, claim: c, issuer: i, audience: a, jwks: 'ftp://h/keys'}", "gw.yaml:2:61: tenant.jwks: it is neither a URL such as https://login.example.com/jwks.json nor a file"},

		// Routes
		{"+routes: [{required: true}]", "gw.yaml:3:10: routes[0].match: it is missing; it is a pattern such as POST /payments or POST /hooks/{rest...}"},
		{"+routes: [{match: POST /{a}]", `gw.yaml:3:1: this is not YAML: did not find expected ',' or '}'; between braces or brackets, a value that has some itself needs quotes: "${NAME}", "POST /a/{id}"`},
		{"+routes: [{match: 'POST /{a'}]", `gw.yaml:3:18: routes[0].match: "POST /{a" is not a pattern such as POST /payments/{id}: at offset 6: bad wildcard segment (must end with '}')`},
		{"+routes: [{match: payments}]", `gw.yaml:3:18: routes[0].match: "payments" is not a pattern such as POST /payments/{id}: at offset 0: host/path missing /`},
		{"+routes: [{match: GET /a}]", `gw.yaml:3:18: routes[0].match: "GET /a": a route guards POST, PATCH, PUT or DELETE, not "GET"`},
		{"+routes: [{match: post /a}]", `gw.yaml:3:18: routes[0].match: "post /a": a route guards POST, PATCH, PUT or DELETE, not "post"; did you mean POST?`},
		{"+routes: [{match: POST /.retrysafe/x}]", `gw.yaml:3:18: routes[0].match: "POST /.retrysafe/x": what begins with /.retrysafe/ belongs to the gateway itself`},
		{"+routes:\n- match: POST /a/{x}\n- match: /a\n- match: POST /a/{y}", "gw.yaml:6:10: routes[2].match: it conflicts with routes[0] on line 4: POST /a/{y} matches the same requests as POST /a/{x}"},
		{"+routes:\n- match: POST /a/{x}\n- match: POST /{y}/b", `gw.yaml:5:10: routes[1].match: it conflicts with routes[0] on line 4: POST /{y}/b and POST /a/{x} both match some paths, like "/a/b". But neither is more specific than the other. POST /{y}/b matches "/y/b", but POST /a/{x} doesn't. POST /a/{x} matches "/a/x", but POST /{y}/b doesn't.`},

		// Policies
		{"+defaults: {effects: in_tx}", `gw.yaml:3:21: defaults.effects: "in_tx" cannot be had of a gateway: it has no part in its upstream's transactions, so the answer cannot commit together with the effect; use keyed, or unprotected`},
		{"+routes:\n- match: POST /a\n  effects: keyed", "gw.yaml:5:12: routes[0].effects: keyed says that the upstream runs nothing twice under one key, but it gets no key; add forward_key: Idempotency-Key, or derive_key"},
		{"+defaults: {effects: keyed}\nroutes: [{match: POST /a}]", "gw.yaml:3:21: defaults.effects: keyed says that the upstream runs nothing twice under one key, but it gets no key; add forward_key: Idempotency-Key, or derive_key"},
		{"+defaults: {effects: keyed, derive_key: X}\nroutes: [{match: POST /a, derive_key: ''}]", "gw.yaml:4:10: routes[0].effects: keyed says that the upstream runs nothing twice under one key, but it gets no key; add forward_key: Idempotency-Key, or derive_key"},
		{"+defaults: {forward_key: X, derive_key: Y}", "gw.yaml:3:40: defaults.derive_key: forward_key is there too; the upstream gets the client's key or one derived from it, not both"},
		{"+routes:\n- match: POST /a\n  lapse: rerun", "gw.yaml:5:10: routes[0].lapse: retrysafe: policy refused: a lapsed attempt with unprotected effects may have happened, so it cannot rerun; write quarantine or fail, or effects: keyed if the service honours a key"},
		{"+defaults: {async_reserve: true}", "gw.yaml:3:27: defaults.async_reserve: retrysafe: policy refused: a crash of the store's server would forget an attempt that is running, and a retry would run it again, which unprotected effects do not allow; leave it off, or write effects: keyed if the service honours a key"},
		{"+defaults: {lease: 1ms}", "gw.yaml:3:19: defaults.lease: retrysafe: policy refused: Lease 1ms is under 10ms"},
		{"+defaults: {lease: 1m, max_run: 30s}", "gw.yaml:3:32: defaults.max_run: retrysafe: policy refused: MaxRun 30s is shorter than Lease 1m0s"},
		{"+defaults: {retention: 0s, lease: -1s}", "gw.yaml:3:23: defaults.retention: it must be more than 0\ngw.yaml:3:34: defaults.lease: it must be more than 0"},
		{"+defaults: {effects: kyed}\nroutes: [{match: POST /a, lapse: rerun}]", `gw.yaml:3:21: defaults.effects: "kyed" is none of unprotected, keyed; did you mean keyed?`}, // what follows from it is not told

		// Settings
		{"+routes: [{match: POST /a, off: true, observe: true}]", "gw.yaml:3:47: routes[0].observe: off is there too; what is off is not observed"},
		{"+routes: [{match: POST /a, off: true, ambiguous_paths: guard}]", "gw.yaml:3:55: routes[0].ambiguous_paths: guard is only for routes that let nothing pass unguarded; leave out off, observe and required: false, or write refuse"},
		{"+routes: [{match: POST /a, ambiguous_paths: gard}]", `gw.yaml:3:44: routes[0].ambiguous_paths: "gard" is none of refuse, guard; did you mean guard?`},
		{"+routes: [{match: POST /a, async: true, observe: true}]", "gw.yaml:3:49: routes[0].observe: async is there too; a request that is stored for later is more than observed; set observe: false, or off: true, beside async: true"},
		{"+defaults: {observe: true}\nroutes: [{match: POST /a, async: true}, {match: POST /b, async: true, observe: false}, {match: POST /c, async: true, off: true}]", "gw.yaml:4:10: routes[0].observe: async is there too; a request that is stored for later is more than observed; set observe: false, or off: true, beside async: true"},
		{"+routes: [{match: POST /a, async: true, stream: true}]", "gw.yaml:3:48: routes[0].stream: async is there too; no client is connected when the request runs"},
		{"+routes: [{match: POST /a, async: true, keep_credentials: [Authorization]}]", "gw.yaml:3:40: routes[0].keep_credentials: the store would keep them as they are; add encryption: {keys_file: …}"},
		{"+routes: [{match: POST /a, bind: principal}]", "gw.yaml:3:33: routes[0].bind: with tenant from: bearer each token has keys of its own already"},
		{"upstream: http://h\ntenant: none\ndefaults: {bind: principal}", "gw.yaml:3:18: defaults.bind: with tenant from: none a request has no principal"},
		{"+defaults: {min_key_length: 300, concurrency: -1}", "gw.yaml:3:28: defaults.min_key_length: it is 300; keys have 1 to 255 characters\ngw.yaml:3:46: defaults.concurrency: it is negative; 0 is no bound"},
		{"+defaults: {key_header: '', forward_key: Cookie, replay_headers: [X, 'a b', '']}", `gw.yaml:3:24: defaults.key_header: it is empty where the name of a header belongs
gw.yaml:3:41: defaults.forward_key: "Cookie" means something else already; use a header of its own
gw.yaml:3:69: defaults.replay_headers[1]: "a b" is not the name of a header
gw.yaml:3:76: defaults.replay_headers[2]: it is empty where the name of a header belongs`},
		{"upstream: http://h\ntenant: header:X-Org\ndefaults: {key_header: x-org}", `gw.yaml:3:24: defaults.key_header: "x-org" says who the caller is; a key needs a header of its own`},
		{"+defaults: {include: [amount]}", `gw.yaml:3:22: defaults.include[0]: "amount" is not a field of a body; write it as a JSON pointer: /amount, /items/*/sku`},
		{"+limits: {new_keys_burst: 5, active_keys: -1}", "gw.yaml:3:26: limits.new_keys_burst: it bounds nothing without new_keys_per_second\ngw.yaml:3:42: limits.active_keys: it is negative; 0 is no bound"},
		{"+server: {drain: 0s, max_connections: 0, write: -1s}", "gw.yaml:3:17: server.drain: it is 0s; it must be more than 0\ngw.yaml:3:38: server.max_connections: it is 0; it must be more than 0\ngw.yaml:3:48: server.write: it is -1s; it must be more than 0"},
		{"+server: {max_memory: 1000KiB}", "gw.yaml:3:22: server.max_memory: it is 1000KiB; it must be at least 1MiB, or 0 for a quarter of the container's limit"},
		{"+server: {min_body_rate: fast}", `gw.yaml:3:25: server.min_body_rate: "fast" is not a size such as 65536, 64KiB, 64KB or 1MiB`},
	} {
		text := c.text
		if rest, ok := strings.CutPrefix(text, "+"); ok {
			text = least + rest
		}
		if got := refused(t, text); got != c.want {
			t.Errorf("%s\n\ngot\n\t%s\nwant\n\t%s\n", text, strings.ReplaceAll(got, "\n", "\n\t"), strings.ReplaceAll(c.want, "\n", "\n\t"))
		}
	}
}

// Two addresses of the machine may have the same port, and port 0 is any that is free.
func TestListenersOfOtherAddresses(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"listen: 10.0.0.1:8080\nadmin: {listen: '127.0.0.1:8080', token: 0123456789abcdef}",
		"listen: 127.0.0.1:8080\nadmin: {listen: '[::1]:8080', token: 0123456789abcdef}",
		"listen: localhost:8080\nadmin: {listen: '127.0.0.2:8080', token: 0123456789abcdef}",
		"listen: localhost:0\nadmin: {listen: '127.0.0.1:0', token: 0123456789abcdef}",
	} {
		if _, err := config.Parse("gw.yaml", []byte(least+text), nil); err != nil {
			t.Errorf("%s\n%v", text, err)
		}
	}
}

// A tool may want to know more than the words.
func TestErrorsCanBeTakenApart(t *testing.T) {
	t.Parallel()
	_, err := config.Parse("gw.yaml", []byte(least+"defaults:\n  lapse: rerun\n"), nil)
	var e *config.FieldError
	if !errors.As(err, &e) || e.File != "gw.yaml" || e.Line != 4 || e.Column != 10 || e.Field != "defaults.lapse" {
		t.Errorf("got %+v of %v", e, err)
	}
	if !errors.Is(err, retrysafe.ErrPolicy) {
		t.Errorf("%v is not ErrPolicy", err)
	}
}

// What comes from a file or from outside does not reach a terminal raw.
func TestW81_MessagesAreSafeToPrint(t *testing.T) {
	t.Parallel()
	const red = "\x1b[31m"
	env := vars{"V": red}
	for _, text := range []string{
		`"\e[31mred": 1`, `listen: "\e[31m"`, `listen: ${V}`, `defaults: {"\e[31m": 1, lease: "\e[31m"}`, `store: "\e[31m"`, `store: "postgres://\e[31m"`,
		`profile: "\e[31m"`, `tenant: "\e[31m"`, `tenant: "header:\e[31m"`, `routes: [{match: "POST /\e[31m"}]`, `routes: [{match: "\e[31m /"}]`, `store_file: "\e[31m"`,
		"listen: \"\\u2028\"", "defaults: {include: [\"\\e[31m\"]}", `limits: {new_keys_per_second: "\e[31m"}`, `server: {max_header: "\e[31m", max_connections: "\e[31m"}`,
	} {
		_, err := config.Parse(red, []byte(text), env.lookup)
		if err == nil || strings.ContainsAny(err.Error(), "\x1b\u2028") {
			t.Errorf("%s: %q", text, err)
		}
	}
}

// What is checked after flags were put into it by hand has the file's lines still.
func TestCheckAfterChanges(t *testing.T) {
	t.Parallel()
	c := parse(t, least+"defaults:\n  lease: 40s\nroutes:\n- match: POST /a\n")
	c.Listen, c.Profile, c.Defaults.Policy.Lease = "nowhere", "x", -1
	c.Routes[0].Policy.Effects = retrysafe.EffectsInTx
	c.Routes[0].ShortKeys = "never"
	c.Tenant.From = "cookie"
	if printed, err := c.Print(); err != nil {
		t.Errorf("it is not printed: %v\n%s", err, printed)
	}
	want := `gw.yaml:1:1: listen: "nowhere" is not an address to listen on such as 127.0.0.1:8080, [::1]:8080 or :8080
gw.yaml:1:1: profile: "x" is none of ietf, stripe
gw.yaml:2:9: tenant.from: "cookie" is none of header, bearer, jwt, none
gw.yaml:4:10: defaults.lease: it must be more than 0
gw.yaml:6:3: routes[0].effects: in_tx cannot be had of a gateway: it has no part in its upstream's transactions, so the answer cannot commit together with the effect; use keyed, or unprotected
gw.yaml:6:3: routes[0].short_keys: "never" is none of ignore, warn, refuse`
	if err := c.Check(); err == nil || err.Error() != want {
		t.Errorf("got\n%v\nwant\n%s", err, want)
	}
}

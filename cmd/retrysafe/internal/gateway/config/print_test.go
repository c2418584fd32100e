package config_test

import (
	"strings"
	"testing"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/gateway/config"
)

// everything says each field once, and differently from its default.
const everything = `listen: "[::1]:8443"
upstream: https://api.internal:9000/v1
store: postgres://u:s$$ecret@h/db?schema=x
store_timeout: 3s
profile: stripe
tenant: { from: jwt, claim: org.id, jwks: "https://login/jwks.json", issuer: me, audience: us, algorithms: [ES384], principal: email, trusted_proxies: [10.0.0.0/8, "fd00::/8"] }
defaults:
  { required: false, effects: keyed, derive_key: X-Key, lapse: rerun, on_5xx: retry, in_flight: wait, on_expired: gone,
    async_reserve: true, lease: 10s, max_run: 5m, retention: 1d12h, wait: 1500ms, reconcile: 1m, patience: 2h, key_header: X-Idem, scope: operation,
    bind: principal, timeout: 50s, max_request: 64KB, max_response: 2MiB, concurrency: 10, decode: true, stream: true, close_delimited: true, include: [/a, "/b/*/c"],
    exclude: [/d], fingerprint_headers: [Accept], replay_headers: [X-A], keep_headers: [X-B], keep_credentials: [Authorization], strict: true,
    min_key_length: 20, short_keys: refuse, personal_data: ignore, first_sent: true }
routes:
  - { match: "POST /{$}", off: true }
  - { match: PUT /x, observe: true, include: [], forward_key: K }
  - { match: "example.com/y/{z...}", async: true, stream: false }
limits: { new_keys_per_second: 0.5, new_keys_burst: 3, lookups_per_second: 1000, active_keys: 5, in_flight: 6 }
encryption: { keys_file: "my keys" }
admin: { listen: ":8081", socket: /run/retrysafe/admin.sock, tokens: [{ name: anna, role: act, token: "a-token-of-anna-only" }], token: "#\"'$$$${PW}xxxxxxxxx", metrics_token: "for-metrics-$${alone}", proof: proof.json, tls: { cert_file: a, key_file: b } }
tls: { cert_file: "true", key_file: "5" }
upstream_tls: { ca_file: ca, server_name: s, cert_file: c, key_file: k }
server: { max_header: 1000, max_connections: 1, max_memory: 2000000, min_body_rate: 500, read_header: 1s, read_body: 2s, write: 3s, idle: 4s, drain: 5s, drain_delay: 8s, upstream_connections: 6, dial_timeout: 7s }
cache: { bytes: 0, max_age: 1s, shared: "redis://cache" }
janitor: { off: true, sweep: 1s, reap: 1s, tombstone: 90d }
reconcile:
  { every: 1s, concurrency: 2, tries: 3, pause: 4s, max_pause: 5s, timeout: 6s, break_after: 7, break_pause: 8s, max_break_pause: 9s,
    resolvers: [{ name: n, routes: ["example.com/y/{z...}"], method: POST, url: "http://h/{request:/$$a}", token: "$${x}", headers: { A: "b$$" }, body: '{"a":"{key}"}',
      plain_http: true, deadline: 1h, provider_ref: /id, rules: [{ status: [200, 4xx], when: { /a: ["1", "true"] }, present: [/b], absent: [/c/0], then: pending },
      { status: ["200"], then: happened, answer: { status: 201, headers: { X-A: "{/a}" }, body: '{"a": "$$"}' } },
      { status: ["201"], then: happened, answer: { status: 201, body_from: response } }] }, { endpoint: "https://h" }] }
webhooks:
  - { name: pay, path: /hooks/pay, scheme: hmac, secrets: [0123456789abcdef, "$$x#: 'yyyyyyyyyyyyyyy"], signature: { header: X-S, prefix: "v0=", hash: sha512, encoding: base64, signed: "{timestamp}:{body}", timestamp_header: X-T, id_header: X-I },
      tolerance: 1m, retention: 1d, max_body: 5KiB, find: { downstream_key: /key, provider_ref: /ref }, operations: ["example.com/y/{z...}"], missing: acknowledge, unmatched: ignore,
      rules: [{ when: { /a: [x, "5"], /b~1c: "true" }, outcome: declined, answer: { status: 402, headers: { X-A: "$$b" }, body: "{/a}" } }, { outcome: not_happened, final: true },
        { outcome: declined, answer: { status: 400, body_from: /x } }] }
  - { name: keys, scheme: hmac, secrets: [0123456789abcdef], signature: { header: X-S, id_pointer: /id }, retention: 30d, max_body: 1KiB, missing: acknowledge, unmatched: ignore, find: { downstream_key: /k }, rules: [{ outcome: ignore }] }
metrics: { tenants: 9 }
ledger:
  - { name: bank, operations: [POST /refunds], at: "03:30", time_zone: Europe/Berlin, tolerance: 10m, amounts: [amount],
      ours: { id: /id, time: answered, fields: { amount: /amount } }, report: { directory: /r, formats: [html] },
      theirs: { url: "https://h/list?api_key=se$$cret", token: "a-secret-token", format: jsonl, plain_http: true, max_size: 1MiB, id: ref, time: at, time_layout: unix, comma: ;, fields: { amount: net } } }
  - { name: cloud, operations: [PUT /x], time_zone: Asia/Tokyo, tolerance: 1m, ours: { id: status, time: answered }, theirs: { directory: /d, plain_http: true, pattern: "*.x", max_size: 2MiB, id: k, time: t, comma: "|" }, report: { formats: [text] } }
  - { name: disk, operations: [PUT /x], time_zone: Asia/Tokyo, tolerance: 1m, ours: { id: scope, time: answered }, theirs: { file: "/f{day}", time: t, plain_http: true, max_size: 2MiB, id: k, comma: "|" }, report: { formats: [text] } }
`

func TestPrintSaysEverything(t *testing.T) {
	t.Parallel()
	c := parse(t, everything)
	printed, err := c.PrintSecrets()
	if err != nil {
		t.Fatal(err)
	}
	again := parse(t, string(printed))
	if !again.Equal(c) {
		t.Errorf("what is printed says something else:\n%s\n%+v\n%+v", printed, *again, *c)
	}
	own, _, _ := strings.Cut(string(printed), "webhooks:\n") // webhooks have some of each kind
	if n := strings.Count(own, "# default\n"); n != 6 {      // off, observe, async and ambiguous_paths, which exclude each other or required: false; of the second resolver plain_http and deadline
		t.Errorf("%d fields are marked as defaults:\n%s", n, printed)
	}
	for _, path := range config.Paths() {
		name := path[strings.LastIndexByte(path, '.')+1:]
		if !strings.Contains(string(printed), name+":") && !strings.Contains(name, "_file") && name != "name" {
			t.Errorf("%s is not printed", path)
		}
	}
}

func TestPrint(t *testing.T) {
	t.Parallel()
	env := vars{"TOKEN": token, "PW": "secret"}
	c := parseIn(t, env, `
upstream: http://127.0.0.1:9000
store: postgres://u:${PW}@h/db
tenant: header:X-Org
defaults: { lease: 40s }
routes:
  - { match: POST /a, lease: 40s, timeout: 5s }
admin: { listen: "127.0.0.1:8081", token: "${TOKEN}" }
`)
	printed, err := c.Print()
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"listen: 127.0.0.1:8080 # default\nupstream: http://127.0.0.1:9000\nstore: postgres://u:xxxxx@h/db # hidden\n",
		"\ntenant:\n  from: header\n  name: X-Org\n  trusted_proxies: [127.0.0.0/8, '::1/128'] # default\n",
		"\n  lease: 40s\n  max_run: 10m # default\n",
		"\nroutes:\n  - match: POST /a\n    timeout: 5s\n",
		"\nadmin:\n  listen: 127.0.0.1:8081\n  token: ${TOKEN}\n",
	} {
		contains(t, string(printed), want)
	}
	if strings.Contains(string(printed), "secret") || strings.Contains(string(printed), token) {
		t.Errorf("a secret shows:\n%s", printed)
	}

	// With no secret in the file itself, what is printed is the file.
	store := write(t, "store", "postgres://u:secret@h/db")
	c = parseIn(t, env, least+"store_file: "+store+"\nadmin: { listen: ':81', token: '${TOKEN}' }")
	if printed, err = c.Print(); err != nil {
		t.Fatal(err)
	}
	if again := parseIn(t, env, string(printed)); !again.Equal(c) || strings.Contains(string(printed), "secret@") {
		t.Errorf("it says something else:\n%s", printed)
	}

	// A token that took the variable's place is hidden, not shown as the variable.
	c.Admin.Token = "another-token-of-the-operators"
	if printed, err = c.Print(); err != nil {
		t.Fatal(err)
	}
	contains(t, string(printed), "token: xxxxx # hidden\n")
	refused(t, string(printed))

	// What cannot be taken apart is hidden whole.
	c.Store, c.StoreFile = "postgres://u:se cret@h/db", ""
	if printed, err = c.Print(); err != nil || strings.Contains(string(printed), "cret") {
		t.Errorf("%v, or a secret shows:\n%s", err, printed)
	}
}

func TestEqual(t *testing.T) {
	t.Parallel()
	a, b := parse(t, least+"routes: [{match: POST /a}]"), parse(t, "# moved\n"+least+"\nroutes: [{match: POST /a}]")
	if !a.Equal(b) {
		t.Error("where it is written makes a difference")
	}
	b.Routes[0].Concurrency = 1
	if a.Equal(b) || a.Routes[0].Line == 0 {
		t.Error("another bound is no difference, or comparing changed something")
	}
}

package config_test

import (
	"strings"
	"testing"
	"time"

	"github.com/retrysafe/retrysafe"
)

// asking is a file with a resolver, in which the rest of the resolver is given.
func asking(rest string) string {
	return least + `routes:
  - { match: POST /payments, timeout: 10s }
  - { match: POST /exports, async: true }
  - { match: POST /off, off: true }
reconcile:
  resolvers:
    - ` + strings.ReplaceAll(strings.TrimSpace(rest), "\n", "\n      ") + "\n"
}

func TestReconcile(t *testing.T) {
	t.Parallel()
	env := vars{"LEDGER": "a-token", "KEY": "api-key"}
	file := write(t, "header", "from-a-file\n")
	c := parseIn(t, env, asking(`
name: ledger
routes: [POST /payments]
url: https://api.example.com/charges?reference={downstream_key}
token: ${LEDGER}
headers: { X-Api-Key: "${KEY}", X-Version: "2" }
header_files: { X-Other: `+file+` }
deadline: 1h
provider_ref: /data/0/id
rules:
  - { status: 200, when: { /data/0/status: [paid, settled], /data/0/live: true }, then: happened, answer: { status: 201, headers: { X-A: b }, body_from: /data/0 } }
  - { status: [200, 404], absent: [/data/0], then: not_happened }
`))
	r := &c.Reconcile.Resolvers[0]
	if r.Name != "ledger" || r.Deadline != time.Hour || string(r.Token) != "a-token" || len(r.Headers) != 2 || string(r.HeaderFiles[0].Value) != "from-a-file" || len(r.Lookup.Rules) != 2 {
		t.Errorf("got %+v", r)
	}
	first := &r.Lookup.Rules[0]
	if first.Status[0] != "200" || strings.Join(first.When["/data/0/status"], " ") != "paid settled" || first.When["/data/0/live"][0] != "true" || first.Answer.Status != 201 || first.Answer.Header["X-A"] != "b" {
		t.Errorf("got %+v", first)
	}
	if _, err := r.Open(func(retrysafe.Record) ([]byte, bool) { return nil, false }, nil); err != nil {
		t.Error(err)
	}
	if !c.Resolves("POST /payments") || c.Resolves("POST /exports") || c.Resolves("") {
		t.Error("it does not know which routes are resolved")
	}
	if got := strings.Join(c.Files(), " "); got != file {
		t.Errorf("a reload reads %s", got)
	}
	printed, err := c.Print()
	if err != nil {
		t.Fatal(err)
	}
	for _, secret := range []string{"a-token", "api-key", "from-a-file"} {
		if strings.Contains(string(printed), secret) {
			t.Errorf("a secret shows:\n%s", printed)
		}
	}
	for _, want := range []string{"token: ${LEDGER}\n", "X-Api-Key: ${KEY}\n", "X-Version: xxxxx # hidden\n", "X-Other: " + file + "\n", "every: 30s # default\n"} {
		contains(t, string(printed), want)
	}
	all, err := c.PrintSecrets()
	if err != nil {
		t.Fatal(err)
	}
	if again := parseIn(t, env, string(all)); !again.Equal(c) {
		t.Errorf("what is printed says something else:\n%s", all)
	}
}

// Without a resolver there is no reconciler; one without routes is for all others.
func TestReconcileIsForTheRoutesThatItNames(t *testing.T) {
	t.Parallel()
	c := parse(t, least)
	if c.Resolves("") || c.Resolves("POST /payments") {
		t.Error("something is resolved without a resolver")
	}
	c = parse(t, asking(`endpoint: http://127.0.0.1:9001/resolve`))
	if !c.Resolves("") || !c.Resolves("POST /payments") {
		t.Error("a resolver without routes is for none")
	}
}

// Each file is wrong in the words that stand below it.
func TestWhatIsWrongWithAResolver(t *testing.T) {
	t.Parallel()
	const ledger = "routes: [POST /payments]\nurl: https://api.example.com/{key}\n"
	const pending = "rules: [{ status: 200, then: pending }]\n"
	for _, c := range []struct{ text, want string }{
		{"endpont: http://127.0.0.1/", "gw.yaml:9:7: reconcile.resolvers[0].endpont: there is no such field; did you mean endpoint?"},
		{"name: x", "gw.yaml:9:7: reconcile.resolvers[0].url: it is missing; it is the provider's URL"},
		{"endpoint: ftp://h", "gw.yaml:9:17: reconcile.resolvers[0].endpoint: it is not a URL of http or https"},
		{"endpoint: http://h/x", "gw.yaml:9:17: reconcile.resolvers[0].endpoint: it is not https: an attacker on the network could answer instead, and make an operation run twice; use https, or plain_http: true"},
		{"endpoint: https://u:p@h/x", "gw.yaml:9:17: reconcile.resolvers[0].endpoint: it contains a password; use token, token_file or headers"},
		{"endpoint: https://h/x\n" + pending, "gw.yaml:10:7: reconcile.resolvers[0].rules: endpoint is there too"},
		{"endpoint: https://h/x\ntoken: a b", "gw.yaml:10:14: reconcile.resolvers[0].token: the token has characters in it that no token has"},
		{"endpoint: https://h/x\ntoken: ab\ntoken_file: none", "gw.yaml:11:19: reconcile.resolvers[0].token_file: reconcile.resolvers[0].token is there too; keep one of them"},
		{"endpoint: https://h/x\ntoken_file: /none/such", "gw.yaml:10:19: reconcile.resolvers[0].token_file: \"/none/such\" cannot be read: no such file or directory"},
		{"endpoint: https://h/x\nroutes: [POST /payment]", `gw.yaml:10:16: reconcile.resolvers[0].routes[0]: there is no route with match: "POST /payment"; did you mean POST /payments?`},
		{"endpoint: https://h/x\nroutes: [POST /off]", "gw.yaml:10:16: reconcile.resolvers[0].routes[0]: the route is off, or only observed"},
		{"endpoint: https://h/x\nroutes: [POST /exports, POST /exports]", "gw.yaml:10:31: reconcile.resolvers[0].routes[1]: it is there twice"},
		{"endpoint: https://h/x\nroutes: [POST /payments]\ndeadline: 5s", "gw.yaml:11:17: reconcile.resolvers[0].deadline: it is 5s, and a request of POST /payments may be on its way for 10s (timeout): a retry could run while the first attempt still does; write at least 10s"},
		{"endpoint: https://h/x\ndeadline: 20s", "gw.yaml:10:17: reconcile.resolvers[0].deadline: it is 20s, and a request of POST /exports may be on its way for 30s (timeout)"},
		{ledger, "gw.yaml:9:7: reconcile.resolvers[0].rules: there are none, so no reply would mean anything"},
		{ledger + "method: get\n" + pending, `gw.yaml:11:15: reconcile.resolvers[0].method: "get" is none of GET, POST; did you mean GET?`},
		{strings.Replace(ledger, "{key}", "{kye}", 1) + pending, "gw.yaml:10:12: reconcile.resolvers[0].url: there is no placeholder {kye}; did you mean {key}?"},
		{strings.Replace(ledger, "{key}", "{request:/id}", 1) + pending, "gw.yaml:10:12: reconcile.resolvers[0].url: {request:…} is in it, and of POST /payments, which is not async, no request is stored"},
		{ledger + "headers: { Host: x }\n" + pending, "gw.yaml:11:24: reconcile.resolvers[0].headers.Host: the connection has it"},
		{ledger + "rules: [{ status: 2000, then: pending }]", `gw.yaml:11:25: reconcile.resolvers[0].rules[0].status[0]: "2000" is not a status such as 200, 404 or 2xx`},
		{ledger + "rules: [{ status: 200, then: hapend }]", `gw.yaml:11:36: reconcile.resolvers[0].rules[0].then: "hapend" is none of happened, declined, not_happened, tombstoned, pending, unknown; did you mean happened?`},
		{ledger + "rules: [{ status: 200, then: happened }]", "gw.yaml:11:15: reconcile.resolvers[0].rules[0].answer: it is missing; happened needs the answer that retries get"},
		{ledger + "rules: [{ status: 200, then: happened, answer: { body: '{}' } }]", "gw.yaml:11:46: reconcile.resolvers[0].rules[0].answer.status: it is 0; an answer needs a status between 200 and 599"},
		{ledger + "rules: [{ status: 4xx, then: not_happened }]", "gw.yaml:11:25: reconcile.resolvers[0].rules[0].status[0]: among 4xx are 401, 403 and 429"},
		{ledger + "rules: [{ status: 200, wen: { /a: b }, then: pending }]", "gw.yaml:11:30: reconcile.resolvers[0].rules[0].wen: there is no such field; did you mean when?"},
		{ledger + "rules: [{ status: 200, when: { a: b }, then: pending }]", `gw.yaml:11:38: reconcile.resolvers[0].rules[0].when.a: "a" is not a JSON pointer: it begins with a slash, as in "/a"`},
		{ledger + "rules: [{ status: 2xx, then: pending }, { status: 200, then: unknown }]", "gw.yaml:11:47: reconcile.resolvers[0].rules[1]: it can never match: rules[0], which comes first, matches every reply that it would"},
		{"endpoint: https://h/x\n- endpoint: https://h/y", "gw.yaml:10:7: reconcile.resolvers[1].routes: it is missing, and reconcile.resolvers[0] has none either"},
	} {
		text := asking(c.text)
		text = strings.ReplaceAll(text, "\n      - endpoint", "\n    - endpoint")
		if got := refused(t, text); !strings.HasPrefix(got, c.want) && !strings.Contains(got, "\n"+c.want) {
			t.Errorf("%s\ngot  %s\nwant %s", text, got, c.want)
		}
	}
	for text, want := range map[string]string{
		"reconcile: { evry: 3s }":                           "gw.yaml:3:14: reconcile.evry: there is no such field; did you mean every?",
		"reconcile: { every: 30 }":                          `gw.yaml:3:21: reconcile.every: "30" has no unit; write a duration such as 30s, 15m, 24h or 7d`,
		"reconcile: { tries: 0 }":                           "gw.yaml:3:21: reconcile.tries: it must be more than 0",
		"reconcile: { pause: 1h, max_pause: 1m }":           "gw.yaml:3:36: reconcile.max_pause: it is 1m, and pause 1h is longer",
		"reconcile: { break_pause: 10m }":                   "gw.yaml:3:1: reconcile.max_break_pause: it is 5m, and break_pause 10m is longer",
		"reconcile: { resolvers: { endpoint: https://h } }": "gw.yaml:3:25: reconcile.resolvers: a mapping is where a list belongs: [a, b], or [] for none",
	} {
		if got := refused(t, least+text); got != want {
			t.Errorf("%s\ngot  %s\nwant %s", text, got, want)
		}
	}
}

func TestWarningsOfResolvers(t *testing.T) {
	t.Parallel()
	c := parse(t, strings.Replace(asking("url: https://h/{key}\nrules: [{ status: 404, then: not_happened }]"), "reconcile:", "janitor: { off: true }\nreconcile:", 1))
	got := strings.Join(c.Warnings(), "\n")
	for _, want := range []string{"reconcile: janitor.off is true", "reconcile.resolvers[0]: there is no deadline, so not_happened is no proof"} {
		contains(t, got, want)
	}
}

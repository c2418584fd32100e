package config_test

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/gateway/config"
)

const hooks = `upstream: http://127.0.0.1:9000
tenant: { from: header, name: X-Tenant-Id }
routes:
  - { match: "POST /payments", derive_key: X-Key }
webhooks:
`

func TestWebhooks(t *testing.T) {
	t.Parallel()
	file := write(t, "secret", "whsec_of_a_file_of_its_own\n")
	text := hooks + `
  - name: stripe
    path: /hooks/stripe
    scheme: stripe
    secrets: ["${NEW}"]
    secret_files: [` + file + `]
    find: { downstream_key: /data/object/metadata/key, provider_ref: /data/object/id }
    operations: [POST /payments]
    missing: acknowledge
    rules:
      - when: { /type: payment_intent.succeeded, /livemode: true }
        outcome: happened
        answer: { status: 201, headers: { Location: "/payments/{/data/object/id}" }, body: '{"id":"{/data/object/id}"}' }
      - { when: { /type: [a, b] }, outcome: not_happened, final: true }
  - { name: other, scheme: github, secrets: [0123456789abcdef], find: { provider_ref: /id }, unmatched: ignore, rules: [{ outcome: pending }] }
`
	c := parseIn(t, vars{"NEW": "whsec_of_the_environment"}, text)
	w := &c.Webhooks[0]
	if len(w.Secrets) != 1 || w.Secrets[0] != "whsec_of_the_environment" || len(w.FileSecrets) != 1 || w.FileSecrets[0] != "whsec_of_a_file_of_its_own" {
		t.Errorf("the secrets are %d and %d", len(w.Secrets), len(w.FileSecrets))
	}
	if w.Tolerance != 5*time.Minute || w.Retention != 7*24*time.Hour || w.MaxBody != 1<<20 || w.Unmatched != config.UnmatchedRefuse || w.Missing != config.MissingAcknowledge {
		t.Errorf("%+v", w)
	}
	if r := w.Rules[0]; len(r.When) != 2 || r.When["/livemode"][0] != "true" || r.Answer.Headers["Location"] == "" {
		t.Errorf("%+v", r)
	}
	if r := w.Rules[1]; len(r.When["/type"]) != 2 || !r.Final {
		t.Errorf("%+v", r)
	}
	if o := c.Webhooks[1]; o.Path != "/.retrysafe/webhooks/other" || o.Missing != config.MissingRetry || o.Unmatched != config.UnmatchedIgnore {
		t.Errorf("%+v", o)
	}
	if err := w.Verifier().Check(); err != nil {
		t.Error(err)
	}
	if !w.Covers("POST /payments") || w.Covers("") || !c.Webhooks[1].Covers("") {
		t.Error("operations are not what they say")
	}
	if got := c.Files(); len(got) != 1 || got[0] != file {
		t.Errorf("a reload reads %v", got)
	}
	printed, err := c.Print()
	if err != nil || strings.Contains(string(printed), "whsec_of") || strings.Contains(string(printed), "0123456789abcdef") {
		t.Errorf("%v, or a secret shows:\n%s", err, printed)
	}
	contains(t, string(printed), "${NEW}")
	if printed, err = c.PrintSecrets(); err != nil {
		t.Fatal(err)
	}
	if again := parse(t, string(printed)); !again.Equal(c) {
		t.Errorf("what is printed says something else:\n%s\n%+v\n%+v", printed, again.Webhooks, c.Webhooks)
	}
	if err := os.Chmod(file, 0o644); err != nil {
		t.Fatal(err)
	}
	if w := strings.Join(parseIn(t, vars{"NEW": "whsec_of_the_environment"}, text).Warnings(), "\n"); !strings.Contains(w, "webhooks[0].secret_files[0]: ") || !strings.Contains(w, "chmod 600") {
		t.Errorf("a file that every user reads: %q", w)
	}
}

// Each webhook is wrong in the words that stand beside it. The rest of it is right.
func TestWhatIsWrongWithAWebhook(t *testing.T) {
	t.Parallel()
	const (
		secret = "secrets: [0123456789abcdef]"
		find   = "find: { downstream_key: /key }"
		rule   = "rules: [{ outcome: pending }]"
		good   = "name: pay, scheme: stripe, " + secret + ", " + find + ", " + rule
	)
	for _, c := range []struct{ text, want string }{
		{"scheme: stripe, " + secret + ", " + find + ", " + rule, "gw.yaml:6:5: webhooks[0].name: it is missing; it names the provider in metrics and logs, such as stripe"},
		{"name: Pay!, scheme: stripe, " + secret + ", " + find + ", " + rule, `gw.yaml:6:13: webhooks[0].name: "Pay!" is not a name: it has at most 64 small letters, digits, hyphens and underscores`},
		{good + " }\n  - { " + good, "gw.yaml:7:13: webhooks[1].name: another webhook is called pay too\ngw.yaml:7:5: webhooks[1].path: another webhook is at \"/.retrysafe/webhooks/pay\" too"},
		{good + ", path: hooks/x", `gw.yaml:6:132: webhooks[0].path: "hooks/x" is not a path such as /hooks/stripe: it begins with a slash, and has no braces, escapes, query and empty or dot segments`},
		{good + ", path: /a/../x", `gw.yaml:6:132: webhooks[0].path: "/a/../x" is not a path such as /hooks/stripe: it begins with a slash, and has no braces, escapes, query and empty or dot segments`},
		{good + ", path: /.retrysafe/x", `gw.yaml:6:132: webhooks[0].path: "/.retrysafe/x": what begins with /.retrysafe/ belongs to the gateway itself, except what begins with /.retrysafe/webhooks/`},
		{good + ", path: /payments", `gw.yaml:6:132: webhooks[0].path: routes[0] on line 4 ("POST /payments") is about "/payments" too, and its requests would be taken for events; use another path, or leave it out: then it is /.retrysafe/webhooks/pay`},
		{"name: pay, scheme: strype, " + secret + ", " + find + ", " + rule, `gw.yaml:6:26: webhooks[0].scheme: "strype" is none of standard, stripe, github, hmac; did you mean stripe?`},
		{"name: pay, " + secret + ", " + find + ", " + rule, "gw.yaml:6:5: webhooks[0].scheme: it is missing; it is standard, stripe, github or hmac"},
		{"name: pay, scheme: stripe, " + find + ", " + rule, `gw.yaml:6:5: webhooks[0].secrets: there are none; without a secret every event would be refused: secrets: ["${WEBHOOK_SECRET}"], or secret_files`},
		{"name: pay, scheme: stripe, secrets: [hunter2], " + find + ", " + rule, "gw.yaml:6:34: webhooks[0].secrets: a secret has 7 characters, and needs 16"},
		{"name: pay, scheme: standard, secrets: [hunter2hunter2hunter2!], " + find + ", " + rule, "gw.yaml:6:36: webhooks[0].secrets: a secret is not base64, with or without whsec_ before it"},
		{"name: pay, scheme: stripe, secret_files: [/nothing/here], " + find + ", " + rule, `gw.yaml:6:49: webhooks[0].secret_files[0]: "/nothing/here" cannot be read: no such file or directory`},
		{good + ", signature: { header: X-A }", "gw.yaml:6:126: webhooks[0].signature: it is for scheme: hmac; stripe knows how its events are signed"},
		{"name: pay, scheme: hmac, " + secret + ", " + find + ", " + rule, "gw.yaml:6:5: webhooks[0].signature.header: it is missing; it is the header that has the signature, such as X-Signature"},
		{"name: pay, scheme: hmac, signature: { header: X-A, signed: \"{timestamp}.{body}\" }, " + secret + ", " + find + ", " + rule, "gw.yaml:6:32: webhooks[0].signature.timestamp_header: timestamp_header and {timestamp} in signed need each other: a time stamp that is not signed proves nothing"},
		{"name: pay, scheme: hmac, signature: { header: X-A, hash: md5 }, " + secret + ", " + find + ", " + rule, `gw.yaml:6:64: webhooks[0].signature.hash: "md5" is none of sha256, sha512`},
		{"name: pay, scheme: github, tolerance: 9m, " + secret + ", " + find + ", " + rule, "gw.yaml:6:45: webhooks[0].tolerance: this scheme has no time stamp; an event is refused a second time for as long as retention remembers it"},
		{good + ", retention: 9m", "gw.yaml:6:137: webhooks[0].retention: it is 9m; an event could be sent again after it is forgotten, while its time stamp is still within the tolerance of 5m"},
		{good + ", missing: acknowledg_", `gw.yaml:6:135: webhooks[0].missing: "acknowledg_" is none of retry, acknowledge; did you mean acknowledge?`},
		{good + ", unmatched: drop", `gw.yaml:6:137: webhooks[0].unmatched: "drop" is none of refuse, ignore`},
		{good + ", serets: []", "gw.yaml:6:126: webhooks[0].serets: there is no such field; did you mean secrets?"},
		{"name: pay, scheme: stripe, " + secret + ", " + rule, "gw.yaml:6:5: webhooks[0].find: it is missing; it is the JSON pointer to what an event says about its key: downstream_key, key with tenant, or provider_ref"},
		{"name: pay, scheme: stripe, " + secret + ", find: { downstream_key: data.key }, " + rule, `gw.yaml:6:87: webhooks[0].find.downstream_key: "data.key" is not a JSON pointer: it begins with a slash, as in "/data/key"`},
		{"name: pay, scheme: stripe, " + secret + ", find: { key: /key }, " + rule, "gw.yaml:6:63: webhooks[0].find.tenant: it is missing; two tenants may have the same key, so an event must say whose it is"},
		{"name: pay, scheme: stripe, " + secret + ", find: { provider_ref: /id, tenant: /t }, " + rule, "gw.yaml:6:98: webhooks[0].find.tenant: it belongs to key, which is not there"},
		{good + ", operations: [POST /payment]", `gw.yaml:6:139: webhooks[0].operations[0]: "POST /payment" is not the match of a guarded route; did you mean POST /payments?`},
		{"name: pay, scheme: stripe, " + secret + ", " + find, "gw.yaml:6:5: webhooks[0].rules: there are none, so no event would prove anything; write such as: - { when: { /type: payment.succeeded }, outcome: happened, answer: { status: 201 } }"},
		{"name: pay, scheme: stripe, " + secret + ", " + find + ", rules: [{ when: { type: x }, outcome: pending }]", `gw.yaml:6:113: webhooks[0].rules[0].when.type: "type" is not a JSON pointer: it begins with a slash, as in "/type"`},
		{"name: pay, scheme: stripe, " + secret + ", " + find + ", rules: [{ outcome: happenedd, answer: { status: 201 } }]", `gw.yaml:6:114: webhooks[0].rules[0].outcome: "happenedd" is none of happened, declined, not_happened, pending, ignore; did you mean happened?`},
		{"name: pay, scheme: stripe, " + secret + ", " + find + ", rules: [{ outcome: happened }]", "gw.yaml:6:103: webhooks[0].rules[0].answer.status: it is 0; what has happened is answered by a status from 200 to 399, such as 201"},
		{"name: pay, scheme: stripe, " + secret + ", " + find + ", rules: [{ outcome: declined, answer: { status: 200 } }]", "gw.yaml:6:142: webhooks[0].rules[0].answer.status: it is 200; what was declined is answered by a status from 400 to 599, such as 402"},
		{"name: pay, scheme: stripe, " + secret + ", " + find + ", rules: [{ outcome: pending, answer: { status: 200 } }]", "gw.yaml:6:123: webhooks[0].rules[0].answer: it is for outcome: happened and declined; after pending there is no answer yet"},
		{"name: pay, scheme: stripe, " + secret + ", " + find + ", rules: [{ outcome: pending, final: true }]", "gw.yaml:6:130: webhooks[0].rules[0].final: it is for outcome: not_happened; pending needs no such proof"},
		{"name: pay, scheme: stripe, " + secret + ", " + find + ", rules: [{ outcome: happened, answer: { status: 201, body: '{/a' } }]", `gw.yaml:6:153: webhooks[0].rules[0].answer.body: the place "{/a" has no closing brace`},
	} {
		if got := refused(t, hooks+"  - { "+c.text+" }\n"); sortedLines(got) != sortedLines(c.want) {
			t.Errorf("%s\nis refused with\n%s\nwant\n%s", c.text, got, c.want)
		}
	}
	for _, c := range []struct{ tenant, route, find, want string }{
		{"bearer", "derive_key: X-Key", "key: /key, tenant: /t", "with tenant from: bearer the tenant is a hash of a token, which no event can have; use downstream_key"},
		{"none", "derive_key: X-Key", "key: /key, tenant: /t", "with tenant from: none there is one tenant; leave it out"},
		{"header:X-T", "scope: operation", "key: /key, tenant: /t", "so tenant and key are not enough to find its keys"},
		{"header:X-T", "forward_key: X-Key", "downstream_key: /key", "no route of this webhook has derive_key"},
		{"header:X-T", "derive_key: X-Key", "key: /key, tenant: /t, downstream_key: /key", "downstream_key is there too; keep one of them"},
	} {
		got := refused(t, "upstream: http://127.0.0.1:9000\ntenant: "+c.tenant+"\nroutes: [{ match: POST /a, "+c.route+" }]\nwebhooks:\n  - { name: pay, scheme: stripe, secrets: [0123456789abcdef], rules: [{ outcome: pending }], find: { "+c.find+" } }\n")
		if !strings.Contains(got, "gw.yaml:5:") || !strings.Contains(got, c.want) {
			t.Errorf("%s by %s: %s", c.tenant, c.find, got)
		}
	}
}

// The path of a webhook is no route's, whatever its pattern.
func TestWebhookPathsAreNoRoutes(t *testing.T) {
	t.Parallel()
	for match, taken := range map[string]bool{
		"POST /hooks/pay": true, "POST /hooks/{name}": true, "/hooks/": true, "POST /": true, "PUT /hooks/pay": true, "example.com/hooks/pay": true,
		"POST example.com/{rest...}": true, "POST /hooks/{$}": false, "POST /hooks/pay/x": false, "POST /payments": false,
	} {
		_, err := config.Parse("gw.yaml", []byte(least+"defaults: { derive_key: X-Key }\nroutes: [{ match: '"+match+"' }]\nwebhooks:\n"+
			"  - { name: pay, path: /hooks/pay, scheme: stripe, secrets: [0123456789abcdef], rules: [{ outcome: pending }], find: { downstream_key: /key } }\n"), nil)
		if (err != nil) != taken {
			t.Errorf("%s: %v", match, err)
		}
	}
}

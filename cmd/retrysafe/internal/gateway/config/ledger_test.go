package config_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/gateway/config"
)

// aLedger is one that is right, in fields of one line that a test may replace.
func aLedger(change ...string) string {
	lines := []string{
		"routes: [{ match: POST /payments, retention: 3d }]",
		"ledger:",
		"  - name: bank",
		"    operations: [POST /payments]",
		"    at: 06:00",
		"    time_zone: Europe/Berlin",
		"    ours: { id: provider_ref, fields: { amount: /amount } }",
		"    theirs: { file: '/lists/{day}.csv' }",
		"    amounts: [amount]",
		"    report: { directory: /reports }",
	}
	for _, c := range change {
		name, _, _ := strings.Cut(strings.TrimLeft(c, " -"), ":")
		if name == "nme" {
			name = "name"
		}
		for i, line := range lines {
			if had, _, _ := strings.Cut(strings.TrimLeft(line, " -"), ":"); had == name {
				lines[i] = c
			}
		}
	}
	return least + strings.Join(lines, "\n")
}

func TestLedger(t *testing.T) {
	t.Parallel()
	c := parse(t, aLedger("    tolerance: 1h", "    theirs: { directory: /lists, pattern: '{day}*', time: at, comma: \";\", fields: { amount: net } }"))
	l := &c.Ledger[0]
	clock, err := l.Clock()
	zone, zoneErr := l.Zone()
	if clock != 6*time.Hour || err != nil || zone.String() != "Europe/Berlin" || zoneErr != nil {
		t.Errorf("at %v, %v in %v, %v", clock, err, zone, zoneErr)
	}
	f := l.Feed()
	if !f.Daily() || f.Columns.Comma != ';' || f.Columns.Fields["amount"] != "net" || f.Columns.ID != "id" {
		t.Errorf("the feed is %+v", f)
	}
	if o, err := l.Export(); err != nil || o.ID.String() != "provider_ref" || o.Fields["amount"].String() != "/amount" {
		t.Errorf("the export is %+v, %v", o, err)
	}
	if c := parse(t, least+"ledger:\n"); c.Ledger != nil {
		t.Errorf("an empty section has %v", c.Ledger)
	}
}

func TestWhatIsWrongWithALedgerIsSaidWithItsPlace(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ change, want string }{
		{"  - nme: bank", "gw.yaml:5:5: ledger[0].nme: there is no such field; did you mean name?"},
		{"  - name: a b", `gw.yaml:5:11: ledger[0].name: "a b" is not a name of letters, digits, dots, dashes and underscores, 63 at most`},
		{"    operations: []", "gw.yaml:6:5: ledger[0].operations: it is missing; it is a list such as [POST /payments]"},
		{"    operations: [POST /payment]", `gw.yaml:6:18: ledger[0].operations[0]: "POST /payment" is none of the routes; did you mean POST /payments?`},
		{"    operations: [everything]", `gw.yaml:6:18: ledger[0].operations[0]: "everything" is not the name of an operation such as POST /payments`},
		{"    operations: [POST /refunds]", `gw.yaml:6:18: ledger[0].operations[0]: the answers of "POST /refunds" are kept for 24h, so the first of a day are deleted before the day is compared at 06:00; set its retention to 31h or more`},
		{"    at: 6 o'clock", `gw.yaml:7:9: ledger[0].at: "6 o'clock" is not a time of day such as 06:00 or 23:30`},
		{"    time_zone: Berlin", `gw.yaml:8:16: ledger[0].time_zone: "Berlin" is not a time zone such as UTC or Europe/Berlin`},
		{"    ours: { id: provider_rf, fields: { amount: /amount } }", `gw.yaml:9:17: ledger[0].ours.id: "provider_rf" is no part of a record: it is key, downstream_key, provider_ref, scope, status, a JSON pointer into the answer such as /id, request:/pointer or header:NAME; did you mean provider_ref?`},
		{"    ours: { fields: { amount: request:amount } }", `gw.yaml:9:31: ledger[0].ours.fields.amount: "amount" is not a JSON pointer: it begins with a slash, as in "/amount"`},
		{"    ours: { fields: { amount: [a] } }", `gw.yaml:9:31: ledger[0].ours.fields.amount: a list is where a single value belongs`},
		{"    ours: { time: settled, fields: { amount: /amount } }", `gw.yaml:9:19: ledger[0].ours.time: "settled" is none of created, answered`},
		{"    theirs: {}", "gw.yaml:10:5: ledger[0].theirs: there is no place to read the list from; name one of file, directory and url"},
		{"    theirs: { file: '{day}', url: https://h }", "gw.yaml:10:35: ledger[0].theirs.url: a list is read from one place; keep one of file, directory and url"},
		{"    theirs: { url: 'http://bank.example/{day}' }", "gw.yaml:10:20: ledger[0].theirs.url: it is not https: an attacker on the network could hide a payment, and would see the token; plain_http: true trusts the network"},
		{"    theirs: { directory: /lists }", "gw.yaml:10:5: ledger[0].theirs.time: it is missing; a list that is not of one day ({day} in its name, or a url) needs the column with the time of its rows"},
		{"    theirs: { file: '{day}', format: cvs }", `gw.yaml:10:38: ledger[0].theirs.format: "cvs" is none of csv, jsonl; did you mean csv?`},
		{"    theirs: { file: '{day}', comma: ab }", `gw.yaml:10:37: ledger[0].theirs.comma: "ab" is not one character`},
		{"    theirs: { file: '{day}', token: abc }", `gw.yaml:10:37: ledger[0].theirs.token: a token is sent to a url, and there is none`},
		{"    theirs: { file: '{day}', fields: { amout: x } }", `gw.yaml:10:47: ledger[0].theirs.fields.amout: ours.fields has no such field to compare it with; did you mean amount?`},
		{"    theirs: { url: 'https://h', token_file: /none }", `gw.yaml:10:45: ledger[0].theirs.token_file: "/none" cannot be read: no such file or directory`},
		{"    amounts: [amuont]", `gw.yaml:11:15: ledger[0].amounts[0]: "amuont" is none of the fields in ours.fields; did you mean amount?`},
		{"    report: {}", "gw.yaml:12:5: ledger[0].report.directory: it is missing; it is where the report of each day is written"},
		{"    report: { directory: /r, formats: [pdf] }", `gw.yaml:12:40: ledger[0].report.formats[0]: "pdf" is none of text, json, html`},
	} {
		if got := refused(t, aLedger(c.change)); got != c.want {
			t.Errorf("%s\ngot  %s\nwant %s", c.change, got, c.want)
		}
	}
	twice := aLedger() + "\n  - { name: bank, operations: [POST /payments], theirs: { file: '{day}' } }\n"
	if got, want := refused(t, twice), "gw.yaml:13:13: ledger[1].name: ledger[0] is called bank, too; reports of the one would replace those of the other"; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if got, want := refused(t, least+"theirs: {}"), "gw.yaml:3:1: theirs: this field does not belong here but to ledger"; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// Tokens are hidden, or printed as what names them.
func TestLedgerTokensAreHidden(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte("from-a-file\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	theirs := func(more string) string { return aLedger("    theirs: { url: 'https://h/{day}', " + more + " }") }
	env := vars{"BANK_TOKEN": "from-the-environment"}
	for more, want := range map[string]string{
		"token: from-the-configuration": "token: xxxxx # hidden", "token: '${BANK_TOKEN}'": "token: ${BANK_TOKEN}", "token_file: " + file: "token_file: " + file,
	} {
		c := parseIn(t, env, theirs(more))
		printed, err := c.Print()
		if err != nil {
			t.Fatal(err)
		}
		if text := string(printed); !strings.Contains(text, want) || strings.Contains(text, "from-") {
			t.Errorf("%s is printed as\n%s", more, text)
		}
		if c.Ledger[0].Theirs.Token == "" {
			t.Errorf("%s: there is no token", more)
		}
	}
	if c := parseIn(t, env, theirs("token_file: "+file)); len(c.Files()) != 1 || c.Files()[0] != file {
		t.Errorf("the files to watch are %v", c.Files())
	}
}

func TestSettingsOfOperation(t *testing.T) {
	t.Parallel()
	c := parse(t, least+"store_timeout: 2s\nserver: {drain_delay: 5s}\nmetrics: {tenants: 20}\nadmin: {listen: ':1', token: 0123456789abcdef, metrics_token: fedcba9876543210}\n")
	if c.StoreTimeout != 2*time.Second || c.Server.DrainDelay != 5*time.Second || c.Metrics.Tenants != 20 || c.Admin.MetricsToken != "fedcba9876543210" {
		t.Errorf("got %+v", c)
	}
	if d := config.Default(); d.StoreTimeout != 1500*time.Millisecond || d.Server.DrainDelay != 0 || d.Metrics.Tenants != 0 {
		t.Errorf("the defaults are %+v", d)
	}
	for text, want := range map[string]string{
		"store_timeout: 10s":          "gw.yaml:3:16: store_timeout: it is 10s; it must be between 50ms and 5s",
		"store_timout: 1s":            "gw.yaml:3:1: store_timout: there is no such field; did you mean store_timeout?",
		"server: {drain_delay: -1s}":  "gw.yaml:3:23: server.drain_delay: it is negative; 0 is no bound",
		"metrics: {tenants: 2000}":    "gw.yaml:3:20: metrics.tenants: it is 2000; it must be between 0, for no label, and 1000",
		"metrics: {tenants: many}":    `gw.yaml:3:20: metrics.tenants: "many" is not a whole number such as 100`,
		"admin: {metrics_token: abc}": "gw.yaml:3:24: admin.metrics_token: it is for /metrics of admin.listen, and there is none",
		"admin: {listen: ':1', token: 0123456789abcdef, metrics_token: abc}":              "gw.yaml:3:63: admin.metrics_token: the token has 3 characters; it takes at least 16: openssl rand -hex 32",
		"admin: {listen: ':1', token: 0123456789abcdef, metrics_token: 0123456789abcdef}": "gw.yaml:3:63: admin.metrics_token: it is the operators' token; a scraper needs one of its own",
	} {
		if got := refused(t, least+text); got != want {
			t.Errorf("%s\ngot  %s\nwant %s", text, got, want)
		}
	}
}

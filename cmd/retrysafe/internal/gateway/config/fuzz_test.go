package config_test

import (
	"testing"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/gateway/config"
	"github.com/retrysafe/retrysafe/internal/test/hammer"
)

// Whatever a file says, it is refused or understood: then it can be printed, and
// what is printed says the same.
func FuzzParse(f *testing.F) {
	for _, text := range []string{
		design, everything, least, "", "- a", "a: b: c", "routes: &r [*r]", "defaults: &d {<<: *d}", "{}", "---\n---", "\ufeffa: 1",
		least + "store: sqlite:$$\u2028\u00a0\ufeff.db", least + `store: "sqlite: x \U0001F600 #"`, least + "routes:\n- &a {match: /a}\n- {<<: [*a], match: /b}",
		least + "tls: {cert_file: '~', key_file: '<<'}", least + "encryption: {keys_file: '- a'}", least + "encryption: {keys_file: ' a '}",
		least + "upstream_tls: {}\nlimits: {new_keys_per_second: 1e-7}\ncache: {bytes: 0, max_age: 1ns}",
		"upstream: http://h\ntenant: {from: header, name: X, trusted_proxies: [10.0.0.0/8, '::1']}\ndefaults: {bind: principal, on_expired: gone, lease: 11m}",
	} {
		hammer.Add(f, []byte(text))
	}
	env := vars{"RETRYSAFE_ADMIN_TOKEN": token, "A": "x: {y}"}
	hammer.Fuzz(f, func(t *testing.T, text []byte) {
		c, err := config.Parse("gw.yaml", text, env.lookup)
		if err != nil {
			_ = err.Error()
			return
		}
		if err := c.Check(); err != nil {
			t.Fatalf("what Parse accepts Check refuses: %v", err)
		}
		c.Warnings()
		printed, err := c.PrintSecrets()
		if err != nil {
			t.Fatalf("it cannot be printed: %v", err)
		}
		again, err := config.Parse("again.yaml", printed, nil)
		if err != nil {
			t.Fatalf("what is printed is refused: %v\n%s", err, printed)
		}
		if !again.Equal(c) {
			t.Fatalf("what is printed says something else:\n%s\n%+v\n%+v", printed, *c, *again)
		}
	})
}

package config_test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/gateway/config"
	"github.com/retrysafe/retrysafe/internal/test/pages"
)

func page(t *testing.T) string {
	t.Helper()
	return pages.Read(t, "docs/configuration.md")
}

func TestDocsAreComplete(t *testing.T) {
	t.Parallel()
	documented := map[string]string{}
	for _, m := range regexp.MustCompile("(?m)^\\| `([a-z0-9_.]+)` \\| (?:`([^`]+)`)? *\\| ?(.*) \\|$").FindAllStringSubmatch(page(t), -1) {
		if _, twice := documented[m[1]]; twice {
			t.Errorf("%s is there twice", m[1])
		}
		documented[m[1]] = m[2]
	}
	for path, want := range config.Defaults() {
		name := strings.TrimPrefix(path, "defaults.")
		got, ok := documented[name]
		switch {
		case !ok:
			t.Errorf("%s has no row", name)
		case got != want:
			t.Errorf("%s is %q by default; the page says %q", name, want, got)
		}
		delete(documented, name)
	}
	for name := range documented {
		t.Errorf("there is no field %s", name)
	}
}

func TestDocsBlocksParse(t *testing.T) {
	t.Parallel()
	env := vars{"RETRYSAFE_ADMIN_TOKEN": token, "ACME_TOKEN": token, "RESOLVER_TOKEN": token}
	blocks := regexp.MustCompile("(?ms)^```yaml\n(.*?)^```$").FindAllStringSubmatch(page(t), -1)
	if len(blocks) < 10 {
		t.Errorf("there are %d blocks; this test looks in the wrong place", len(blocks))
	}
	for _, b := range blocks {
		text := b[1]
		for field, line := range map[string]string{"upstream:": "upstream: http://127.0.0.1:9000\n", "tenant:": "tenant: bearer\n"} {
			if !regexp.MustCompile("(?m)^" + field).MatchString(text) {
				text = line + text
			}
		}
		parseIn(t, env, text)
	}
}

// The messages that the page shows are those that there are.
func TestDocsMessagesAreTrue(t *testing.T) {
	t.Parallel()
	got := refused(t, least+`

store: sqlite:keys.db

defaults: { lease: 30 }

routes:
  # these two are one
  - { match: "POST /{x}" }
  - { match: "POST /{y}" }
`)
	shown := regexp.MustCompile("(?m)^retrysafe: gw.yaml:.*$").FindAllString(page(t), -1)
	if want := strings.ReplaceAll(strings.Join(shown, "\n"), "retrysafe: ", ""); got != want {
		t.Errorf("the page shows\n%s\nit is\n%s", want, got)
	}
}

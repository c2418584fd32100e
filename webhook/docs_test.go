package webhook_test

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/retrysafe/retrysafe/webhook"
)

const page = "../docs/webhooks.md"

// Every Go snippet of docs/webhooks.md is part of an example, and so compiles and
// does what it says.
func TestDocsSnippetsAreExamples(t *testing.T) {
	t.Parallel()
	plain := func(code string) string { return strings.Join(strings.Fields(code), " ") }
	text, err := os.ReadFile(page)
	must(t, err)
	source, err := os.ReadFile("example_test.go")
	must(t, err)
	snippets := regexp.MustCompile("(?ms)^```go\n(.*?)^```$").FindAllStringSubmatch(string(text), -1)
	if len(snippets) < 3 {
		t.Fatalf("%s has %d snippets; this test looks in the wrong place", page, len(snippets))
	}
	for _, m := range snippets {
		if !strings.Contains(plain(string(source)), plain(m[1])) {
			t.Errorf("%s shows code that is in no example:\n%s", page, m[1])
		}
	}
}

// Every answer is on the page, with its status and where its problem's type leads.
func TestDocsAnswers(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(page)
	must(t, err)
	for code, status := range webhook.Answers() {
		row := fmt.Sprintf("| %d | <a id=\"%s\"></a>`%[2]s` |", status, code)
		if !strings.Contains(string(text), row) {
			t.Errorf("%s has no row %s", page, row)
		}
	}
}

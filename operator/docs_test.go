package operator_test

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/retrysafe/retrysafe"
)

const runbook = "../docs/runbook.md"

// Every Go snippet of the runbook is part of an example, and so compiles and does
// what it says.
func TestDocsRunbookSnippetsAreExamples(t *testing.T) {
	t.Parallel()
	plain := func(code string) string { return strings.Join(strings.Fields(code), " ") }
	text, err := os.ReadFile(runbook)
	must(t, err)
	source, err := os.ReadFile("example_test.go")
	must(t, err)
	snippets := regexp.MustCompile("(?ms)^```go\n(.*?)^```$").FindAllStringSubmatch(string(text), -1)
	if len(snippets) < 5 {
		t.Fatalf("%s has %d snippets; this test looks in the wrong place", runbook, len(snippets))
	}
	for _, s := range snippets {
		if !strings.Contains(plain(string(source)), plain(s[1])) {
			t.Errorf("%s shows code that is in no example:\n%s", runbook, s[1])
		}
	}
}

// The runbook has a line for each state and a heading for each verb.
func TestDocsRunbookIsComplete(t *testing.T) {
	t.Parallel()
	b, err := os.ReadFile(runbook)
	must(t, err)
	text := string(b)
	for s := retrysafe.StateAccepted; s.Valid(); s++ {
		if !strings.Contains(text, "| `"+s.String()+"`") {
			t.Errorf("the runbook does not say what to do about %s", s)
		}
	}
	for name := range verbs {
		if !strings.Contains(text, "`"+strings.ToUpper(name[:1])+name[1:]+"`") {
			t.Errorf("the runbook does not name %s", name)
		}
	}
}

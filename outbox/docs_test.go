package outbox_test

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

const page = "../docs/outbox.md"

// Every Go snippet of docs/outbox.md is part of an example, and so compiles and
// does what it says.
func TestDocsSnippetsAreExamples(t *testing.T) {
	t.Parallel()
	plain := func(code []byte) string { return strings.Join(strings.Fields(string(code)), " ") }
	source, err := os.ReadFile("example_test.go")
	must(t, err)
	text, err := os.ReadFile(page)
	must(t, err)
	found := regexp.MustCompile("(?ms)^```go\n(.*?)^```$").FindAllSubmatch(text, -1)
	if len(found) == 0 {
		t.Fatalf("%s shows no code; this test looks in the wrong place", page)
	}
	for _, m := range found {
		if !strings.Contains(plain(source), plain(m[1])) {
			t.Errorf("%s shows code that is in no example:\n%s", page, m[1])
		}
	}
}

package janitor_test

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

const page = "../docs/recovery.md"

// Every Go snippet of docs/recovery.md is part of an example, and so compiles and
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

// Every option and every count is on the page.
func TestDocsNameEveryKnobAndCount(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(page)
	must(t, err)
	exported := regexp.MustCompile(`(?m)^\t([A-Z]\w*(?:, [A-Z]\w*)*) +[\w.*()\[\] ]+$`)
	for _, file := range []string{"options.go", "duty.go", "sweeper.go", "reaper.go", "reconciler.go"} {
		source, err := os.ReadFile(file)
		must(t, err)
		for _, structure := range regexp.MustCompile(`(?ms)^type \w*(?:Options|Stats|Passes) struct \{\n(.*?)^\}`).FindAllSubmatch(source, -1) {
			for _, m := range exported.FindAllSubmatch(structure[1], -1) {
				for name := range strings.SplitSeq(string(m[1]), ", ") {
					if !strings.Contains(string(text), "`"+name+"`") {
						t.Errorf("%s does not explain %s of %s", page, name, file)
					}
				}
			}
		}
	}
}

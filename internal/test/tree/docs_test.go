package tree_test

import (
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/retrysafe/retrysafe/internal/test/pages"
)

// The documents are tested like code: links lead somewhere, tests that are named
// exist, transcripts and examples are what really happens.

// markdown returns every document of the tree by its path.
func markdown(t *testing.T) map[string]string {
	t.Helper()
	docs := map[string]string{}
	walk(t, func(file string) {
		if strings.HasSuffix(file, ".md") {
			docs[file] = pages.Read(t, file)
		}
	})
	return docs
}

func TestDocsLinksLeadSomewhere(t *testing.T) {
	t.Parallel()
	link := regexp.MustCompile(`\]\(([^)\s]+)\)`)
	docs := markdown(t)
	for file, doc := range docs {
		for _, m := range link.FindAllStringSubmatch(pages.Fence.ReplaceAllString(doc, ""), -1) {
			if strings.Contains(m[1], "://") || strings.HasPrefix(m[1], "mailto:") {
				continue
			}
			target, anchor, _ := strings.Cut(m[1], "#")
			to := file
			if target != "" {
				to = path.Join(path.Dir(file), target)
			}
			if _, err := os.Stat(filepath.FromSlash(to)); err != nil {
				t.Errorf("%s: the link to %s leads nowhere", file, m[1])
			} else if anchor != "" && !slices.Contains(anchors(docs[to]), anchor) {
				t.Errorf("%s: %s has no heading #%s", file, to, anchor)
			}
		}
	}
}

// anchors returns the names by which the headings of a document are linked to.
func anchors(doc string) []string {
	var found []string
	heading := regexp.MustCompile(`(?m)^#+ (.+)$`)
	drop := regexp.MustCompile(`[^\p{L}\p{N} _-]`)
	for _, m := range heading.FindAllStringSubmatch(pages.Fence.ReplaceAllString(doc, ""), -1) {
		found = append(found, strings.ReplaceAll(drop.ReplaceAllString(strings.ToLower(m[1]), ""), " ", "-"))
	}
	return found
}

// A promise that names its test is worth as much as the test, so it must exist.
// A name that ends in an underscore stands for all that begin with it.
func TestDocsNameTestsThatExist(t *testing.T) {
	t.Parallel()
	declared := regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)[A-Z]\w*)\(`)
	rule := regexp.MustCompile(`(?m)^\tname: +"([^"]+)",\n\treason:`)
	tests, rules := map[string]bool{}, map[string]bool{}
	walk(t, func(file string) {
		switch {
		case strings.HasSuffix(file, "_test.go"):
			for _, m := range declared.FindAllStringSubmatch(pages.Read(t, file), -1) {
				tests[m[1]] = true
			}
		case path.Dir(file) == "store/storetest":
			for _, m := range rule.FindAllStringSubmatch(pages.Read(t, file), -1) {
				rules[m[1]] = true
			}
		}
	})
	if len(tests) < 10 || len(rules) < 10 {
		t.Fatalf("found %d tests and %d rules of storetest; this test looks in the wrong place", len(tests), len(rules))
	}
	named := regexp.MustCompile(`\b(?:Test|Fuzz)[A-Z]\w*`)
	ruled := regexp.MustCompile("`storetest:\\s+([^`]+)`")
	for file, doc := range markdown(t) {
		for _, name := range named.FindAllString(doc, -1) {
			begins := strings.HasSuffix(name, "_") && slices.ContainsFunc(slices.Collect(maps.Keys(tests)),
				func(n string) bool { return strings.HasPrefix(n, name) })
			if !tests[name] && !begins {
				t.Errorf("%s: there is no %s in the tree", file, name)
			}
		}
		for _, m := range ruled.FindAllStringSubmatch(doc, -1) {
			if rule := strings.Join(strings.Fields(m[1]), " "); !rules[rule] {
				t.Errorf("%s: storetest has no rule %q", file, rule)
			}
		}
	}
}

// A glossary is looked things up in: each term stands once, in its place in the
// alphabet, and says where to read on.
func TestDocsGlossary(t *testing.T) {
	t.Parallel()
	const page = "docs/glossary.md"
	entries := strings.Split(pages.Read(t, page), "\n### ")[1:]
	if len(entries) < 30 {
		t.Errorf("%s has %d terms", page, len(entries))
	}
	var terms []string
	for _, entry := range entries {
		term, text, _ := strings.Cut(entry, "\n")
		terms = append(terms, term)
		if !strings.Contains(text, "](") {
			t.Errorf("%s: %q does not say where it is explained", page, term)
		}
	}
	if !slices.IsSorted(terms) || len(slices.Compact(slices.Clone(terms))) != len(terms) {
		t.Errorf("%s: its terms are not in alphabetical order, each once: %q", page, terms)
	}
}

package web_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// The code on the page is that of the programs and of package transactions, which are run
// by tests. The programs are short.
func TestDocsShowThePrograms(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/transactions.md")
	must(t, err)
	all, err := os.ReadFile("transactions/transactions.go")
	must(t, err)
	programs, err := filepath.Glob("*/main.go")
	must(t, err)
	if len(programs) != 3 {
		t.Errorf("there are the programs %q", programs)
	}
	for _, file := range programs {
		text, err := os.ReadFile(file)
		must(t, err)
		if n := strings.Count(string(text), "\n"); n > 80 {
			t.Errorf("%s has %d lines", file, n)
		}
		if !strings.Contains(string(page), "(../examples/web/"+filepath.ToSlash(file)+")") {
			t.Errorf("docs/transactions.md does not link %s", file)
		}
		all = append(all, text...)
	}
	blocks := regexp.MustCompile("(?ms)^```go\n(.*?)^```$").FindAllStringSubmatch(string(page), -1)
	if len(blocks) < 5 {
		t.Fatalf("docs/transactions.md has %d blocks of code", len(blocks))
	}
	for _, b := range blocks {
		if !strings.Contains(string(all), b[1]) {
			t.Errorf("docs/transactions.md shows what is in no program:\n%s", b[1])
		}
	}
}

package conform_test

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/retrysafe/retrysafe/conform"
	"github.com/retrysafe/retrysafe/internal/test/pages"
)

var docsUpdate = flag.Bool("docs.update", false, "write the table of checks in docs/verify.md anew")

// docs/verify.md lists every check.
func TestDocsChecks(t *testing.T) {
	t.Parallel()
	const (
		file  = "docs/verify.md"
		begin = "<!-- checks: written by go test ./conform -run Docs -docs.update -->\n"
		end   = "<!-- checks: end -->\n"
	)
	doc := pages.Read(t, file)
	before, rest, ok := strings.Cut(doc, begin)
	table, behind, closed := strings.Cut(rest, end)
	if !ok || !closed {
		t.Fatalf("%s has no place for the table of checks", file)
	}
	var b strings.Builder
	b.WriteString("| check | severity | requirement | from |\n|---|---|---|---|\n")
	for _, c := range conform.Checks() {
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", c.Check, c.Severity, c.Requirement, c.Clause)
	}
	if *docsUpdate {
		must(t, os.WriteFile(pages.Path(t, file), []byte(before+begin+b.String()+end+behind), 0o644))
	} else if table != b.String() {
		t.Errorf("%s does not list the checks as they are; go test ./conform -run Docs -docs.update writes it anew", file)
	}
}

package conform_test

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/retrysafe/retrysafe/conform"
	"github.com/retrysafe/retrysafe/internal/test/pages"
)

// docs/verify.md lists every check.
func TestDocsChecks(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	b.WriteString("| check | severity | requirement | from |\n|---|---|---|---|\n")
	for _, c := range conform.Checks() {
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", c.Check, c.Severity, c.Requirement, c.Clause)
	}
	pages.Hold(t, "docs/verify.md", `(?m)^\| check \| severity .*\n(?:\|.*\n)+`, b.String())
}

// docs/matrix.md has a row for every check, and every check holds in our own columns, or was
// not tested there.
func TestDocsMatrix(t *testing.T) {
	t.Parallel()
	page := pages.Read(t, "docs/matrix.md")
	ours := 0
	for _, c := range regexp.MustCompile(`(?m)^\| \d+ \| (.*?) \|`).FindAllStringSubmatch(page, -1) {
		if strings.HasPrefix(c[1], "gateway, ") || c[1] == "middleware" {
			ours++
		}
	}
	if ours != 7 {
		t.Errorf("%d columns are ours, want the gateway on six stores and the middleware", ours)
	}
	var rows, checks []string
	for _, row := range regexp.MustCompile("(?m)^\\| `([a-z0-9/-]+)` \\| (.*) \\|$").FindAllStringSubmatch(page, -1) {
		rows = append(rows, row[1])
		signs := strings.Split(row[2], " | ")
		if len(signs) != 14 {
			t.Errorf("%s has %d columns, want 14", row[1], len(signs))
			continue
		}
		for i, sign := range signs[:ours] {
			untested := i == 0 && (row[1] == "restart/replay" || row[1] == "store/fail-closed") // memory has nothing to survive
			if sign != "✓" && (!untested || sign != "–") {
				t.Errorf("%s: column %d has %s", row[1], i+1, sign)
			}
		}
	}
	for _, c := range conform.Checks() {
		checks = append(checks, c.Check)
	}
	if !slices.Equal(rows, checks) {
		t.Errorf("the rows are %q, and the checks %q; run make matrix", rows, checks)
	}
}

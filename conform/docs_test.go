package conform_test

import (
	"fmt"
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

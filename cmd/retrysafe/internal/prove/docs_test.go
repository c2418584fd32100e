package prove_test

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/prove"
	"github.com/retrysafe/retrysafe/internal/test/pages"
)

var proofReport = flag.String("proof", "", "the report of a run of retrysafe prove --full, whose figures docs/guarantees.md gets")

const (
	proofPage  = "docs/guarantees.md"
	proofBegin = "<!-- prove: written by make prove-full -->\n"
	proofEnd   = "<!-- prove: end -->\n"
)

// TestDocsProof writes the figures of a full run into the page about guarantees. In
// every other run it makes sure that the place for them is there, and that no check
// had failed in the run that is recorded.
func TestDocsProof(t *testing.T) {
	t.Parallel()
	page := pages.Read(t, proofPage)
	before, rest, ok := strings.Cut(page, proofBegin)
	figures, behind, closed := strings.Cut(rest, proofEnd)
	if !ok || !closed {
		t.Fatalf("%s has no place for the figures of a full run", proofPage)
	}
	if strings.Contains(figures, "| "+string(prove.Failed)+" |") {
		t.Errorf("%s records a run in which a promise was broken", proofPage)
	}
	if *proofReport == "" {
		return
	}
	file, err := os.Open(*proofReport) // from the root of the tree, as make runs it
	must(t, err)
	defer file.Close()
	r, err := prove.ReadReport(file)
	must(t, err)
	must(t, os.WriteFile(pages.Path(t, proofPage), []byte(before+proofBegin+proofTable(r)+proofEnd+behind), 0o600))
}

func proofTable(r *prove.Report) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s, size of a %s, seed %d, %s, begun on %s. %s\n\n", r.Program, r.Size, r.Seed, r.Machine, r.Began.Format("2006-01-02"), r.Summary())
	b.WriteString("| check | goal | store | verdict | took | figures |\n|---|---|---|---|---|---|\n")
	for _, one := range r.Results {
		store, _, _ := strings.Cut(one.Store, ":")
		var figures []string
		for _, f := range one.Figures[:min(len(one.Figures), 8)] { // the report has them all
			figures = append(figures, f.String())
		}
		said := strings.Join(figures, ", ")
		if one.Verdict == prove.Skipped {
			said = one.Why
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s | %s |\n", one.Check, one.Goal, store, one.Verdict, prove.Short(one.Took), said)
	}
	return b.String()
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

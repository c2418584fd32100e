package model_test

import (
	"flag"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/prove/model"
	"github.com/retrysafe/retrysafe/internal/test/pages"
)

var update = flag.Bool("update", false, "write the tables and stories of docs/model.md anew, from searches of full size")

const page = "docs/model.md"

// searched is what has come of every variant, in their order.
type searched struct {
	model.Variant
	model.SearchReport
}

func searchAll(t *testing.T, full bool) []searched {
	t.Helper()
	s, err := model.FindSpin(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	variants := model.Variants()
	all := make([]searched, len(variants))
	places := make(chan struct{}, runtime.GOMAXPROCS(0))
	var group sync.WaitGroup
	for i, v := range variants {
		places <- struct{}{}
		group.Go(func() {
			defer func() { <-places }()
			attempts := small
			if full {
				attempts = v.Attempts
			}
			out, err := s.Search(t.Context(), &v, attempts)
			if err != nil {
				t.Error(err)
			}
			all[i] = searched{v, out}
		})
	}
	group.Wait()
	return all
}

// Every variant comes out as it must, and the page says so: the same verdicts, and
// of those that break something the same figures and the same story. The figures of
// safe ones are those of the command's size.
func TestEveryVariantIsAsThePageSays(t *testing.T) {
	t.Parallel()
	all := searchAll(t, *update)
	for _, s := range all {
		if s.SearchReport.Breaks != s.Variant.Breaks {
			t.Errorf("%s must break %q, and breaks %q:\n%s", s.Name, s.Variant.Breaks, s.SearchReport.Breaks, strings.Join(s.Trace, "\n"))
		}
	}
	if t.Failed() {
		return
	}
	if *update {
		write(t, all)
		return
	}
	doc, err := os.ReadFile(pages.Path(t, page))
	if err != nil {
		t.Fatal(err)
	}
	text := string(doc)
	for _, s := range all {
		want := []string{row(&s)}
		switch {
		case s.Safe(): // but for its states
			want = []string{strings.Join(strings.SplitAfter(row(&s), "|")[:4], "")}
		case s.Variant.Breaks != model.Goal:
			want = append(want, strings.TrimSpace(story(&s)))
		}
		for _, w := range want {
			if !strings.Contains(text, w) {
				t.Errorf("%s does not say of %s what came of it; run go test ./cmd/retrysafe/internal/prove/model -update, and look at what changes:\n%s", page, s.Name, w)
			}
		}
	}
	if rows := strings.Count(text, "\n| `"); rows != len(all) {
		t.Errorf("%s has %d variants, and there are %d", page, rows, len(all))
	}
}

// row is the variant's line in its table.
func row(s *searched) string {
	verdict, steps := "safe", ""
	if !s.Safe() {
		verdict, steps = "breaks "+s.SearchReport.Breaks, strconv.Itoa(s.Steps)
	}
	if s.SearchReport.Breaks == model.Goal {
		verdict = "reached"
	}
	return strings.TrimRight(fmt.Sprintf("| `%s` | %s | %s | %d | %s | %s", s.Name, s.What, verdict, s.Variant.Attempts, grouped(s.States), steps), " ") + " |\n"
}

// story is how an unsafe variant breaks its promise.
func story(s *searched) string {
	var b strings.Builder
	fmt.Fprintf(&b, "### %s\n\n%s.\n\n", s.Name, sentence(s.What))
	last := len(s.Trace) - 1
	for i, line := range s.Trace[:last] {
		fmt.Fprintf(&b, "%d. %s\n", i+1, sentence(line))
	}
	fmt.Fprintf(&b, "\n%s.\n\n", s.Trace[last])
	return b.String()
}

// sentence begins as a sentence does.
func sentence(s string) string { return strings.ToUpper(s[:1]) + s[1:] }

// grouped writes a number with commas.
func grouped(n int) string {
	s := strconv.Itoa(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// write puts what was found between the page's marks.
func write(t *testing.T, all []searched) {
	t.Helper()
	doc, err := os.ReadFile(pages.Path(t, page))
	if err != nil {
		t.Fatal(err)
	}
	head := "| variant | policy | verdict | requests | states | steps |\n|---|---|---|---|---|---|\n"
	safe, unsafe, reached, stories := head, head, head, ""
	total := 0
	for _, s := range all {
		switch {
		case s.Safe():
			safe += row(&s)
			total += s.States
		case s.Variant.Breaks == model.Goal:
			reached += row(&s)
		default:
			unsafe += row(&s)
			stories += story(&s)
		}
	}
	safe += fmt.Sprintf("\nTogether %s states, each of them kept whole (no bitstate hashing), every search to its end, without partial-order reduction.\n", grouped(total))
	text := string(doc)
	for _, part := range []struct{ name, text string }{{"safe", safe}, {"reached", reached}, {"unsafe", unsafe}, {"stories", strings.TrimRight(stories, "\n") + "\n"}} {
		from, to := "<!-- "+part.name+" -->\n", "<!-- /"+part.name+" -->\n"
		before, rest, found := strings.Cut(text, from)
		_, after, closed := strings.Cut(rest, to)
		if !found || !closed {
			t.Fatalf("%s has no place for %s", page, part.name)
		}
		text = before + from + part.text + to + after
	}
	if err := os.WriteFile(pages.Path(t, page), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

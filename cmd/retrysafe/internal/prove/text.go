package prove

import (
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/printable"
)

// Text writes the report for people: its head, a line for each result, its tail.
// A caller that shows results as they come writes the three by themselves.
func (r *Report) Text(w io.Writer) error {
	lines := make([]string, len(r.Results))
	for i, one := range r.Results {
		lines[i] = one.Line() + "\n"
	}
	_, err := io.WriteString(w, r.Head()+strings.Join(lines, "")+r.Tail())
	return err
}

// Head says what is checked, and where.
func (r *Report) Head() string {
	head := fmt.Sprintf("%s, size of a %s, seed %d, %s\n", r.Program, r.Size, r.Seed, r.Machine)
	for _, s := range r.Stores {
		head += fmt.Sprintf("%s: %s\n", s.URL, s.Class)
	}
	return head + "\n"
}

// Tail says what went wrong, and sums up.
func (r *Report) Tail() string {
	var b strings.Builder
	for _, one := range r.Results {
		one.explain(&b)
	}
	fmt.Fprintf(&b, "\n%s\n", r.Summary())
	return b.String()
}

// Summary is the report in one line.
func (r *Report) Summary() string {
	line := fmt.Sprintf("%d of %d checks passed in %s", r.Count(Passed), len(r.Results), Short(r.Took))
	for _, v := range []Verdict{Failed, Broken, Skipped} {
		if n := r.Count(v); n > 0 {
			line += fmt.Sprintf(", %d %s", n, v)
		}
	}
	switch r.Verdict {
	case Failed:
		line += ". A promise was broken."
	case Broken:
		line += ". What was broken shows nothing."
	case Passed, Skipped:
		line += "."
	}
	return line
}

// Line is a result in one line.
func (r *Result) Line() string {
	line := fmt.Sprintf("%-8s %-4s %-22s %7s  ", r.Verdict, r.Goal, Named(r.Check, r.Store), Short(r.Took))
	if r.Verdict == Skipped || r.Verdict == Broken {
		return line + oneLine(r.Why)
	}
	return line + listed(r.Figures)
}

func listed(figures []Figure) string {
	words := make([]string, len(figures))
	for i, f := range figures {
		words[i] = f.String()
	}
	return strings.Join(words, ", ")
}

// explain writes what a person needs to look into a broken promise.
func (r *Result) explain(w io.Writer) {
	if r.Verdict == Broken || r.Verdict == Failed && r.Why != "" {
		fmt.Fprintf(w, "\n%s could not be carried out: %s\n", r.Check, strings.TrimSpace(r.Why))
	}
	if r.Found == 0 {
		return
	}
	fmt.Fprintf(w, "\n%s: %d violations. It should show: %s\n", r.Check, r.Found, r.Shows)
	for _, v := range r.Violations {
		fmt.Fprintf(w, "  %s", v.Invariant)
		if v.Key != "" {
			fmt.Fprintf(w, " of %s", printable.Text(v.Key))
		}
		fmt.Fprintf(w, ": %s\n", printable.Text(v.What))
		for _, step := range v.Trace {
			fmt.Fprintf(w, "      %s\n", printable.Text(step))
		}
	}
	fmt.Fprintf(w, "  to see it again: %s\n", r.Again())
}

// Again is the command line that carries the check out once more. Where a seed
// decides everything it is the first violation's.
func (r *Result) Again() string {
	seed, line := r.Seed, "retrysafe prove "+r.Check
	if len(r.Violations) > 0 && r.Violations[0].Seed != 0 {
		seed = r.Violations[0].Seed
		line += " -n 1"
	}
	if r.Store != "" {
		line += " --store " + r.Store
	}
	return line + " --seed " + strconv.FormatUint(seed, 10)
}

// String is the figure for people.
func (f Figure) String() string {
	number := strconv.FormatFloat(f.Value, 'g', 4, 64)
	if f.Value == math.Trunc(f.Value) && math.Abs(f.Value) < 1e15 {
		number = grouped(int64(f.Value))
	}
	if f.Unit != "" {
		number += " " + f.Unit
	}
	return number + " " + f.Name
}

// grouped writes a number with its thousands apart.
func grouped(n int64) string {
	text := strconv.FormatInt(n, 10)
	for i := len(text) - 3; i > 0 && text[i-1] != '-'; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

// Named is what a check is called on a store, or on none.
func Named(check, store string) string {
	if store == "" {
		return check
	}
	return check + " on " + kindOf(store)
}

func kindOf(store string) string {
	kind, _, _ := strings.Cut(store, ":")
	return kind
}

// Short is how long something took, for people.
func Short(d time.Duration) string {
	if d < 10*time.Second {
		return d.Round(10 * time.Millisecond).String()
	}
	return d.Round(time.Second).String()
}

func oneLine(text string) string {
	line, rest, _ := strings.Cut(strings.TrimSpace(text), "\n")
	if rest != "" {
		line += " …"
	}
	return printable.Text(line)
}

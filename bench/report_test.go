package bench_test

import (
	"fmt"
	"io"
	"strings"
)

// A report collects what the scenarios find, as Markdown, and prints each table
// when it is complete.
type report struct {
	live       io.Writer // where tables appear as they come; nil for nowhere
	conditions string
	disturbed  disturbances
	findings   []finding
	tables     []table
	bars       []bars
}

// A finding is a ratio beside its goal and its stretch.
type finding struct {
	what, beside string
	got          spread
	format       func(float64) string
	goal         limit
	stretch      limit
}

// A limit is the least that is wanted, or the most that is allowed. The zero
// limit is none.
type limit struct {
	sign  string
	value float64
	said  string // how it is shown, if not by sign and value
}

func atLeast(v float64) limit { return limit{sign: "≥", value: v} }
func atMost(v float64) limit  { return limit{sign: "≤", value: v} }

// as says a limit in other words.
func (l limit) as(said string) limit {
	l.said = said
	return l
}

func (l limit) met(v float64) bool {
	return l.sign == "≥" && v >= l.value || l.sign == "≤" && v <= l.value
}

func (l limit) text(format func(float64) string) string {
	if l.said != "" || l.sign == "" {
		return l.said
	}
	return l.sign + " " + format(l.value)
}

func (f finding) verdict() string {
	switch {
	case f.goal.sign == "":
		return ""
	case f.stretch.met(f.got.mid):
		return "stretch"
	case f.goal.met(f.got.mid):
		return "goal"
	default:
		return "**missed**"
	}
}

// A table has a title, a head and rows of cells.
type table struct {
	title string
	note  string
	head  []string
	rows  [][]string
}

func (t *table) row(cells ...string) { t.rows = append(t.rows, cells) }

// bars are one group of the chart.
type bars struct {
	clients int
	rates   map[string]spread
}

func (r *report) find(f finding) {
	if f.format == nil {
		f.format = times
	}
	r.findings = append(r.findings, f)
}

func (r *report) add(t table) {
	r.tables = append(r.tables, t)
	if r.live != nil {
		t.write(r.live)
	}
}

func (t *table) write(w io.Writer) {
	fmt.Fprintf(w, "\n### %s\n\n", t.title)
	if t.note != "" {
		fmt.Fprintf(w, "%s\n\n", wrap(t.note, 118))
	}
	fmt.Fprintf(w, "| %s |\n|%s\n", strings.Join(t.head, " | "), strings.Repeat("---|", len(t.head)))
	for _, cells := range t.rows {
		fmt.Fprintf(w, "| %s |\n", strings.Join(cells, " | "))
	}
}

// goals is the table of all findings.
func (r *report) goals() table {
	t := table{title: "Ratios and goals", head: []string{"what", "beside", "measured", "goal", "stretch", "reached"}}
	for _, f := range r.findings {
		t.row(f.what, f.beside, f.got.text(f.format), f.goal.text(f.format), f.stretch.text(f.format), f.verdict())
	}
	return t
}

// wrap breaks a paragraph into lines.
func wrap(text string, width int) string {
	var out strings.Builder
	at := 0
	for word := range strings.FieldsSeq(text) {
		n := len([]rune(word))
		switch {
		case at == 0:
		case at+1+n > width:
			out.WriteByte('\n')
			at = 0
		default:
			out.WriteByte(' ')
			at++
		}
		out.WriteString(word)
		at += n
	}
	return out.String()
}

package ledger

import (
	_ "embed"
	"html/template"
	"io"
	"time"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/printable"
)

//go:embed report.html
var page string

var pages = template.Must(template.New("report").Funcs(template.FuncMap{
	"show": printable.Value,
	"name": func(k Kind) string { return k.String() },
	"say":  func(k Kind) string { return meanings[k] },
	"time": func(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 UTC") },
}).Parse(page))

// meanings say what each kind means and what to do about it.
var meanings = map[Kind]string{
	KindOnlyOurs:         "we have an answer, and their list does not have the payment: ask the provider for it before you believe either side",
	KindOnlyTheirs:       "their list has a payment that we have no answer for: it may be a lost charge; refund it, or find out where it came from",
	KindDifferent:        "both have the payment and do not agree on it",
	KindDuplicateOurs:    "our list has the id more than once",
	KindDuplicateTheirs:  "their list has the id more than once, as after a double charge",
	KindPendingOurs:      "outside the period; it belongs to the comparison of another day",
	KindPendingTheirs:    "outside the period; it belongs to the comparison of another day",
	KindUnknown:          "we do not know the outcome, and their list does not have the payment: wait for the provider's deadline, then release it with retrysafe keys release",
	KindUnknownConfirmed: "we do not know the outcome, and their list has the payment: settle it with retrysafe keys resolve",
	KindUnidentified:     "we have an answer without the id that the provider knows the payment by",
}

// A Heading says at the top of a report what was compared.
type Heading struct {
	Title string
	// Lines are what else a reader should know: the period, the lists.
	Lines []string
}

// HTMLReport returns a report that writes one page that needs nothing else. It shows the first differences, up to
// maxShown, and says how many there are. The page is written when the report ends. The report is not safe for concurrent
// use.
func HTMLReport(w io.Writer, h Heading) Report { return &htmlReport{w: w, heading: h} }

// maxShown bounds the rows of a page, and with them its memory: a page with more is of no use to a reader.
const maxShown = 2000

type htmlReport struct {
	w       io.Writer
	heading Heading
	shown   []htmlDifference
	more    int
}

type htmlDifference struct {
	Kind               Kind
	ID, Ours, Theirs   string
	Record             string
	Wrong              bool
	OursAbsent, Absent bool
}

func (h *htmlReport) Add(d Difference) error {
	if len(h.shown) == maxShown {
		h.more++
		return nil
	}
	row := htmlDifference{
		Kind: d.Kind, ID: printable.Value(d.ID), Record: d.Ours.Record,
		OursAbsent: d.Ours.ID == "", Absent: d.Theirs.ID == "",
		Wrong: d.Kind != KindPendingOurs && d.Kind != KindPendingTheirs,
	}
	ours := d.Ours
	ours.Record = "" // it has a column of its own
	row.Ours, row.Theirs = cell(&ours, &d), cell(&d.Theirs, &d)
	h.shown = append(h.shown, row)
	return nil
}

func (h *htmlReport) End(s Summary, err error) error {
	type count struct {
		Kind Kind
		N    int64
	}
	v := struct {
		Heading
		Summary
		Clean  bool
		Error  string
		Counts []count
		Shown  []htmlDifference
		More   int
	}{Heading: h.heading, Summary: s, Clean: s.Clean(), Shown: h.shown, More: h.more}
	if err != nil {
		v.Error = printable.Text(err.Error())
	}
	for kind, n := range s.Counts() {
		if n > 0 {
			v.Counts = append(v.Counts, count{kind, n})
		}
	}
	return pages.Execute(h.w, v)
}

package conform

import (
	_ "embed" // the page
	"html/template"
	"io"
	"strings"
	"time"
)

//go:embed report.html
var pageSource string

var page = template.Must(template.New("report").Funcs(template.FuncMap{
	"class": func(verdict string) string { return strings.ReplaceAll(verdict, " ", "-") },
	"clean": clean,
	"lines": func(text string) []string {
		var all []string
		for line := range strings.Lines(text) {
			all = append(all, clean(strings.TrimRight(line, "\r\n")))
		}
		return all
	},
	"round": func(d time.Duration) string { return d.Round(time.Millisecond).String() },
}).Parse(pageSource))

// html writes one page that needs nothing else: no script, no font, no image from
// elsewhere.
func (r *Report) html(w io.Writer) error {
	type count struct {
		Verdict string
		N       int
	}
	var counts []count
	for _, v := range verdictOrder {
		if n := r.tally(v); n > 0 {
			counts = append(counts, count{v, n})
		}
	}
	return page.Execute(w, map[string]any{"R": r, "Counts": counts, "Requests": counted(r.requests(), "request"), "Passes": !r.Fails(major) && r.tally(holds) > 0})
}

package prove

import (
	_ "embed"
	"html/template"
	"io"
	"time"
)

//go:embed report.html
var page string

var pages = template.Must(template.New("report").Funcs(template.FuncMap{
	"short": Short,
	"day":   func(t time.Time) string { return t.UTC().Format("2006-01-02 15:04 UTC") },
	"again": (*Result).Again,
	"kind":  kindOf,
	"list":  listed,
	"few":   func(all []Figure) []Figure { return all[:min(len(all), mostFigures)] },
	"rest":  func(all []Figure) []Figure { return all[min(len(all), mostFigures):] },
}).Parse(page))

// mostFigures is how many figures of a check a page shows at once.
const mostFigures = 8

// HTML writes the report as one page that needs nothing else.
func (r *Report) HTML(w io.Writer) error { return pages.Execute(w, r) }

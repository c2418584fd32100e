package pages

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/http"
	"slices"
	"time"

	"github.com/retrysafe/retrysafe"
)

// soonest returns the n records whose deadlines come first. Dead letters have none.
func soonest(all []retrysafe.Record, n int) []retrysafe.Record {
	alive := slices.DeleteFunc(all, func(r retrysafe.Record) bool { return !r.Readable() || r.Inquiry.Dead || r.Inquiry.Disputed })
	slices.SortFunc(alive, func(a, b retrysafe.Record) int { return a.Deadline.Compare(b.Deadline) })
	return alive[:min(n, len(alive))]
}

// ledgersData is what the page of ledger reports shows.
type ledgersData struct {
	Known   bool
	Rows    []ledgerRow
	Problem string
}

type ledgerRow struct {
	Ledger, Day string
	Ended       moment
	Level, Text string
	Kinds       []kindCount
}

type kindCount struct {
	Kind, Count string
}

func (p *Pages) ledgers(w http.ResponseWriter, r *http.Request) {
	d := ledgersData{Known: p.Facts.Reports != nil}
	if d.Known {
		ctx, cancel := context.WithTimeout(r.Context(), listTime)
		defer cancel()
		all, err := p.Facts.Reports(ctx)
		if err != nil {
			d.Problem = p.logged(r, err)
		}
		for i := range all {
			d.Rows = append(d.Rows, newLedgerRow(&all[i]))
		}
	}
	p.show(w, r, http.StatusOK, "ledgers", view{Title: "Ledger reports", Page: "ledgers", Data: d})
}

func newLedgerRow(l *Report) ledgerRow {
	row := ledgerRow{Ledger: visible(l.Ledger), Day: visible(l.Day), Ended: when(l.Ended, time.Now()), Level: "ok", Text: "no differences"}
	total := int64(0)
	for _, kind := range slices.Sorted(maps.Keys(l.Differences)) {
		total += l.Differences[kind]
		row.Kinds = append(row.Kinds, kindCount{visible(kind), number(l.Differences[kind])})
	}
	switch {
	case l.Err != "":
		row.Level, row.Text = "bad", visible(l.Err)
	case l.Ended.IsZero():
		row.Level, row.Text = "none", "not compared yet"
	case total > 0:
		row.Level, row.Text = "warn", count(int(total), "difference", "differences")
	}
	return row
}

// proofData is what the page of the proof shows.
type proofData struct {
	Known   bool
	Missing bool // there is to be a report, and its file is not there
	Problem string
	Program string
	Machine string
	Size    string
	Seed    string
	Began   moment
	Took    string
	Verdict string
	Level   string
	Stores  []string
	Results []proofRow
}

type proofRow struct {
	Check, Store, Shows, Verdict, Level, Took, Why string
	Figures                                        []string
	Found                                          int
}

// proofJSON is the part of a report of `retrysafe prove` that the page shows. Numbers keep
// their digits.
type proofJSON struct {
	Program string        `json:"program"`
	Machine string        `json:"machine"`
	Size    string        `json:"size"`
	Seed    json.Number   `json:"seed"`
	Began   time.Time     `json:"began"`
	Took    time.Duration `json:"took_ns"`
	Verdict string        `json:"verdict"`
	Stores  []struct {
		URL, Kind, Class string
	} `json:"stores"`
	Results []struct {
		Check   string        `json:"check"`
		Shows   string        `json:"shows"`
		Store   string        `json:"store"`
		Verdict string        `json:"verdict"`
		Why     string        `json:"why"`
		Took    time.Duration `json:"took_ns"`
		Found   int           `json:"found"`
		Figures []struct {
			Name  string      `json:"name"`
			Value json.Number `json:"value"`
			Unit  string      `json:"unit"`
		} `json:"figures"`
	} `json:"results"`
}

func (p *Pages) proof(w http.ResponseWriter, r *http.Request) {
	var d proofData
	v := view{Title: "Proof report", Page: "proof"}
	if p.Facts.Proof != nil {
		text, err := p.Facts.Proof(r.Context())
		var report proofJSON
		if err == nil {
			err = json.Unmarshal(text, &report)
		}
		switch {
		case errors.Is(err, fs.ErrNotExist):
			d.Missing = true
		case err != nil:
			d.Problem = visible(err.Error())
		default:
			d = newProof(&report)
		}
	}
	v.Data = d
	p.show(w, r, http.StatusOK, "proof", v)
}

func newProof(j *proofJSON) proofData {
	d := proofData{
		Known: true, Program: visible(j.Program), Machine: visible(j.Machine), Size: visible(j.Size), Seed: j.Seed.String(), Began: when(j.Began, time.Now()),
		Took: span(j.Took), Verdict: visible(j.Verdict), Level: verdictLevel(j.Verdict),
	}
	for _, s := range j.Stores {
		d.Stores = append(d.Stores, visible(cmp.Or(s.Kind, s.URL))+" (class "+visible(s.Class)+")")
	}
	for i := range j.Results {
		c := &j.Results[i]
		row := proofRow{Check: visible(c.Check), Store: visible(c.Store), Shows: visible(c.Shows), Verdict: visible(c.Verdict), Level: verdictLevel(c.Verdict), Took: span(c.Took), Why: visible(c.Why), Found: c.Found}
		for _, f := range c.Figures {
			row.Figures = append(row.Figures, visible(fmt.Sprintf("%s %s %s", f.Name, f.Value, f.Unit)))
		}
		d.Results = append(d.Results, row)
	}
	return d
}

func verdictLevel(verdict string) string {
	switch verdict {
	case "passed", "pass", "holds", "ok":
		return "ok"
	case "failed", "fail", "violated", "broken":
		return "bad"
	default:
		return "warn"
	}
}

// configData is what the page of the configuration shows.
type configData struct {
	Known bool
	Text  string
}

func (p *Pages) configuration(w http.ResponseWriter, r *http.Request) {
	var d configData
	if p.Facts.Config != nil {
		d = configData{true, visibleLines(p.Facts.Config())}
	}
	p.show(w, r, http.StatusOK, "configuration", view{Title: "Configuration in force", Page: "configuration", Data: d})
}

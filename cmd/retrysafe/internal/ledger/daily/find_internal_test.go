package daily

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/gateway/config"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/ledger"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/ledger/export"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/ledger/feed"
)

// A day reaches from midnight to midnight, its list and our export as much further as the sides may date a payment apart.
func TestWhatADayReachesOver(t *testing.T) {
	t.Parallel()
	berlin, err := time.LoadLocation("Europe/Berlin")
	must(t, err)
	j := &Job{
		Name: "bank", Zone: berlin, Tolerance: time.Hour, Amounts: []string{"amount"}, Ours: export.Options{Operations: []string{operation, "POST /refunds"}},
		Theirs: feed.Feed{URL: "https://bank.example/{day}/{since}/{until}?token=secret", Columns: ledger.Columns{ID: "id", Time: "at"}},
	}
	since, until := time.Date(2026, 3, 28, 23, 0, 0, 0, time.UTC), time.Date(2026, 3, 29, 22, 0, 0, 0, time.UTC) // clocks change
	c, err := j.Find(t.Context(), j.PeriodOf(Day{2026, time.March, 29}))
	must(t, err)
	if want := []time.Time{since, until, since, until, since.Add(-2 * time.Hour), until.Add(time.Hour)}; !c.opts.Since.Equal(want[0]) || !c.opts.Until.Equal(want[1]) ||
		!c.result.Since.Equal(want[2]) || !c.result.Until.Equal(want[3]) || !c.ours.Since.Equal(want[4]) || !c.ours.Until.Equal(want[5]) || c.opts.Lag != time.Hour {
		t.Errorf("compared are %v to %v, the result says %v to %v, exported are %v to %v, want %v", c.opts.Since, c.opts.Until, c.result.Since, c.result.Until, c.ours.Since, c.ours.Until, want)
	}
	const list = "https://bank.example/2026-03-29/2026-03-28T21:00:00Z/2026-03-29T22:00:00Z"
	if got := strings.ReplaceAll(strings.Join(c.result.Lists, " "), "%3A", ":"); got != list {
		t.Errorf("the list is %s, want %s", got, list)
	}
	h := c.Heading()
	lines := strings.ReplaceAll(strings.Join(h.Lines, "\n"), "%3A", ":")
	if want := "period: 2026-03-29T00:00:00+01:00 to 2026-03-30T00:00:00+02:00 (Europe/Berlin)\n" +
		"tolerance: 1h0m0s; our rows of the last 1h0m0s are judged on the next day\nours: POST /payments\nours: POST /refunds\ntheirs: " + list; lines != want || h.Title != "ledger bank, 2026-03-29" {
		t.Errorf("the heading is %s\n%s", h.Title, lines)
	}
	c, err = j.Find(t.Context(), Period{Since: since})
	must(t, err)
	if h := c.Heading(); h.Title != "ledger bank" || h.Lines[0] != "period: 2026-03-28T23:00:00Z to …" || !c.ours.Until.IsZero() || c.result.Day != "" {
		t.Errorf("without a day and an end: %+v, until %v", h, c.ours.Until)
	}
	c, err = j.Find(t.Context(), Period{Until: until})
	must(t, err)
	if h := c.Heading(); h.Lines[0] != "period: … to 2026-03-29T22:00:00Z" || !c.ours.Since.IsZero() {
		t.Errorf("without a beginning: %+v, since %v", h, c.ours.Since)
	}
}

// The list of the day before is read only where the sides may date a payment apart.
func TestTheListOfTheDayBeforeIsReadForATolerance(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.arrive(first)
	p.arrive(first.add(1))
	j := p.job()
	for tolerance, lists := range map[time.Duration]int{0: 1, time.Hour: 2} {
		j.Tolerance = tolerance
		if c, err := j.Find(t.Context(), j.PeriodOf(first.add(1))); err != nil || len(c.result.Lists) != lists || len(c.result.Notes) != 0 {
			t.Errorf("with a tolerance of %v: %+v, %v", tolerance, c, err)
		}
	}
	j.Theirs.File = filepath.Join(p.theirs, "2000-01-01.csv{day}")
	if c, err := j.Find(t.Context(), Period{}); err != nil || len(c.result.Lists) != 1 {
		t.Errorf("without a day: %+v, %v", c, err)
	}
}

func TestDaysAreParsed(t *testing.T) {
	t.Parallel()
	if d, err := ParseDay("2026-03-01"); err != nil || d != (Day{2026, time.March, 1}) || d.String() != "2026-03-01" || d.add(-1).String() != "2026-02-28" {
		t.Errorf("got %v, %v", d, err)
	}
	for _, text := range []string{"", "2026-02-30", "2026-3-1", "01.03.2026", "2026-03-01T00:00:00Z"} {
		if d, err := ParseDay(text); err == nil {
			t.Errorf("%q is %v", text, d)
		}
	}
}

// A job has all that the configuration says.
func TestJobOfAConfiguration(t *testing.T) {
	t.Parallel()
	of := func() *config.Ledger {
		return &config.Ledger{
			Name: "bank", Operations: []string{operation}, At: "06:30", TimeZone: "Europe/Berlin", Tolerance: time.Hour, Amounts: []string{"amount"},
			Ours:   config.LedgerOurs{ID: "/id", Time: "answered", Fields: map[string]string{"amount": "/amount"}},
			Theirs: config.LedgerTheirs{File: "list.csv", ID: "id", Time: "at"},
			Report: config.LedgerReport{Directory: "reports", Formats: []string{HTML}},
		}
	}
	j, err := NewJob(of())
	must(t, err)
	if j.Name != "bank" || j.At != 6*time.Hour+30*time.Minute || j.Zone.String() != "Europe/Berlin" || j.Tolerance != time.Hour || strings.Join(j.Amounts, " ") != "amount" ||
		j.Directory != "reports" || strings.Join(j.Formats, " ") != HTML || j.Theirs.File != "list.csv" || j.Theirs.Columns.Fields["amount"] != "amount" {
		t.Errorf("the job is %+v", j)
	}
	if o := j.Ours; strings.Join(o.Operations, " ") != operation || o.ID.String() != "/id" || !o.Answered || o.Namespace != config.Namespace || o.Call != config.UpstreamCall {
		t.Errorf("our side is %+v", o)
	}
	for text, spoil := range map[string]func(*config.Ledger){
		"ledger bank: ours.id: ":   func(l *config.Ledger) { l.Ours.ID = "nonsense" },
		"ledger bank: time_zone: ": func(l *config.Ledger) { l.TimeZone = "Local" },
		"ledger bank: at: ":        func(l *config.Ledger) { l.At = "24:00" },
	} {
		l := of()
		spoil(l)
		if _, err := NewJob(l); err == nil || !strings.HasPrefix(err.Error(), text) {
			t.Errorf("got %v, want %s", err, text)
		}
	}
}

// full is a report on a full disk.
type full struct{}

var errFull = errors.New("disk full")

func (full) Add(ledger.Difference) error     { return errFull }
func (full) End(ledger.Summary, error) error { return errFull }

type fullWriter struct{}

func (fullWriter) Write([]byte) (int, error) { return 0, errFull }

// A report that cannot be written is an error, and none is published in part.
func TestReportsOnAFullDisk(t *testing.T) {
	t.Parallel()
	good := ledger.Each(func(ledger.Difference) error { return nil })
	for _, f := range []*files{{all: []ledger.Report{full{}, good}}, {all: []ledger.Report{good, full{}}}} {
		if err := (withoutPending{f}).Add(ledger.Difference{Kind: ledger.KindOnlyOurs}); !errors.Is(err, errFull) {
			t.Errorf("a difference that was not written: %v", err)
		}
		if err := f.End(ledger.Summary{}, nil); !errors.Is(err, errFull) {
			t.Errorf("an end that was not written: %v", err)
		}
	}
	p := newPlace(t)
	p.arrive(first)
	j := p.job()
	must(t, j.checkDirectory())
	c, err := j.Find(t.Context(), j.PeriodOf(first))
	must(t, err)
	for why, spoil := range map[string]func(*files){
		"the second file": func(f *files) { must(t, f.open[1].Close()) },
		"the last bytes": func(f *files) {
			f.open[1].w.Reset(fullWriter{})
			must(t, f.open[1].w.WriteByte('x'))
		},
		"a name": func(f *files) { f.open[0].path = filepath.Join(p.reports, "not", "there") },
	} {
		f, err := c.openFiles()
		must(t, err)
		spoil(f)
		if err := f.publish(); err == nil {
			t.Errorf("%s: published all the same", why)
		}
		if left, _ := filepath.Glob(filepath.Join(p.reports, "*")); len(left) > 0 {
			t.Errorf("%s: there are reports: %v", why, left)
		}
		if left, _ := filepath.Glob(filepath.Join(p.reports, ".*.tmp")); len(left) > 0 {
			t.Errorf("%s: unfinished files are left: %v", why, left)
		}
	}
	c.job.Directory = ""
	if f, err := c.openFiles(); err != nil || len(f.open) != 0 {
		t.Errorf("without a directory %d reports are begun, %v", len(f.open), err)
	}
	c.job.Directory = p.reports
	must(t, os.RemoveAll(p.reports))
	if f, err := c.openFiles(); err == nil {
		t.Errorf("opened %v in a directory that is gone", f)
	}
}

// Reports are not for every user of the machine: they have keys and amounts.
func TestReportsAreNotForEverybody(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.arrive(first)
	j := p.job()
	must(t, j.checkDirectory())
	c, err := j.Find(t.Context(), j.PeriodOf(first))
	must(t, err)
	f, err := c.openFiles()
	must(t, err)
	must(t, f.publish())
	for _, name := range []string{"", "bank-2000-01-01.txt"} {
		info, err := os.Stat(filepath.Join(p.reports, name))
		if err != nil || info.Mode().Perm()&0o007 != 0 || name != "" && info.Mode().Perm() != 0o640 { // its group reads them
			t.Errorf("%q: %v, %v", name, info.Mode(), err)
		}
	}
}

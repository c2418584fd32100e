package daily

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/ledger"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/ledger/export"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/ledger/feed"
	"github.com/retrysafe/retrysafe/store/memstore"
)

const operation = "POST /payments"

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func value(t *testing.T, text string) export.Value {
	t.Helper()
	v, err := export.ParseValue(text)
	must(t, err)
	return v
}

// pay has an operation answered under a key.
func pay(t *testing.T, e *retrysafe.Engine, key string, status int, body string) {
	t.Helper()
	call := retrysafe.Call{Ref: retrysafe.Ref{Scope: "acme", Key: key}, Operation: operation}
	_, err := e.Do(t.Context(), call, func(context.Context, *retrysafe.Execution) (retrysafe.Result, error) {
		return retrysafe.Result{Status: status, Body: []byte(body)}, nil
	})
	must(t, err)
}

// lose has an operation end without proof.
func lose(t *testing.T, e *retrysafe.Engine, key string) {
	t.Helper()
	x, _, err := e.Begin(t.Context(), retrysafe.Call{Ref: retrysafe.Ref{Scope: "acme", Key: key}, Operation: operation})
	must(t, err)
	must(t, x.Quarantine(t.Context(), errors.New("the connection was cut")))
	x.Stop()
}

func engine(t *testing.T, s retrysafe.Store) *retrysafe.Engine {
	t.Helper()
	e, err := retrysafe.New(s, &retrysafe.Options{Policy: retrysafe.Policy{Retention: 30 * 24 * time.Hour}})
	must(t, err)
	return e
}

// A place is where the provider puts its lists, and where reports go.
type place struct {
	t       *testing.T
	theirs  string
	reports string
}

func newPlace(t *testing.T) *place {
	dir := t.TempDir()
	p := &place{t, filepath.Join(dir, "theirs"), filepath.Join(dir, "reports")}
	must(t, os.Mkdir(p.theirs, 0o700))
	return p
}

// inPlace runs a test in virtual time, in a place of its own.
func inPlace(t *testing.T, test func(t *testing.T, p *place)) {
	t.Helper()
	t.Parallel()
	p := newPlace(t)
	synctest.Test(t, func(t *testing.T) {
		p.t = t
		test(t, p)
	})
}

func (p *place) job() *Job {
	return &Job{
		Name: "bank", Amounts: []string{"amount"}, At: 6 * time.Hour,
		Ours:      export.Options{Operations: []string{operation}, Fields: map[string]export.Value{"amount": value(p.t, "/amount")}},
		Theirs:    feed.Feed{File: filepath.Join(p.theirs, "{day}.csv"), Columns: ledger.Columns{ID: "id", Time: "at", Fields: map[string]string{"amount": "amount"}}},
		Directory: p.reports, Formats: Formats(),
	}
}

func (p *place) arrive(day Day, rows ...string) {
	p.t.Helper()
	text := "id,at,amount\n" + strings.Join(rows, "\n") + "\n"
	must(p.t, os.WriteFile(filepath.Join(p.theirs, day.String()+".csv"), []byte(text), 0o600))
}

func (p *place) report(day Day, ending string) string {
	p.t.Helper()
	text, err := os.ReadFile(filepath.Join(p.reports, "bank-"+day.String()+ending))
	must(p.t, err)
	return string(text)
}

var discard = slog.New(slog.NewTextHandler(io.Discard, nil))

// nodes runs schedulers until the test's work is done.
func nodes(t *testing.T, s retrysafe.Store, logger *slog.Logger, jobs ...*Job) (all []*Scheduler, stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	for _, j := range jobs {
		d, err := New(s, []*Job{j}, logger)
		must(t, err)
		all = append(all, d)
		running.Go(func() {
			if err := d.Run(ctx); err != nil {
				t.Error(err)
			}
		})
	}
	return all, func() { cancel(); running.Wait() }
}

func compared(all []*Scheduler) (n uint64) {
	for _, d := range all {
		n += d.Stats()[0].Compared
	}
	return n
}

// Time in a bubble begins at midnight, 2000-01-01 UTC.
var first = Day{2000, time.January, 1}

func TestADayIsComparedOnceByAnyNumberOfNodes(t *testing.T) {
	inPlace(t, func(t *testing.T, p *place) {
		store := memstore.New(nil)
		e := engine(t, store)
		time.Sleep(10 * time.Hour)
		pay(t, e, "same", 201, `{"amount": 12.0}`)
		pay(t, e, "other-amount", 201, `{"amount": 5}`)
		pay(t, e, "missing-there", 201, `{"amount": 7}`)
		pay(t, e, "declined", 402, `{"amount": 8}`)
		lose(t, e, "unknown-here-paid-there")
		lose(t, e, "unknown-here")
		p.arrive(first, "same,2000-01-01T10:00:01Z,12.00", "other-amount,2000-01-01T10:00:01Z,6", "unknown-here,2000-01-03T10:00:01Z,1",
			"unknown-here-paid-there,2000-01-01T10:00:01Z,9", "only there,2000-01-01T10:00:01Z,3", "of another day,2000-01-02T00:00:01Z,3")
		all, stop := nodes(t, store, discard, p.job(), p.job(), p.job())
		defer stop()
		time.Sleep(19*time.Hour + 59*time.Minute) // 05:59
		if n := compared(all); n != 0 {
			t.Fatalf("%d comparisons before the time has come", n)
		}
		time.Sleep(time.Hour)
		if n := compared(all); n != 1 {
			t.Errorf("%d nodes have compared the day, want 1", n)
		}
		want := ledger.Summary{Complete: true, Ours: 5, Theirs: 6, Same: 1, Different: 1, OnlyOurs: 1, OnlyTheirs: 1, PendingTheirs: 1, UnknownConfirmed: 2}
		for i, d := range all {
			got := d.Stats()[0]
			if got.Last.Summary != want || got.Last.Day != "2000-01-01" {
				t.Errorf("node %d knows %+v", i, got.Last)
			}
			if got.Failed > 2 { // there are no lists of the days before the first
				t.Errorf("node %d has failed %d times", i, got.Failed)
			}
		}
		text := p.report(first, ".txt")
		for _, line := range []string{"ledger bank, 2000-01-01", "period: 2000-01-01T00:00:00Z to 2000-01-02T00:00:00Z (UTC)", "only_theirs", "unknown_confirmed", "state=unknown", `record="acme missing-there"`} {
			if !strings.Contains(text, line) {
				t.Errorf("the report does not say %q:\n%s", line, text)
			}
		}
		for _, hidden := range []string{"declined", "of another day"} {
			if strings.Contains(text, hidden) {
				t.Errorf("the report has %q:\n%s", hidden, text)
			}
		}
		if html := p.report(first, ".html"); !strings.Contains(html, "<title>ledger bank, 2000-01-01: differences</title>") || !strings.Contains(html, "keys show acme") {
			t.Errorf("the page is\n%s", html)
		}
		if lines := p.report(first, ".jsonl"); !strings.HasPrefix(lines, `{"kind":"ledger","ledger":"bank","day":"2000-01-01"`) || !strings.Contains(lines, `{"kind":"summary","complete":true,"ours":5`) {
			t.Errorf("the JSON is\n%s", lines)
		}
		if left, _ := filepath.Glob(filepath.Join(p.reports, ".*")); len(left) > 0 {
			t.Errorf("unfinished files are left: %v", left)
		}
	})
}

func TestADayIsComparedAgainAfterACrash(t *testing.T) {
	inPlace(t, func(t *testing.T, p *place) {
		store := memstore.New(nil)
		p.arrive(first, "only there,2000-01-01T10:00:01Z,3")
		j := p.job()
		call, err := j.call(first)
		must(t, err)
		time.Sleep(30 * time.Hour) // 06:00 on the next day
		// A node that has reserved the day and was killed: nothing renews its lease.
		_, err = store.Create(t.Context(), retrysafe.Write{Term: 30 * time.Second, Record: retrysafe.Record{
			Ref: call.Ref, Operation: call.Operation, Fingerprint: call.Fingerprint, State: retrysafe.StateInProgress, Attempt: 1,
			Effects: retrysafe.EffectsKeyed, Lapse: retrysafe.LapseRerun, Version: retrysafe.RecordVersion, Owner: retrysafe.Owner{1}, Retain: keepResult,
		}})
		must(t, err)
		all, stop := nodes(t, store, discard, j)
		defer stop()
		time.Sleep(10 * time.Second)
		if compared(all) != 0 {
			t.Error("the day was compared while another node had it reserved")
		}
		time.Sleep(2 * time.Minute)
		if compared(all) != 1 {
			t.Error("the day was not compared after the node that had it was gone")
		}
	})
}

func TestAListThatIsLateIsWaitedForAndMissedDaysAreMadeUpFor(t *testing.T) {
	inPlace(t, func(t *testing.T, p *place) {
		store := memstore.New(nil)
		var log journal
		p.arrive(first)
		j := p.job()
		all, stop := nodes(t, store, slog.New(slog.NewTextHandler(&log, nil)), j)
		time.Sleep(31 * time.Hour)
		if compared(all) != 1 {
			t.Fatalf("the first day was not compared:\n%s", &log)
		}
		time.Sleep(24 * time.Hour) // the list of the second day is late
		if got := all[0].Stats()[0]; got.Compared != 1 || got.Failed == 0 || got.Last.Day != "2000-01-01" {
			t.Fatalf("got %+v without a list", got)
		}
		if n := strings.Count(log.String(), "ledger=bank day=2000-01-02 error="); n != 1 {
			t.Errorf("a list that is late was logged %d times:\n%s", n, &log)
		}
		stop()
		time.Sleep(48 * time.Hour) // an outage; the lists arrive
		for n := range 4 {
			p.arrive(first.add(n))
		}
		all, stop = nodes(t, store, discard, j)
		defer stop()
		time.Sleep(time.Minute)
		if got := all[0].Stats()[0]; got.Compared != 3 || got.Last.Day != first.add(3).String() {
			t.Errorf("after the outage %d days were compared, the last was %s; want 3 and %s", got.Compared, got.Last.Day, first.add(3))
		}
		for n := range 4 {
			p.report(first.add(n), ".txt")
		}
	})
}

// A journal is a log.
type journal struct {
	mu   sync.Mutex
	text strings.Builder
}

func (j *journal) Write(p []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.Write(p)
}

func (j *journal) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.String()
}

// Where the provider books later than we do, each payment is judged once, with the list that
// has it.
func TestToleranceJudgesEachPaymentOnce(t *testing.T) {
	inPlace(t, func(t *testing.T, p *place) {
		store := memstore.New(nil)
		e := engine(t, store)
		time.Sleep(23*time.Hour + 50*time.Minute)
		pay(t, e, "late", 201, `{"amount": 1}`)          // booked there ten minutes into the next day
		pay(t, e, "lost at night", 201, `{"amount": 2}`) // booked nowhere
		p.arrive(first, "of theirs,2000-01-01T12:00:00Z,5")
		p.arrive(first.add(1), "late,2000-01-02T00:00:00Z,1")
		j := p.job()
		j.Tolerance = time.Hour
		all, stop := nodes(t, store, discard, j)
		defer stop()
		time.Sleep(8 * time.Hour)
		got := all[0].Stats()[0].Last
		if want := (ledger.Summary{Complete: true, Ours: 2, Theirs: 1, OnlyTheirs: 1, PendingOurs: 2}); got.Summary != want {
			t.Errorf("the first day is %+v", got.Summary)
		}
		if len(got.Notes) != 1 || !strings.Contains(got.Notes[0], "their list of 1999-12-31 is not there") {
			t.Errorf("the notes are %q", got.Notes)
		}
		if text := p.report(first, ".txt"); strings.Contains(text, "lost at night") || !strings.Contains(text, "of theirs") {
			t.Errorf("the report of the first day is\n%s", text)
		}
		time.Sleep(24 * time.Hour)
		got = all[0].Stats()[0].Last
		if want := (ledger.Summary{Complete: true, Ours: 2, Theirs: 2, Same: 1, OnlyOurs: 1, PendingTheirs: 1}); got.Summary != want || len(got.Lists) != 2 {
			t.Errorf("the second day is %+v of %v", got.Summary, got.Lists)
		}
		if text := p.report(first.add(1), ".txt"); !strings.Contains(text, "lost at night") {
			t.Errorf("the report of the second day is\n%s", text)
		}
	})
}

// Where the list of the day before is not there, our payments from its end are not called missing; those that the day's list
// has are ours all the same.
func TestToleranceWithoutTheListOfTheDayBefore(t *testing.T) {
	inPlace(t, func(t *testing.T, p *place) {
		store := memstore.New(nil)
		e := engine(t, store)
		time.Sleep(23*time.Hour + 50*time.Minute)
		pay(t, e, "booked late", 201, `{"amount": 1}`)
		pay(t, e, "booked before midnight", 201, `{"amount": 2}`)
		p.arrive(first.add(1), "booked late,2000-01-02T00:05:00Z,1")
		j := p.job()
		j.Tolerance = time.Hour
		time.Sleep(31 * time.Hour)
		all, stop := nodes(t, store, discard, j)
		defer stop()
		time.Sleep(time.Minute)
		got := all[0].Stats()[0].Last
		if want := (ledger.Summary{Complete: true, Ours: 2, Theirs: 1, Same: 1, PendingOurs: 1}); got.Summary != want || len(got.Notes) != 1 {
			t.Errorf("the day is %+v, %q", got.Summary, got.Notes)
		}
	})
}

func TestDaysFollowTheTimeZone(t *testing.T) {
	t.Parallel()
	berlin, err := time.LoadLocation("Europe/Berlin")
	must(t, err)
	j := &Job{Zone: berlin, At: 6 * time.Hour}
	for _, c := range []struct{ now, day, next string }{
		{"2026-03-29T03:59:59Z", "2026-03-27", "2026-03-29T04:00:00Z"}, // 05:59 on the day on which clocks change
		{"2026-03-29T04:00:00Z", "2026-03-28", "2026-03-30T04:00:00Z"},
		{"2026-03-28T22:59:59Z", "2026-03-27", "2026-03-29T04:00:00Z"},
		{"2026-10-25T12:00:00Z", "2026-10-24", "2026-10-26T05:00:00Z"},
	} {
		now, err := time.Parse(time.RFC3339, c.now)
		must(t, err)
		if day, next := j.latestDue(now); day.String() != c.day || next.UTC().Format(time.RFC3339) != c.next {
			t.Errorf("at %s the latest day is %s and the next due at %s, want %s and %s", c.now, day, next.UTC().Format(time.RFC3339), c.day, c.next)
		}
	}
	if p := j.PeriodOf(Day{2026, time.March, 29}); p.Until.Sub(p.Since) != 23*time.Hour {
		t.Errorf("the day on which clocks change has %v", p.Until.Sub(p.Since))
	}
}

// The time of a day has minutes, and is UTC's unless a zone is named.
func TestTimeOfADayHasMinutes(t *testing.T) {
	t.Parallel()
	j := &Job{At: 6*time.Hour + 45*time.Minute}
	due := time.Date(2026, 3, 2, 6, 45, 0, 0, time.UTC)
	if day, next := j.latestDue(due.Add(-1)); day != (Day{2026, time.February, 28}) || !next.Equal(due) {
		t.Errorf("before its time the latest day is %s, and the next is due at %s", day, next)
	}
	if day, next := j.latestDue(due); day != (Day{2026, time.March, 1}) || !next.Equal(due.Add(24*time.Hour)) {
		t.Errorf("at its time the latest day is %s, and the next is due at %s", day, next)
	}
}

// A job that cannot work is refused at the start; one that is never due is left out.
func TestJobsThatCannotWork(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	for text, spoil := range map[string]func(*Job){
		"needs a name":        func(j *Job) { j.Name = "" },
		"name the operations": func(j *Job) { j.Ours.Operations = nil },
		"is negative":         func(j *Job) { j.Tolerance = -1 },
		"time of their rows":  func(j *Job) { j.Tolerance, j.Theirs.Columns.Time = time.Hour, "" },
		"is not one of a day": func(j *Job) { j.At = 24 * time.Hour },
		"ledger bank: ":       func(j *Job) { j.Theirs = feed.Feed{} },
	} {
		j := p.job()
		spoil(j)
		if _, err := New(memstore.New(nil), []*Job{p.job(), j}, nil); err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("got %v, want an error that says %q", err, text)
		}
	}
	never := p.job()
	never.At = -1
	d, err := New(memstore.New(nil), []*Job{never, p.job()}, nil)
	must(t, err)
	if n := len(d.Stats()); n != 1 || d.logger == nil {
		t.Errorf("%d jobs are due", n)
	}
	midnight := p.job()
	midnight.At = 0
	if d, err = New(memstore.New(nil), []*Job{midnight}, nil); err != nil || len(d.Stats()) != 1 {
		t.Errorf("a job that is due at midnight is left out: %v", err)
	}
}

// A scheduler that could not write its reports is refused at the start.
func TestReportsMustBeWritable(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	j := p.job()
	j.Directory = filepath.Join(p.theirs, "file", "below")
	must(t, os.WriteFile(filepath.Join(p.theirs, "file"), nil, 0o600))
	if _, err := New(memstore.New(nil), []*Job{j}, nil); err == nil || !strings.Contains(err.Error(), "ledger bank: reports cannot be written to") {
		t.Errorf("got %v", err)
	}
}

// A comparison that fails leaves no report behind, and no claim.
func TestAListThatCannotBeReadLeavesNoReport(t *testing.T) {
	inPlace(t, func(t *testing.T, p *place) {
		store := memstore.New(nil)
		p.arrive(first, "a,yesterday,3")
		j := p.job()
		all, stop := nodes(t, store, discard, j)
		defer stop()
		time.Sleep(30*time.Hour + time.Minute)
		if got := all[0].Stats()[0]; got.Failed != 3 || got.Compared != 0 { // there are no lists of the days before the first
			t.Errorf("got %+v", got)
		}
		if left, _ := filepath.Glob(filepath.Join(p.reports, "*")); len(left) > 0 {
			t.Errorf("there are reports: %v", left)
		}
		p.arrive(first, "a,2000-01-01T10:00:00Z,3")
		time.Sleep(afterFailure)
		if got := all[0].Stats()[0]; got.Compared != 1 {
			t.Errorf("it was not compared once the list was right: %+v", got)
		}
		p.report(first, ".txt")
	})
}

var _ fmt.Stringer = Day{}

package operator_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/test/faultstore"
	"github.com/retrysafe/retrysafe/operator"
	"github.com/retrysafe/retrysafe/store/memstore"
	"github.com/retrysafe/retrysafe/store/sqlitestore"
)

var restored = operator.Suspects{By: anna, Why: "restored the backup of 3 a.m."}

// A restored backup does not know what ran since. Nothing of that runs again until an
// operator has found out.
func TestW38_RestoredBackupIsQuarantined(t *testing.T) {
	t.Parallel()
	path, backup := filepath.Join(t.TempDir(), "keys.db"), filepath.Join(t.TempDir(), "backup.db")
	policy := retrysafe.Policy{Effects: retrysafe.EffectsKeyed, Lapse: retrysafe.LapseRerun, Lease: time.Minute}
	s := sqlite(t, path)
	e := newEngine(t, s, policy)
	call := func(key string) retrysafe.Call { return callOf(in(retrysafe.StateInProgress, key).Record) }
	begin := func(e *retrysafe.Engine, key string) *retrysafe.Execution {
		t.Helper()
		x, _, err := e.Begin(t.Context(), call(key))
		must(t, err)
		return x
	}
	_, _, err := asks(t, e, call("answered"), "before")
	must(t, err)
	flying, survivor := begin(e, "in flight"), begin(e, "lives through it")
	must(t, begin(e, "retryable").Release(t.Context(), errors.New("nothing happened yet")))
	accepted := in(retrysafe.StateAccepted, "accepted")
	accepted.Attempt, accepted.Request = 0, []byte("do it")
	put(t, s, accepted)
	put(t, s, in(retrysafe.StateUnknown, "unknown"))

	_, err = s.DB().ExecContext(t.Context(), `VACUUM INTO ?`, backup)
	must(t, err)
	must(t, flying.Complete(t.Context(), paid)) // all that is lost
	_, _, err = asks(t, e, call("retryable"), "charged since")
	must(t, err)
	_, _, err = asks(t, e, call("created since"), "charged since")
	must(t, err)
	must(t, s.Close())
	for _, beside := range []string{"", "-wal", "-shm"} {
		if err := os.Remove(path + beside); err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
	}
	b, err := os.ReadFile(backup)
	must(t, err)
	must(t, os.WriteFile(path, b, 0o600))

	s, err = sqlitestore.Open(t.Context(), path, nil)
	must(t, err)
	t.Cleanup(func() { _ = s.Close() })
	d := newDesk(t, s, nil)
	e = newEngine(t, s, policy)
	survey, err := d.Survey(t.Context(), restored)
	must(t, err)
	if survey.Quarantined != 4 || survey.Looked != 4 {
		t.Errorf("the survey has %+v", survey)
	}
	if r := load(t, s, call("retryable").Ref); r.State != retrysafe.StateRetryable {
		t.Error("a survey has changed something")
	}
	entry, err := d.Quarantine(t.Context(), restored)
	must(t, err)
	if entry.Report == nil || *entry.Report != survey || entry.Outcome != operator.StatusDone || entry.By != anna || entry.Why != restored.Why || entry.Verb != "quarantine" {
		t.Errorf("entry %+v", entry)
	}
	for _, key := range []string{"in flight", "lives through it", "retryable", "accepted", "unknown"} {
		if _, ran, err := asks(t, e, call(key), "again"); ran || !errors.Is(err, retrysafe.ErrUnknown) {
			t.Errorf("%s: %v, ran %v", key, err, ran)
		}
	}
	lastNote(t, load(t, s, call("retryable").Ref), anna, entry.ID)
	if out, ran, err := asks(t, e, call("answered"), "again"); err != nil || ran || string(out.Body) != "before" {
		t.Errorf("what was answered: %+v, %v", out, err)
	}
	if _, ran, err := asks(t, e, call("created since"), "again"); err != nil || !ran {
		t.Errorf("what was created since is known to run again: %v, ran %v", err, ran)
	}

	// An owner that lived through it settles its own, for it knows.
	mine := survivor.Record().Update()
	mine.Expect.Revision = load(t, s, mine.Ref).Revision
	mine.State, mine.Result, mine.Term = retrysafe.StateCompleted, &paid, time.Hour
	_, err = s.Swap(t.Context(), mine)
	must(t, err)

	// A second run finds nothing, and the same one is replayed.
	again, err := d.Quarantine(t.Context(), restored)
	if err != nil || again.Report.Quarantined != 0 {
		t.Errorf("%+v, %v", again.Report, err)
	}
}

// The engine's own way: a live execution whose record was quarantined under it
// still completes.
func TestW38_LiveOwnerSettlesWhatWasQuarantined(t *testing.T) {
	t.Parallel()
	onEachStore(t, func(t *testing.T, s retrysafe.Store) {
		d, e := newDesk(t, s, nil), newEngine(t, s, retrysafe.Policy{})
		x, _, err := e.Begin(t.Context(), callOf(in(retrysafe.StateInProgress, "k").Record))
		must(t, err)
		defer x.Stop()
		_, err = d.Quarantine(t.Context(), restored)
		must(t, err)
		if now := load(t, s, x.Ref()); now.State != retrysafe.StateUnknown {
			t.Fatalf("it is %s", now.State)
		}
		must(t, x.Complete(t.Context(), paid))
		now := load(t, s, x.Ref())
		if now.State != retrysafe.StateCompleted || len(now.Inquiry.Notes) != 1 {
			t.Errorf("%+v", now)
		}
	})
}

func TestSuspectsAreChosen(t *testing.T) {
	t.Parallel()
	began := time.Now()
	clock := &clock{now: began.Add(-48 * time.Hour)}
	s := memstore.New(&memstore.Options{Now: clock.Now})
	d := newDesk(t, s, nil)
	put(t, s, in(retrysafe.StateRetryable, "old"))
	clock.Advance(48 * time.Hour)
	put(t, s, in(retrysafe.StateRetryable, "new"))
	inTx := in(retrysafe.StateInProgress, "in tx")
	inTx.Effects = retrysafe.EffectsInTx
	put(t, s, inTx)
	other := in(retrysafe.StateRetryable, "other")
	other.Scope = "acct_2"
	put(t, s, other)
	newer := in(retrysafe.StateRetryable, "newer version")
	newer.Version++
	put(t, s, newer)
	put(t, s, in(retrysafe.StateCompleted, "answered"))
	own := in(retrysafe.StateInProgress, "own")
	own.Scope = retrysafe.SystemScope("operator")
	put(t, s, own)
	clock.Advance(time.Hour)
	put(t, s, in(retrysafe.StateRetryable, "traffic"))

	for name, c := range map[string]struct {
		with func(*operator.Suspects)
		want operator.Report
	}{
		"all":       {func(*operator.Suspects) {}, operator.Report{Looked: 6, Quarantined: 5, Unreadable: 1}},
		"since":     {func(s *operator.Suspects) { s.Since = began }, operator.Report{Looked: 6, Quarantined: 4, Unreadable: 1}},
		"margin":    {func(s *operator.Suspects) { s.Since = began.Add(4 * time.Minute) }, operator.Report{Looked: 6, Quarantined: 4, Unreadable: 1}},
		"later":     {func(s *operator.Suspects) { s.Since = began.Add(6 * time.Minute) }, operator.Report{Looked: 6, Quarantined: 1, Unreadable: 1}},
		"until":     {func(s *operator.Suspects) { s.Until = began.Add(time.Minute) }, operator.Report{Looked: 6, Quarantined: 4, Unreadable: 1}},
		"one scope": {func(s *operator.Suspects) { s.Scope = "acct_2" }, operator.Report{Looked: 1, Quarantined: 1}},
		"not in tx": {func(s *operator.Suspects) { s.SpareInTx = true }, operator.Report{Looked: 6, Quarantined: 4, Unreadable: 1}},
	} {
		who := restored
		c.with(&who)
		got, err := d.Survey(t.Context(), who)
		got = counts(got)
		if err != nil || got != c.want {
			t.Errorf("%s: %+v, %v, want %+v", name, got, err, c.want)
		}
	}
	_, err := d.Quarantine(t.Context(), restored)
	must(t, err)
	for _, ref := range []retrysafe.Ref{newer.Ref, own.Ref} {
		if r := load(t, s, ref); r.State == retrysafe.StateUnknown {
			t.Errorf("%q was set aside", ref)
		}
	}
}

// A survey counts each record once, however many pages it reads and whatever it spares, and
// ends with the last page, also if that is empty.
func TestSurveyReadsPageByPage(t *testing.T) {
	t.Parallel()
	s := memstore.New(nil)
	d := newDesk(t, s, nil)
	for _, c := range []struct{ records, spared, pages int }{{0, 0, 1}, {499, 100, 1}, {1000, 600, 3}} {
		for i := range c.records {
			w := in(retrysafe.StateRetryable, key(i))
			w.Scope = fmt.Sprint("of ", c.records)
			if i < c.spared {
				w.Effects = retrysafe.EffectsInTx
			}
			put(t, s, w)
		}
		for _, stopAfter := range []int{1, 10} {
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			who, pages := restored, 0
			who.Scope, who.SpareInTx = fmt.Sprint("of ", c.records), true
			who.Progress = func(operator.Report) {
				if pages++; pages == stopAfter {
					stop()
				}
			}
			got, err := d.Survey(ctx, who)
			want := operator.Report{Looked: c.records, Quarantined: c.records - c.spared}
			if stopAfter < c.pages {
				if !errors.Is(err, context.Canceled) || pages != stopAfter {
					t.Errorf("%d records: %v after %d pages, want it stopped after %d", c.records, err, pages, stopAfter)
				}
			} else if err != nil || got != want || pages != c.pages {
				t.Errorf("%d records: %+v after %d pages, %v, want %+v after %d", c.records, got, pages, err, want, c.pages)
			}
		}
	}
}

// counts leaves out where a report stands.
func counts(r operator.Report) operator.Report {
	return operator.Report{Looked: r.Looked, Quarantined: r.Quarantined, Moved: r.Moved, Unreadable: r.Unreadable}
}

// A quarantine of many pages that is cut short goes on where it stopped, and its
// entry counts both parts.
func TestQuarantineGoesOnWhereItStopped(t *testing.T) {
	t.Parallel()
	onEachStore(t, func(t *testing.T, below retrysafe.Store) {
		s := faultstore.New(below)
		const n, spared = 1200, 200
		for i := range n {
			w := in(retrysafe.StateRetryable, key(i))
			if i%(n/spared) == 0 {
				w.Effects = retrysafe.EffectsInTx
			}
			put(t, below, w)
		}
		d := newDesk(t, s, nil)
		who := restored
		who.ID, who.SpareInTx = "3-a-m", true
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		pages := 0
		who.Progress = func(r operator.Report) {
			pages++
			if r.Quarantined == 0 {
				t.Error("no progress")
			}
			stop()
		}
		e, err := d.Quarantine(ctx, who)
		if !errors.Is(err, context.Canceled) || e.Outcome != operator.StatusOpen || pages != 1 {
			t.Fatalf("%+v, %v, %d pages", e, err, pages)
		}
		half := audited(t, d, operator.AuditFilter{Verb: "quarantine"})
		if len(half) != 1 || half[0].Outcome != operator.StatusOpen || half[0].Report == nil || half[0].Report.Quarantined == 0 {
			t.Fatalf("the audit has %+v", half)
		}
		listed := 0
		s.Plan(func(step faultstore.Step) faultstore.Fault {
			if step.Op == faultstore.List {
				listed++
			}
			return faultstore.None
		})
		who.Progress = nil
		e, err = d.Quarantine(t.Context(), who)
		must(t, err)
		if e.Report.Quarantined != n-spared || e.Report.Looked != n || e.Attempt != 2 || listed != 2 {
			t.Errorf("%+v after %d attempts and %d lists", e.Report, e.Attempt, listed)
		}
		left, err := below.List(t.Context(), retrysafe.Query{States: []retrysafe.State{retrysafe.StateRetryable}, Limit: n})
		if err != nil || len(left) != spared {
			t.Errorf("%d are left, %v", len(left), err)
		}
	})
}

// A quarantine that a store fails has not ended, and does not say that it has.
func TestQuarantineThatFailsIsOpen(t *testing.T) {
	t.Parallel()
	below := memstore.New(nil)
	s := faultstore.New(below)
	for i := range 10 {
		put(t, below, in(retrysafe.StateRetryable, key(i)))
	}
	d := newDesk(t, s, nil)
	who := restored
	who.ID = "3-a-m"
	for _, op := range []faultstore.Op{faultstore.Swap, faultstore.List} {
		s.Plan(func(step faultstore.Step) faultstore.Fault {
			if step.Op == op && (op == faultstore.List || step.Write.Key == key(7)) {
				return faultstore.LoseRequest
			}
			return faultstore.None
		})
		if e, err := d.Quarantine(t.Context(), who); !errors.Is(err, faultstore.ErrInjected) || e.Outcome != operator.StatusOpen {
			t.Errorf("%s fails: %+v, %v", op, e, err)
		}
		if _, err := d.Survey(t.Context(), who); (err != nil) != (op == faultstore.List) {
			t.Errorf("%s fails: a survey says %v", op, err)
		}
		if _, err := d.Groups(t.Context(), operator.Filter{}); (err != nil) != (op == faultstore.List) {
			t.Errorf("%s fails: groups say %v", op, err)
		}
	}
	s.Plan(nil)
	e, err := d.Quarantine(t.Context(), who)
	must(t, err)
	if e.Outcome != operator.StatusDone || load(t, below, retrysafe.Ref{Scope: "acct_1", Key: key(7)}).State != retrysafe.StateUnknown {
		t.Errorf("%+v", e)
	}
}

// While the store fails no more records are tried than are under way.
func TestQuarantineStopsWhileTheStoreFails(t *testing.T) {
	t.Parallel()
	below := memstore.New(nil)
	s := faultstore.New(below)
	const n = 400
	for i := range n {
		put(t, below, in(retrysafe.StateRetryable, key(i)))
	}
	tried := map[string]bool{}
	s.Plan(func(step faultstore.Step) faultstore.Fault {
		if step.Op != faultstore.Swap || step.Write.IsSystem() {
			return faultstore.None
		}
		tried[step.Write.Key] = true
		return faultstore.LoseRequest
	})
	if _, err := newDesk(t, s, nil).Quarantine(t.Context(), restored); !errors.Is(err, faultstore.ErrInjected) {
		t.Error(err)
	}
	if len(tried) > 32 {
		t.Errorf("%d of %d records were tried, want 32 at most", len(tried), n)
	}
}

// A quarantine that cannot note how far it is stops there, and has not ended.
func TestQuarantineThatCannotNoteItsProgressIsOpen(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		below := memstore.New(nil)
		s := faultstore.New(below)
		for i := range 600 { // more than a page
			put(t, below, in(retrysafe.StateRetryable, key(i)))
		}
		notes := 0
		s.Plan(func(step faultstore.Step) faultstore.Fault {
			if step.Op == faultstore.Swap && step.Write.IsSystem() && step.Write.State == retrysafe.StateInProgress {
				if notes++; notes > 1 { // the author and the reason are stored
					return faultstore.LoseRequest
				}
			}
			return faultstore.None
		})
		if e, err := newDesk(t, s, nil).Quarantine(t.Context(), restored); !errors.Is(err, faultstore.ErrInjected) || e.Outcome != operator.StatusOpen {
			t.Errorf("%+v, %v", e, err)
		}
		left, err := below.List(t.Context(), retrysafe.Query{States: []retrysafe.State{retrysafe.StateRetryable}})
		if err != nil || len(left) != 100 {
			t.Errorf("%d of 600 are left, %v", len(left), err)
		}
	})
}

// Steps that are lost are sent again; a record that a client has moved meanwhile is
// left as it is.
func TestQuarantineMeetsLossAndTraffic(t *testing.T) {
	t.Parallel()
	below := memstore.New(nil)
	s := faultstore.New(below)
	for i := range 40 {
		put(t, below, in(retrysafe.StateRetryable, key(i)))
	}
	d := newDesk(t, s, nil)
	s.Plan(func(step faultstore.Step) faultstore.Fault {
		if step.Op != faultstore.Swap || step.Write.IsSystem() {
			return faultstore.None
		}
		if step.Write.Key == key(7) { // a client is quicker
			r, err := below.Load(context.Background(), step.Write.Ref)
			if err == nil && r.State == retrysafe.StateRetryable {
				w := r.Update()
				w.State, w.Result, w.Term = retrysafe.StateCompleted, &paid, time.Hour
				_, _ = below.Swap(context.Background(), w)
			}
			return faultstore.None
		}
		if step.Write.Key == key(8) { // a newer program is
			r, err := below.Load(context.Background(), step.Write.Ref)
			if err == nil && r.Readable() {
				w := r.Update()
				w.Version, w.Term = retrysafe.RecordVersion+1, time.Hour
				_, _ = below.Swap(context.Background(), w)
			}
			return faultstore.None
		}
		switch step.N % 5 {
		case 0:
			return faultstore.LoseReply
		case 1:
			return faultstore.LoseRequest
		}
		return faultstore.None
	})
	who := restored
	who.ID = "3-a-m"
	_, err := d.Quarantine(t.Context(), who)
	for try := 0; err != nil && try < 100; try++ {
		if !strings.Contains(err.Error(), "3-a-m") {
			t.Fatal(err)
		}
		_, err = d.Quarantine(t.Context(), who)
	}
	must(t, err)
	s.Plan(nil)
	for i := range 40 {
		r := load(t, below, retrysafe.Ref{Scope: "acct_1", Key: key(i)})
		switch {
		case i == 7 && r.State != retrysafe.StateCompleted:
			t.Errorf("the client's answer is %s", r.State)
		case i == 8 && (r.State != retrysafe.StateRetryable || r.Readable()):
			t.Errorf("the record of a newer program is %s of version %d", r.State, r.Version)
		case i != 7 && i != 8 && (r.State != retrysafe.StateUnknown || len(r.Inquiry.Notes) != 1):
			t.Errorf("%s is %s with %d notes", r.Key, r.State, len(r.Inquiry.Notes))
		}
	}
}

// A record that another process has changed or holds is left to it, and counted so. One that
// is as doubtful after a change as before is quarantined all the same, as long as it does not
// change each time; and one whose write got no reply is counted once.
func TestQuarantineCountsWhatOthersHaveMoved(t *testing.T) {
	t.Parallel()
	clock := newClock()
	below := memstore.New(&memstore.Options{Now: clock.Now})
	s := faultstore.New(holding{below})
	change := func(key string, with func(*retrysafe.Write)) {
		r, err := below.Load(t.Context(), retrysafe.Ref{Scope: "acct_1", Key: key})
		if err != nil {
			t.Error(err)
		}
		w := r.Update()
		with(&w)
		if _, err := below.Swap(t.Context(), w); err != nil {
			t.Error(err)
		}
	}
	later := func(w *retrysafe.Write) { w.Term = 2 * time.Hour }
	moves := map[string]func(try int) faultstore.Fault{
		"answered": func(try int) faultstore.Fault {
			if try == 1 {
				change("answered", func(w *retrysafe.Write) { w.State, w.Result, w.Term = retrysafe.StateCompleted, &paid, time.Hour })
			}
			return faultstore.None
		},
		"newer version": func(try int) faultstore.Fault {
			if try == 1 {
				change("newer version", func(w *retrysafe.Write) { w.Version, w.Term = retrysafe.RecordVersion+1, time.Hour })
			}
			return faultstore.None
		},
		"purged": func(int) faultstore.Fault {
			if _, err := below.Purge(t.Context(), 10); err != nil {
				t.Error(err)
			}
			return faultstore.None
		},
		"held": func(int) faultstore.Fault { return faultstore.None },
		"never still": func(int) faultstore.Fault {
			change("never still", later)
			return faultstore.None
		},
		"renewed": func(try int) faultstore.Fault {
			if try == 1 {
				change("renewed", later)
			}
			return faultstore.None
		},
		"no reply": func(try int) faultstore.Fault {
			if try == 1 {
				return faultstore.LoseReply
			}
			return faultstore.None
		},
		"at rest": func(int) faultstore.Fault { return faultstore.None },
	}
	for name := range moves {
		w := in(retrysafe.StateInProgress, name)
		if name == "purged" {
			w.State, w.Term = retrysafe.StateRetryable, time.Minute
		}
		put(t, below, w)
	}
	clock.Advance(2 * time.Minute)
	tries := map[string]int{}
	s.Plan(func(step faultstore.Step) faultstore.Fault {
		if step.Op != faultstore.Swap || step.Write.IsSystem() {
			return faultstore.None
		}
		tries[step.Write.Key]++
		return moves[step.Write.Key](tries[step.Write.Key])
	})
	told := make(events, 2*len(moves))
	e, err := newDesk(t, s, &operator.Options{Observer: told}).Quarantine(t.Context(), restored)
	must(t, err)
	if want := (operator.Report{Looked: len(moves), Quarantined: 3, Moved: 5}); counts(*e.Report) != want {
		t.Errorf("the report is %+v, want %+v", *e.Report, want)
	}
	for key, want := range map[string]retrysafe.State{
		"answered": retrysafe.StateCompleted, "newer version": retrysafe.StateInProgress, "never still": retrysafe.StateInProgress,
		"renewed": retrysafe.StateUnknown, "no reply": retrysafe.StateUnknown, "at rest": retrysafe.StateUnknown,
	} {
		r := load(t, below, retrysafe.Ref{Scope: "acct_1", Key: key})
		if r.State != want || len(r.Inquiry.Notes) > 1 {
			t.Errorf("%s: it is %s with %d notes, want %s", key, r.State, len(r.Inquiry.Notes), want)
		}
	}
	close(told)
	var of []string
	for event := range told {
		if event.Kind == retrysafe.EventQuarantined {
			of = append(of, event.Ref.Key)
		}
	}
	if slices.Sort(of); !slices.Equal(of, []string{"at rest", "renewed"}) {
		t.Errorf("an observer is told of %q", of)
	}
}

// holding is a store in which a transaction holds one key.
type holding struct{ retrysafe.Store }

func (s holding) Swap(ctx context.Context, w retrysafe.Write) (retrysafe.Record, error) {
	if w.Key == "held" {
		return retrysafe.Record{}, retrysafe.ErrBusy
	}
	return s.Store.Swap(ctx, w)
}

// A report of another form is an error, and not an empty report.
func TestReportThatCannotBeRead(t *testing.T) {
	t.Parallel()
	if err := json.Unmarshal([]byte(`{"report":{"looked":"many"}}`), new(operator.Entry)); err == nil {
		t.Error("it was read")
	}
}

// What is quarantined is asked about anew, whatever was found out before, and the ID of a
// quarantine belongs to all that says what it selects.
func TestQuarantineBeginsTheInquiryAnew(t *testing.T) {
	t.Parallel()
	s := memstore.New(nil)
	w := in(retrysafe.StateRetryable, "k")
	w.Inquiry = retrysafe.Inquiry{Tries: 12, Dead: true}
	r := put(t, s, w)
	d := newDesk(t, s, nil)
	who := restored
	who.ID = "3-a-m"
	who.Scope = r.Scope
	e, err := d.Quarantine(t.Context(), who)
	must(t, err)
	if e.Ref.Scope != r.Scope {
		t.Errorf("the entry is about the scope %q", e.Ref.Scope)
	}
	now := load(t, s, r.Ref)
	if now.State != retrysafe.StateUnknown || now.Inquiry.Tries != 0 || now.Inquiry.Dead {
		t.Errorf("it is %s, after %d tries, dead %t", now.State, now.Inquiry.Tries, now.Inquiry.Dead)
	}
	if wait := now.Deadline.Sub(now.UpdatedAt); wait != 30*time.Second {
		t.Errorf("it is asked about after %v", wait)
	}
	if note := now.Inquiry.Notes[0].Text; !strings.Contains(note, who.Why) {
		t.Errorf("its note gives no reason: %q", note)
	}
	for field, nobody := range map[string]operator.Suspects{"By": {Why: who.Why}, "Why": {By: who.By}} {
		if _, err := d.Quarantine(t.Context(), nobody); !errors.Is(err, operator.ErrInvalid) || !strings.Contains(err.Error(), field+" must") {
			t.Errorf("without %s: %v", field, err)
		}
	}
	for name, change := range map[string]func(*operator.Suspects){
		"since":     func(s *operator.Suspects) { s.Since = time.Unix(1_800_000_000, 0) },
		"until":     func(s *operator.Suspects) { s.Until = time.Unix(1_800_000_000, 0) },
		"scope":     func(s *operator.Suspects) { s.Scope = "acct_2" },
		"spareInTx": func(s *operator.Suspects) { s.SpareInTx = !s.SpareInTx },
		"author":    func(s *operator.Suspects) { s.By = "bert" },
		"reason":    func(s *operator.Suspects) { s.Why = "another one" },
	} {
		other := who
		change(&other)
		if _, err := d.Quarantine(t.Context(), other); !errors.Is(err, retrysafe.ErrMismatch) {
			t.Errorf("another %s under the same ID: %v", name, err)
		}
	}
}

package daily

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/store/memstore"
)

// failingStore fails where an error is set, lists nothing before the end of the context if hang is set, or is slow.
type failingStore struct {
	*memstore.Store
	load error
	hang bool
	slow int  // so many pages take 50 seconds each, and have nothing of ours
	deaf bool // nothing is loaded before the end of the context
}

func (s *failingStore) Load(ctx context.Context, ref retrysafe.Ref) (retrysafe.Record, error) {
	if s.deaf {
		<-ctx.Done()
		return retrysafe.Record{}, ctx.Err()
	}
	if s.load != nil {
		return retrysafe.Record{}, s.load
	}
	return s.Store.Load(ctx, ref)
}

func (s *failingStore) List(ctx context.Context, q retrysafe.Query) ([]retrysafe.Record, error) {
	if s.hang {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	if s.slow > 0 {
		s.slow--
		select {
		case <-time.After(50 * time.Second):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		page := make([]retrysafe.Record, q.Size())
		for i := range page {
			page[i].Version, page[i].Operation = retrysafe.RecordVersion, "POST /refunds"
		}
		return page, nil
	}
	return s.Store.List(ctx, q)
}

// What a look finds decides when the next one is: soon for a list that is late, and never later than a clock that was set
// would need.
func TestPauseUntilTheNextLook(t *testing.T) {
	inPlace(t, func(t *testing.T, p *place) {
		store := &failingStore{Store: memstore.New(nil)}
		d, err := New(store, []*Job{p.job()}, discard)
		must(t, err)
		look := func(why string, want time.Duration, compared, failed uint64) {
			t.Helper()
			pause := d.turn(t.Context(), 0)
			if got := d.Stats()[0]; pause != want || got.Compared != compared || got.Failed != failed || got.Name != "bank" {
				t.Errorf("%s: a pause of %v after %+v, want %v, %d compared and %d failed", why, pause, got, want, compared, failed)
			}
		}
		time.Sleep(30 * time.Hour) // 06:00 on the second day
		look("no list", lookForList, 0, 1)
		look("no list still", lookForList, 0, 1)
		if tried := d.Stats()[0].Tried; !tried.Equal(time.Now()) {
			t.Errorf("last tried at %v", tried)
		}
		p.arrive(first, "a,yesterday,3")
		look("a list that cannot be read", afterFailure, 0, 2)
		look("a list that cannot be read, again", afterFailure, 0, 3)
		store.load = errors.New("no connection")
		look("no store", afterFailure, 0, 4)
		store.load = nil
		p.arrive(first)
		time.Sleep(time.Hour)
		look("a list", longestPause, 1, 4)
		if got := d.Stats()[0]; !got.Tried.Equal(time.Now()) || got.Last.Day != first.String() || !got.Last.Ended.Equal(time.Now()) {
			t.Errorf("a day was compared, and known is %+v", got)
		}
		due := time.Date(2000, 1, 3, 6, 0, 0, 0, time.UTC)
		time.Sleep(time.Until(due) - 3*time.Minute)
		look("soon", 3*time.Minute, 1, 4)
		time.Sleep(time.Until(due) - 1)
		look("very soon", time.Second, 1, 4)
		time.Sleep(time.Nanosecond)
		call, err := d.jobs[0].call(first.add(1))
		must(t, err)
		p.arrive(first.add(1))
		_, _, err = engine(t, store).Begin(t.Context(), call)
		must(t, err)
		look("another node compares", busyPause, 1, 4)
	})
}

// The result of a day is a record of retrysafe's own, is kept for longer than days are made up for, and says that the day
// may be compared again.
func TestTheRecordOfADay(t *testing.T) {
	inPlace(t, func(t *testing.T, p *place) {
		store := memstore.New(nil)
		d, err := New(store, []*Job{p.job()}, discard)
		must(t, err)
		p.arrive(first)
		time.Sleep(30 * time.Hour)
		d.turn(t.Context(), 0)
		call, err := d.jobs[0].call(first)
		must(t, err)
		r, err := store.Load(t.Context(), call.Ref)
		must(t, err)
		if !r.IsSystem() || r.Operation != "compare a ledger" || r.Lapse != retrysafe.LapseRerun || r.Effects != retrysafe.EffectsKeyed || r.Retain <= catchUp*24*time.Hour || r.Result.Status != 200 {
			t.Errorf("the record is %+v", r)
		}
		// A node that finds the day done by another has not compared it, and knows the result.
		late, err := New(store, []*Job{p.job()}, discard)
		must(t, err)
		must(t, late.compare(t.Context(), 0, first))
		if got := late.Stats()[0]; got.Compared != 0 || got.Failed != 0 || got.Last.Day != first.String() {
			t.Errorf("a node that was late knows %+v", got)
		}
		other := *p.job()
		other.Name = "bank2"
		if c, err := other.call(first); err != nil || c.Ref == call.Ref || c.Fingerprint == call.Fingerprint {
			t.Errorf("two ledgers share the record %v, %v", c, err)
		}
		// A result that cannot be read is not one that there is not.
		bad, err := d.jobs[0].call(first.add(1))
		must(t, err)
		_, err = engine(t, store).Do(t.Context(), bad, func(context.Context, *retrysafe.Execution) (retrysafe.Result, error) {
			return retrysafe.Result{Status: 200, Body: []byte("damaged")}, nil
		})
		must(t, err)
		p.arrive(first.add(1))
		time.Sleep(24 * time.Hour)
		d.turn(t.Context(), 0)
		if got := d.Stats()[0]; got.Failed != 1 || got.Compared != 1 || got.Last.Day != first.String() {
			t.Errorf("with a damaged result: %+v", got)
		}
	})
}

// Days are made up for in their order, also if none was compared yet, and a day whose list comes later than the next one's.
func TestEachDayIsComparedWhateverTheOrderOfTheLists(t *testing.T) {
	inPlace(t, func(t *testing.T, p *place) {
		store := memstore.New(nil)
		var log journal
		d, err := New(store, []*Job{p.job()}, slog.New(slog.NewTextHandler(&log, nil)))
		must(t, err)
		expect := func(want ...string) {
			t.Helper()
			d.turn(t.Context(), 0)
			var got []string
			for line := range strings.Lines(log.String()) {
				if _, rest, ok := strings.Cut(line, "level="); ok && strings.Contains(line, "ledger compared") {
					level, _, _ := strings.Cut(rest, " ")
					_, day, _ := strings.Cut(line, " day=")
					got = append(got, level+" "+day[:len(dayLayout)])
				}
			}
			if strings.Join(got, ", ") != strings.Join(want, ", ") {
				t.Errorf("compared were %q, want %q:\n%s", got, want, &log)
			}
		}
		p.arrive(first, "a,yesterday,3") // tried, and not read
		p.arrive(first.add(1), "a,yesterday,3")
		time.Sleep(30 * time.Hour)
		expect()
		time.Sleep(24 * time.Hour)
		expect()
		p.arrive(first)
		p.arrive(first.add(1), "a,2000-01-02T12:00:00Z,3")
		time.Sleep(24 * time.Hour)
		expect("INFO 2000-01-01", "WARN 2000-01-02")
		// The lists of the third and fourth day are late, that of the fifth is there.
		time.Sleep(24 * time.Hour)
		expect("INFO 2000-01-01", "WARN 2000-01-02")
		p.arrive(first.add(4))
		time.Sleep(24 * time.Hour)
		failed := d.Stats()[0].Failed
		expect("INFO 2000-01-01", "WARN 2000-01-02", "INFO 2000-01-05")
		p.arrive(first.add(2))
		expect("INFO 2000-01-01", "WARN 2000-01-02", "INFO 2000-01-05", "INFO 2000-01-03")
		if got := d.Stats()[0]; got.Last.Day != "2000-01-05" || got.Failed != failed {
			t.Errorf("known is %+v, and %d had failed", got, failed)
		}
		if n := strings.Count(log.String(), "day=2000-01-04 error="); n != 1 {
			t.Errorf("a list that is late was logged %d times:\n%s", n, &log)
		}
		p.arrive(first.add(3))
		expect("INFO 2000-01-01", "WARN 2000-01-02", "INFO 2000-01-05", "INFO 2000-01-03", "INFO 2000-01-04")
		expect("INFO 2000-01-01", "WARN 2000-01-02", "INFO 2000-01-05", "INFO 2000-01-03", "INFO 2000-01-04")
	})
}

// A list that is not of one day is compared for the latest day only: nothing says that it has earlier ones.
func TestAListOfNoDayIsComparedForTheLatest(t *testing.T) {
	inPlace(t, func(t *testing.T, p *place) {
		j := p.job()
		j.Theirs.File = filepath.Join(p.theirs, "all.csv")
		d, err := New(memstore.New(nil), []*Job{j}, discard)
		must(t, err)
		arrive := func(text string) {
			must(t, os.WriteFile(j.Theirs.File, []byte(text), 0o600))
			must(t, os.Chtimes(j.Theirs.File, time.Now(), time.Now()))
		}
		time.Sleep(30 * time.Hour)
		arrive("id,at,amount\na,yesterday,1\n") // the first day is tried
		d.turn(t.Context(), 0)
		time.Sleep(48 * time.Hour)
		arrive("id,at,amount\na,2000-01-03T01:00:00Z,1\nb,2000-01-01T01:00:00Z,1\nc,2000-01-04T00:00:00Z,1\n")
		d.turn(t.Context(), 0)
		if got := d.Stats()[0]; got.Compared != 1 || got.Last.Day != "2000-01-03" || got.Last.Summary.OnlyTheirs != 1 || got.Last.Summary.PendingTheirs != 2 {
			t.Errorf("got %+v", got)
		}
	})
}

// A process that ends does not wait for a comparison, does not count it as a failure, and leaves the day to others.
func TestAnEndInTheMiddleOfAComparison(t *testing.T) {
	inPlace(t, func(t *testing.T, p *place) {
		store := &failingStore{Store: memstore.New(nil), hang: true}
		p.arrive(first)
		time.Sleep(30 * time.Hour)
		all, stop := nodes(t, store, discard, p.job())
		time.Sleep(10 * time.Second) // the list is read, and the records of the store are not
		before := time.Now()
		stop()
		if took := time.Since(before); took != 0 {
			t.Errorf("the end took %v", took)
		}
		if got := all[0].Stats()[0]; got.Failed != 0 || got.Compared != 0 {
			t.Errorf("got %+v", got)
		}
		if left, _ := filepath.Glob(filepath.Join(p.reports, "*")); len(left) > 0 {
			t.Errorf("there are reports: %v", left)
		}
		if left, _ := filepath.Glob(filepath.Join(p.reports, ".*.tmp")); len(left) > 0 {
			t.Errorf("unfinished files are left: %v", left)
		}
		store.hang = false
		all, stop = nodes(t, store, discard, p.job())
		defer stop()
		time.Sleep(time.Minute)
		if compared(all) != 1 {
			t.Errorf("another process has not compared the day: %+v", all[0].Stats())
		}
	})
}

// A comparison may take hours: nothing but its own limit ends it.
func TestALongComparisonIsNotCutOff(t *testing.T) {
	inPlace(t, func(t *testing.T, p *place) {
		store := &failingStore{Store: memstore.New(nil), slow: 60}
		d, err := New(store, []*Job{p.job()}, discard)
		must(t, err)
		p.arrive(first)
		time.Sleep(30 * time.Hour)
		before := time.Now()
		d.turn(t.Context(), 0)
		if got := d.Stats()[0]; got.Compared != 1 || got.Failed != 0 || time.Since(before) < 50*time.Minute {
			t.Errorf("after %v: %+v", time.Since(before), got)
		}
	})
}

// A store that does not answer is a failure, which does not stop the schedule.
func TestAStoreThatDoesNotAnswerIsNotWaitedFor(t *testing.T) {
	inPlace(t, func(t *testing.T, p *place) {
		d, err := New(&failingStore{Store: memstore.New(nil), deaf: true}, []*Job{p.job()}, discard)
		must(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		if pause := d.turn(ctx, 0); pause != afterFailure || d.Stats()[0].Failed != 1 || ctx.Err() != nil {
			t.Errorf("a pause of %v after %+v", pause, d.Stats()[0])
		}
	})
}

// A day whose report could not be written is not done.
func TestADayWithoutItsReportIsNotDone(t *testing.T) {
	inPlace(t, func(t *testing.T, p *place) {
		d, err := New(memstore.New(nil), []*Job{p.job()}, discard)
		must(t, err)
		p.arrive(first)
		inTheWay := filepath.Join(p.reports, "bank-"+first.String()+".html")
		must(t, os.Mkdir(inTheWay, 0o700))
		time.Sleep(30 * time.Hour)
		d.turn(t.Context(), 0)
		if got := d.Stats()[0]; got.Compared != 0 || got.Failed != 1 {
			t.Errorf("without a report: %+v", got)
		}
		must(t, os.Remove(inTheWay))
		time.Sleep(afterFailure)
		d.turn(t.Context(), 0)
		if got := d.Stats()[0]; got.Compared != 1 {
			t.Errorf("with a report: %+v", got)
		}
	})
}

// Each ledger of a scheduler is compared, and has numbers of its own.
func TestEachLedgerHasNumbersOfItsOwn(t *testing.T) {
	inPlace(t, func(t *testing.T, p *place) {
		waits := p.job()
		waits.Name, waits.Theirs.File = "card", filepath.Join(p.theirs, "card-{day}.csv")
		too := *waits
		too.Name = "wallet"
		d, err := New(memstore.New(nil), []*Job{waits, p.job(), &too}, discard)
		must(t, err)
		p.arrive(first)
		time.Sleep(30 * time.Hour)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		must(t, d.Run(ctx))
		got := d.Stats()
		for i, name := range map[int]string{0: "card", 2: "wallet"} {
			if got[i].Name != name || got[i].Failed != 1 || got[i].Compared != 0 || got[i].Last.Day != "" || got[i].Tried.IsZero() {
				t.Errorf("without a list: %+v", got[i])
			}
		}
		if got[1].Name != "bank" || got[1].Failed != 0 || got[1].Compared != 1 || got[1].Last.Day != first.String() {
			t.Errorf("with a list: %+v", got[1])
		}
		if got[0].Name = "changed"; d.Stats()[0].Name != "card" {
			t.Error("a caller has changed what the scheduler knows")
		}
	})
}

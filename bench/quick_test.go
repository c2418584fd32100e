package bench_test

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// The regression guard: six ratios that users feel, measured in two minutes and compared
// with the committed ones of quick.json. A ratio compares two systems in the same minutes
// on the same machine, so it moves much less between machines than a rate does.

var (
	quickRun    = flag.Bool("quick", false, "measure six ratios and compare them with the committed ones; two minutes on a quiet machine")
	quickFile   = flag.String("quick.file", "quick.json", "the file of the committed ratios")
	quickUpdate = flag.Bool("quick.update", false, "write the file instead of comparing with it")
	quickFail   = flag.Bool("quick.fail", false, "fail if a ratio has fallen beyond noise; without it that is a warning")
)

// guardScale is the scale of the guard: more and shorter rounds than a look has, because
// half of them say what is noise.
var guardScale = scale{rounds: 9, again: 3, warm: 200 * time.Millisecond, run: 700 * time.Millisecond, stock: 5_000, crowd: 256, requests: 40_000}

// A quickRatio is one of the six, as it is committed: the median of the ratios within each
// round, and their quartiles, between which half of the rounds are. A single round that
// other work on the machine has disturbed changes neither.
type quickRatio struct {
	What   string `json:"what"`
	Beside string `json:"beside"`
	// Less says that less is better.
	Less   bool    `json:"less,omitempty"`
	Median float64 `json:"median"`
	Low    float64 `json:"low"`
	High   float64 `json:"high"`
}

// quickRatios is the file.
type quickRatios struct {
	Conditions string       `json:"conditions"`
	Ratios     []quickRatio `json:"ratios"`
}

func newQuickRatio(what, beside string, rounds []float64) quickRatio {
	sorted := slices.Sorted(slices.Values(rounds))
	n := len(sorted)
	return quickRatio{What: what, Beside: beside, Median: sorted[n/2], Low: sorted[n/4], High: sorted[n-1-n/4]}
}

// rates returns the ratio of two systems' rates in each round.
func rates(all map[string]series, what, beside system) []float64 {
	ratios := make([]float64, len(all[what.name]))
	for i := range ratios {
		ratios[i] = perSecond(all[what.name][i]) / perSecond(all[beside.name][i])
	}
	return ratios
}

// measureQuick measures the six ratios.
func measureQuick(l *lab) []quickRatio {
	const clients, crowd = 32, 256
	b := l.bed(l)
	var all []quickRatio
	for _, n := range []int{clients, crowd} {
		fresh := l.freshEach(b, n, bare, ours)
		all = append(all, newQuickRatio("PostgreSQL, fresh keys/s, "+clientsText(n), bare.name, rates(fresh, ours, bare)))
	}
	once := l.freshEach(b, clients, business, oursOneCommit)
	all = append(all, newQuickRatio("PostgreSQL, one commit, operations/s, "+clientsText(clients), business.name, rates(once, oursOneCommit, business)))

	known := l.replayEach(b, clients, article, ours)
	all = append(all, newQuickRatio("PostgreSQL, replays/s, "+clientsText(clients), article.name, rates(known, ours, article)))

	grouped, single := sqliteSystem("sqlitestore", 0, l.TempDir), sqliteSystem("one transaction per step", 1, l.TempDir)
	files := l.freshFiles(crowd, single, grouped)
	all = append(all, newQuickRatio("SQLite, fresh keys/s, "+clientsText(crowd), single.name, rates(files, grouped, single)))

	adds := newQuickRatio("middleware, what a fresh request adds", "Fiber's", l.middlewareAdds())
	adds.Less = true
	return append(all, adds)
}

// middlewareAdds is the processor time that our middleware adds to a bare handler, beside
// what Fiber's adds to its own.
func (l *lab) middlewareAdds() []float64 {
	l.Helper()
	ratios := make([]float64, l.rounds)
	for i := range ratios {
		var added []float64
		for _, tr := range traffics {
			took := func(guarded bool) float64 {
				r := tr.rig(guarded)
				r.renew()
				return float64(serveMany(r, l.requests, false, func(renew func()) { renew() }))
			}
			took(true) // fills pools and caches
			added = append(added, took(true)-took(false))
		}
		ratios[i] = added[0] / added[1]
	}
	return ratios
}

// fellTo is how much of its committed median a ratio keeps at least when it has not
// fallen.
const fellTo = 0.85

// fallen reports whether the ratio has fallen beyond noise since it was committed: the
// median by more than a seventh, and the quartiles of now and then do not overlap.
func (now quickRatio) fallen(then quickRatio) bool {
	if then.Less {
		return now.Median*fellTo > then.Median && now.Low > then.High
	}
	return now.Median < then.Median*fellTo && now.High < then.Low
}

func (q quickRatio) spread() spread { return spread{q.Median, q.Low, q.High} }

// compare writes the table of the ratios beside the committed ones and returns a line for
// each that has fallen, and for each that only one of the two has.
func (then quickRatios) compare(now quickRatios) (t table, warnings []string) {
	t = table{title: "Ratios beside the committed ones", head: []string{"what", "beside", "committed", "now", ""}}
	committed := map[string]quickRatio{}
	for _, q := range then.Ratios {
		committed[q.What] = q
	}
	for _, q := range now.Ratios {
		was, known := committed[q.What]
		delete(committed, q.What)
		switch {
		case !known:
			warnings = append(warnings, fmt.Sprintf("%s is not in the file; make bench-quick UPDATE=1 writes it", q.What))
			t.row(q.What, q.Beside, "–", q.spread().text(times), "new")
			continue
		case q.fallen(was):
			warnings = append(warnings, fmt.Sprintf("%s has fallen from %s to %s beside %s", q.What, was.spread().text(times), q.spread().text(times), q.Beside))
			t.row(q.What, q.Beside, was.spread().text(times), q.spread().text(times), "**fallen**")
			continue
		}
		t.row(q.What, q.Beside, was.spread().text(times), q.spread().text(times), "")
	}
	for _, q := range then.Ratios {
		if _, missing := committed[q.What]; missing {
			warnings = append(warnings, fmt.Sprintf("%s is in the file and not measured; make bench-quick UPDATE=1 removes it", q.What))
		}
	}
	return t, warnings
}

func readQuick(name string) (q quickRatios, err error) {
	text, err := os.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		return q, fmt.Errorf("%w; make bench-quick UPDATE=1 writes it", err)
	}
	if err == nil {
		err = json.Unmarshal(text, &q)
	}
	return q, err
}

func (q quickRatios) write(name string) error {
	for i := range q.Ratios {
		for _, v := range []*float64{&q.Ratios[i].Median, &q.Ratios[i].Low, &q.Ratios[i].High} {
			*v = float64(int(*v*1000+0.5)) / 1000
		}
	}
	text, err := json.MarshalIndent(q, "", "\t")
	if err != nil {
		return err
	}
	return os.WriteFile(name, append(text, '\n'), 0o644)
}

// TestQuick is the guard.
func TestQuick(t *testing.T) {
	if !*quickRun {
		t.Skip("a measurement, not a test: run with -quick")
	}
	began := time.Now()
	l := &lab{TB: t, scale: guardScale, report: &report{}, bed: func(t testing.TB) *bed { return newBed(t) }}
	now := quickRatios{Conditions: conditions(t, l.scale), Ratios: measureQuick(l)}
	then, err := readQuick(*quickFile)
	if *quickUpdate && (err == nil || errors.Is(err, fs.ErrNotExist)) {
		err = now.write(*quickFile)
	}
	if err != nil {
		t.Fatal(err)
	}
	fmt.Println(wrap(now.Conditions, 118))
	fmt.Println("\nHere the brackets have the quartiles of the ratios within the rounds.")
	seen, warnings := then.compare(now)
	seen.write(os.Stdout)
	fmt.Printf("\nMeasured in %v.\n", time.Since(began).Round(time.Second))
	if *quickUpdate {
		return
	}
	for _, w := range warnings {
		fmt.Println("WARNING:", w)
		if *quickFail {
			t.Error(w)
		}
	}
}

// TestQuickSmoke runs the guard with a few keys, so that the code cannot rot, and holds
// that the committed file has the ratios that are measured.
func TestQuickSmoke(t *testing.T) {
	t.Parallel()
	now := quickRatios{Ratios: measureQuick(&lab{TB: t, scale: smoke, report: &report{}, bed: sharedBed})}
	name := filepath.Join(t.TempDir(), "quick.json")
	if err := now.write(name); err != nil {
		t.Fatal(err)
	}
	then, err := readQuick(name)
	if err != nil {
		t.Fatal(err)
	}
	if _, warnings := then.compare(now); len(warnings) > 0 {
		t.Errorf("a run beside itself: %q", warnings)
	}
	committed, err := readQuick("quick.json")
	if err != nil {
		t.Fatal(err)
	}
	for _, q := range now.Ratios {
		if !strings.Contains(fmt.Sprint(committed.Ratios), q.What) {
			t.Errorf("quick.json has no ratio %q; make bench-quick UPDATE=1 writes it", q.What)
		}
	}
	if len(committed.Ratios) != len(now.Ratios) {
		t.Errorf("quick.json has %d ratios, and %d are measured", len(committed.Ratios), len(now.Ratios))
	}
}

// TestQuickFallen: a fall is one of the median that the quartiles do not contradict.
func TestQuickFallen(t *testing.T) {
	t.Parallel()
	ratio := func(less bool, mid, low, high float64) quickRatio {
		return quickRatio{What: "w", Beside: "b", Less: less, Median: mid, Low: low, High: high}
	}
	for _, c := range []struct {
		name      string
		then, now quickRatio
		want      bool
	}{
		{"the same", ratio(false, 2, 1.8, 2.2), ratio(false, 2, 1.8, 2.2), false},
		{"better", ratio(false, 2, 1.8, 2.2), ratio(false, 3, 2.8, 3.2), false},
		{"a little worse, quartiles apart", ratio(false, 2, 1.95, 2.1), ratio(false, 1.8, 1.75, 1.85), false},
		{"much worse, quartiles overlap", ratio(false, 2, 1.2, 2.1), ratio(false, 1, 0.9, 1.3), false},
		{"much worse", ratio(false, 2, 1.8, 2.2), ratio(false, 1.5, 1.4, 1.7), true},
		{"less is better, less", ratio(true, 2, 1.8, 2.2), ratio(true, 1, 0.9, 1.1), false},
		{"less is better, a little more", ratio(true, 2, 1.8, 2.05), ratio(true, 2.2, 2.1, 2.3), false},
		{"less is better, much more, quartiles overlap", ratio(true, 2, 1.8, 2.5), ratio(true, 2.8, 2.4, 3), false},
		{"less is better, much more", ratio(true, 2, 1.8, 2.2), ratio(true, 2.8, 2.6, 3), true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if got := c.now.fallen(c.then); got != c.want {
				t.Errorf("fallen = %v, want %v", got, c.want)
			}
			_, warnings := quickRatios{Ratios: []quickRatio{c.then}}.compare(quickRatios{Ratios: []quickRatio{c.now}})
			if got := len(warnings) > 0; got != c.want {
				t.Errorf("warnings %q, want some: %v", warnings, c.want)
			}
		})
	}
	if got, want := newQuickRatio("w", "b", []float64{9, 1, 5, 2, 8, 3, 7, 4, 6}), ratio(false, 5, 3, 7); got != want {
		t.Errorf("median and quartiles of 1 to 9: %+v, want %+v", got, want)
	}
	if _, warnings := (quickRatios{Ratios: []quickRatio{{What: "gone"}}}).compare(quickRatios{Ratios: []quickRatio{{What: "new"}}}); len(warnings) != 2 {
		t.Errorf("a ratio that is new and one that is gone: %q, want a warning for each", warnings)
	}
}

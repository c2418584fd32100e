package bench_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"github.com/retrysafe/retrysafe/internal/test/testservers"
)

var (
	durableRun    = flag.Bool("durable", false, "measure durable stores side by side; takes a half an hour on a quiet machine")
	durableQuick  = flag.Bool("durable.quick", false, "a second for each run instead of four, and smaller tables: for a first look")
	durableOnly   = flag.String("durable.only", "", "a regexp of the scenarios to measure: fresh, slowdisk, standby, faraway, onecommit, txform, replay, footprint, growth, sqlite, expiry, reaper, outbox, redis")
	durableRounds = flag.Int("durable.rounds", 0, "how many interleaved rounds, odd")
	durableKeys   = flag.Int("durable.existing", 0, "how many keys there are in the table that has grown")
	durableDocs   = flag.String("durable.docs", "", "the folder of benchmarks.md, whose section and chart are written")
)

// A scenario is one question, asked in one run of all systems that it concerns.
type scenario struct {
	name string
	run  func(*lab)
}

var scenarios = []scenario{
	{"fresh", freshKeys},
	{"slowdisk", slowDisk},
	{"standby", standby},
	{"faraway", farAway},
	{"onecommit", oneCommit},
	{"txform", txForm},
	{"replay", replays},
	{"footprint", footprint},
	{"growth", growth},
	{"sqlite", embedded},
	{"expiry", expiry},
	{"reaper", reaper},
	{"outbox", messages},
	{"redis", redisKeys},
}

func TestMain(m *testing.M) {
	if role := os.Getenv(roleEnv); role != "" {
		play(role)
	}
	testservers.Main(m)
}

// TestDurable measures all scenarios in one run and prints tables, with each ratio
// beside its goal. It asserts nothing.
func TestDurable(t *testing.T) {
	if !*durableRun {
		t.Skip("a measurement, not a test: run with -durable")
	}
	only, err := regexp.Compile(*durableOnly)
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	l := &lab{TB: t, scale: chosenScale(), report: &report{live: os.Stdout}, bed: func(t testing.TB) *bed { return newBed(t) }, slowBed: slowBed, standbyBed: standbyBed, farBed: farBed}
	l.report.conditions = conditions(t, l.scale)
	fmt.Println(l.report.conditions)
	for _, s := range scenarios {
		if !only.MatchString(s.name) {
			continue
		}
		// A test of its own, so that its servers end with it.
		t.Run(s.name, func(t *testing.T) {
			one := *l
			one.TB = t
			s.run(&one)
		})
	}
	goals := l.report.goals()
	goals.write(os.Stdout)
	fmt.Printf("\nMeasured in %v.\n", time.Since(began).Round(time.Second))
	if *durableDocs == "" || t.Failed() {
		return
	}
	if *durableOnly != "" {
		t.Fatal("the documents hold all scenarios or none: -durable.docs and -durable.only exclude each other")
	}
	if err := l.report.publish(filepath.Join(*durableDocs, "benchmarks.md"), filepath.Join(*durableDocs, "benchmarks-durable.svg")); err != nil {
		t.Fatal(err)
	}
}

func chosenScale() scale {
	s := full
	if *durableQuick {
		s = quick
	}
	if *durableRounds > 0 {
		s.rounds = *durableRounds
	}
	if *durableKeys > 0 {
		s.existing = *durableKeys
	}
	return s
}

// TestDurableSmoke runs every scenario with a few keys, so that the code cannot
// rot. What it measures means nothing.
func TestDurableSmoke(t *testing.T) {
	t.Parallel()
	reports := make([]report, len(scenarios))
	t.Run("scenario", func(t *testing.T) {
		for i, s := range scenarios {
			t.Run(s.name, func(t *testing.T) {
				t.Parallel()
				s.run(&lab{TB: t, scale: smoke, report: &reports[i], bed: sharedBed, slowBed: slowBed, standbyBed: standbyBed, farBed: farBed})
			})
		}
	})
	if t.Failed() {
		return
	}
	all := report{conditions: conditions(t, smoke)}
	for _, r := range reports {
		all.findings, all.tables, all.bars = append(all.findings, r.findings...), append(all.tables, r.tables...), append(all.bars, r.bars...)
	}
	dir := t.TempDir()
	doc, chart := filepath.Join(dir, "benchmarks.md"), filepath.Join(dir, "benchmarks-durable.svg")
	if err := os.WriteFile(doc, []byte("before\n<!-- durable: written by make bench-durable -->\nold\n<!-- durable: end -->\nbehind\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := all.publish(doc, chart); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(doc)
	if err != nil {
		t.Fatal(err)
	}
	if want := regexp.MustCompile(`(?s)^before\n.*\| ours \|.*\nbehind\n$`); !want.Match(text) || regexp.MustCompile(`\bold\b`).Match(text) {
		t.Errorf("the section is not written between its markers:\n%s", text)
	}
}

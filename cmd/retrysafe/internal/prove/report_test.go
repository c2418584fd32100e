package prove_test

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/prove"
)

func env() prove.Env { return prove.Env{Seed: 7, Log: slog.New(slog.DiscardHandler)} }

func check(run func(ctx context.Context, env *prove.Env, r *prove.Result) error) *prove.Check {
	return &prove.Check{Name: "storm", Goal: "G9", Shows: "one key, one effect.", Holds: []string{"S1"}, Run: run}
}

func TestVerdicts(t *testing.T) {
	t.Parallel()
	var dir string
	for name, c := range map[string]struct {
		run  func(ctx context.Context, env *prove.Env, r *prove.Result) error
		want prove.Verdict
	}{
		"nothing found": {func(_ context.Context, env *prove.Env, _ *prove.Result) error {
			dir = env.Dir
			return os.WriteFile(env.Dir+"/x", nil, 0o600)
		}, prove.Passed},
		"a violation": {func(_ context.Context, _ *prove.Env, r *prove.Result) error {
			r.Violatef("S1", "k", "%d effects", 2)
			return nil
		}, prove.Failed},
		"a violation, and an error": {func(_ context.Context, _ *prove.Env, r *prove.Result) error {
			r.Violatef("S1", "k", "%d effects", 2)
			return errors.New("and then it ended")
		}, prove.Failed},
		"an error": {func(context.Context, *prove.Env, *prove.Result) error { return errors.New("no server") }, prove.Broken},
		"a panic":  {func(context.Context, *prove.Env, *prove.Result) error { panic("oh") }, prove.Broken},
	} {
		if got := prove.Run(t.Context(), check(c.run), env()); got.Verdict != c.want || got.Verdict == prove.Broken && got.Why == "" {
			t.Errorf("%s: %s (%s)", name, got.Verdict, got.Why)
		}
	}
	if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the directory %s of a check is still there: %v", dir, err)
	}
}

// sample is a report with one of each verdict.
func sample(t *testing.T) *prove.Report {
	t.Helper()
	r := &prove.Report{
		Program: "retrysafe devel", Machine: "2 cores", Size: "change", Seed: 7, Began: time.Date(2026, 11, 15, 12, 0, 0, 0, time.UTC),
		Stores: []prove.StoreFacts{{URL: "sqlite:x.db", Kind: "sqlite", Class: "durable"}},
	}
	good := prove.Run(t.Context(), check(func(_ context.Context, _ *prove.Env, r *prove.Result) error {
		r.Count("requests", 1234567)
		r.Count("requests", 1)
		r.Measure("per second", 12.25, "")
		return nil
	}), env())
	bad := prove.Run(t.Context(), check(func(_ context.Context, _ *prove.Env, r *prove.Result) error {
		for range 30 {
			r.Violate(prove.Violation{Invariant: "S1", Key: "k<b>\x1b[31m", What: "2 effects", Seed: 99, Trace: []string{"A reserves", "B reserves"}})
		}
		return nil
	}), env())
	good.Store, bad.Store = "sqlite:x.db", "sqlite:x.db"
	e := env()
	r.Results = []*prove.Result{good, bad, prove.Skip(check(nil), &e, "no spin here")}
	for _, one := range r.Results {
		one.Took = 1500 * time.Millisecond
	}
	r.End(r.Began.Add(3 * time.Second))
	return r
}

func TestReportForPeople(t *testing.T) {
	t.Parallel()
	var text bytes.Buffer
	if err := sample(t).Text(&text); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"passed   G9   storm on sqlite           1.5s  1,234,568 requests, 12.25 per second\n",
		"skipped  G9   storm                     1.5s  no spin here\n",
		"storm: 30 violations. It should show: one key, one effect.\n",
		"  S1 of k<b>\\x1b[31m: 2 effects\n      A reserves\n      B reserves\n",
		"to see it again: retrysafe prove storm -n 1 --store sqlite:x.db --seed 99\n",
		"1 of 3 checks passed in 3s, 1 failed, 1 skipped. A promise was broken.\n",
	} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("the text lacks %q:\n%s", want, &text)
		}
	}
	if n := strings.Count(text.String(), "2 effects"); n != 20 {
		t.Errorf("%d violations are shown, want the first 20", n)
	}
}

func TestReportForPrograms(t *testing.T) {
	t.Parallel()
	var first, second bytes.Buffer
	r := sample(t)
	if err := r.JSON(&first); err != nil {
		t.Fatal(err)
	}
	again, err := prove.ReadReport(bytes.NewReader(first.Bytes()))
	if err != nil {
		t.Fatal(err)
	}
	if err := again.JSON(&second); err != nil || first.String() != second.String() || again.Verdict != prove.Failed {
		t.Errorf("read and written again it is another report (%v):\n%s\n%s", err, &first, &second)
	}
}

func TestReportAsAPage(t *testing.T) {
	t.Parallel()
	var page bytes.Buffer
	if err := sample(t).HTML(&page); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(page.String(), "k<b>") || !strings.Contains(page.String(), "k&lt;b&gt;") {
		t.Error("a key is part of the page's own markup")
	}
	for _, want := range []string{"30 violations", "A reserves", "no spin here", "1,234,568 requests", "--seed 99"} {
		if !strings.Contains(page.String(), want) {
			t.Errorf("the page lacks %q", want)
		}
	}
}

func TestSizes(t *testing.T) {
	t.Parallel()
	for want, size := range map[string]prove.Size{
		"":                               {},
		"1,000 kills (--full: 25,000)":   {Of: "kills", Change: 1000, Release: 25_000},
		"4 planted bugs (--full: all)":   {Of: "planted bugs", Change: 4},
		"some steps of it (--full: all)": {Of: "steps of it"},
	} {
		if got := size.String(); got != want {
			t.Errorf("%+v is %q, want %q", size, got, want)
		}
	}
	for want, e := range map[int]prove.Env{3: {}, 50: {Full: true}, 7: {N: 7, Full: true}} {
		c := prove.Check{Size: prove.Size{Of: "times", Change: 3, Release: 50}, Run: func(_ context.Context, env *prove.Env, r *prove.Result) error {
			r.Count("times", env.Times())
			return nil
		}}
		if got := prove.Run(t.Context(), &c, e).Figure("times"); int(got) != want {
			t.Errorf("%v times, want %d", got, want)
		}
	}
}

package model_test

import (
	"context"
	"log/slog"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/prove"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/prove/model"
)

// small is the size of searches here; the command's own is larger.
const small = 3

func env(t *testing.T) prove.Env {
	return prove.Env{Dir: t.TempDir(), N: small, Log: slog.New(slog.DiscardHandler)}
}

func run(t *testing.T, variants ...model.Variant) *prove.Result {
	t.Helper()
	return prove.Run(t.Context(), &prove.Check{Name: "model", Run: func(ctx context.Context, env *prove.Env, r *prove.Result) error {
		return model.Search(ctx, env, r, variants)
	}}, env(t))
}

// The check has teeth: it notices when a safe variant is not, and when an unsafe one
// is not found to be.
func TestCheckNotices(t *testing.T) {
	t.Parallel()
	wrong := model.Variant{Name: "wrong", What: "a take-over that passes for safe", Defines: []string{"UNPROTECTED", "RERUN"}, Attempts: small}
	r := run(t, wrong)
	if r.Verdict != prove.Failed || r.Violations[0].Invariant == "" || len(r.Violations[0].Trace) < 2 {
		t.Errorf("a safe variant that breaks a promise: %s, %+v", r.Verdict, r.Violations)
	}
	harmless := model.Variant{Name: "harmless", What: "nothing wrong", Defines: []string{"UNPROTECTED", "WATCH=1"}, Breaks: "S1", Attempts: small}
	r = run(t, harmless)
	if r.Verdict != prove.Failed || r.Violations[0].Invariant != "S1" || !strings.Contains(r.Violations[0].What, "harmless") {
		t.Errorf("an unsafe variant that breaks nothing: %s, %+v", r.Verdict, r.Violations)
	}
	other := model.Variant{Name: "other", What: "it breaks another promise", Defines: []string{"KEYED", "ACK_FIRST", "WATCH=3"}, Breaks: "S1", Attempts: small}
	r = run(t, other)
	if r.Verdict != prove.Failed || r.Violations[0].Invariant != "S3" {
		t.Errorf("an unsafe variant that breaks another promise: %s, %+v", r.Verdict, r.Violations)
	}
}

// A search that could not be carried out shows nothing, and says so.
func TestCheckThatCannotBeCarriedOut(t *testing.T) {
	t.Parallel()
	if r := run(t, model.Variant{Name: "nonsense", Defines: []string{"ATTEMPTS=0", "KEYED=("}, Attempts: small}); r.Verdict != prove.Broken {
		t.Errorf("a model that does not compile: %s, %+v", r.Verdict, r.Violations)
	}
	for _, missing := range []string{"spin", "gcc"} {
		_, err := model.FindSpinBy(t.TempDir(), func(program string) (string, error) {
			if program == missing {
				return "", exec.ErrNotFound
			}
			return program, nil
		})
		if err == nil || !strings.Contains(err.Error(), "apt-get install spin gcc") {
			t.Errorf("without %s: %v", missing, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if r := prove.Run(ctx, &model.Checks()[0], env(t)); r.Verdict != prove.Broken {
		t.Errorf("a check that was stopped: %s", r.Verdict)
	}
}

// Only a search that came to its end is clean.
func TestReadReport(t *testing.T) {
	t.Parallel()
	const whole = "State-vector 84 byte, depth reached 347, errors: 0\n  1583446 states, stored\n"
	out, clean, err := model.ReadReport([]byte(whole))
	if err != nil || !clean || out.States != 1583446 || out.Depth != 347 {
		t.Errorf("a whole search: %+v, %v, %v", out, clean, err)
	}
	for _, report := range []string{
		"", "error: max search depth too small\n" + whole, "Warning: Search not completed\n" + whole,
		"pan: out of memory\n" + whole, "pan: reached -DMEMLIM bound\n" + whole, "States stored: many",
	} {
		if _, clean, err := model.ReadReport([]byte(report)); err == nil || clean {
			t.Errorf("a search that was cut short passes: %q", report)
		}
	}
}

// Variants that are the same but for their names would prove nothing twice, and each
// invariant that the check watches has one that breaks it.
func TestVariantsCoverTheInvariants(t *testing.T) {
	t.Parallel()
	names, defines, breaks := map[string]bool{}, map[string]bool{}, map[string]bool{}
	unsafe := 0
	for _, v := range model.Variants() {
		d := strings.Join(slices.Sorted(slices.Values(v.Defines)), " ")
		if names[v.Name] || defines[d] {
			t.Errorf("%s is there twice", v.Name)
		}
		names[v.Name], defines[d], breaks[v.Breaks] = true, true, true
		if !v.Safe() && v.Breaks != model.Goal {
			unsafe++
		}
	}
	for _, invariant := range model.Checks()[0].Holds {
		if !breaks[invariant] {
			t.Errorf("no variant breaks %s, so it may not be watched", invariant)
		}
	}
	if unsafe < 8 {
		t.Errorf("%d unsafe variants", unsafe)
	}
}

package linear

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/prove"
	"github.com/retrysafe/retrysafe/store/memstore"
)

// A mixing store takes one tenant's key for another's.
type mixing struct {
	retrysafe.Store
	as func(ref retrysafe.Ref) retrysafe.Ref
}

func (m *mixing) Create(ctx context.Context, w retrysafe.Write) (retrysafe.Record, error) {
	return m.do(ctx, w, m.Store.Create)
}

func (m *mixing) Swap(ctx context.Context, w retrysafe.Write) (retrysafe.Record, error) {
	return m.do(ctx, w, m.Store.Swap)
}

func (m *mixing) do(ctx context.Context, w retrysafe.Write, step func(context.Context, retrysafe.Write) (retrysafe.Record, error)) (retrysafe.Record, error) {
	asked := w.Ref
	w.Ref = m.as(asked)
	got, err := step(ctx, w)
	got.Ref = asked
	return got, err
}

func (m *mixing) Load(ctx context.Context, ref retrysafe.Ref) (retrysafe.Record, error) {
	got, err := m.Store.Load(ctx, m.as(ref))
	got.Ref = ref
	return got, err
}

// telling refuses a key that another tenant has.
type telling struct{ retrysafe.Store }

func (s *telling) Create(ctx context.Context, w retrysafe.Write) (retrysafe.Record, error) {
	mark := retrysafe.Record{Ref: retrysafe.Ref{Scope: "seen", Key: w.Key}, State: retrysafe.StateInProgress, Version: 1, Attempt: 1, Owner: retrysafe.Owner{1}, Reason: w.Scope}
	if first, err := s.Store.Create(ctx, retrysafe.Write{Record: mark}); err == nil && first.Reason != w.Scope {
		return retrysafe.Record{}, retrysafe.ErrUnreadable
	}
	return s.Store.Create(ctx, w)
}

func TestW73_W75_TenantsThatAreMixedUpAreFound(t *testing.T) {
	t.Parallel()
	joined := func(how func(scope, key string) string) func(retrysafe.Store) retrysafe.Store {
		return func(s retrysafe.Store) retrysafe.Store {
			return &mixing{s, func(ref retrysafe.Ref) retrysafe.Ref {
				return retrysafe.Ref{Scope: "all", Key: how(ref.Scope, ref.Key)}
			}}
		}
	}
	for name, bend := range map[string]func(retrysafe.Store) retrysafe.Store{
		"none":             func(s retrysafe.Store) retrysafe.Store { return s },
		"no tenant":        joined(func(_, key string) string { return key }),
		"joined by colons": joined(func(scope, key string) string { return scope + ":" + key }),
		"joined":           joined(func(scope, key string) string { return scope + key }),
		"joined by zeros":  joined(func(scope, key string) string { return scope + "\x00" + key }),
		"folded":           joined(func(scope, key string) string { return strings.ToLower(scope) + "\x01" + key }),
		"trimmed":          joined(func(scope, key string) string { return strings.TrimSpace(scope) + "\x01" + key }),
		"as text":          joined(func(scope, key string) string { return strings.ToValidUTF8(scope, "\ufffd") + "\x01" + key }),
		"cut short":        joined(func(scope, key string) string { return scope + "\x01" + key[:min(len(key), 254)] }),
		"existence":        func(s retrysafe.Store) retrysafe.Store { return &telling{s} },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := new(prove.Result)
			env := &prove.Env{N: 3_000, Seed: 3, Log: slog.New(slog.DiscardHandler)}
			err := isolate(t.Context(), env, r, bend(memstore.New(nil)))
			if name == "none" && (err != nil || r.Found > 0) || name != "none" && r.Found == 0 {
				t.Errorf("%d violations, %v: %+v", r.Found, err, r.Violations)
			}
		})
	}
}

func TestW74_TimesThatDifferAreFound(t *testing.T) {
	t.Parallel()
	chance := rand.New(rand.NewPCG(1, 2))
	sample := func(n int, later float64) (s []float64) {
		for range n {
			s = append(s, chance.ExpFloat64()+later)
		}
		return s
	}
	calls := 0
	differing := func(guilty ...float64) sampler {
		calls = 0
		return func(context.Context, int) ([]float64, []float64, error) {
			calls++
			return sample(2000, guilty[calls-1]), sample(2000, 0), nil
		}
	}
	for _, c := range []struct {
		take         sampler
		strict       bool
		found, taken int
	}{
		{differing(0), true, 0, 1},
		{differing(0.2, 0.2, 0.2), true, 1, 3},
		{differing(0.2, 0.2, 0), true, 0, 3}, // noise
		{differing(0.2), false, 0, 1},        // it is only told
	} {
		calls = 0
		r := new(prove.Result)
		if err := compareTimes(t.Context(), "looks", c.take, 2000, c.strict, r); err != nil || r.Found != c.found || calls != c.taken {
			t.Errorf("found %d of %d after %d of %d samples: %v, %v", r.Found, c.found, calls, c.taken, r.Figures, err)
		}
	}
	broken := errors.New("no time")
	if err := compareTimes(t.Context(), "looks", func(context.Context, int) ([]float64, []float64, error) { return nil, nil, broken }, 1, true, new(prove.Result)); !errors.Is(err, broken) {
		t.Errorf("got %v", err)
	}
}

func TestKolmogorov(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ distance, p float64 }{{0.1, 1}, {0.5, 0.9639}, {1, 0.26999967}, {1.36, 0.0494}, {1.95, 0.0010}, {4, 2.5e-14}} {
		if got := tail(c.distance); got < c.p*0.98 || got > c.p*1.02 {
			t.Errorf("tail(%v) = %v, want %v", c.distance, got, c.p)
		}
	}
	equal := []float64{1, 2, 3, 3, 4}
	if p := kolmogorov(append([]float64(nil), equal...), equal); p != 1 {
		t.Errorf("of one sample, twice: %v", p)
	}
	if p := kolmogorov(nil, equal); p != 1 {
		t.Errorf("of no sample: %v", p)
	}
	var low, high []float64
	for i := range 100 {
		low, high = append(low, float64(i)), append(high, float64(i+100))
	}
	if p := kolmogorov(low, high); p > 1e-12 {
		t.Errorf("of samples that have nothing in common: %v", p)
	}
}

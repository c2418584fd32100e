package sweep

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/prove"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/prove/effect"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/prove/sandbox"
)

// A field is one store on which cases are played, and what is known of them.
type field struct {
	*rig
	env *prove.Env
	r   *prove.Result
	db  *sandbox.DB
	at  *effect.Provider

	mu       sync.Mutex
	accounts []*account
}

func (g *rig) enter(ctx context.Context, env *prove.Env, r *prove.Result) (*field, error) {
	db, err := sandbox.Open(ctx, env.Store)
	if err != nil {
		return nil, err
	}
	if err := effect.SeenInTx(ctx, db.TxStore(), operation); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return &field{rig: g, env: env, r: r, db: db, at: effect.NewProvider()}, nil
}

// An account is what happened to one case.
type account struct {
	s     *scenario
	name  string
	shown []retrysafe.Result // to clients, before the key was final
	final *retrysafe.Result  // nil: it is unknown whether it happened
	trace []string
}

// opens returns the account of a new case, prepared.
func (f *field) opens(ctx context.Context, s *scenario, name string) (*account, error) {
	n, err := f.clean(s, name)
	if err != nil {
		return nil, err
	}
	if s.prepare != nil {
		if err := s.prepare(ctx, n); err != nil {
			return nil, fmt.Errorf("prepare %s: %w", name, err)
		}
	}
	return &account{s: s, name: name}, nil
}

// clean returns a node for which nothing goes wrong.
func (f *field) clean(s *scenario, name string) (*node, error) {
	return f.node(f.db, f.at, open{}, budget, s, name)
}

// tries lets a client try once, and notes what it was shown.
func (a *account) tries(ctx context.Context, n *node) error {
	out, err := a.s.act(ctx, n)
	if err == nil {
		a.shown = append(a.shown, out.Result)
	}
	return err
}

func (f *field) violate(a *account, invariant, format string, args ...any) {
	f.r.Violate(prove.Violation{Invariant: invariant, Key: a.name, What: fmt.Sprintf(format, args...), Trace: a.trace})
}

// settle has a node of its own try until the key is final, and files the account.
func (f *field) settle(ctx context.Context, a *account) error {
	n, err := f.clean(a.s, a.name)
	if err != nil {
		return err
	}
	for began := time.Now(); ; prove.Pause(ctx, 20*time.Millisecond) {
		out, err := a.s.act(ctx, n)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		done := err == nil || a.s.unsure() && errors.Is(err, retrysafe.ErrUnknown)
		if done && a.s.after != nil {
			if wrong := a.s.after(ctx, n); wrong != nil {
				done, err = false, wrong
			}
		}
		if done {
			if err == nil {
				a.final = &out.Result
			}
			break
		}
		if time.Since(began) > lease+patience {
			f.violate(a, "L1", "the key is not final %v after its lease: %v", patience, err)
			return nil
		}
	}
	f.replays(ctx, a, n)
	f.wrongs(a, n)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.accounts = append(f.accounts, a)
	return nil
}

// replays makes sure that the answer stays what it is.
func (f *field) replays(ctx context.Context, a *account, n *node) {
	if a.final == nil {
		return
	}
	for began := time.Now(); ; prove.Pause(ctx, 20*time.Millisecond) {
		out, err := a.s.act(ctx, n)
		switch {
		case err == nil && out.Equal(a.final), ctx.Err() != nil:
			return
		case err == nil:
			f.violate(a, "S2", "the key was answered with %q, and then with %q", a.final.Body, out.Body)
			return
		case time.Since(began) > patience: // a busy store may not answer now and then
			f.violate(a, "S4", "the key was answered, and retries get: %v", err)
			return
		}
	}
}

func (f *field) wrongs(a *account, n *node) {
	for _, wrong := range n.seen.wrongs() {
		f.violate(a, "S8", "%s", wrong)
	}
}

// audit counts effects, when all is over.
func (f *field) audit(ctx context.Context) error {
	effects, err := f.db.Effects(ctx)
	if err != nil {
		return err
	}
	for _, a := range f.accounts {
		f.compare(a)
		booked := f.rows(a, effects)
		f.charges(a, booked)
	}
	f.r.Count("keys brought to their end", len(f.accounts))
	return nil
}

// compare holds what clients were shown against the answer.
func (f *field) compare(a *account) {
	for i := range a.shown {
		switch shown := &a.shown[i]; {
		case a.final == nil:
			f.violate(a, "S3", "a client was shown %q, and now the outcome is unknown", shown.Body)
		case !shown.Equal(a.final):
			f.violate(a, "S4", "a client was shown %q, and a retry gets %q", shown.Body, a.final.Body)
		}
	}
}

// rows compares the table of effects with the answer, and returns whose they are.
func (f *field) rows(a *account, effects map[string][]string) (booked []string) {
	for _, suffix := range a.s.rows {
		by := effects[a.name+suffix]
		switch {
		case len(by) > 1:
			f.violate(a, "S1", "its effect%s is there %d times", suffix, len(by))
		case a.final != nil && len(by) == 0:
			f.violate(a, "S1", "it is answered with %q, and its effect%s is not there", a.final.Body, suffix)
		case a.final != nil && !slices.Contains(strings.Fields(string(a.final.Body)), by[0]):
			f.violate(a, "S1", "it is answered with %q, and its effect%s is that of %s", a.final.Body, suffix, by[0])
		}
		booked = append(booked, by...)
	}
	return booked
}

// charges compares the provider's effects with the answer.
func (f *field) charges(a *account, booked []string) {
	all := f.at.Effects(a.name)
	switch {
	case len(all) > 1:
		f.violate(a, "S1", "the provider has %d effects of it: %+v", len(all), all)
	case a.s.charges && a.final != nil && len(all) == 0:
		f.violate(a, "S1", "it is answered with %q, and the provider knows nothing of it", a.final.Body)
	case len(all) == 1 && all[0].Conflict:
		f.violate(a, "S11", "the provider was called with one key and two requests")
	case len(all) == 1 && a.s.name == "outbox" && !slices.Contains(booked, all[0].Request):
		f.violate(a, "S11", "the message of %s was delivered, and its transaction did not commit", all[0].Request)
	}
}

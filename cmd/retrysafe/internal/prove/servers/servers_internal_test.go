//go:build linux

package servers

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/prove"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/prove/effect"
	"github.com/retrysafe/retrysafe/internal/test/testservers"
)

func TestMain(m *testing.M) { testservers.Main(m) }

func check(t *testing.T, c prove.Check, env prove.Env) *prove.Result {
	t.Helper()
	env.Seed, env.Dir, env.Log = 7, t.TempDir(), slog.New(slog.DiscardHandler)
	r := prove.Run(t.Context(), &c, env)
	for _, f := range r.Figures {
		t.Logf("%s: %v", f.Name, f.Value)
	}
	return r
}

func passes(t *testing.T, r *prove.Result, figures ...string) {
	t.Helper()
	if r.Verdict != prove.Passed {
		t.Errorf("%s: %s", r.Verdict, r.Why)
	}
	for _, v := range r.Violations {
		t.Errorf("%s of %q: %s", v.Invariant, v.Key, v.What)
	}
	for _, f := range figures {
		if r.Figure(f) == 0 {
			t.Errorf("%s: none", f)
		}
	}
}

// finds makes sure that a control was found out, and for the right reason.
func finds(t *testing.T, r *prove.Result, what string) {
	t.Helper()
	if r.Err != nil {
		t.Errorf("it could not be carried out: %v", r.Err)
	}
	if !slices.ContainsFunc(r.Violations, func(v prove.Violation) bool { return strings.Contains(v.What, what) }) {
		t.Errorf("%d violations, and none of them is %q: %+v", r.Found, what, r.Violations)
	}
}

func TestW14W15W32W43_KilledServerAndLostReplies(t *testing.T) {
	t.Parallel()
	passes(t, check(t, Checks()[0], prove.Env{N: 5}), "server kills", "replies cut before the effect", "replies cut to a commit or settlement", "answers shown under load")
}

func TestW34W36_Failover(t *testing.T) {
	t.Parallel()
	passes(t, check(t, Checks()[1], prove.Env{N: 1}),
		"failovers to a synchronous standby", "answers shown under load",
		"control: acknowledged keys lost by an asynchronous standby",
		"control: reservations granted twice by a Redis that evicts",
		"control: reservations granted twice by a Redis that keeps nothing on disk")
}

// writeBehind acknowledges settlements before the server has them, and sends each
// once, so late that a kill meets some of them however slowly clients pay.
type writeBehind struct {
	retrysafe.Store
	sending *sync.WaitGroup
}

func (b writeBehind) Swap(ctx context.Context, w retrysafe.Write) (retrysafe.Record, error) {
	if w.State != retrysafe.StateCompleted {
		return b.Store.Swap(ctx, w)
	}
	b.sending.Go(func() {
		<-time.After(lease / 2)
		ctx, cancel := context.WithTimeout(context.Background(), lease/2) // a step's own ends with it
		defer cancel()
		_, _ = b.Store.Swap(ctx, w)
	})
	early := w.Record
	early.Revision = w.Expect.Revision + 1
	early.Deadline = time.Now().Add(w.Term)
	return early, nil
}

func TestAnAnswerAcknowledgedTooEarlyIsFound(t *testing.T) {
	t.Parallel()
	var sending sync.WaitGroup
	k := killing{kills: func(s retrysafe.Store) retrysafe.Store { return writeBehind{s, &sending} }}
	finds(t, check(t, prove.Check{Run: alone(k.killServer)}, prove.Env{N: 2}), "a client was shown an answer")
	sending.Wait()
}

// alone runs one part of "killdb".
func alone(part func(context.Context, *prove.Env, *prove.Result, *testservers.Postgres) error) func(context.Context, *prove.Env, *prove.Result) error {
	return func(ctx context.Context, env *prove.Env, r *prove.Result) error {
		pg, err := startVictim(ctx)
		if err != nil {
			return err
		}
		return errors.Join(part(ctx, env, r, pg), pg.Close())
	}
}

// forgetful takes its own reservation, whose reply was lost, for another caller's.
type forgetful struct{ retrysafe.Store }

func (f forgetful) Create(ctx context.Context, w retrysafe.Write) (retrysafe.Record, error) {
	got, err := f.Store.Create(ctx, w)
	if err == nil || errors.Is(err, retrysafe.ErrExists) {
		return got, err
	}
	if got, lost := f.Load(ctx, w.Ref); lost == nil && got.Owner == w.Owner {
		got.Owner[0]++
		return got, retrysafe.ErrExists
	}
	return got, err
}

func TestW14_CallThatDoesNotKnowItselfIsFound(t *testing.T) {
	t.Parallel()
	cuts := cutsBefore(func(s retrysafe.Store) retrysafe.Store { return forgetful{s} })
	finds(t, check(t, prove.Check{Run: alone(cuts)}, prove.Env{N: 4}), "the call conflicts with itself")
}

// cutsBefore cuts replies to nodes that have something before their store.
func cutsBefore(wrap wrapper) func(context.Context, *prove.Env, *prove.Result, *testservers.Postgres) error {
	k := killing{cuts: wrap}
	return func(ctx context.Context, env *prove.Env, r *prove.Result, pg *testservers.Postgres) error {
		return k.cutReplies(ctx, env, r, pg, newJournal(r.Violatef), effect.NewProvider())
	}
}

// blind takes no word for it that a transaction has committed: it says that the
// record is as it was before. It sees well as long as no reply is cut.
type blind struct{ retrysafe.Store }

func (b blind) Swap(ctx context.Context, w retrysafe.Write) (retrysafe.Record, error) {
	got, err := b.Store.Swap(ctx, w)
	if err == nil || w.Effects != retrysafe.EffectsInTx || strings.Contains(w.Key, "whole") {
		return got, err
	}
	w.Revision = w.Expect.Revision + 1
	return w.Record, nil
}

func TestW32_WrongWordOfARollbackIsFound(t *testing.T) {
	t.Parallel()
	cuts := cutsBefore(func(s retrysafe.Store) retrysafe.Store { return blind{s} })
	finds(t, check(t, prove.Check{Run: alone(cuts)}, prove.Env{N: 8}), "and its effect is there")
}

// An asynchronous standby that is taken for a synchronous one.
func TestW34_StandbyThatLagsIsFound(t *testing.T) {
	t.Parallel()
	r := check(t, prove.Check{Run: (&failing{lagging: true}).failOver}, prove.Env{N: 1})
	finds(t, r, "a client was shown an answer, and a retry ran the operation again")
	finds(t, r, "the class of this pair is A")
}

// A check that is cancelled proves nothing, and reports no violation.
func TestEndedCheckBlamesNobody(t *testing.T) {
	t.Parallel()
	ctx, end := context.WithCancel(t.Context())
	c := Checks()[0]
	run := c.Run
	c.Run = func(_ context.Context, env *prove.Env, r *prove.Result) error { return run(ctx, env, r) }
	r := check(t, c, prove.Env{N: 50, Progress: func(int, int) { end() }})
	if r.Verdict != prove.Broken || !errors.Is(r.Err, context.Canceled) {
		t.Errorf("%s: %v, %+v", r.Verdict, r.Err, r.Violations)
	}
}

// What the judge says of each way in which a key can end.
func TestJudgeKnowsRightFromWrong(t *testing.T) {
	t.Parallel()
	mine, other := answer("MINE"), answer("OTHER")
	for name, c := range map[string]struct {
		mode    effect.Mode
		shown   *retrysafe.Result
		denied  string
		final   final
		effects []string
		want    []string
	}{
		"replayed":                    {effect.InTx, &mine, "", final{result: &mine, replayed: true}, []string{"MINE"}, nil},
		"answered only now":           {effect.InTx, nil, "OTHER", final{result: &mine}, []string{"MINE"}, nil},
		"unknown":                     {effect.Unprotected, nil, "", final{}, []string{"MINE"}, nil},
		"unknown without an effect":   {effect.Unprotected, nil, "", final{}, nil, nil},
		"unknown, twice":              {effect.Unprotected, nil, "", final{}, []string{"MINE", "OTHER"}, []string{"S1"}},
		"unknown, though protected":   {effect.Keyed, nil, "", final{}, []string{"MINE"}, []string{"S9"}},
		"unknown, though shown":       {effect.Unprotected, &mine, "", final{}, []string{"MINE"}, []string{"S4"}},
		"ran again, under its key":    {effect.Keyed, &mine, "", final{result: &mine}, []string{"MINE"}, []string{"S4"}},
		"ran again":                   {effect.Unprotected, &mine, "", final{result: &other}, []string{"MINE", "OTHER"}, []string{"S4", "S1"}},
		"another answer":              {effect.InTx, &mine, "", final{result: &other, replayed: true}, []string{"OTHER"}, []string{"S2"}},
		"an answer of another effect": {effect.InTx, &mine, "", final{result: &mine, replayed: true}, []string{"OTHER"}, []string{"S2"}},
		"an answer without an effect": {effect.OneCommit, &mine, "", final{result: &mine, replayed: true}, nil, []string{"S3"}},
		"an effect that was denied":   {effect.OneCommit, nil, "MINE", final{result: &mine, replayed: true}, []string{"MINE"}, []string{"S8"}},
		"not final":                   {effect.InTx, nil, "", final{stuck: retrysafe.ErrInFlight}, nil, []string{"L1"}},
	} {
		var got []string
		j := newJournal(func(invariant, _, _ string, _ ...any) { got = append(got, invariant) })
		s := j.open(name, c.mode)
		s.shown, s.denied = c.shown, []string{c.denied}
		if j.hold(s, &c.final, c.effects); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

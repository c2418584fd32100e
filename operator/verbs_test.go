package operator_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/operator"
	"github.com/retrysafe/retrysafe/store/memstore"
)

// A verb as a test calls it.
type verb func(*operator.Service, context.Context, operator.Action) (operator.Entry, error)

var verbs = map[string]verb{
	"resolve": func(d *operator.Service, ctx context.Context, a operator.Action) (operator.Entry, error) {
		return d.Resolve(ctx, a, paid)
	},
	"decline": func(d *operator.Service, ctx context.Context, a operator.Action) (operator.Entry, error) {
		return d.Decline(ctx, a, retrysafe.Result{Status: 402, Body: []byte("declined")})
	},
	"release": (*operator.Service).Release,
	"forget":  (*operator.Service).Forget,
	"erase":   (*operator.Service).Erase,
	"redrive": (*operator.Service).Redrive,
}

// What each verb makes of each state. What is not here is refused with ErrState.
func TestWhatEachVerbDoesToEachState(t *testing.T) {
	t.Parallel()
	type row struct {
		state retrysafe.State
		due   bool
	}
	becomes := map[string]map[row]retrysafe.State{}
	allow := func(v string, from row, to retrysafe.State) {
		if becomes[v] == nil {
			becomes[v] = map[row]retrysafe.State{}
		}
		becomes[v][from] = to
	}
	for _, due := range []bool{false, true} {
		allow("resolve", row{retrysafe.StateUnknown, due}, retrysafe.StateCompleted)
		allow("decline", row{retrysafe.StateUnknown, due}, retrysafe.StateCompleted)
		allow("release", row{retrysafe.StateUnknown, due}, retrysafe.StateRetryable)
		allow("redrive", row{retrysafe.StateUnknown, due}, retrysafe.StateUnknown)
		for _, s := range []retrysafe.State{retrysafe.StateCompleted, retrysafe.StateRetryable, retrysafe.StateExpired} {
			allow("forget", row{s, due}, retrysafe.StateRetryable)
			allow("erase", row{s, due}, s)
		}
	}
	for _, s := range []retrysafe.State{retrysafe.StateInProgress, retrysafe.StateAccepted} {
		allow("resolve", row{s, true}, retrysafe.StateCompleted)
		allow("decline", row{s, true}, retrysafe.StateCompleted)
		allow("release", row{s, true}, retrysafe.StateRetryable)
	}
	inFlight := func(s retrysafe.State) bool { return s == retrysafe.StateInProgress || s == retrysafe.StateAccepted }

	for name, do := range verbs {
		for state := retrysafe.StateAccepted; state.Valid(); state++ {
			for _, due := range []bool{false, true} {
				at := "live"
				if due {
					at = "due"
				}
				t.Run(name+"/"+state.String()+"/"+at, func(t *testing.T) {
					t.Parallel()
					s := memstore.New(nil)
					d := newDesk(t, s, nil)
					w := in(state, "k")
					if due {
						w.Term = 0
					}
					r := put(t, s, w)
					e, err := do(d, t.Context(), seen(r))
					now := load(t, s, r.Ref)
					want, ok := becomes[name][row{state, due}]
					switch {
					case ok:
						must(t, err)
						if now.State != want || now.Revision <= r.Revision {
							t.Errorf("it is %s at revision %d, want %s", now.State, now.Revision, want)
						}
						if e.Outcome != operator.StatusDone || e.From != (operator.Snapshot{State: state, Revision: r.Revision}) ||
							e.To != (operator.Snapshot{State: want, Revision: now.Revision}) || e.KeyHash != retrysafe.HashKey(r.Key) {
							t.Errorf("entry %+v", e)
						}
						lastNote(t, now, anna, e.ID)
						return
					case name == "resolve" && state == retrysafe.StateRetryable:
						if !errors.Is(err, retrysafe.ErrContradiction) || now.State != retrysafe.StateUnknown || !now.Inquiry.Dead {
							t.Errorf("%v, and it is %s, dead %v", err, now.State, now.Inquiry.Dead)
						}
						return
					case inFlight(state) && name != "redrive":
						refused(t, d, e, err, operator.ErrLive)
					default:
						refused(t, d, e, err, operator.ErrState)
					}
					if now.Revision != r.Revision {
						t.Error("what was refused has changed the record")
					}
				})
			}
		}
	}
}

// A dead letter that an operator resolves is replayed to every retry.
func TestResolveAnswersRetries(t *testing.T) {
	t.Parallel()
	onEachStore(t, func(t *testing.T, s retrysafe.Store) {
		d, e := newDesk(t, s, nil), newEngine(t, s, retrysafe.Policy{})
		w := in(retrysafe.StateUnknown, "k")
		w.Inquiry.Dead, w.Inquiry.Tries, w.Reason = true, 9, "timed out"
		r := put(t, s, w)
		if _, _, err := asks(t, e, callOf(r), "again"); !errors.Is(err, retrysafe.ErrUnknown) {
			t.Fatal(err)
		}
		a := seen(r)
		a.ProviderRef = "ch_17"
		entry, err := d.Resolve(t.Context(), a, paid)
		must(t, err)
		if entry.Status != 201 || entry.Attempt != 1 || entry.At.IsZero() || entry.Replayed {
			t.Errorf("entry %+v", entry)
		}
		out, ran, err := asks(t, e, callOf(r), "again")
		if err != nil || ran || !out.Replayed || !out.Equal(&paid) {
			t.Errorf("a retry got %+v, %v, ran %v", out, err, ran)
		}
		now := load(t, s, r.Ref)
		if now.ProviderRef != "ch_17" || now.Inquiry.Dead || now.Owner != r.Owner {
			t.Errorf("record %+v", now)
		}
		lastNote(t, now, anna, entry.ID)
		if left := now.Deadline.Sub(now.UpdatedAt); left != r.Retain {
			t.Errorf("the answer is kept for %v, want %v", left, r.Retain)
		}
	})
}

// What is released runs again, from its last checkpoint, as the next attempt.
func TestReleaseLetsTheNextRequestRunOn(t *testing.T) {
	t.Parallel()
	onEachStore(t, func(t *testing.T, s retrysafe.Store) {
		d, e := newDesk(t, s, nil), newEngine(t, s, retrysafe.Policy{})
		w := in(retrysafe.StateUnknown, "k")
		w.Checkpoint = retrysafe.Checkpoint{Phase: "authorised", Data: []byte("auth_1")}
		r := put(t, s, w)
		_, err := d.Release(t.Context(), seen(r))
		must(t, err)
		_, err = e.Do(t.Context(), callOf(r), func(_ context.Context, x *retrysafe.Execution) (retrysafe.Result, error) {
			if x.Attempt() != 2 || string(x.Checkpoint().Data) != "auth_1" {
				t.Errorf("attempt %d runs on from %+v", x.Attempt(), x.Checkpoint())
			}
			return paid, nil
		})
		must(t, err)
	})
}

// An owner whose record an operator settles after its lease lapsed has lost it,
// however late it comes back: its answer is not stored.
func TestLateOwnerLosesAgainstTheOperator(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"resolve", "release"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			clock := newClock()
			s := memstore.New(&memstore.Options{Now: clock.Now})
			d, e := newDesk(t, s, nil), newEngine(t, s, retrysafe.Policy{})
			x, _, err := e.Begin(t.Context(), callOf(in(retrysafe.StateInProgress, "k").Record))
			must(t, err)
			defer x.Stop()
			entry, err := verbs[name](d, t.Context(), seen(x.Record()))
			refused(t, d, entry, err, operator.ErrLive)
			clock.Advance(time.Hour)
			_, err = verbs[name](d, t.Context(), seen(x.Record()))
			must(t, err)
			if err := x.Complete(t.Context(), retrysafe.Result{Status: 200, Body: []byte("late")}); !errors.Is(err, retrysafe.ErrLost) {
				t.Errorf("the late owner got %v", err)
			}
		})
	}
}

// A forgotten key is free, under every policy and for every request.
func TestForgetFreesTheKeyUnderEveryPolicy(t *testing.T) {
	t.Parallel()
	onEachStore(t, func(t *testing.T, s retrysafe.Store) {
		d := newDesk(t, s, nil)
		i := 0
		for _, effects := range []retrysafe.Effects{retrysafe.EffectsUnprotected, retrysafe.EffectsKeyed, retrysafe.EffectsInTx} {
			for _, lapse := range []retrysafe.Lapse{retrysafe.LapseQuarantine, retrysafe.LapseResume, retrysafe.LapseRerun, retrysafe.LapseFail} {
				for _, expired := range []retrysafe.ExpiredPolicy{retrysafe.ExpiredRerun, retrysafe.ExpiredGone} {
					p := retrysafe.Policy{Effects: effects, Lapse: lapse, OnExpired: expired}
					if p.Check() != nil {
						continue
					}
					e := newEngine(t, s, p)
					i++
					w := in(retrysafe.StateCompleted, key(i))
					w.Effects, w.Lapse, w.Attempt = effects, lapse, 3
					w.Checkpoint = retrysafe.Checkpoint{Phase: "old", Data: []byte("old")}
					r := put(t, s, w)
					_, err := d.Forget(t.Context(), seen(r))
					must(t, err)
					other := callOf(r)
					other.Fingerprint = print2
					out, ran, err := asks(t, e, other, "anew")
					if errors.Is(err, retrysafe.ErrNotInTx) && effects == retrysafe.EffectsInTx { // it ran, in no transaction
						out, err = retrysafe.Outcome{Attempt: load(t, s, r.Ref).Attempt, Result: retrysafe.Result{Body: []byte("anew")}}, nil
					}
					if err != nil || !ran || out.Attempt != 1 || string(out.Body) != "anew" {
						t.Errorf("%+v: %+v, %v, ran %v", p, out, err, ran)
					}
					now := load(t, s, r.Ref)
					if !now.CreatedAt.After(r.CreatedAt) || !now.Checkpoint.IsZero() || now.Fingerprint != print2 {
						t.Errorf("%+v: it is no new generation: %+v", p, now)
					}
				}
			}
		}
	})
}

func TestForgottenKeyMayBePurged(t *testing.T) {
	t.Parallel()
	onEachStore(t, func(t *testing.T, s retrysafe.Store) {
		d, e := newDesk(t, s, nil), newEngine(t, s, retrysafe.Policy{OnExpired: retrysafe.ExpiredGone})
		r := put(t, s, in(retrysafe.StateCompleted, "k"))
		_, err := d.Forget(t.Context(), seen(r))
		must(t, err)
		_, err = s.Purge(t.Context(), 10)
		must(t, err)
		if out, ran, err := asks(t, e, callOf(r), "anew"); err != nil || !ran || out.Replayed {
			t.Errorf("%+v, %v, ran %v", out, err, ran)
		}
		if all := audited(t, d, operator.AuditFilter{}); len(all) != 1 || all[0].Verb != "forget" {
			t.Errorf("the purge took the audit: %+v", all)
		}
	})
}

func TestRedriveAsksAgain(t *testing.T) {
	t.Parallel()
	onEachStore(t, func(t *testing.T, s retrysafe.Store) {
		d := newDesk(t, s, nil)
		w := in(retrysafe.StateUnknown, "k")
		w.Inquiry.Dead, w.Inquiry.Tries, w.Term = true, 12, 100*365*24*time.Hour
		r := put(t, s, w)
		_, err := d.Redrive(t.Context(), seen(r))
		must(t, err)
		now := load(t, s, r.Ref)
		if now.Inquiry.Dead || now.Inquiry.Tries != 0 || !now.Due() || now.State != retrysafe.StateUnknown {
			t.Errorf("%+v", now)
		}
		due, err := s.List(t.Context(), retrysafe.Query{States: []retrysafe.State{retrysafe.StateUnknown}, Due: true})
		if err != nil || len(due) != 1 {
			t.Errorf("%d are due, %v", len(due), err)
		}
	})
}

// An operator released it, and now it turns out to have happened: the contradiction is
// left to an operator.
func TestContradictionIsLeftToPeople(t *testing.T) {
	t.Parallel()
	s := memstore.New(nil)
	told := make(events, 10)
	d := newDesk(t, s, &operator.Options{Observer: told})
	r := put(t, s, in(retrysafe.StateUnknown, "k"))
	_, err := d.Release(t.Context(), seen(r))
	must(t, err)
	a := seen(load(t, s, r.Ref))
	a.ID = "one-click"
	for _, replayed := range []bool{false, true} {
		e, err := d.Resolve(t.Context(), a, paid)
		if !errors.Is(err, retrysafe.ErrContradiction) || e.Outcome != operator.StatusDone || e.To.State != retrysafe.StateUnknown || e.Replayed != replayed {
			t.Errorf("%+v, %v", e, err)
		}
	}
	_, err = d.Resolve(t.Context(), seen(load(t, s, r.Ref)), paid)
	must(t, err)
	close(told)
	var kinds []retrysafe.EventKind
	for e := range told {
		kinds = append(kinds, e.Kind)
	}
	want := []retrysafe.EventKind{retrysafe.EventResolved, retrysafe.EventContradicted, retrysafe.EventResolved}
	if len(kinds) != len(want) || kinds[0] != want[0] || kinds[1] != want[1] || kinds[2] != want[2] {
		t.Errorf("the observer was told of %v, want %v", kinds, want)
	}
}

// The observer is told of outcomes that have changed, and of nothing else.
func TestOnlyOutcomesAreTold(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		state retrysafe.State
		want  retrysafe.EventKind // zero is none
	}{
		"forget":     {retrysafe.StateCompleted, 0},
		"erase":      {retrysafe.StateCompleted, 0},
		"redrive":    {retrysafe.StateUnknown, 0},
		"release":    {retrysafe.StateUnknown, retrysafe.EventResolved},
		"resolve":    {retrysafe.StateUnknown, retrysafe.EventResolved},
		"quarantine": {retrysafe.StateRetryable, retrysafe.EventQuarantined},
	} {
		s, told := memstore.New(nil), make(events, 10)
		d := newDesk(t, s, &operator.Options{Observer: told})
		r := put(t, s, in(c.state, "k"))
		var err error
		if name == "quarantine" {
			b := operator.Batch{By: anna, Why: "looked it up", Verb: name}
			var sel *operator.Selection
			sel, err = d.Select(t.Context(), b)
			must(t, err)
			_, err = d.Apply(t.Context(), b, sel)
		} else {
			_, err = verbs[name](d, t.Context(), seen(r))
		}
		must(t, err)
		close(told)
		var kinds []retrysafe.EventKind
		for e := range told {
			kinds = append(kinds, e.Kind)
		}
		if want := c.want != 0; want != (len(kinds) == 1 && kinds[0] == c.want) || !want && len(kinds) > 0 {
			t.Errorf("%s: the observer was told of %v, want %v", name, kinds, c.want)
		}
	}
}

type events chan retrysafe.Event

func (c events) Observe(e retrysafe.Event) { c <- e }

func TestIncompleteActionsAreInvalid(t *testing.T) {
	t.Parallel()
	s := memstore.New(nil)
	d := newDesk(t, s, nil)
	r := put(t, s, in(retrysafe.StateUnknown, "k"))
	long := strings.Repeat("a", 500)
	for name, spoil := range map[string]func(a *operator.Action, more int){ // the longest, and one more
		"ID":           func(a *operator.Action, more int) { a.ID = long[:64+more] },
		"operator":     func(a *operator.Action, more int) { a.By = long[:100+more] },
		"reason":       func(a *operator.Action, more int) { a.Why = long[:300+more] },
		"provider ref": func(a *operator.Action, more int) { a.ProviderRef = long[:255+more] },
	} {
		a := seen(put(t, s, in(retrysafe.StateUnknown, "longest "+name)))
		spoil(&a, 1)
		if _, err := d.Resolve(t.Context(), a, paid); !errors.Is(err, operator.ErrInvalid) {
			t.Errorf("an %s that is too long: %v", name, err)
		}
		spoil(&a, 0)
		if _, err := d.Resolve(t.Context(), a, paid); err != nil {
			t.Errorf("the longest %s: %v", name, err)
		}
	}
	for name, spoil := range map[string]func(*operator.Action){
		"nobody":              func(a *operator.Action) { a.By = " " },
		"no reason":           func(a *operator.Action) { a.Why = "" },
		"a long reason":       func(a *operator.Action) { a.Why = long },
		"a reason in lines":   func(a *operator.Action) { a.Why = "one\ntwo" },
		"a reason in Latin-1": func(a *operator.Action) { a.Why = "gepr\xfcft" },
		"no record":           func(a *operator.Action) { a.Ref = retrysafe.Ref{} },
		"no revision":         func(a *operator.Action) { a.Revision = 0 },
		"an ID with a blank":  func(a *operator.Action) { a.ID = "a b" },
		"a long ID":           func(a *operator.Action) { a.ID = long },
		"a provider's lines":  func(a *operator.Action) { a.ProviderRef = "ch_1\nch_2" },
		"a scope alone":       func(a *operator.Action) { a.Ref.Key = "" },
		"a key alone":         func(a *operator.Action) { a.Ref.Scope = "" },
	} {
		a := seen(r)
		spoil(&a)
		if _, err := d.Release(t.Context(), a); !errors.Is(err, operator.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, status := range []int{0, 199, 600} {
		if _, err := d.Resolve(t.Context(), seen(r), retrysafe.Result{Status: status}); !errors.Is(err, operator.ErrInvalid) {
			t.Errorf("status %d: %v", status, err)
		}
	}
	for _, kind := range []string{"application/json", "application/problem+json", "Application/JSON; charset=utf-8"} {
		torn := retrysafe.Result{Status: 201, Header: map[string][]string{"Content-Type": {kind}}, Body: []byte(`{"id":2, "amount": 8`)}
		if _, err := d.Resolve(t.Context(), seen(r), torn); !errors.Is(err, operator.ErrInvalid) || !strings.Contains(err.Error(), "body of the answer is JSON, and it is not") {
			t.Errorf("a body that is no %s: %v", kind, err)
		}
	}
	for _, status := range []int{200, 201, 206} {
		if _, err := d.Resolve(t.Context(), seen(r), retrysafe.Result{Status: status}); !errors.Is(err, operator.ErrInvalid) || !strings.Contains(err.Error(), "has no body") {
			t.Errorf("status %d without a body: %v", status, err)
		}
	}
	if _, err := d.Quarantine(t.Context(), operator.Suspects{By: anna}); !errors.Is(err, operator.ErrInvalid) {
		t.Error(err)
	}
	if now := load(t, s, r.Ref); now.Revision != r.Revision || len(audited(t, d, operator.AuditFilter{})) != 4 {
		t.Error("something was done")
	}
	if _, err := operator.New(nil, nil); err == nil {
		t.Error("a service without a store")
	}
	if _, err := operator.New(s, &operator.Options{Retention: -1}); err == nil {
		t.Error("a negative retention")
	}
}

// No action changes an audit record, nor a record that cannot be read.
func TestWhatIsNobodysIsLeftAlone(t *testing.T) {
	t.Parallel()
	s := memstore.New(nil)
	d := newDesk(t, s, nil)
	r := put(t, s, in(retrysafe.StateUnknown, "k"))
	_, err := d.Redrive(t.Context(), seen(r))
	must(t, err)
	own, err := d.List(t.Context(), operator.Filter{Scope: retrysafe.SystemScope("operator"), System: true})
	must(t, err)
	w := in(retrysafe.StateUnknown, "newer")
	w.Version = retrysafe.RecordVersion + 1
	newer := put(t, s, w)
	for name, do := range verbs {
		e, err := do(d, t.Context(), seen(own.Records[0]))
		refused(t, d, e, err, operator.ErrState)
		e, err = do(d, t.Context(), seen(newer))
		refused(t, d, e, err, retrysafe.ErrUnreadable)
		gone := seen(in(retrysafe.StateUnknown, "gone").Record)
		gone.Revision = 1
		e, err = do(d, t.Context(), gone)
		refused(t, d, e, err, retrysafe.ErrNotFound)
		if now := load(t, s, newer.Ref); now.Revision != newer.Revision {
			t.Errorf("%s changed what it cannot read", name)
		}
	}
}

// The command lines and forms that are shown as examples have places to fill in. Sent as
// they are, they change nothing.
func TestExamplesAreNotTakenAsAnswers(t *testing.T) {
	t.Parallel()
	s, err := operator.New(memstore.New(nil), nil)
	must(t, err)
	a := operator.Action{By: "anna", Why: "it is in the dashboard", Ref: retrysafe.Ref{Scope: "a", Key: "k"}, Revision: 1}
	for _, body := range []string{`{"id":"..."}`, `{"id": "..."}`} {
		if _, err := s.Resolve(t.Context(), a, retrysafe.Result{Status: 201, Body: []byte(body)}); !errors.Is(err, operator.ErrInvalid) {
			t.Errorf("Resolve with the body %s = %v", body, err)
		}
	}
	a.Why = "..."
	if _, err := s.Release(t.Context(), a); !errors.Is(err, operator.ErrInvalid) {
		t.Errorf("Release for the reason %q = %v", a.Why, err)
	}
}

// Answers that have no body: those of a status that has none, of a failure, and where the
// operator says that the API answers without one.
func TestAnswersWithoutABody(t *testing.T) {
	t.Parallel()
	store := memstore.New(nil)
	d, err := operator.New(store, nil)
	must(t, err)
	for _, c := range []struct {
		status int
		noBody bool
	}{{201, true}, {204, false}, {205, false}, {302, false}, {402, false}} {
		r := put(t, store, in(retrysafe.StateUnknown, fmt.Sprint(c.status)))
		a := seen(r)
		a.Bodiless = c.noBody
		if _, err := d.Resolve(t.Context(), a, retrysafe.Result{Status: c.status}); err != nil {
			t.Errorf("%+v: %v", c, err)
		}
		if got := load(t, store, r.Ref).Result; got == nil || got.Status != c.status || len(got.Body) != 0 {
			t.Errorf("%+v: %+v", c, got)
		}
	}
}

// An answer without a body, and one whose body is encoded, may be called JSON.
func TestOnlyPlainBodiesAreReadAsJSON(t *testing.T) {
	t.Parallel()
	s, err := operator.New(memstore.New(nil), nil)
	must(t, err)
	a := operator.Action{By: "anna", Why: "it is in the dashboard", Ref: retrysafe.Ref{Scope: "a", Key: "k"}, Revision: 1}
	for body, header := range map[string]map[string][]string{
		"":         {"Content-Type": {"application/json"}},
		"\x1f\x8b": {"Content-Type": {"application/json"}, "Content-Encoding": {"gzip"}},
	} {
		if _, err := s.Decline(t.Context(), a, retrysafe.Result{Status: 404, Header: header, Body: []byte(body)}); !errors.Is(err, retrysafe.ErrNotFound) {
			t.Errorf("Decline with the body %q = %v; want it to look for the key", body, err)
		}
	}
}

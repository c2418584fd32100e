package retrysafe_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/test/faultstore"
	"github.com/retrysafe/retrysafe/store/memstore"
)

var resumes = retrysafe.Policy{Effects: retrysafe.EffectsKeyed, Lapse: retrysafe.LapseResume}

// story is an operation of several steps, and what has run of it.
type story struct {
	*bundle
	ran []string
}

func newStory(t *testing.T, p retrysafe.Policy) *story { return &story{bundle: setup(t, p)} }

// phase is a step that returns its own name.
func (s *story) phase(ctx context.Context, name string) (string, error) {
	return retrysafe.Phase(ctx, name, func(context.Context) (string, error) {
		s.ran = append(s.ran, name)
		return name, nil
	})
}

// attempt runs the operation once.
func (s *story) attempt(t *testing.T, fn func(ctx context.Context, x *retrysafe.Execution) error) error {
	t.Helper()
	_, err := s.Do(t.Context(), call(), func(ctx context.Context, x *retrysafe.Execution) (retrysafe.Result, error) {
		return answer("done"), fn(ctx, x)
	})
	return err
}

// stops runs the given phases and then fails, so that the next attempt resumes.
func (s *story) stops(t *testing.T, names ...string) {
	t.Helper()
	stop := errors.New("stop")
	if err := s.attempt(t, func(ctx context.Context, _ *retrysafe.Execution) error {
		return errors.Join(s.phases(ctx, names...), stop)
	}); !errors.Is(err, stop) || errors.Is(err, retrysafe.ErrPhases) {
		t.Fatal(err)
	}
}

func (s *story) phases(ctx context.Context, names ...string) error {
	for _, name := range names {
		if _, err := s.phase(ctx, name); err != nil {
			return err
		}
	}
	return nil
}

// steps returns what is stored.
func (s *story) steps(t *testing.T) []retrysafe.Step {
	t.Helper()
	steps, err := s.state(t).Checkpoint.Steps()
	must(t, err)
	return steps
}

func TestPhasesThatAreFinishedAreNotRunAgain(t *testing.T) {
	t.Parallel()
	type ride struct {
		ID   int
		Tags []string
	}
	s := newStory(t, resumes)
	want := ride{7, []string{"a", "b"}}
	book := func(ctx context.Context) (ride, error) {
		return retrysafe.Phase(ctx, "ride", func(context.Context) (ride, error) {
			s.ran = append(s.ran, "ride")
			return want, nil
		})
	}
	for attempt := 1; attempt <= 3; attempt++ {
		err := s.attempt(t, func(ctx context.Context, _ *retrysafe.Execution) error {
			got, err := book(ctx)
			if err != nil || got.ID != want.ID || !slices.Equal(got.Tags, want.Tags) {
				t.Errorf("attempt %d got %+v, %v", attempt, got, err)
			}
			if attempt == 1 {
				return errors.New("stop")
			}
			if name, err := s.phase(ctx, "receipt"); err != nil || name != "receipt" {
				t.Errorf("attempt %d got %q, %v", attempt, name, err)
			}
			if attempt == 2 {
				return errors.New("stop")
			}
			return nil
		})
		if (err == nil) != (attempt == 3) {
			t.Fatalf("attempt %d: %v", attempt, err)
		}
	}
	if want := []string{"ride", "receipt"}; !slices.Equal(s.ran, want) {
		t.Errorf("ran %q, want %q", s.ran, want)
	}
	r := s.state(t)
	if steps := s.steps(t); len(steps) != 2 || string(steps[0].Result) != `{"ID":7,"Tags":["a","b"]}` || r.Checkpoint.Phase != "receipt" {
		t.Errorf("stored %q, %+v", r.Checkpoint.Phase, steps)
	}
	s.replays(t, "done")
}

// A phase costs one write, passing it none.
func TestPhaseIsOneWrite(t *testing.T) {
	t.Parallel()
	s := newStory(t, resumes)
	s.stops(t, "a", "b")
	writes := func(x int) {
		t.Helper()
		if n := s.fault.Count(faultstore.Swap); n != x {
			t.Errorf("%d writes, want %d", n, x)
		}
	}
	x := s.begins(t)
	s.fault.Plan(nil)
	must(t, s.phases(x.Context(), "a", "b"))
	writes(0)
	must(t, s.phases(x.Context(), "c"))
	writes(1)
	must(t, x.Complete(t.Context(), answer("done")))
	writes(2)
}

// A resumed attempt must be able to continue what an earlier one began. A program
// that asks for something else does not run, and cannot complete the operation.
func TestPhasesThatChangedBetweenDeploysFailLoudly(t *testing.T) {
	t.Parallel()
	effect := func(name string) func(context.Context, *story) error {
		return func(ctx context.Context, s *story) error {
			_, err := retrysafe.Effect(ctx, name, nil, func(context.Context, retrysafe.Attempt) (int, error) {
				s.ran = append(s.ran, name)
				return 1, nil
			})
			return err
		}
	}
	phases := func(names ...string) func(context.Context, *story) error {
		return func(ctx context.Context, s *story) error { return s.phases(ctx, names...) }
	}
	for _, c := range []struct {
		name string
		now  func(context.Context, *story) error
		says string
	}{
		{"renamed", phases("a", "beta"), `step 2 is stored as phase "b", and the program asks for phase "beta"`},
		{"reordered", phases("b", "a"), `step 1 is stored as phase "a", and the program asks for phase "b"`},
		{"inserted", phases("a", "x", "b"), `step 2 is stored as phase "b", and the program asks for phase "x"`},
		{"removed", phases("b"), `step 1 is stored as phase "a", and the program asks for phase "b"`},
		{"the last one removed", phases("a"), `completed after 1 steps, and 2 are stored, the next is phase "b"`},
		{"all removed", phases(), `completed after 0 steps, and 2 are stored, the next is phase "a"`},
		{"turned into an effect", effect("a"), `step 1 is stored as phase "a", and the program asks for effect "a"`},
	} {
		for _, careless := range []bool{false, true} { // one that ignores the error cannot complete either
			t.Run(fmt.Sprintf("%s, careless %v", c.name, careless), func(t *testing.T) {
				t.Parallel()
				s := newStory(t, resumes)
				s.stops(t, "a", "b")
				s.ran = nil
				err := s.attempt(t, func(ctx context.Context, _ *retrysafe.Execution) error {
					err := c.now(ctx, s)
					if careless {
						return nil
					}
					return err
				})
				if !errors.Is(err, retrysafe.ErrPhases) || !careless && !strings.Contains(err.Error(), c.says) {
					t.Errorf("Do = %v\nwant %s", err, c.says)
				}
				if r := s.state(t); r.State != retrysafe.StateRetryable || !strings.Contains(r.Reason, "steps do not fit") || len(s.ran) > 0 {
					t.Errorf("the record is %s (%s), and %q ran", r.State, r.Reason, s.ran)
				}
				must(t, s.attempt(t, func(ctx context.Context, _ *retrysafe.Execution) error { return s.phases(ctx, "a", "b", "c") }))
				s.replays(t, "done")
			})
		}
	}
}

func TestCompleteTxIsRefusedBeforeAllStepsArePassed(t *testing.T) {
	t.Parallel()
	s := newStory(t, resumes)
	s.stops(t, "a")
	var l ledger
	if err := s.attempt(t, func(ctx context.Context, x *retrysafe.Execution) error {
		tx, err := s.mem.Begin(ctx)
		must(t, err)
		tx.OnCommit(l.add)
		if err := x.CompleteTx(ctx, tx, answer("done")); !errors.Is(err, retrysafe.ErrPhases) {
			t.Errorf("CompleteTx = %v", err)
		}
		if err := tx.Commit(ctx); err == nil {
			t.Error("it committed all the same")
		}
		return nil // a careless caller goes on
	}); !errors.Is(err, retrysafe.ErrPhases) || l.rows != 0 || s.state(t).State != retrysafe.StateRetryable {
		t.Errorf("Do = %v, %d rows, %s", err, l.rows, s.state(t).State)
	}
}

func TestPhasesFollowEachOther(t *testing.T) {
	t.Parallel()
	fail := errors.New("no")
	failing := func(ctx context.Context, name string) error {
		_, err := retrysafe.Phase(ctx, name, func(context.Context) (int, error) { return 0, fail })
		return err
	}
	for _, c := range []struct {
		name string
		run  func(ctx context.Context, x *retrysafe.Execution, s *story) error
		says string
	}{
		{"nested", func(ctx context.Context, _ *retrysafe.Execution, s *story) error {
			_, err := retrysafe.Phase(ctx, "outer", func(ctx context.Context) (string, error) { return s.phase(ctx, "inner") })
			return err
		}, `phase "inner" was asked for while "outer" runs`},
		{"two at once", func(ctx context.Context, _ *retrysafe.Execution, s *story) error {
			_, err := retrysafe.Phase(ctx, "one", func(ctx context.Context) (string, error) {
				other := make(chan error)
				go func() {
					_, err := s.phase(ctx, "two")
					other <- err
				}()
				return "", <-other
			})
			return err
		}, `phase "two" was asked for while "one" runs`},
		{"a name twice", func(ctx context.Context, _ *retrysafe.Execution, s *story) error {
			return s.phases(ctx, "a", "b", "a")
		}, `phase "a" was asked for twice`},
		{"no name", func(ctx context.Context, _ *retrysafe.Execution, s *story) error { return s.phases(ctx, "") }, "1 to 200 bytes"},
		{"a name too long", func(ctx context.Context, _ *retrysafe.Execution, s *story) error {
			return s.phases(ctx, strings.Repeat("n", 201))
		}, "1 to 200 bytes"},
		{"after a failure", func(ctx context.Context, _ *retrysafe.Execution, s *story) error {
			if err := failing(ctx, "a"); !errors.Is(err, fail) {
				t.Error(err)
			}
			return s.phases(ctx, "b")
		}, `phase "b" was asked for after "a" had failed`},
		{"beside checkpoints of one's own", func(ctx context.Context, x *retrysafe.Execution, s *story) error {
			must(t, x.Save(ctx, retrysafe.Checkpoint{Phase: "mine", Data: []byte("mine")}))
			return s.phases(ctx, "a")
		}, "one of Execution.Save"},
		{"a checkpoint of one's own beside phases", func(ctx context.Context, x *retrysafe.Execution, s *story) error {
			must(t, s.phases(ctx, "a"))
			return x.Save(ctx, retrysafe.Checkpoint{Phase: "mine"})
		}, "would overwrite"},
		{"completed inside", func(ctx context.Context, x *retrysafe.Execution, s *story) error {
			_, err := retrysafe.Phase(ctx, "a", func(context.Context) (int, error) { return 0, x.Complete(ctx, answer("early")) })
			return err
		}, `completed while "a" runs`},
		{"a result that is no JSON", func(ctx context.Context, _ *retrysafe.Execution, _ *story) error {
			_, err := retrysafe.Phase(ctx, "a", func(context.Context) (func(), error) { return func() {}, nil })
			return err
		}, `the result of phase "a" cannot be stored`},
		{"a result that is too large", func(ctx context.Context, _ *retrysafe.Execution, _ *story) error {
			_, err := retrysafe.Phase(ctx, "a", func(context.Context) (string, error) { return strings.Repeat("x", 256<<10), nil })
			return err
		}, "keep large things elsewhere and return where they are"},
		{"after the answer is in a transaction", func(ctx context.Context, x *retrysafe.Execution, s *story) error {
			tx, err := s.mem.Begin(ctx)
			must(t, err)
			must(t, x.CompleteTx(ctx, tx, answer("done")))
			err = s.phases(ctx, "late")
			must(t, tx.Rollback(ctx))
			return err
		}, "after the answer was handed to a transaction"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := newStory(t, resumes)
			err := s.attempt(t, func(ctx context.Context, x *retrysafe.Execution) error { return c.run(ctx, x, s) })
			if !errors.Is(err, retrysafe.ErrPhases) || !strings.Contains(err.Error(), c.says) {
				t.Errorf("Do = %v, want %s", err, c.says)
			}
			if r := s.state(t); r.State != retrysafe.StateRetryable {
				t.Errorf("the record is %s", r.State)
			}
		})
	}
}

// What failed without being stored may be tried again, in the same attempt too.
func TestPhaseThatFailedMayBeTriedAgain(t *testing.T) {
	t.Parallel()
	s := newStory(t, resumes)
	tries := 0
	must(t, s.attempt(t, func(ctx context.Context, _ *retrysafe.Execution) error {
		for range 3 {
			if n, err := retrysafe.Phase(ctx, "a", func(context.Context) (int, error) {
				if tries++; tries < 3 {
					return tries, errors.New("not yet")
				}
				return tries, nil
			}); (err == nil) != (n == 3) || err != nil && n != 0 {
				t.Errorf("try %d returned %d, %v", tries, n, err)
			}
		}
		return s.phases(ctx, "b")
	}))
}

func TestPhaseResultOfAnotherTypeFailsLoudly(t *testing.T) {
	t.Parallel()
	type before struct{ Charge string }
	type renamed struct{ Payment string }
	s := newStory(t, resumes)
	_ = s.attempt(t, func(ctx context.Context, _ *retrysafe.Execution) error {
		_, err := retrysafe.Phase(ctx, "a", func(context.Context) (before, error) { return before{"ch_1"}, nil })
		must(t, err)
		return errors.New("stop")
	})
	for name, ask := range map[string]func(context.Context) error{
		"another type": func(ctx context.Context) error {
			_, err := retrysafe.Phase(ctx, "a", func(context.Context) (int, error) { return 0, nil })
			return err
		},
		"a member renamed": func(ctx context.Context) error {
			got, err := retrysafe.Phase(ctx, "a", func(context.Context) (renamed, error) { return renamed{}, nil })
			if got != (renamed{}) {
				t.Error(got)
			}
			return err
		},
	} {
		if err := s.attempt(t, func(ctx context.Context, _ *retrysafe.Execution) error { return ask(ctx) }); !errors.Is(err, retrysafe.ErrPhases) ||
			!strings.Contains(err.Error(), `the stored result of phase "a" is not what the program expects`) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// The first run gets what a resumed one will: what JSON does not keep is missed at once.
func TestPhaseReturnsWhatIsStored(t *testing.T) {
	t.Parallel()
	type half struct {
		Kept    int
		private int
	}
	s := newStory(t, resumes)
	must(t, s.attempt(t, func(ctx context.Context, _ *retrysafe.Execution) error {
		got, err := retrysafe.Phase(ctx, "a", func(context.Context) (half, error) { return half{1, 2}, nil })
		if got.Kept != 1 || got.private != 0 {
			t.Errorf("got %+v", got)
		}
		return err
	}))
}

func TestPhasePolicies(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		policy retrysafe.Policy
		effect bool
		says   string
	}{
		{retrysafe.Policy{Effects: retrysafe.EffectsKeyed, Lapse: retrysafe.LapseRerun}, false, "use LapseResume"},
		{retrysafe.Policy{Effects: retrysafe.EffectsInTx, Lapse: retrysafe.LapseResume}, true, "in no transaction"},
		{retrysafe.Policy{Effects: retrysafe.EffectsInTx, Lapse: retrysafe.LapseResume}, false, ""},
		{retrysafe.Policy{Effects: retrysafe.EffectsKeyed}, true, ""},
		{retrysafe.Policy{}, true, ""},
		{retrysafe.Policy{Lapse: retrysafe.LapseFail}, false, ""},
	} {
		s := newStory(t, c.policy)
		err := s.attempt(t, func(ctx context.Context, _ *retrysafe.Execution) error {
			if c.effect {
				_, err := retrysafe.Effect(ctx, "a", nil, func(context.Context, retrysafe.Attempt) (int, error) { return 1, nil })
				return err
			}
			return s.phases(ctx, "a")
		})
		if errors.Is(err, retrysafe.ErrNotInTx) && c.policy.Effects == retrysafe.EffectsInTx { // the phase is no transaction
			err = nil
		}
		if c.says == "" && err != nil || c.says != "" && (!errors.Is(err, retrysafe.ErrPolicy) || !strings.Contains(err.Error(), c.says)) {
			t.Errorf("%+v: %v, want %q", c.policy, err, c.says)
		}
	}
}

func TestStepsWithoutAnExecutionRunPlainly(t *testing.T) {
	t.Parallel()
	s := newStory(t, resumes)
	must(t, s.phases(t.Context(), "a", "a")) // nothing is stored, so nothing is compared
	keys := map[string]bool{}
	for range 2 {
		got, err := retrysafe.Effect(t.Context(), "call", []byte("bytes"), func(_ context.Context, a retrysafe.Attempt) (string, error) {
			a.Provider("nobody keeps it")
			keys[a.Key] = true
			return fmt.Sprintf("%s %d", a.Request, a.N), nil
		})
		if got != "bytes 1" || err != nil {
			t.Errorf("Effect = %q, %v", got, err)
		}
	}
	if len(keys) != 2 || keys[""] {
		t.Errorf("keys %v: two operations must not share one", keys)
	}
}

func TestStepsInsideDoTxAreRefused(t *testing.T) {
	t.Parallel()
	b := newBank(t, inTx)
	b.fn = func(ctx context.Context, _ *memstore.Tx) (retrysafe.Result, error) {
		if _, ok := retrysafe.FromContext(ctx); ok {
			t.Error("there is an execution inside DoTx")
		}
		_, one := retrysafe.Phase(ctx, "a", func(context.Context) (int, error) { return 0, nil })
		_, two := retrysafe.PhaseTx(ctx, b, "a", func(context.Context, *memstore.Tx) (int, error) { return 0, nil })
		_, three := retrysafe.Effect(ctx, "a", nil, func(context.Context, retrysafe.Attempt) (int, error) { return 0, nil })
		for _, err := range []error{one, two, three} {
			if !errors.Is(err, retrysafe.ErrPhases) || !strings.Contains(err.Error(), "inside DoTx") {
				t.Errorf("a step inside DoTx: %v", err)
			}
		}
		return answer("booked"), nil
	}
	// Also where an outer operation runs: its steps are not those of the inner one.
	must(t, newStory(t, resumes).attempt(t, func(ctx context.Context, _ *retrysafe.Execution) error {
		_, err := b.do(ctx, call())
		return err
	}))
	b.booked(t, 1, 1)
}

func TestLostExecutionStopsBeforeTheNextStep(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newStory(t, resumes)
		x := s.begins(t)
		must(t, s.phases(x.Context(), "a"))
		s.crash(t)
		heir := s.begins(t)
		if err := s.phases(heir.Context(), "a"); err != nil || len(s.ran) != 1 {
			t.Errorf("the heir: %v, %q ran", err, s.ran)
		}
		time.Sleep(11 * time.Second) // the zombie's next beat finds out
		if err := s.phases(x.Context(), "b"); !errors.Is(err, retrysafe.ErrLost) || len(s.ran) != 1 {
			t.Errorf("Phase = %v, %q ran", err, s.ran)
		}
		must(t, s.phases(heir.Context(), "b"))
		must(t, heir.Complete(t.Context(), answer("heir's")))
		s.replays(t, "heir's")
	})
}

// One that does not know yet runs its phase, but cannot store it, and an effect
// does not even run: its intent is written first.
func TestW44_ZombiesStepIsNotStored(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newStory(t, resumes)
		x := s.begins(t)
		s.crash(t)
		heir := s.begins(t)
		calls := 0
		if _, err := retrysafe.Effect(x.Context(), "charge", nil, func(context.Context, retrysafe.Attempt) (int, error) {
			calls++
			return 1, nil
		}); !errors.Is(err, retrysafe.ErrLost) || calls != 0 {
			t.Errorf("the zombie's Effect = %v, %d calls", err, calls)
		}
		must(t, heir.Complete(t.Context(), answer("heir's")))
		if steps := s.steps(t); len(steps) != 0 {
			t.Errorf("stored %+v", steps)
		}
	})
}

func TestPhaseInAContextThatHasEnded(t *testing.T) {
	t.Parallel()
	s := newStory(t, resumes)
	why := errors.New("the caller has had enough")
	err := s.attempt(t, func(ctx context.Context, _ *retrysafe.Execution) error {
		ctx, cancel := context.WithCancelCause(ctx)
		must(t, s.phases(ctx, "a"))
		if _, err := retrysafe.Phase(ctx, "b", func(context.Context) (int, error) { // what has run is stored all the same
			cancel(why)
			return 1, nil
		}); err != nil {
			t.Error(err)
		}
		return s.phases(ctx, "c")
	})
	if !errors.Is(err, why) || len(s.ran) != 1 || len(s.steps(t)) != 2 {
		t.Errorf("Do = %v, %q ran, %d stored", err, s.ran, len(s.steps(t)))
	}
}

func TestW28_PanicInAPhaseLeavesNothingHalf(t *testing.T) {
	t.Parallel()
	s := newStory(t, resumes)
	panics := func() (p any) {
		defer func() { p = recover() }()
		_ = s.attempt(t, func(ctx context.Context, _ *retrysafe.Execution) error {
			must(t, s.phases(ctx, "a"))
			_, err := retrysafe.Phase(ctx, "b", func(context.Context) (int, error) { panic("boom") })
			return err
		})
		return nil
	}
	if p := panics(); p != "boom" || s.state(t).State != retrysafe.StateRetryable || len(s.steps(t)) != 1 {
		t.Fatalf("%v, %s, %d steps", p, s.state(t).State, len(s.steps(t)))
	}
	must(t, s.attempt(t, func(ctx context.Context, _ *retrysafe.Execution) error { return s.phases(ctx, "a", "b") }))
}

// A panic that the operation survives counts as a failure of the phase.
func TestPanicThatIsRecoveredFailsThePhase(t *testing.T) {
	t.Parallel()
	s := newStory(t, resumes)
	if err := s.attempt(t, func(ctx context.Context, _ *retrysafe.Execution) error {
		func() {
			defer func() { _ = recover() }()
			_, _ = retrysafe.Phase(ctx, "a", func(context.Context) (int, error) { panic("boom") })
		}()
		return s.phases(ctx, "b")
	}); !errors.Is(err, retrysafe.ErrPhases) {
		t.Error(err)
	}
}

func TestW42_PhaseIsOfferedUntilItIsStored(t *testing.T) {
	t.Parallel()
	for _, f := range []faultstore.Fault{faultstore.LoseRequest, faultstore.LoseReply} {
		synctest.Test(t, func(t *testing.T) {
			s := newStory(t, resumes)
			must(t, s.attempt(t, func(ctx context.Context, _ *retrysafe.Execution) error {
				s.fault.Plan(func(s faultstore.Step) faultstore.Fault {
					if s.Op == faultstore.Swap && s.N < 4 {
						return f
					}
					return faultstore.None
				})
				return s.phases(ctx, "a")
			}))
			if steps := s.steps(t); len(steps) != 1 || len(s.ran) != 1 {
				t.Errorf("%d stored, %q ran", len(steps), s.ran)
			}
		})
	}
}

// Also for a caller that has gone, tries to store a phase are apart.
func TestPhaseOfACallerThatHasGonePausesBetweenTries(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, resumes)
		x := b.begins(t)
		tries := 0
		ctx, cancel := context.WithCancel(x.Context())
		_, err := retrysafe.Phase(ctx, "a", func(context.Context) (string, error) {
			b.fault.Plan(func(faultstore.Step) faultstore.Fault {
				if tries++; tries > 100 {
					return faultstore.None // without pauses time stands still here
				}
				return faultstore.LoseRequest
			})
			cancel()
			return "", nil
		})
		if !errors.Is(err, faultstore.ErrInjected) || tries > 20 {
			t.Errorf("Phase = %v after %d tries", err, tries)
		}
		b.fault.Plan(nil)
		must(t, x.Fail(t.Context(), err))
	})
}

func TestPhaseThatCannotBeStoredEndsTheWalk(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newStory(t, resumes)
		if err := s.attempt(t, func(ctx context.Context, _ *retrysafe.Execution) error {
			s.fault.Plan(faultstore.FailAll(faultstore.LoseReply))
			err := s.phases(ctx, "a")
			if !errors.Is(err, faultstore.ErrInjected) || !strings.Contains(err.Error(), "has run, and its result is not stored") {
				t.Errorf("Phase = %v", err)
			}
			s.fault.Plan(nil)
			for _, next := range []string{"a", "b"} {
				if err := s.phases(ctx, next); !errors.Is(err, retrysafe.ErrPhases) {
					t.Errorf("then %q = %v", next, err)
				}
			}
			return err
		}); !errors.Is(err, faultstore.ErrInjected) {
			t.Error(err)
		}
		must(t, s.attempt(t, func(ctx context.Context, _ *retrysafe.Execution) error { return s.phases(ctx, "a", "b") }))
		if want := []string{"a", "b"}; !slices.Equal(s.ran, want) { // its reply was lost, not the write
			t.Errorf("ran %q", s.ran)
		}
	})
}

// The heartbeat goes on while phases run and between them, and does not touch them.
func TestHeartbeatGoesOnBetweenPhases(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newStory(t, resumes)
		must(t, s.attempt(t, func(ctx context.Context, _ *retrysafe.Execution) error {
			must(t, s.phases(ctx, "a"))
			time.Sleep(time.Minute)
			_, err := retrysafe.Phase(ctx, "b", func(context.Context) (int, error) {
				time.Sleep(time.Minute)
				s.refused(t, retrysafe.ErrInFlight)
				return 1, nil
			})
			return err
		}))
		if len(s.steps(t)) != 2 {
			t.Errorf("stored %+v", s.steps(t))
		}
	})
}

func TestStepsThatCannotBeReadAreRefused(t *testing.T) {
	t.Parallel()
	s := newStory(t, resumes)
	_ = s.attempt(t, func(ctx context.Context, _ *retrysafe.Execution) error {
		must(t, s.phases(ctx, "a"))
		_, err := retrysafe.Effect(ctx, "b", []byte("bytes"), func(context.Context, retrysafe.Attempt) (int, error) { return 0, errors.New("lost") })
		return err
	})
	data := s.state(t).Checkpoint.Data
	mark := len("\x00retrysafe steps")
	damaged := map[string][]byte{"an unknown version": slices.Concat(data[:mark], []byte{2}, data[mark+1:])}
	for n := mark; n < len(data); n++ {
		c := retrysafe.Checkpoint{Data: data[:n:n]}
		if steps, err := c.Steps(); err == nil && len(steps) > 1 {
			t.Errorf("%d of %d bytes are read as %+v", n, len(data), steps)
		} else if err != nil {
			damaged[fmt.Sprintf("%d bytes", n)] = c.Data
		}
	}
	damaged["more behind an open one"] = append(slices.Clone(data), 1, 1, 'c', 1, '1')
	damaged["an unknown kind"] = append(slices.Clone(data[:mark+1]), 9, 0)
	for name, data := range damaged {
		r := s.state(t).Update()
		r.Checkpoint.Data, r.SetCheckpoint, r.Term = data, true, time.Hour
		_, err := s.mem.Swap(t.Context(), r)
		must(t, err)
		if err := s.attempt(t, func(ctx context.Context, _ *retrysafe.Execution) error { return s.phases(ctx, "a") }); !errors.Is(err, retrysafe.ErrUnreadable) {
			t.Errorf("%s: Phase = %v", name, err)
		}
		if err := s.attempt(t, func(context.Context, *retrysafe.Execution) error { return nil }); !errors.Is(err, retrysafe.ErrUnreadable) {
			t.Errorf("%s: Complete = %v", name, err)
		}
	}
	if len(damaged) < 20 {
		t.Errorf("only %d ways to damage it", len(damaged))
	}
	if steps, err := (retrysafe.Checkpoint{Phase: "mine", Data: []byte("mine")}).Steps(); steps != nil || err != nil {
		t.Errorf("another's checkpoint is read as %+v, %v", steps, err)
	}
}

// A result is JSON in the record, so that an operator can read it.
func TestStepResultsAreJSON(t *testing.T) {
	t.Parallel()
	s := newStory(t, resumes)
	s.stops(t, "a")
	var got string
	must(t, json.Unmarshal(s.steps(t)[0].Result, &got))
	if got != "a" || s.steps(t)[0].String() != `phase "a"` {
		t.Errorf("got %q, %s", got, &s.steps(t)[0])
	}
}

// A step is not begun by an execution that its operation has settled, nor after a step that
// did not fit what is stored: its effect would be no part of any attempt.
func TestStepsAreNotBegunAfterTheEnd(t *testing.T) {
	t.Parallel()
	b := setup(t, retrysafe.Policy{Effects: retrysafe.EffectsKeyed})
	step := func(x *retrysafe.Execution, name string) (ran bool, err error) {
		_, err = retrysafe.Phase(x.Context(), name, func(context.Context) (int, error) { ran = true; return 1, nil })
		return ran, err
	}
	x := b.begins(t)
	if ran, err := step(x, "first"); !ran || err != nil {
		t.Fatalf("ran: %t, %v", ran, err)
	}
	must(t, x.Release(t.Context(), nil))
	if ran, err := step(x, "second"); ran || !errors.Is(err, retrysafe.ErrSettled) {
		t.Errorf("after the settlement: ran: %t, %v", ran, err)
	}
	x = b.begins(t)
	if err := x.Save(t.Context(), retrysafe.Checkpoint{Phase: "own"}); !errors.Is(err, retrysafe.ErrPhases) {
		t.Errorf("Save over the steps of an earlier attempt = %v", err)
	}
	for _, name := range []string{"another", "first"} {
		if ran, err := step(x, name); ran || !errors.Is(err, retrysafe.ErrPhases) {
			t.Errorf("%s: ran: %t, %v", name, ran, err)
		}
	}
	must(t, x.Release(t.Context(), nil))
}

// A zombie's phase is refused at once, and so is its answer, with both reasons.
func TestPhaseAndAnswerOfAZombie(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newStory(t, resumes)
		s.stops(t, "a", "b")
		x := s.begins(t)
		_, err := s.phase(x.Context(), "a")
		must(t, err)
		heir := s.state(t).Update()
		heir.Owner, heir.Overwrite, heir.Attempt, heir.Term = retrysafe.Owner{7}, true, 9, time.Hour
		_, err = s.mem.Swap(t.Context(), heir)
		must(t, err)
		if err := x.Complete(t.Context(), answer("early")); !errors.Is(err, retrysafe.ErrPhases) || !errors.Is(err, retrysafe.ErrLost) {
			t.Errorf("Complete = %v, want ErrPhases and ErrLost", err)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		s := newStory(t, resumes)
		x := s.begins(t)
		heir := s.state(t).Update()
		heir.Owner, heir.Overwrite, heir.Attempt, heir.Term = retrysafe.Owner{7}, true, 9, time.Hour
		_, err := s.mem.Swap(t.Context(), heir)
		must(t, err)
		began := time.Now()
		if _, err := s.phase(x.Context(), "a"); !errors.Is(err, retrysafe.ErrLost) {
			t.Errorf("Phase = %v, want ErrLost", err)
		}
		if took := time.Since(began); took != 0 {
			t.Errorf("it was tried again for %v", took)
		}
	})
}

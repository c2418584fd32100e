package retrysafe_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/test/faultstore"
)

// provider notes each call that arrives.
type provider struct {
	calls []retrysafe.Attempt
	err   error // instead of an answer, though it has arrived
}

func (p *provider) charge(ctx context.Context, request string) (string, error) {
	return retrysafe.Effect(ctx, "charge", []byte(request), func(_ context.Context, a retrysafe.Attempt) (string, error) {
		p.calls = append(p.calls, a)
		if p.err != nil {
			return "", p.err
		}
		a.Provider("ch_1")
		return "charged", nil
	})
}

// arrived makes sure that there were so many calls, all alike.
func (p *provider) arrived(t *testing.T, n int, request string) {
	t.Helper()
	for i, a := range p.calls {
		if a.Key != p.calls[0].Key || len(a.Key) != 36 || string(a.Request) != request || a.N != i+1 {
			t.Errorf("call %d is %s, %q, number %d", i+1, a.Key, a.Request, a.N)
		}
	}
	if len(p.calls) != n {
		t.Errorf("%d calls arrived, want %d", len(p.calls), n)
	}
}

func TestEffectStoresIntentThenResult(t *testing.T) {
	t.Parallel()
	s := newStory(t, resumes)
	var p provider
	must(t, s.attempt(t, func(ctx context.Context, x *retrysafe.Execution) error {
		must(t, s.phases(ctx, "ride"))
		got, err := retrysafe.Effect(ctx, "charge", []byte("12 EUR"), func(_ context.Context, a retrysafe.Attempt) (string, error) {
			open := s.steps(t)
			if len(open) != 2 || !open[1].Open || !open[1].Effect || open[1].Name != "charge" || string(open[1].Request) != "12 EUR" || open[1].Calls != 1 ||
				s.state(t).Checkpoint.Phase != "ride" {
				t.Errorf("before the call is stored %+v", open)
			}
			if a.Key != x.DownstreamKey("charge") {
				t.Errorf("key %s", a.Key)
			}
			a.Provider("ch_1")
			return "charged", nil
		})
		if got != "charged" || err != nil {
			t.Errorf("Effect = %q, %v", got, err)
		}
		done := s.steps(t)[1]
		if done.Open || done.Request != nil || string(done.Result) != `"charged"` || done.ProviderRef != "ch_1" || done.String() != `effect "charge"` {
			t.Errorf("after the call is stored %+v", done)
		}
		return err
	}))
	if r := s.state(t); r.ProviderRef != "ch_1" || r.Checkpoint.Phase != "charge" {
		t.Errorf("stored %+v", r)
	}
	p.arrived(t, 0, "")
}

// Whatever the next attempt would send: under the same key go the same bytes.
func TestW67_EveryAttemptSendsTheBytesOfTheFirst(t *testing.T) {
	t.Parallel()
	s := newStory(t, resumes)
	p := provider{err: errors.New("connection lost")}
	for _, request := range []string{"at 12:00", "at 12:01", "at 12:02"} {
		if err := s.attempt(t, func(ctx context.Context, _ *retrysafe.Execution) error {
			_, err := p.charge(ctx, request)
			return err
		}); !errors.Is(err, p.err) || s.state(t).State != retrysafe.StateRetryable {
			t.Fatalf("Do = %v, %s", err, s.state(t).State)
		}
	}
	p.err = nil
	for range 2 { // it is finished, then passed
		_ = s.attempt(t, func(ctx context.Context, _ *retrysafe.Execution) error {
			if got, err := p.charge(ctx, "at 12:03"); got != "charged" || err != nil {
				t.Errorf("Effect = %q, %v", got, err)
			}
			return errors.New("stop")
		})
	}
	p.arrived(t, 4, "at 12:00")
}

func TestW31_UnprotectedEffectThatNobodyKnowsIsUnknown(t *testing.T) {
	t.Parallel()
	lost := errors.New("connection lost")
	for name, end := range map[string]func(ctx context.Context, x *retrysafe.Execution, err error) error{
		"its error is returned":        func(_ context.Context, _ *retrysafe.Execution, err error) error { return err },
		"the operation panics":         func(context.Context, *retrysafe.Execution, error) error { panic("boom") },
		"it is said not to have been":  func(_ context.Context, _ *retrysafe.Execution, err error) error { return retrysafe.NotExecuted(err) },
		"it is released":               func(ctx context.Context, x *retrysafe.Execution, err error) error { return x.Release(ctx, err) },
		"it is called again, in vain":  nil,
		"the execution is quarantined": func(ctx context.Context, x *retrysafe.Execution, err error) error { return x.Quarantine(ctx, err) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStory(t, retrysafe.Policy{})
			p := provider{err: lost}
			func() {
				defer func() { _ = recover() }()
				_ = s.attempt(t, func(ctx context.Context, x *retrysafe.Execution) error {
					_, err := p.charge(ctx, "12 EUR")
					if end == nil {
						if _, err := p.charge(ctx, "12 EUR"); !errors.Is(err, retrysafe.ErrPhases) {
							t.Errorf("a second call = %v", err)
						}
						return err
					}
					return end(ctx, x, err)
				})
			}()
			for range 3 {
				s.refused(t, retrysafe.ErrUnknown)
			}
			p.arrived(t, 1, "12 EUR")
			if open := s.steps(t); len(open) != 1 || !open[0].Open {
				t.Errorf("stored %+v", open)
			}
		})
	}
}

// An effect whose result is stored is not in doubt: what follows it may be given up, and the
// next attempt goes on behind it.
func TestEffectThatIsStoredLeavesNothingInDoubt(t *testing.T) {
	t.Parallel()
	failure := errors.New("the ledger is down")
	for name, end := range map[string]func(ctx context.Context, x *retrysafe.Execution) error{
		"the rest was not executed": func(context.Context, *retrysafe.Execution) error { return retrysafe.NotExecuted(failure) },
		"the rest is released":      func(ctx context.Context, x *retrysafe.Execution) error { return x.Release(ctx, failure) },
		"a later phase fails, and is tried again": func(ctx context.Context, _ *retrysafe.Execution) error {
			for try := range 2 {
				if _, err := retrysafe.Phase(ctx, "book", func(context.Context) (string, error) {
					return "", retrysafe.NotExecuted(failure)
				}); errors.Is(err, retrysafe.ErrPhases) {
					t.Errorf("try %d: %v", try, err)
				}
			}
			return retrysafe.NotExecuted(failure)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, p := newStory(t, retrysafe.Policy{}), provider{}
			_ = s.attempt(t, func(ctx context.Context, x *retrysafe.Execution) error {
				if _, err := p.charge(ctx, "12 EUR"); err != nil {
					t.Error(err)
				}
				return end(ctx, x)
			})
			if r := s.state(t); r.State != retrysafe.StateRetryable {
				t.Errorf("stored %s", r.State)
			}
			must(t, s.attempt(t, func(ctx context.Context, _ *retrysafe.Execution) error {
				_, err := p.charge(ctx, "12 EUR")
				return err
			}))
			p.arrived(t, 1, "12 EUR")
		})
	}
}

// Under FailureRetry too: that policy is about failures, and whether this call failed
// is not known.
func TestUnprotectedEffectInDoubtOutranksRetryFailure(t *testing.T) {
	t.Parallel()
	s := newStory(t, retrysafe.Policy{OnFailure: retrysafe.FailureRetry})
	p := provider{err: errors.New("connection lost")}
	_ = s.attempt(t, func(ctx context.Context, _ *retrysafe.Execution) error {
		_, err := p.charge(ctx, "12 EUR")
		return err
	})
	s.refused(t, retrysafe.ErrUnknown)
}

// If an operator vouches that there was no call, the next attempt calls. It sends the
// bytes of the first call, in case the operator is wrong.
func TestUnprotectedEffectThatAnOperatorReleasesIsCalledAgain(t *testing.T) {
	t.Parallel()
	s := newStory(t, retrysafe.Policy{})
	p := provider{err: errors.New("connection lost")}
	charge := func(request string) error {
		return s.attempt(t, func(ctx context.Context, _ *retrysafe.Execution) error {
			_, err := p.charge(ctx, request)
			return err
		})
	}
	release := func() {
		next, err := retrysafe.DecideEvidence(s.state(t), retrysafe.Evidence{Finding: retrysafe.FindingNotHappened, Proof: retrysafe.ProofAttested}, retrysafe.Recheck{After: time.Minute, Limit: 3})
		must(t, err)
		_, err = s.mem.Swap(t.Context(), next)
		must(t, err)
	}
	_ = charge("at 12:00")
	release()
	if err := charge("at 12:01"); !errors.Is(err, p.err) { // a released intent is not a licence for a third call
		t.Fatal(err)
	}
	s.refused(t, retrysafe.ErrUnknown)
	release()
	p.err = nil
	must(t, charge("at 12:02"))
	p.arrived(t, 3, "at 12:00")
}

func TestNotExecutedTakesTheIntentBack(t *testing.T) {
	t.Parallel()
	s := newStory(t, retrysafe.Policy{}) // unprotected: only this proof lets it run again
	p := provider{err: retrysafe.NotExecuted(errors.New("connection refused"))}
	err := s.attempt(t, func(ctx context.Context, _ *retrysafe.Execution) error {
		must(t, s.phases(ctx, "ride"))
		for _, request := range []string{"first", "second"} { // at once, if one likes
			if _, err := p.charge(ctx, request); !errors.Is(err, p.err) || len(s.steps(t)) != 1 {
				t.Errorf("Effect = %v, stored %+v", err, s.steps(t))
			}
		}
		_, err := p.charge(ctx, "third")
		return err
	})
	if !errors.Is(err, p.err) || s.state(t).State != retrysafe.StateRetryable || s.state(t).Checkpoint.Phase != "ride" {
		t.Fatalf("Do = %v, %+v", err, s.state(t))
	}
	p.err, p.calls = nil, nil
	must(t, s.attempt(t, func(ctx context.Context, _ *retrysafe.Execution) error {
		must(t, s.phases(ctx, "ride"))
		_, err := p.charge(ctx, "fourth")
		return err
	}))
	p.arrived(t, 1, "fourth")
}

// That the second call was not made says nothing of the first.
func TestNotExecutedOfALaterCallLeavesTheIntent(t *testing.T) {
	t.Parallel()
	s := newStory(t, resumes)
	var p provider
	for _, c := range []struct {
		err     error
		request string
	}{{errors.New("connection lost"), "at 12:00"}, {retrysafe.NotExecuted(errors.New("connection refused")), "at 12:01"}, {nil, "at 12:02"}} {
		p.err = c.err
		if err := s.attempt(t, func(ctx context.Context, _ *retrysafe.Execution) error {
			_, err := p.charge(ctx, c.request)
			return err
		}); !errors.Is(err, c.err) {
			t.Fatal(err)
		}
	}
	p.arrived(t, 3, "at 12:00")
}

// An intent that cannot be stored is not followed by the call; one that cannot be
// taken back stays, and does no harm.
func TestEffectWhileTheStoreFails(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newStory(t, resumes)
		var p provider
		err := s.attempt(t, func(ctx context.Context, _ *retrysafe.Execution) error {
			s.fault.Plan(faultstore.FailAll(faultstore.LoseReply))
			_, err := p.charge(ctx, "12 EUR")
			s.fault.Plan(nil)
			return err
		})
		if !errors.Is(err, faultstore.ErrInjected) || !strings.Contains(err.Error(), "was not called") {
			t.Errorf("Effect = %v", err)
		}
		p.arrived(t, 0, "")

		refused := retrysafe.NotExecuted(errors.New("connection refused"))
		err = s.attempt(t, func(ctx context.Context, _ *retrysafe.Execution) error {
			_, err := retrysafe.Effect(ctx, "charge", []byte("13 EUR"), func(context.Context, retrysafe.Attempt) (int, error) {
				s.fault.Plan(faultstore.FailAll(faultstore.LoseRequest))
				return 0, refused
			})
			s.fault.Plan(nil)
			return err
		})
		if !errors.Is(err, refused) || s.state(t).State != retrysafe.StateRetryable {
			t.Errorf("Effect = %v, %s", err, s.state(t).State)
		}

		err = s.attempt(t, func(ctx context.Context, _ *retrysafe.Execution) error {
			_, err := retrysafe.Effect(ctx, "charge", []byte("14 EUR"), func(_ context.Context, a retrysafe.Attempt) (int, error) {
				if string(a.Request) != "12 EUR" { // the first intent was stored after all
					t.Errorf("it sends %q", a.Request)
				}
				s.fault.Plan(faultstore.FailAll(faultstore.LoseRequest))
				return 1, nil
			})
			s.fault.Plan(nil)
			return err
		})
		if !errors.Is(err, faultstore.ErrInjected) || !s.steps(t)[0].Open {
			t.Errorf("Effect = %v, stored %+v", err, s.steps(t))
		}
	})
}

func TestIntentThatCannotBeTakenBackStays(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newStory(t, retrysafe.Policy{})
		refused := retrysafe.NotExecuted(errors.New("connection refused"))
		err := s.attempt(t, func(ctx context.Context, _ *retrysafe.Execution) error {
			_, err := retrysafe.Effect(ctx, "charge", []byte("12 EUR"), func(context.Context, retrysafe.Attempt) (int, error) {
				s.fault.Plan(faultstore.FailAll(faultstore.LoseRequest))
				return 0, refused
			})
			s.fault.Plan(nil)
			return err
		})
		if !errors.Is(err, refused) || !errors.Is(err, faultstore.ErrInjected) || s.state(t).State != retrysafe.StateRetryable || !s.steps(t)[0].Open {
			t.Errorf("Effect = %v, %s, %+v", err, s.state(t).State, s.steps(t))
		}
	})
}

func TestRequestThatIsTooLargeIsNotSent(t *testing.T) {
	t.Parallel()
	s := newStory(t, resumes)
	var p provider
	if err := s.attempt(t, func(ctx context.Context, _ *retrysafe.Execution) error {
		_, err := p.charge(ctx, strings.Repeat("x", 256<<10))
		return err
	}); !errors.Is(err, retrysafe.ErrPhases) {
		t.Error(err)
	}
	p.arrived(t, 0, "")
}

// ProviderRef names the effect whose outcome is unknown, never an earlier one: with an
// earlier name the provider would answer for another effect.
func TestProviderRefIsTheLatestEffects(t *testing.T) {
	t.Parallel()
	s := newStory(t, retrysafe.Policy{})
	lost := errors.New("connection lost")
	call := func(ctx context.Context, name, id string, err error) error {
		_, err = retrysafe.Effect(ctx, name, nil, func(_ context.Context, a retrysafe.Attempt) (int, error) {
			if s.state(t).ProviderRef != "" {
				t.Errorf("%s is called with the record's name %q", name, s.state(t).ProviderRef)
			}
			if id != "" {
				a.Provider(id)
			}
			return 0, err
		})
		return err
	}
	_ = s.attempt(t, func(ctx context.Context, _ *retrysafe.Execution) error {
		must(t, call(ctx, "authorise", "auth_1", nil))
		if s.state(t).ProviderRef != "auth_1" {
			t.Errorf("stored %q", s.state(t).ProviderRef)
		}
		must(t, call(ctx, "capture", "cap_1", nil))
		return call(ctx, "notify", "", lost)
	})
	if r := s.state(t); r.State != retrysafe.StateUnknown || r.ProviderRef != "" {
		t.Errorf("the record is %s, %q", r.State, r.ProviderRef)
	}
	var refs []string
	for _, step := range s.steps(t) {
		refs = append(refs, step.ProviderRef)
	}
	if want := []string{"auth_1", "cap_1", ""}; !slices.Equal(refs, want) {
		t.Errorf("the steps have %q, want %q", refs, want)
	}
}

// An id that is known when the call fails is stored with the failure.
func TestProviderRefOfAnEffectThatFailed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newStory(t, retrysafe.Policy{})
		_ = s.attempt(t, func(ctx context.Context, _ *retrysafe.Execution) error {
			_, err := retrysafe.Effect(ctx, "charge", nil, func(_ context.Context, a retrysafe.Attempt) (int, error) {
				a.Provider("ch_1")
				time.Sleep(time.Minute) // beats come and go
				return 0, errors.New("connection lost")
			})
			return err
		})
		if r := s.state(t); r.State != retrysafe.StateUnknown || r.ProviderRef != "ch_1" {
			t.Errorf("the record is %s, %q", r.State, r.ProviderRef)
		}
	})
}

// A later call of an effect keeps the id that an earlier one has learnt: it is the same
// effect, and a resolver finds it by that id.
func TestProviderRefSurvivesALaterCallOfTheEffect(t *testing.T) {
	t.Parallel()
	s := newStory(t, resumes)
	lost := errors.New("connection lost")
	for n := 1; n <= 3; n++ {
		_ = s.attempt(t, func(ctx context.Context, _ *retrysafe.Execution) error {
			_, err := retrysafe.Effect(ctx, "charge", nil, func(_ context.Context, a retrysafe.Attempt) (int, error) {
				if a.N != n {
					t.Errorf("this is call %d, want %d", a.N, n)
				}
				if a.N == 1 {
					a.Provider("ch_1")
				} else if got := s.state(t).ProviderRef; got != "ch_1" {
					t.Errorf("during call %d the record's provider reference is %q", a.N, got)
				}
				return 0, lost
			})
			return err
		})
		if got := s.state(t).ProviderRef; got != "ch_1" {
			t.Errorf("after call %d the record's provider reference is %q", n, got)
		}
	}
}

// An answer is the operation's last word, also about an effect whose error it was
// told; but not about one of an earlier attempt that it never asked for.
func TestAnswerAboutAnOpenEffect(t *testing.T) {
	t.Parallel()
	for _, policy := range []retrysafe.Policy{resumes, {}} {
		s := newStory(t, policy)
		p := provider{err: errors.New("card declined")}
		must(t, s.attempt(t, func(ctx context.Context, _ *retrysafe.Execution) error {
			if _, err := p.charge(ctx, "12 EUR"); err == nil {
				t.Error("it was charged")
			}
			return nil
		}))
		s.replays(t, "done")
	}
	s := newStory(t, resumes)
	p := provider{err: errors.New("connection lost")}
	_ = s.attempt(t, func(ctx context.Context, _ *retrysafe.Execution) error {
		_, err := p.charge(ctx, "12 EUR")
		return err
	})
	if err := s.attempt(t, func(context.Context, *retrysafe.Execution) error { return nil }); !errors.Is(err, retrysafe.ErrPhases) {
		t.Errorf("Do = %v", err)
	}
}

// Each single step of the store goes wrong once, in either way: the operation ends
// with its answer, what is finished is not run again, and every call is the same.
func TestAnyStepOfTheStoreMayGoWrong(t *testing.T) {
	t.Parallel()
	for _, f := range []faultstore.Fault{faultstore.LoseRequest, faultstore.LoseReply, faultstore.Hang} {
		for n := 1; n <= 8; n++ {
			synctest.Test(t, func(t *testing.T) {
				s := newStory(t, resumes)
				var p provider
				s.fault.Plan(faultstore.FailOnce(faultstore.Swap, n, f))
				for {
					err := s.attempt(t, func(ctx context.Context, _ *retrysafe.Execution) error {
						if err := s.phases(ctx, "ride"); err != nil {
							return err
						}
						if got, err := p.charge(ctx, "12 EUR"); err != nil || got != "charged" {
							return err
						}
						return s.phases(ctx, "receipt")
					})
					if err == nil {
						break
					}
					time.Sleep(time.Second)
				}
				s.replays(t, "done")
				p.arrived(t, 1, "12 EUR")
				if want := []string{"ride", "receipt"}; !slices.Equal(s.ran, want) {
					t.Errorf("step %d, fault %d: ran %q", n, f, s.ran)
				}
			})
		}
	}
}

// An effect that was not called, because its intent is too large to be stored, does not
// take away the name of the effect before it.
func TestProviderRefSurvivesAnEffectThatWasNotCalled(t *testing.T) {
	t.Parallel()
	s := newStory(t, resumes)
	x := s.begins(t)
	_, err := retrysafe.Effect(x.Context(), "authorise", nil, func(_ context.Context, a retrysafe.Attempt) (int, error) {
		a.Provider("auth_1")
		return 1, nil
	})
	must(t, err)
	_, err = retrysafe.Effect(x.Context(), "capture", []byte(strings.Repeat("x", 256<<10)), func(context.Context, retrysafe.Attempt) (int, error) {
		t.Error("it was called")
		return 0, nil
	})
	if !errors.Is(err, retrysafe.ErrPhases) {
		t.Errorf("Effect = %v", err)
	}
	must(t, x.Quarantine(t.Context(), err))
	if r := s.state(t); r.ProviderRef != "auth_1" {
		t.Errorf("the record names %q", r.ProviderRef)
	}
}

// The name that the attempt's own call returned counts, not what a resolver has found while
// the attempt was taken for unknown. The next effect starts without a name, also if the
// reply to a heartbeat was lost before it.
func TestProviderRefOfTheAttemptsOwnCallCounts(t *testing.T) {
	t.Parallel()
	s := newStory(t, resumes)
	x := s.begins(t)
	_, err := retrysafe.Effect(x.Context(), "charge", nil, func(ctx context.Context, a retrysafe.Attempt) (int, error) {
		a.Provider("ch_own")
		w := s.state(t).Update()
		w.State, w.ProviderRef, w.Term = retrysafe.StateUnknown, "ch_found", time.Minute
		_, err := s.mem.Swap(ctx, w)
		return 1, err
	})
	must(t, err)
	if r := s.state(t); r.State != retrysafe.StateInProgress || r.ProviderRef != "ch_own" {
		t.Errorf("the record is %s, %q", r.State, r.ProviderRef)
	}
	w := s.state(t).Update() // a heartbeat whose reply is lost
	w.Term = time.Minute
	_, err = s.mem.Swap(t.Context(), w)
	must(t, err)
	_, err = retrysafe.Effect(x.Context(), "notify", nil, func(context.Context, retrysafe.Attempt) (int, error) {
		if got := s.state(t).ProviderRef; got != "" {
			t.Errorf("the next effect is called with the name %q", got)
		}
		return 1, nil
	})
	must(t, err)
	must(t, x.Complete(t.Context(), answer("charged")))
}

// With a key that the other side honours a second call does no harm: Release runs it again.
func TestKeyedEffectThatNobodyKnowsIsReleased(t *testing.T) {
	t.Parallel()
	s := newStory(t, resumes)
	x := s.begins(t)
	p := provider{err: errors.New("connection lost")}
	if _, err := p.charge(x.Context(), "20"); err == nil {
		t.Fatal("the call has not failed")
	}
	must(t, x.Release(t.Context(), nil))
	if got := s.state(t).State; got != retrysafe.StateRetryable {
		t.Errorf("it is %s, want retryable", got)
	}
}

// An operation may answer although its call was not made: nothing is left of the intent.
func TestAnswerAfterACallThatWasNotMade(t *testing.T) {
	t.Parallel()
	s := newStory(t, resumes)
	p := provider{err: retrysafe.NotExecuted(errors.New("no connection"))}
	must(t, s.attempt(t, func(ctx context.Context, _ *retrysafe.Execution) error {
		if _, err := p.charge(ctx, "20"); err == nil {
			t.Error("the call has not failed")
		}
		return nil
	}))
	s.replays(t, "done")
}

// What a provider names its effect is stored in a form that every store can keep.
func TestProviderRefIsCleaned(t *testing.T) {
	t.Parallel()
	s := newStory(t, resumes)
	must(t, s.attempt(t, func(ctx context.Context, _ *retrysafe.Execution) error {
		_, err := retrysafe.Effect(ctx, strings.Repeat("n", 200), nil, func(_ context.Context, a retrysafe.Attempt) (int, error) { // the longest name
			a.Provider("ch\x00_1")
			return 1, nil
		})
		return err
	}))
	if got := s.state(t).ProviderRef; got != "ch�_1" {
		t.Errorf("stored %q", got)
	}
}

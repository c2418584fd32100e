package outbox_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/outbox"
	"github.com/retrysafe/retrysafe/store/memstore"
)

// meddling is an outbox beside which something happens before each Skip.
type meddling struct {
	outbox.Skipper
	before func() error
}

func (m meddling) Skip(ctx context.Context, s outbox.SkipRequest) (outbox.AckResult, error) {
	if refused := (outbox.AckResult{Err: m.before()}); refused.Err != nil {
		return refused, nil //nolint:nilerr // the refusal is in the result
	}
	return m.Skipper.Skip(ctx, s)
}

// An operator that gives a message up settles its key in the same step, also if the record
// of the key changes meanwhile. What cannot be done changes nothing.
func TestGiveUpSettlesTheKey(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		missing bool // the record is not in the store
		tries   int  // that the operator has seen
		before  func(s *memstore.Store, ref retrysafe.Ref, call int) error
		want    error
		state   retrysafe.State
	}{
		{name: "nothing happens meanwhile", tries: 1, state: retrysafe.StateUnknown},
		{name: "the record changes", tries: 1, before: func(s *memstore.Store, ref retrysafe.Ref, call int) error {
			if call > 1 {
				return nil
			}
			return rewrite(s, ref)
		}, state: retrysafe.StateUnknown},
		{name: "the record keeps changing", tries: 1, before: func(s *memstore.Store, ref retrysafe.Ref, _ int) error {
			return rewrite(s, ref)
		}, want: retrysafe.ErrConflict, state: retrysafe.StateInProgress},
		{name: "the record is gone", missing: true, tries: 1},
		{name: "a transaction has the record for a while", tries: 1, before: func(_ *memstore.Store, _ retrysafe.Ref, call int) error {
			if call > 1 {
				return nil
			}
			return retrysafe.ErrBusy
		}, want: retrysafe.ErrBusy, state: retrysafe.StateInProgress},
		{name: "the message was sent since", tries: 0, want: retrysafe.ErrConflict, state: retrysafe.StateInProgress},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := memstore.New(nil)
			rec := retrysafe.Record{
				Ref: retrysafe.Ref{Scope: "s", Key: "k"}, Version: retrysafe.RecordVersion, State: retrysafe.StateInProgress, Effects: retrysafe.EffectsKeyed,
				Owner: retrysafe.Owner{1}, Attempt: 1, Retain: time.Hour, Revision: 1,
			}
			if !c.missing {
				var err error
				rec, err = s.Create(t.Context(), retrysafe.Write{Term: time.Hour, Record: rec})
				must(t, err)
			}
			m := message("g", "charge")
			m.Settles = &rec
			enqueue(t, s, m)
			w, err := outbox.NewWorker(s.Outbox(), &receiver{fail: func(*outbox.Delivery, int) outbox.Receipt {
				return outbox.Receipt{Err: errors.New("no such account"), After: time.Hour, ProviderRef: "ch_1"}
			}}, nil)
			must(t, err)
			_, err = w.RunOnce(t.Context())
			must(t, err)
			heads, err := s.Outbox().Failing(t.Context(), 0, 2)
			if len(heads) != 1 || err != nil {
				t.Fatalf("%s: failing are %+v, %v", c.name, heads, err)
			}
			heads[0].Tries = c.tries
			calls := 0
			err = outbox.GiveUp(t.Context(), meddling{s.Outbox(), func() error {
				if calls++; c.before == nil {
					return nil
				}
				return c.before(s, rec.Ref, calls)
			}}, &heads[0], "skipped by ops")
			if !errors.Is(err, c.want) {
				t.Errorf("%s: GiveUp = %v, want %v", c.name, err, c.want)
			}
			dead, err := s.Outbox().DeadLetters(t.Context(), 0, 2)
			must(t, err)
			if d, _ := s.Outbox().Depth(t.Context()); (c.want == nil) != (len(dead) == 1) || d.Waiting+d.Dead != 1 {
				t.Errorf("%s: dead letters %+v of %+v", c.name, dead, d)
			}
			if len(dead) == 1 && (dead[0].Why != "no such account; skipped by ops" || dead[0].ProviderRef != "ch_1") {
				t.Errorf("%s: the dead letter says %q of %q", c.name, dead[0].Why, dead[0].ProviderRef)
			}
			if c.missing {
				return
			}
			got, err := s.Load(t.Context(), rec.Ref)
			must(t, err)
			if unknown := c.state == retrysafe.StateUnknown; got.State != c.state || got.Inquiry.Dead != unknown || unknown && (got.ProviderRef != "ch_1" || !strings.Contains(got.Inquiry.Notes[0].Text, "skipped by ops")) {
				t.Errorf("%s: the key is %s of %q, %+v", c.name, got.State, got.ProviderRef, got.Inquiry)
			}
		})
	}
}

// rewrite stores a record anew as it is.
func rewrite(s *memstore.Store, ref retrysafe.Ref) error {
	rec, err := s.Load(context.Background(), ref)
	if err == nil {
		_, err = s.Swap(context.Background(), rec.Update())
	}
	return err
}

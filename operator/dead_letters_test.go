package operator_test

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/operator"
	"github.com/retrysafe/retrysafe/outbox"
	"github.com/retrysafe/retrysafe/store/memstore"
)

// receiver takes messages, one after the other.
type receiver struct {
	got  []string            // payloads that it took
	keys map[string][]string // for each payload, the keys it came with
	fail func(d *outbox.Delivery) outbox.Receipt
}

func (r *receiver) deliver(_ context.Context, d *outbox.Delivery) outbox.Receipt {
	payload := string(d.Payload)
	r.keys[payload] = append(r.keys[payload], d.Key)
	receipt := r.fail(d)
	if receipt.Err == nil {
		r.got = append(r.got, payload)
	}
	return receipt
}

func enqueue(t *testing.T, s *memstore.Store, messages ...outbox.Message) {
	t.Helper()
	tx, err := s.Begin(t.Context())
	must(t, err)
	must(t, tx.Enqueue(t.Context(), messages...))
	must(t, tx.Commit(t.Context()))
}

func message(group, payload string) outbox.Message {
	return outbox.Message{Topic: "test", Group: group, Payload: []byte(payload)}
}

// post is an outbox with a receiver that refuses everything until it is told
// otherwise.
type post struct {
	*memstore.Store
	*operator.DeadLetters
	desk   *operator.Service
	worker *outbox.Worker
	got    *receiver
	fine   bool
}

func newPost(t *testing.T, window time.Duration) *post {
	t.Helper()
	p := &post{Store: memstore.New(nil)}
	p.got = &receiver{keys: map[string][]string{}, fail: func(*outbox.Delivery) outbox.Receipt {
		if p.fine {
			return outbox.Receipt{}
		}
		return outbox.Receipt{Err: outbox.Permanent(errors.New("closed")), ProviderRef: "ch_1"}
	}}
	var err error
	p.worker, err = outbox.NewWorker(p.Outbox(), outbox.SinkFunc(p.got.deliver), nil)
	must(t, err)
	desk, err := operator.New(p.Store, nil)
	must(t, err)
	p.desk, p.DeadLetters = desk, desk.DeadLetters(p.Outbox(), window)
	return p
}

// letter makes a dead letter.
func (p *post) letter(t *testing.T, m outbox.Message) outbox.DeadLetter {
	t.Helper()
	enqueue(t, p.Store, m)
	p.work(t)
	list, err := p.DeadLetters.List(t.Context(), 0, 100)
	must(t, err)
	if len(list) == 0 {
		t.Fatal("no dead letter")
	}
	return list[len(list)-1]
}

func (p *post) work(t *testing.T) {
	t.Helper()
	if _, err := p.worker.RunOnce(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func act(l *outbox.DeadLetter) operator.DeadLetterAction {
	return operator.DeadLetterAction{By: "anna", Why: "they are open again", Letter: l.ID, Revision: l.Revision}
}

func TestRedriveSendsItAgainOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPost(t, 0)
		l := p.letter(t, message("a", "m"))
		p.fine = true
		a := act(&l)
		a.ID = "click-1"
		e, err := p.Redrive(t.Context(), a)
		if err != nil || e.Outcome != operator.StatusDone || e.Replayed || e.By != "anna" || e.At.IsZero() || e.Ref.Key != strconv.FormatInt(l.ID, 10) {
			t.Fatalf("%+v, %v", e, err)
		}
		if e, err = p.Redrive(t.Context(), a); err != nil || !e.Replayed || e.Outcome != operator.StatusDone { // a second click
			t.Errorf("%+v, %v", e, err)
		}
		other := act(&l) // another operator, on the old page
		if e, err = p.Drop(t.Context(), other); !errors.Is(err, retrysafe.ErrNotFound) || e.Outcome != operator.StatusRefused {
			t.Errorf("%+v, %v", e, err)
		}
		a.Letter++
		if _, err := p.Redrive(t.Context(), a); !errors.Is(err, retrysafe.ErrMismatch) {
			t.Errorf("an ID that is another's: %v", err)
		}
		p.work(t)
		if got := p.got.got; len(got) != 1 || len(p.got.keys["m"]) != 2 || p.got.keys["m"][0] != p.got.keys["m"][1] {
			t.Errorf("received %v under %v", got, p.got.keys)
		}
		// It is in the audit of all that operators do.
		all, err := p.desk.Audit(t.Context(), operator.AuditFilter{})
		must(t, err)
		if len(all) != 2 {
			t.Fatalf("%d entries: %+v", len(all), all)
		}
		one, err := p.desk.Audit(t.Context(), operator.AuditFilter{Verb: "redrive letter"})
		must(t, err)
		if len(one) != 1 || one[0].ID != "click-1" || one[0].By != "anna" || one[0].Outcome != operator.StatusDone || one[0].Ref.Key != strconv.FormatInt(l.ID, 10) || one[0].Seen != l.Revision {
			t.Errorf("%+v", one)
		}
	})
}

// TestW66_OldLetterIsRedrivenOnlyByForce: its receiver has forgotten the key.
func TestW66_OldLetterIsRedrivenOnlyByForce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPost(t, 0)
		l := p.letter(t, message("a", "m"))
		time.Sleep(22 * time.Hour)
		if _, err := p.Redrive(t.Context(), act(&l)); err != nil {
			t.Fatal(err)
		}
		p.work(t) // it is a dead letter again, and its age has not been reset
		list, err := p.DeadLetters.List(t.Context(), 0, 10)
		must(t, err)
		l = list[0]
		if l.Age < 22*time.Hour {
			t.Errorf("after a redrive the letter is %v old", l.Age)
		}
		time.Sleep(time.Hour)
		e, err := p.Redrive(t.Context(), act(&l))
		if !errors.Is(err, operator.ErrWindow) || e.Code != "window" || e.Outcome != operator.StatusRefused {
			t.Errorf("%+v, %v", e, err)
		}
		p.fine = true
		p.work(t)
		if got := p.got.got; len(got) != 0 {
			t.Errorf("received %v", got)
		}
		a := act(&l)
		a.Force = true
		if e, err := p.Redrive(t.Context(), a); err != nil || !e.Force {
			t.Errorf("%+v, %v", e, err)
		}
		p.work(t)
		if got := p.got.got; len(got) != 1 {
			t.Errorf("received %v", got)
		}
		never := newPost(t, -1) // the receiver needs no key
		l = never.letter(t, message("", "m"))
		time.Sleep(1000 * time.Hour)
		if _, err := never.Redrive(t.Context(), act(&l)); err != nil {
			t.Error(err)
		}
	})
}

// A worker buries a letter beyond the window without sending it. Force says that the
// operator has checked that it may be sent, so its age starts again.
func TestForcedRedriveOfALetterBeyondTheWindowIsSent(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPost(t, 0)
		l := p.letter(t, message("a", "m"))
		time.Sleep(30 * time.Hour)
		p.fine = true
		a := act(&l)
		a.Force = true
		if e, err := p.Redrive(t.Context(), a); err != nil || e.Outcome != operator.StatusDone {
			t.Fatalf("%+v, %v", e, err)
		}
		p.work(t)
		list, err := p.DeadLetters.List(t.Context(), 0, 10)
		must(t, err)
		if got := p.got.got; len(got) != 1 || len(list) != 0 {
			t.Errorf("received %v, and the dead letters are %+v", got, list)
		}
	})
}

// unreadable is an outbox whose dead letters cannot be read.
type unreadable struct{ *memstore.Outbox }

func (u unreadable) DeadLetters(ctx context.Context, after int64, limit int) ([]outbox.DeadLetter, error) {
	list, err := u.Outbox.DeadLetters(ctx, after, limit)
	for i := range list {
		list[i].Message, list[i].Err = outbox.Message{}, outbox.ErrUnreadable
	}
	return list, err
}

// A letter that cannot be read is not sent again, by force neither. It can be dropped.
func TestUnreadableLetterIsNotRedriven(t *testing.T) {
	t.Parallel()
	p := newPost(t, 0)
	l := p.letter(t, message("a", "m"))
	letters := p.desk.DeadLetters(unreadable{p.Outbox()}, 0)
	for _, force := range []bool{false, true} {
		a := act(&l)
		a.Force = force
		if e, err := letters.Redrive(t.Context(), a); !errors.Is(err, retrysafe.ErrUnreadable) || e.Outcome != operator.StatusRefused {
			t.Errorf("force %t: %+v, %v", force, e, err)
		}
	}
	if d, err := p.Outbox().Depth(t.Context()); err != nil || d.Dead != 1 || d.Waiting != 0 {
		t.Errorf("after the refusals: %+v, %v", d, err)
	}
	if e, err := letters.Drop(t.Context(), act(&l)); err != nil || e.Outcome != operator.StatusDone {
		t.Errorf("%+v, %v", e, err)
	}
}

// TestW69_NothingDropsALetterButAPerson: not time, not a worker, not a purge.
func TestW69_NothingDropsALetterButAPerson(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPost(t, 0)
		l := p.letter(t, message("a", "m"))
		time.Sleep(10_000 * time.Hour)
		p.work(t)
		if _, err := p.Purge(t.Context(), 1000); err != nil {
			t.Fatal(err)
		}
		got, err := p.Show(t.Context(), l.ID)
		if err != nil || string(got.Payload) != "m" || got.Why != "closed" || got.ProviderRef != "ch_1" {
			t.Fatalf("%+v, %v", got, err)
		}
		if e, err := p.Drop(t.Context(), act(&got)); err != nil || e.Outcome != operator.StatusDone {
			t.Errorf("%+v, %v", e, err)
		}
		if _, err := p.Show(t.Context(), l.ID); !errors.Is(err, retrysafe.ErrNotFound) {
			t.Error(err)
		}
	})
}

// TestW68_SkippedHeadLetsItsGroupGo, and what it was to settle is known as unknown.
func TestW68_SkippedHeadLetsItsGroupGo(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPost(t, 0)
		p.got.fail = func(d *outbox.Delivery) outbox.Receipt {
			if string(d.Payload) == "head" {
				return outbox.Receipt{Err: errors.New("no answer"), After: time.Hour, ProviderRef: "ch_2"}
			}
			return outbox.Receipt{}
		}
		rec, err := p.Create(t.Context(), retrysafe.Write{Term: time.Hour, Record: retrysafe.Record{
			Ref: retrysafe.Ref{Scope: "s", Key: "k"}, Version: retrysafe.RecordVersion, State: retrysafe.StateInProgress, Effects: retrysafe.EffectsKeyed,
			Owner: retrysafe.Owner{1}, Attempt: 1, Retain: time.Hour,
		}})
		must(t, err)
		head := message("a", "head")
		head.Settles = &rec
		enqueue(t, p.Store, head, message("a", "behind"))
		must(t, second(p.Swap(t.Context(), rec.Update()))) // another process writes the record meanwhile
		p.work(t)
		failing, err := p.Failing(t.Context(), 0, 10)
		must(t, err)
		if len(failing) != 1 || failing[0].Why != "no answer" {
			t.Fatalf("%+v", failing)
		}
		stale := act(&failing[0])
		stale.Revision++
		if _, err := p.Skip(t.Context(), stale); !errors.Is(err, operator.ErrStale) {
			t.Errorf("a page of another try: %v", err)
		}
		a := act(&failing[0])
		a.ID = "skip-1"
		if e, err := p.Skip(t.Context(), a); err != nil || e.Outcome != operator.StatusDone {
			t.Fatalf("%+v, %v", e, err)
		}
		p.work(t)
		if got := p.got.got; len(got) != 1 || got[0] != "behind" {
			t.Errorf("received %v", got)
		}
		list, err := p.DeadLetters.List(t.Context(), 0, 10)
		must(t, err)
		if len(list) != 1 || !strings.Contains(list[0].Why, "no answer; skipped by anna") || list[0].ProviderRef != "ch_2" {
			t.Errorf("%+v", list)
		}
		if got, err := p.Load(t.Context(), rec.Ref); err != nil || got.State != retrysafe.StateUnknown || !got.Inquiry.Dead {
			t.Errorf("the key is %v, %+v, %v", got.State, got.Inquiry, err)
		}
	})
}

func second[T any](_ T, err error) error { return err }

// flaky is an outbox whose disposals are done, and not confirmed.
type flaky struct {
	*memstore.Outbox
	mu    sync.Mutex
	fails int
}

func (f *flaky) lost() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fails--
	return f.fails >= 0
}

func (f *flaky) Dispose(ctx context.Context, d outbox.Disposal) error {
	err := f.Outbox.Dispose(ctx, d)
	if err == nil && f.lost() {
		return errors.New("the reply was lost")
	}
	return err
}

func (f *flaky) Skip(ctx context.Context, s outbox.SkipRequest) (outbox.AckResult, error) {
	ended, err := f.Outbox.Skip(ctx, s)
	if err == nil && f.lost() {
		return ended, errors.New("the reply was lost")
	}
	return ended, err
}

// An action whose reply was lost is not refused as if another operator had done it.
func TestActionWithALostReply(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPost(t, 0)
		box := &flaky{Outbox: p.Outbox(), fails: 1}
		letters := p.desk.DeadLetters(box, 0)
		l := p.letter(t, message("a", "m"))
		if e, err := letters.Redrive(t.Context(), act(&l)); err != nil || e.Outcome != operator.StatusGone {
			t.Errorf("%+v, %v", e, err)
		}
		p.got.fail = func(*outbox.Delivery) outbox.Receipt {
			return outbox.Receipt{Err: errors.New("no"), After: time.Hour}
		}
		p.work(t)
		failing, err := p.Failing(t.Context(), 0, 10)
		must(t, err)
		box.fails = 1
		if e, err := letters.Skip(t.Context(), act(&failing[0])); err != nil || e.Outcome != operator.StatusDone { // its mark is in the letter
			t.Errorf("%+v, %v", e, err)
		}
		if d, _ := p.Outbox().Depth(t.Context()); d.Waiting != 0 || d.Dead != 1 {
			t.Errorf("%+v", d)
		}
	})
}

// bare is an outbox that can do no more than it must.
type bare struct{ outbox.Store }

func TestActionsThatAreNone(t *testing.T) {
	t.Parallel()
	s := memstore.New(nil)
	desk, err := operator.New(s, nil)
	must(t, err)
	letters := desk.DeadLetters(bare{s.Outbox()}, 0)
	for _, a := range []operator.DeadLetterAction{
		{}, {By: "anna", Why: "so"}, {By: "anna", Letter: 1, Revision: 1}, {Why: "so", Letter: 1, Revision: 1}, {By: "anna", Why: "so", Letter: 1},
		{ID: "two words", By: "anna", Why: "so", Letter: 1, Revision: 1}, {By: "anna", Why: "so\nand so", Letter: 1, Revision: 1},
	} {
		if _, err := letters.Drop(t.Context(), a); !errors.Is(err, operator.ErrInvalid) {
			t.Errorf("%+v: %v", a, err)
		}
	}
	if _, err := letters.Skip(t.Context(), operator.DeadLetterAction{By: "anna", Why: "so", Letter: 1, Revision: 1}); !errors.Is(err, errors.ErrUnsupported) {
		t.Error(err)
	}
	if _, err := letters.Failing(t.Context(), 0, 1); !errors.Is(err, errors.ErrUnsupported) {
		t.Error(err)
	}
}

// What is a dead letter already was not skipped by the action, and a letter that has changed
// since it was shown is not revealed.
func TestLettersOfAnotherStateAreRefused(t *testing.T) {
	t.Parallel()
	p := newPost(t, 0)
	l := p.letter(t, message("a", "m"))
	if e, err := p.Skip(t.Context(), act(&l)); !errors.Is(err, retrysafe.ErrNotFound) || e.Outcome != operator.StatusRefused {
		t.Errorf("Skip of a dead letter: %+v, %v", e, err)
	}
	a := act(&l)
	a.Revision++
	if got, e, err := p.Reveal(t.Context(), a); !errors.Is(err, operator.ErrStale) || e.Outcome != operator.StatusRefused || got.ID != 0 || got.Payload != nil {
		t.Errorf("Reveal at another revision: %+v, %+v, %v", got, e, err)
	}
}

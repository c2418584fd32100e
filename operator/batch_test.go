package operator_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/test/faultstore"
	"github.com/retrysafe/retrysafe/operator"
	"github.com/retrysafe/retrysafe/store/memstore"
)

// failedWith returns an unknown outcome of an operation, whose service answered with a
// status.
func failedWith(operation string, status int, key string) retrysafe.Write {
	w := in(retrysafe.StateUnknown, key)
	w.Operation, w.Reason = operation, fmt.Sprintf("the service answered %d", status)
	return w
}

// outage stores unknown outcomes: n of POST /charges with a 500, and three others.
func outage(t testing.TB, s retrysafe.Store, n int) {
	t.Helper()
	for i := range n {
		put(t, s, failedWith("POST /charges", 500, fmt.Sprintf("charge-%05d", i)))
	}
	put(t, s, failedWith("POST /charges", 502, "bad-gateway"))
	put(t, s, failedWith("POST /refunds", 500, "refund"))
	disputed := failedWith("POST /charges", 500, "disputed")
	disputed.Inquiry = retrysafe.Inquiry{Dead: true, Disputed: true}
	put(t, s, disputed)
	put(t, s, in(retrysafe.StateCompleted, "answered"))
	put(t, s, in(retrysafe.StateInProgress, "running"))
}

func release500() operator.Batch {
	return operator.Batch{By: anna, Why: "the provider has none of them", Verb: "release",
		Filter: operator.Filter{Operation: "POST /charges", Status: 500}}
}

func TestGroupsSayWhatNeedsAPerson(t *testing.T) {
	t.Parallel()
	onEachStore(t, func(t *testing.T, s retrysafe.Store) {
		outage(t, s, 7)
		dead := in(retrysafe.StateUnknown, "timeout-1")
		dead.Reason, dead.Inquiry.Dead = "read tcp 127.0.0.1:40001->127.0.0.1:9000: i/o timeout", true
		other := dead
		other.Key, other.Reason, other.Inquiry.Dead = "timeout-2", "read tcp 127.0.0.1:40002->127.0.0.1:9000: i/o timeout", false
		oldest := put(t, s, other) // it is listed behind the younger one
		put(t, s, dead)
		lapsed := in(retrysafe.StateInProgress, "lapsed")
		lapsed.Term = -time.Second
		put(t, s, lapsed)
		d := newDesk(t, s, nil)
		groups, err := d.Groups(t.Context(), operator.Filter{})
		must(t, err)
		got := map[string]int{}
		for _, g := range groups {
			got[fmt.Sprintf("%s %v %s %d %q dead %d", g.State, g.Disputed, g.Operation, g.Status, g.Reason, g.Dead)] = g.Count
			if g.Oldest.IsZero() || g.Age < 0 {
				t.Errorf("%+v has no age", g)
			}
			if g.Count == 2 && !g.Oldest.Equal(oldest.UnknownSince()) {
				t.Errorf("the oldest of %+v is of %v", g, oldest.UnknownSince())
			}
		}
		want := map[string]int{
			`unknown false POST /charges 500 "the service answered 500" dead 0`:               7,
			`unknown true POST /charges 500 "the service answered 500" dead 1`:                1,
			`unknown false POST /charges 502 "the service answered 502" dead 0`:               1,
			`unknown false POST /refunds 500 "the service answered 500" dead 0`:               1,
			`unknown false POST /payments 0 "read tcp …->127.0.0.1:9000: i/o timeout" dead 1`: 2,
			`in_progress false POST /payments 0 "" dead 0`:                                    1,
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("the groups are\n%v\nwant\n%v", got, want)
		}
		if groups[0].Count != 7 {
			t.Errorf("the first group has %d, want the largest", groups[0].Count)
		}
		// The reason of a group selects the group.
		page, err := d.List(t.Context(), operator.Filter{Reason: "read tcp …->127.0.0.1:9000: i/o timeout"})
		must(t, err)
		if len(page.Records) != 2 {
			t.Errorf("the reason of a group of 2 selects %d", len(page.Records))
		}
		one, err := d.Groups(t.Context(), operator.Filter{States: []retrysafe.State{retrysafe.StateInProgress}})
		must(t, err)
		if len(one) != 1 || one[0].State != retrysafe.StateInProgress {
			t.Errorf("by state: %+v", one)
		}
	})
}

func TestBatchChangesWhatItCounted(t *testing.T) {
	t.Parallel()
	onEachStore(t, func(t *testing.T, s retrysafe.Store) {
		outage(t, s, 100)
		d := newDesk(t, s, nil)
		b := release500()
		sel, err := d.Select(t.Context(), b)
		must(t, err)
		if sel.Count != 100 || sel.Disputed != 1 || len(sel.Sample) != 10 {
			t.Fatalf("it selects %d, left out %d, with a sample of %d", sel.Count, sel.Disputed, len(sel.Sample))
		}
		calls := 0
		b.Progress = func(operator.BatchReport) { calls++ }
		e, err := d.Apply(t.Context(), b, sel)
		must(t, err)
		if c := e.Counts; e.Outcome != operator.StatusDone || c.Counted != 100 || c.Done != 100 || c.Changed != 0 || c.Refused != 0 || calls != 100 {
			t.Fatalf("%s: %+v, %d calls of Progress", e.Outcome, c, calls)
		}
		want := `operation="POST /charges" state="unknown" status=500`
		if e.Counts.Filter != want {
			t.Errorf("the audit says %s, want %s", e.Counts.Filter, want)
		}
		for key, want := range map[string]retrysafe.State{
			"charge-00000": retrysafe.StateRetryable, "charge-00099": retrysafe.StateRetryable, "bad-gateway": retrysafe.StateUnknown,
			"refund": retrysafe.StateUnknown, "disputed": retrysafe.StateUnknown, "running": retrysafe.StateInProgress,
		} {
			if r := load(t, s, retrysafe.Ref{Scope: "acct_1", Key: key}); r.State != want {
				t.Errorf("%s is %s, want %s", key, r.State, want)
			}
		}
		auditOfBatch(t, d, s, e, 100)

		// A repetition under its ID changes nothing, whatever matches by then.
		put(t, s, failedWith("POST /charges", 500, "later"))
		b.ID = e.ID
		sel, err = d.Select(t.Context(), b)
		must(t, err)
		again, err := d.Apply(t.Context(), b, sel)
		must(t, err)
		if !again.Replayed || again.Counts.Done != 100 {
			t.Errorf("a repetition: %+v", again.Counts)
		}
		if r := load(t, s, retrysafe.Ref{Scope: "acct_1", Key: "later"}); r.State != retrysafe.StateUnknown {
			t.Error("a batch that had ended changed a record")
		}
	})
}

// auditOfBatch fails the test unless the audit has the batch, and n entries that name it.
func auditOfBatch(t *testing.T, d *operator.Service, s retrysafe.Store, e operator.Entry, n int) {
	t.Helper()
	all, err := d.Audit(t.Context(), operator.AuditFilter{Limit: 10_000})
	must(t, err)
	if len(all) != 1 || all[0].ID != e.ID || all[0].Why == "" || all[0].By != anna || all[0].Counts == nil {
		t.Errorf("the audit of batches is %+v", all)
	}
	each, err := d.Audit(t.Context(), operator.AuditFilter{Batch: e.ID, Limit: 10_000})
	must(t, err)
	if len(each) != n {
		t.Fatalf("the audit has %d entries of the batch, want %d", len(each), n)
	}
	for _, one := range each {
		r := load(t, s, one.Ref)
		note := r.Inquiry.Notes[len(r.Inquiry.Notes)-1]
		if one.Batch != e.ID || one.Outcome != operator.StatusDone || one.Verb != e.Verb || note.ID != one.ID || one.To.Revision != r.Revision || one.At.IsZero() {
			t.Fatalf("the entry %+v of %s, whose note is %+v", one, one.Ref.Key, note)
		}
	}
	byKey, err := d.Audit(t.Context(), operator.AuditFilter{Ref: each[0].Ref})
	must(t, err)
	if len(byKey) != 1 || byKey[0].ID != each[0].ID {
		t.Errorf("the audit of one key is %+v", byKey)
	}
}

// A record that changed between the count and the change is left as it is, and a record
// that came later is not touched.
func TestBatchSkipsWhatChangedSinceItWasCounted(t *testing.T) {
	t.Parallel()
	onEachStore(t, func(t *testing.T, s retrysafe.Store) {
		outage(t, s, 10)
		d := newDesk(t, s, nil)
		b := release500()
		other := failedWith("POST /refunds", 500, "disputed refund")
		other.Inquiry = retrysafe.Inquiry{Dead: true, Disputed: true}
		put(t, s, other)
		sel, err := d.Select(t.Context(), b)
		must(t, err)
		if sel.Disputed != 1 {
			t.Errorf("%d disputed records match", sel.Disputed)
		}
		ref := func(key string) retrysafe.Ref { return retrysafe.Ref{Scope: "acct_1", Key: key} }
		_, err = d.Resolve(t.Context(), seen(load(t, s, ref("charge-00003"))), paid)
		must(t, err)
		_, err = d.Redrive(t.Context(), seen(load(t, s, ref("charge-00004"))))
		must(t, err)
		put(t, s, failedWith("POST /charges", 500, "later"))
		e, err := d.Apply(t.Context(), b, sel)
		must(t, err)
		if c := e.Counts; c.Counted != 10 || c.Done != 8 || c.Changed != 2 {
			t.Errorf("%+v", c)
		}
		for key, want := range map[string]retrysafe.State{
			"charge-00003": retrysafe.StateCompleted, "charge-00004": retrysafe.StateUnknown, "later": retrysafe.StateUnknown,
		} {
			if r := load(t, s, ref(key)); r.State != want {
				t.Errorf("%s is %s, want %s", key, r.State, want)
			}
		}
		b.ID = "the-same-selection"
		e, err = d.Apply(t.Context(), b, sel)
		must(t, err)
		if c := e.Counts; c.Counted != 10 || c.Done != 0 || c.Changed != 10 {
			t.Errorf("once more: %+v", c)
		}
	})
}

func TestBatchVerbs(t *testing.T) {
	t.Parallel()
	for verb, want := range map[string]retrysafe.State{
		"resolve": retrysafe.StateCompleted, "decline": retrysafe.StateCompleted, "release": retrysafe.StateRetryable, "redrive": retrysafe.StateUnknown,
	} {
		t.Run(verb, func(t *testing.T) {
			t.Parallel()
			s := memstore.New(nil)
			for i := range 5 {
				w := failedWith("POST /charges", 500, fmt.Sprint(i))
				w.Inquiry = retrysafe.Inquiry{Dead: true, Tries: 12}
				put(t, s, w)
			}
			d := newDesk(t, s, nil)
			b := operator.Batch{By: anna, Why: "w", Verb: verb, Answer: paid}
			sel, err := d.Select(t.Context(), b)
			must(t, err)
			e, err := d.Apply(t.Context(), b, sel)
			must(t, err)
			if e.Counts.Done != 5 {
				t.Errorf("%+v", e.Counts)
			}
			r := load(t, s, retrysafe.Ref{Scope: "acct_1", Key: "3"})
			if r.State != want || r.Inquiry.Dead || want == retrysafe.StateCompleted && !r.Result.Equal(&paid) {
				t.Errorf("%s, dead %v, answer %v", r.State, r.Inquiry.Dead, r.Result)
			}
		})
	}
	t.Run("quarantine", func(t *testing.T) {
		t.Parallel()
		s := memstore.New(nil)
		for _, state := range []retrysafe.State{retrysafe.StateAccepted, retrysafe.StateInProgress, retrysafe.StateRetryable, retrysafe.StateCompleted} {
			put(t, s, in(state, state.String()))
		}
		d := newDesk(t, s, nil)
		b := operator.Batch{By: anna, Why: "w", Verb: "quarantine", Filter: operator.Filter{Operation: "POST /pay*"}}
		sel, err := d.Select(t.Context(), b)
		must(t, err)
		e, err := d.Apply(t.Context(), b, sel)
		must(t, err)
		if e.Counts.Done != 3 {
			t.Errorf("%+v", e.Counts)
		}
		if r := load(t, s, retrysafe.Ref{Scope: "acct_1", Key: "retryable"}); r.State != retrysafe.StateUnknown || r.Reason != "quarantined by an operator" {
			t.Errorf("%s, %s", r.State, r.Reason)
		}
	})
}

// Records in flight are settled by a batch only if they are asked for and their lease has
// lapsed.
func TestBatchLeavesWhatIsInFlight(t *testing.T) {
	t.Parallel()
	s := memstore.New(nil)
	put(t, s, in(retrysafe.StateInProgress, "running"))
	lapsed := in(retrysafe.StateInProgress, "lapsed")
	lapsed.Term = -time.Second
	put(t, s, lapsed)
	put(t, s, in(retrysafe.StateAccepted, "waits for a worker"))
	own := in(retrysafe.StateUnknown, "own")
	own.Scope = retrysafe.SystemScope("operator")
	put(t, s, own)
	d := newDesk(t, s, nil)
	for states, want := range map[retrysafe.State]int{0: 0, retrysafe.StateInProgress: 1, retrysafe.StateAccepted: 0} {
		b := operator.Batch{By: anna, Why: "w", Verb: "release", Filter: operator.Filter{System: true}} // which does not count
		if states != 0 {
			b.Filter.States = []retrysafe.State{states}
		}
		sel, err := d.Select(t.Context(), b)
		must(t, err)
		if sel.Count != want {
			t.Errorf("with the state %s it selects %d, want %d", states, sel.Count, want)
		}
	}
}

// For a quarantine Since and Until are about the last write, for other verbs about the
// creation.
func TestBatchSelectsByTime(t *testing.T) {
	t.Parallel()
	began := time.Now()
	clock := &clock{now: began}
	s := memstore.New(&memstore.Options{Now: clock.Now})
	unknown, retryable := put(t, s, in(retrysafe.StateUnknown, "unknown")), put(t, s, in(retrysafe.StateRetryable, "retryable"))
	clock.Advance(24 * time.Hour)
	for _, r := range []retrysafe.Record{unknown, retryable} {
		w := r.Update()
		w.Term = time.Hour
		_, err := s.Swap(t.Context(), w)
		must(t, err)
	}
	d := newDesk(t, s, nil)
	for verb, want := range map[string][2]int{"release": {1, 0}, "quarantine": {0, 1}} {
		for i, f := range []operator.Filter{{Until: began.Add(time.Hour)}, {Since: began.Add(time.Hour)}} {
			sel, err := d.Select(t.Context(), operator.Batch{By: anna, Why: "w", Verb: verb, Filter: f})
			must(t, err)
			if sel.Count != want[i] {
				t.Errorf("%s %+v selects %d, want %d", verb, f, sel.Count, want[i])
			}
		}
	}
}

// A bound that all records together just reach has left none out.
func TestGroupsUpToTheLastRecord(t *testing.T) {
	t.Parallel()
	s := memstore.New(nil)
	outage(t, s, 2)
	d := newDesk(t, s, nil)
	all, err := s.List(t.Context(), retrysafe.Query{States: []retrysafe.State{retrysafe.StateUnknown}})
	must(t, err)
	got, whole, err := d.GroupsUpTo(t.Context(), operator.Filter{}, len(all))
	if err != nil || !whole || len(got) == 0 {
		t.Errorf("%d groups, whole %v, %v", len(got), whole, err)
	}
}

// A record that a transaction holds is at work: the batch leaves it, as one that has changed.
func TestBatchLeavesWhatIsHeld(t *testing.T) {
	t.Parallel()
	s := &held{Store: memstore.New(nil)}
	outage(t, s, 2)
	s.ref, s.replies = retrysafe.Ref{Scope: "acct_1", Key: "charge-00001"}, []error{retrysafe.ErrBusy}
	d := newDesk(t, s, nil)
	b := release500()
	sel, err := d.Select(t.Context(), b)
	must(t, err)
	e, err := d.Apply(t.Context(), b, sel)
	must(t, err)
	if c := e.Counts; c.Counted != 2 || c.Done != 1 || c.Changed != 1 || c.Refused != 0 {
		t.Errorf("%+v", c)
	}
}

func TestBatchThatIsNotCompleteIsRefused(t *testing.T) {
	t.Parallel()
	s := memstore.New(nil)
	d := newDesk(t, s, nil)
	good := release500()
	sel, err := d.Select(t.Context(), good)
	must(t, err)
	for name, spoil := range map[string]func(*operator.Batch){
		"no verb":      func(b *operator.Batch) { b.Verb = "" },
		"another verb": func(b *operator.Batch) { b.Verb = "erase" },
		"no author":    func(b *operator.Batch) { b.By = "" },
		"no reason":    func(b *operator.Batch) { b.Why = "" },
		"no answer":    func(b *operator.Batch) { b.Verb = "resolve" },
		"no body":      func(b *operator.Batch) { b.Verb, b.Answer = "resolve", retrysafe.Result{Status: 200} },
		"no decline":   func(b *operator.Batch) { b.Verb = "decline" },
		"wrong state":  func(b *operator.Batch) { b.Filter.States = []retrysafe.State{retrysafe.StateCompleted} },
		"redrive in flight": func(b *operator.Batch) {
			b.Verb, b.Filter.States = "redrive", []retrysafe.State{retrysafe.StateUnknown, retrysafe.StateInProgress}
		},
		"negative rate": func(b *operator.Batch) { b.Rate = -1 },
	} {
		b := good
		spoil(&b)
		if _, err := d.Apply(t.Context(), b, sel); !errors.Is(err, operator.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := d.Apply(t.Context(), good, nil); !errors.Is(err, operator.ErrInvalid) {
		t.Errorf("no selection: %v", err)
	}
}

// A batch that is stopped goes on under its ID with what still matches; each record is
// changed once, and the audit has each.
func TestBatchGoesOnAfterItWasStopped(t *testing.T) {
	t.Parallel()
	onEachStore(t, func(t *testing.T, s retrysafe.Store) {
		outage(t, s, 300)
		d := newDesk(t, s, nil)
		ctx, stop := context.WithCancel(t.Context())
		b := release500()
		b.ID = "after-the-outage"
		sel, err := d.Select(ctx, b)
		must(t, err)
		b.Progress = func(r operator.BatchReport) {
			if r.Done == 100 {
				stop()
			}
		}
		if _, err := d.Apply(ctx, b, sel); !errors.Is(err, context.Canceled) {
			t.Fatalf("a batch that was stopped: %v", err)
		}
		first := 300 - unknownOf(t, d)
		if first < 100 || first == 300 {
			t.Fatalf("it was stopped at 100, and has changed %d", first)
		}
		b.Progress = nil
		sel, err = d.Select(t.Context(), b)
		must(t, err)
		if sel.Count != 300-first {
			t.Errorf("%d still match, want %d", sel.Count, 300-first)
		}
		e, err := d.Apply(t.Context(), b, sel)
		must(t, err)
		if c := e.Counts; c.Counted != 300 || c.Done != 300 || e.Attempt != 2 {
			t.Errorf("%+v in %d attempts", c, e.Attempt)
		}
		auditOfBatch(t, d, s, e, 300)
	})
}

// unknownOf returns how many charges are unknown with a 500 and not disputed.
func unknownOf(t *testing.T, d *operator.Service) int {
	t.Helper()
	sel, err := d.Select(t.Context(), release500())
	must(t, err)
	return sel.Count
}

// lossy is a store that loses the replies of some swaps, or fails to create entries.
type lossy struct {
	retrysafe.Store
	swaps, creates atomic.Int64
	swap, create   func(n int64) bool // whether the nth reply is lost, or the nth entry
	created        func(n int64) bool // whether the reply to the nth entry is lost
}

var errLost = errors.New("the reply was lost")

func (l *lossy) Swap(ctx context.Context, w retrysafe.Write) (retrysafe.Record, error) {
	r, err := l.Store.Swap(ctx, w)
	if !w.IsSystem() && l.swap != nil && l.swap(l.swaps.Add(1)) {
		return retrysafe.Record{}, errLost
	}
	return r, err
}

func (l *lossy) Create(ctx context.Context, w retrysafe.Write) (retrysafe.Record, error) {
	if w.State == retrysafe.StateCompleted && l.create != nil && l.create(l.creates.Add(1)) {
		return retrysafe.Record{}, errLost
	}
	r, err := l.Store.Create(ctx, w)
	if w.State == retrysafe.StateCompleted && l.created != nil && l.created(l.creates.Add(1)) {
		return retrysafe.Record{}, errLost
	}
	return r, err
}

// An entry whose reply is lost is there. Entries of a batch are kept as long as others.
func TestBatchRecognisesItsOwnEntries(t *testing.T) {
	t.Parallel()
	s := &lossy{Store: memstore.New(nil), created: func(n int64) bool { return n%3 == 1 }}
	outage(t, s.Store, 2)
	d := newDesk(t, s, &operator.Options{Retention: 30 * 24 * time.Hour})
	b := release500()
	sel, err := d.Select(t.Context(), b)
	must(t, err)
	e, err := d.Apply(t.Context(), b, sel)
	must(t, err)
	auditOfBatch(t, d, s, e, 2)
	for _, one := range append(audited(t, d, operator.AuditFilter{Batch: e.ID}), e) {
		r := load(t, s, retrysafe.Ref{Scope: retrysafe.SystemScope("operator"), Key: one.ID})
		if left := r.Deadline.Sub(r.ReadAt).Round(time.Hour); r.Retain != 30*24*time.Hour || left != 30*24*time.Hour {
			t.Errorf("the entry %s is kept for %v, and has %v left", one.ID, r.Retain, left)
		}
	}
}

// A reply that is lost changes nothing about the counts: the note in the record shows
// whether the swap was applied.
func TestBatchRecognisesItsOwnWrites(t *testing.T) {
	t.Parallel()
	s := &lossy{Store: memstore.New(nil), swap: func(n int64) bool { return n%3 == 0 }}
	outage(t, s.Store, 50)
	d := newDesk(t, s, nil)
	b := release500()
	sel, err := d.Select(t.Context(), b)
	must(t, err)
	e, err := d.Apply(t.Context(), b, sel)
	must(t, err)
	if c := e.Counts; c.Done != 50 || c.Changed != 0 {
		t.Errorf("%+v", c)
	}
	auditOfBatch(t, d, s, e, 50)
}

// A batch that fails between a change and its entry in the audit adds the entry when it
// goes on, and does not end before it could.
func TestBatchAddsEntriesThatAreMissing(t *testing.T) {
	t.Parallel()
	for _, there := range []bool{false, true} { // an entry whose replies are all lost is there already
		batchAddsEntries(t, there)
	}
}

func batchAddsEntries(t *testing.T, there bool) {
	t.Helper()
	down := atomic.Bool{}
	fails := func(n int64) bool { return n > 20 && down.Load() }
	s := &lossy{Store: memstore.New(nil), create: fails}
	if there {
		s.create, s.created = nil, fails
	}
	outage(t, s.Store, 50)
	d := newDesk(t, s, nil)
	b := release500()
	b.ID = "cut"
	sel, err := d.Select(t.Context(), b)
	must(t, err)
	down.Store(true)
	for range 2 {
		if _, err := d.Apply(t.Context(), b, sel); !errors.Is(err, errLost) {
			t.Fatalf("the store fails: %v", err)
		}
		sel, err = d.Select(t.Context(), b)
		must(t, err)
	}
	down.Store(false)
	e, err := d.Apply(t.Context(), b, sel)
	must(t, err)
	if c := e.Counts; c.Done != 50 || c.Counted != 50 {
		t.Errorf("%+v", c)
	}
	auditOfBatch(t, d, s, e, 50)
}

// stuckStore is a store that cannot swap one key while it is down.
type stuckStore struct {
	retrysafe.Store
	key  string
	down atomic.Bool
}

func (s *stuckStore) Swap(ctx context.Context, w retrysafe.Write) (retrysafe.Record, error) {
	if w.Key == s.key && s.down.Load() {
		return retrysafe.Record{}, errLost
	}
	return s.Store.Swap(ctx, w)
}

// A batch of which one record cannot be changed has not ended, and goes on with that
// record.
func TestBatchDoesNotEndWithoutOneOfItsRecords(t *testing.T) {
	t.Parallel()
	s := &stuckStore{Store: memstore.New(nil), key: "charge-00003"}
	outage(t, s.Store, 10)
	d := newDesk(t, s, nil)
	b := release500()
	b.ID = "stuck"
	s.down.Store(true)
	for range 2 {
		sel, err := d.Select(t.Context(), b)
		must(t, err)
		if e, err := d.Apply(t.Context(), b, sel); !errors.Is(err, errLost) || e.Outcome == operator.StatusDone {
			t.Fatalf("one record cannot be changed: %+v, %v", e, err)
		}
	}
	s.down.Store(false)
	sel, err := d.Select(t.Context(), b)
	must(t, err)
	e, err := d.Apply(t.Context(), b, sel)
	must(t, err)
	if c := e.Counts; c.Done != 10 || c.Counted != 10 || c.Changed != 0 || c.Refused != 0 {
		t.Errorf("%+v", c)
	}
	auditOfBatch(t, d, s, e, 10)
}

// A batch that the store fails changes nothing that it has not noted, stops at the first
// failure and has not ended, also if it could not list what there is to change, or find out
// how an earlier try of it ended.
func TestBatchThatFailsIsOpen(t *testing.T) {
	t.Parallel()
	const first = "charge-00000"
	of := func(op faultstore.Op, key string) func(faultstore.Step) bool {
		return func(s faultstore.Step) bool { return s.Op == op && (key == "" || s.Write.Key == key) }
	}
	notes := 0
	for name, fails := range map[string]func(faultstore.Step) bool{
		"notes": func(s faultstore.Step) bool {
			if s.Op == faultstore.Swap && s.Write.IsSystem() && s.Write.State == retrysafe.StateInProgress {
				notes++
				return notes > 1 // the author and the reason are stored
			}
			return false
		},
		"lists": of(faultstore.List, ""),
		"swaps": of(faultstore.Swap, first),
		"looks": of(faultstore.Load, first),
	} {
		synctest.Test(t, func(t *testing.T) {
			below := memstore.New(nil)
			s := faultstore.New(below)
			outage(t, below, 3)
			d := newDesk(t, s, nil)
			b := release500()
			b.ID, b.Rate = name, 1
			plan := func(fails func(faultstore.Step) bool) {
				s.Plan(func(step faultstore.Step) faultstore.Fault {
					if fails(step) {
						return faultstore.LoseRequest
					}
					return faultstore.None
				})
			}
			if name == "looks" { // an earlier try has left open how the first record ended
				plan(of(faultstore.Swap, first))
				sel, err := d.Select(t.Context(), b)
				must(t, err)
				if _, err := d.Apply(t.Context(), b, sel); err == nil {
					t.Fatal("the first record was changed")
				}
				plan(func(faultstore.Step) bool { return false })
			}
			sel, err := d.Select(t.Context(), b)
			must(t, err)
			plan(fails)
			if e, err := d.Apply(t.Context(), b, sel); !errors.Is(err, faultstore.ErrInjected) || e.Outcome != operator.StatusOpen {
				t.Errorf("the store fails what %s: %+v, %v", name, e, err)
			}
			s.Plan(nil)
			if left := unknownOf(t, d); left != 3 {
				t.Errorf("the store fails what %s: %d of 3 are left", name, left)
			}
		})
	}
}

// The ID of a batch belongs to all that says what it does: with another filter, verb or
// answer it is another batch.
func TestBatchIDBelongsToItsFilter(t *testing.T) {
	t.Parallel()
	d := newDesk(t, memstore.New(nil), nil)
	apply := func(change func(*operator.Batch)) error {
		b := operator.Batch{ID: "mine", By: anna, Why: "they have none", Verb: "resolve", Answer: paid}
		change(&b)
		sel, err := d.Select(t.Context(), b)
		must(t, err)
		_, err = d.Apply(t.Context(), b, sel)
		return err
	}
	must(t, apply(func(*operator.Batch) {}))
	must(t, apply(func(b *operator.Batch) { b.Rate = 100 }))
	day := time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC)
	for name, change := range map[string]func(*operator.Batch){
		"scope":     func(b *operator.Batch) { b.Filter.Scope = "acct_1" },
		"tenant":    func(b *operator.Batch) { b.Filter.Tenant = "acct_1" },
		"operation": func(b *operator.Batch) { b.Filter.Operation = "POST /charges" },
		"reason":    func(b *operator.Batch) { b.Filter.Reason = "timeout" },
		"status":    func(b *operator.Batch) { b.Filter.Status = 500 },
		"since":     func(b *operator.Batch) { b.Filter.Since = day },
		"until":     func(b *operator.Batch) { b.Filter.Until = day },
		"states":    func(b *operator.Batch) { b.Filter.States = []retrysafe.State{retrysafe.StateInProgress} },
		"due":       func(b *operator.Batch) { b.Filter.Due = true },
		"dead":      func(b *operator.Batch) { b.Filter.Dead = true },
		"verb":      func(b *operator.Batch) { b.Verb = "decline" },
		"author":    func(b *operator.Batch) { b.By = "bert" },
		"reason of": func(b *operator.Batch) { b.Why = "they have all" },
		"answer":    func(b *operator.Batch) { b.Answer.Body = []byte("paid twice") },
	} {
		if err := apply(change); !errors.Is(err, retrysafe.ErrMismatch) {
			t.Errorf("another %s: %v, want ErrMismatch", name, err)
		}
	}
}

func TestBatchKeepsItsRate(t *testing.T) {
	t.Parallel()
	s := memstore.New(nil)
	outage(t, s, 30)
	d := newDesk(t, s, nil)
	b := release500()
	b.Rate = 100
	sel, err := d.Select(t.Context(), b)
	must(t, err)
	began := time.Now()
	e, err := d.Apply(t.Context(), b, sel)
	must(t, err)
	if took := time.Since(began); e.Counts.Done != 30 || took < 290*time.Millisecond {
		t.Errorf("%d in %v at 100 in a second", e.Counts.Done, took)
	}
}

func TestFilterByContent(t *testing.T) {
	t.Parallel()
	onEachStore(t, func(t *testing.T, s retrysafe.Store) {
		outage(t, s, 2)
		narrow := failedWith("POST /charges", 500, "narrow")
		narrow.Scope = "acct_1\x1fby\x1fanna"
		put(t, s, narrow)
		other := failedWith("POST /charges", 500, "other")
		other.Scope = "acct_12"
		first := put(t, s, other)
		timeout := in(retrysafe.StateUnknown, "timeout")
		timeout.Scope, timeout.Reason = "acct_3", "read tcp 127.0.0.1:40001->127.0.0.1:9000: i/o timeout"
		put(t, s, timeout)
		d := newDesk(t, s, nil)
		for name, c := range map[string]struct {
			f    operator.Filter
			want int
		}{
			"tenant":           {operator.Filter{Tenant: "acct_1"}, 8},
			"scope":            {operator.Filter{Scope: "acct_1"}, 7},
			"operation":        {operator.Filter{Operation: "POST /refunds"}, 1},
			"part of one":      {operator.Filter{Operation: "/refunds"}, 0},
			"asterisk":         {operator.Filter{Operation: "* /*s", Status: 502}, 1},
			"asterisk in none": {operator.Filter{Operation: "PUT*"}, 0},
			"reason":           {operator.Filter{Reason: "the service answered 502"}, 1},
			"part of a reason": {operator.Filter{Reason: "*answered 502"}, 1},
			"exact reason":     {operator.Filter{Reason: "read *:40001->*: i/o timeout"}, 1}, // its kind has no port
			"status":           {operator.Filter{Status: 500}, 6},
			"since":            {operator.Filter{Since: first.CreatedAt.Add(time.Hour)}, 0},
			"until":            {operator.Filter{Until: first.CreatedAt.Add(-time.Hour)}, 0},
			"now":              {operator.Filter{Status: 502, Since: first.CreatedAt.Add(-time.Hour), Until: first.CreatedAt.Add(time.Hour)}, 1},
		} {
			page, err := d.List(t.Context(), c.f)
			must(t, err)
			if len(page.Records) != c.want {
				t.Errorf("%s: %d records, want %d", name, len(page.Records), c.want)
			}
		}
	})
}

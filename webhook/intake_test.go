package webhook_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/test/faultstore"
	"github.com/retrysafe/retrysafe/store/memstore"
	"github.com/retrysafe/retrysafe/webhook"
)

// An event without the provider's signature, or with an old one, is refused before
// its body is parsed, and stores nothing.
func TestW57_ForgedAndLateEventsStoreNothing(t *testing.T) {
	t.Parallel()
	overStores(t, func(t *testing.T, s retrysafe.Store) {
		d := newDesk(t, s, nil, nil)
		before := d.put(retrysafe.Record{State: retrysafe.StateUnknown})
		body, now := happened().body(), time.Now()
		unsigned := signed(t, secret, "evt-1", now, body)
		unsigned.Header.Del(webhook.HeaderSignature)
		renamed := signed(t, secret, "evt-1", now, body)
		renamed.Header.Set(webhook.HeaderID, "evt-2")
		changed := signed(t, secret, "evt-1", now, body)
		changed.Body = http.NoBody
		get := signed(t, secret, "evt-1", now, body)
		get.Method = http.MethodGet
		cut := signed(t, secret, "evt-1", now, body)
		cut.Body = io.NopCloser(iotest.ErrReader(errors.New("the line broke")))
		for name, c := range map[string]struct {
			request *http.Request
			status  int
			code    string
		}{
			"by another secret": {signed(t, next, "evt-1", now, body), 401, "event-forged"},
			"renamed":           {renamed, 401, "event-forged"},
			"changed":           {changed, 401, "event-forged"},
			"late":              {signed(t, secret, "evt-1", now.Add(-time.Hour), body), 401, "event-late"},
			"from the future":   {signed(t, secret, "evt-1", now.Add(time.Hour), body), 401, "event-late"},
			"unsigned":          {unsigned, 400, "event-malformed"},
			"endless id":        {signed(t, secret, strings.Repeat("e", 2000), now, body), 400, "event-malformed"},
			"too large":         {signed(t, secret, "evt-1", now, []byte(strings.Repeat(" ", 1<<20+1))), 413, "body-too-large"},
			"cut":               {cut, 400, "body-unreadable"},
			"not POST":          {get, 405, "method-not-allowed"},
		} {
			w := d.send(c.request)
			if w.Code != c.status || !strings.Contains(w.Body.String(), `"`+c.code+`"`) || w.Header().Get("Content-Type") != "application/problem+json" {
				t.Errorf("%s: %d %s", name, w.Code, w.Body)
			}
			h := w.Header()
			if h.Get("Cache-Control") != "no-store" || (h.Get("WWW-Authenticate") != "") != (c.status == 401) || (h.Get("Allow") == "POST") != (c.status == 405) {
				t.Errorf("%s: the header is %v", name, h)
			}
		}
		all, err := s.List(t.Context(), retrysafe.Query{})
		must(t, err)
		if len(all) != 1 || all[0].Revision != before.Revision || d.reads.Load() != 0 {
			t.Errorf("the store has %d records, the key moved from %d to %d, %d events were read", len(all), before.Revision, all[0].Revision, d.reads.Load())
		}
		d.saw()
	})
}

// An event settles its key, and a redelivery gets the first answer without being
// read again, also when its bytes are others.
func TestW57_DuplicateGetsTheFirstAnswer(t *testing.T) {
	t.Parallel()
	overStores(t, func(t *testing.T, s retrysafe.Store) {
		d := newDesk(t, s, nil, nil)
		d.put(retrysafe.Record{State: retrysafe.StateUnknown})
		first := d.deliver("evt-1", happened(), 200, "settled")
		r := d.want(retrysafe.StateCompleted, "as reported by evt-1")
		notes := r.Inquiry.Notes
		if len(notes) != 1 || notes[0].By != "webhook test" || !strings.Contains(notes[0].Text, "event evt-1") {
			t.Errorf("the notes are %+v", notes)
		}
		again := happened()
		again.Note = "pending_webhooks: 0"
		second := d.deliver("evt-1", again, 200, "settled")
		if second.Body.String() != first.Body.String() || second.Header().Get("Idempotent-Replayed") != "true" || first.Header().Get("Idempotent-Replayed") != "" {
			t.Errorf("the first got %v %s, the second %v %s", first.Header(), first.Body, second.Header(), second.Body)
		}
		for _, w := range []*httptest.ResponseRecorder{first, second} {
			if h := w.Header(); h.Get("Content-Type") != "application/json" || h.Get("Cache-Control") != "no-store" {
				t.Errorf("the header of an answer is %v", h)
			}
		}
		if n := d.reads.Load(); n != 1 {
			t.Errorf("the event was read %d times", n)
		}
		if r := d.load(); len(r.Inquiry.Notes) != 1 {
			t.Errorf("the redelivery left a note: %+v", r.Inquiry.Notes)
		}
		d.saw(retrysafe.EventResolved)
		if got := d.Counts(); got["settled"] != 1 {
			t.Errorf("the counts are %v", got)
		}
	})
}

// A retry gets the answer that the event brought.
func TestSettledKeyIsReplayed(t *testing.T) {
	t.Parallel()
	d := newDesk(t, memstore.New(nil), nil, nil)
	call := retrysafe.Call{Ref: retrysafe.Ref{Scope: scope, Key: key}}
	x, _, err := d.engine.Begin(t.Context(), call)
	must(t, err)
	must(t, x.Quarantine(t.Context(), errors.New("no answer")))
	d.deliver("evt-1", happened(), 200, "settled")
	_, out, err := d.engine.Begin(t.Context(), call)
	if err != nil || out == nil || out.Status != 201 || !out.Replayed {
		t.Errorf("a retry gets %+v, %v", out, err)
	}
}

func TestW57_ConcurrentDuplicatesSettleOnce(t *testing.T) {
	t.Parallel()
	overStores(t, func(t *testing.T, s retrysafe.Store) {
		d := newDesk(t, s, nil, nil)
		d.put(retrysafe.Record{State: retrysafe.StateUnknown})
		var all sync.WaitGroup
		for range 16 {
			r := signed(t, secret, "evt-1", time.Now(), happened().body())
			all.Go(func() {
				if w := d.send(r); w.Code != 200 && w.Code != 503 {
					t.Errorf("a duplicate got %d %s", w.Code, w.Body)
				}
			})
		}
		all.Wait()
		d.deliver("evt-1", happened(), 200, "settled")
		d.want(retrysafe.StateCompleted, "as reported by evt-1")
		d.saw(retrysafe.EventResolved)
	})
}

// Different events about one key: one of them settles it, the others agree.
func TestW57_ConcurrentEventsAgree(t *testing.T) {
	t.Parallel()
	overStores(t, func(t *testing.T, s retrysafe.Store) {
		d := newDesk(t, s, nil, nil)
		d.put(retrysafe.Record{State: retrysafe.StateUnknown})
		var all sync.WaitGroup
		for i := range 8 {
			r := signed(t, secret, "evt-"+string(rune('a'+i)), time.Now(), happened().body())
			all.Go(func() {
				if w := d.send(r); w.Code != 200 {
					t.Errorf("an event got %d %s", w.Code, w.Body)
				}
			})
		}
		all.Wait()
		if r := d.load(); r.State != retrysafe.StateCompleted || len(r.Inquiry.Notes) != 1 {
			t.Errorf("the key is %s with %+v", r.State, r.Inquiry.Notes)
		}
		d.saw(retrysafe.EventResolved)
	})
}

// An older event after a newer one changes nothing.
func TestW57_ReorderedEventsChangeNothing(t *testing.T) {
	t.Parallel()
	overStores(t, func(t *testing.T, s retrysafe.Store) {
		d := newDesk(t, s, nil, nil)
		d.put(retrysafe.Record{State: retrysafe.StateUnknown})
		d.deliver("evt-2", happened(), 200, "settled")
		before := d.load()
		d.deliver("evt-1", pending(), 200, "unchanged")
		d.deliver("evt-3", happened(), 200, "unchanged")
		if after := d.load(); after.Revision != before.Revision {
			t.Errorf("the key was written: %+v", after)
		}
		d.saw(retrysafe.EventResolved)
	})
}

// A stored answer is never overwritten. What cannot be true together with it is an
// alarm.
func TestW57_SuccessAfterDeclineIsAnAlarm(t *testing.T) {
	t.Parallel()
	overStores(t, func(t *testing.T, s retrysafe.Store) {
		for name, c := range map[string]struct {
			stored int
			event  report
			alarm  bool
		}{
			"success after decline":         {402, happened(), true},
			"decline after success":         {201, declined(), true},
			"success after a stored error":  {500, happened(), true},
			"success after a bad request":   {400, happened(), true},
			"success after a redirect":      {399, happened(), false},
			"nothing after success":         {201, report{Finding: retrysafe.FindingNotHappened}, true},
			"success under another id":      {201, report{Finding: retrysafe.FindingHappened, Status: 201, ProviderRef: "pay-2"}, true},
			"another success after decline": {402, report{Finding: retrysafe.FindingHappened, Status: 201, ProviderRef: "pay-2"}, false},
			"decline under another id":      {201, report{Finding: retrysafe.FindingDeclined, Status: 402, ProviderRef: "pay-2"}, false},
			"success after success":         {201, report{Finding: retrysafe.FindingHappened, Status: 200, ProviderRef: "pay-1"}, false},
			"decline after decline":         {402, declined(), false},
			"nothing after decline":         {402, report{Finding: retrysafe.FindingNotHappened}, false},
			"pending after decline":         {402, pending(), false},
		} {
			d := newDesk(t, s, nil, nil)
			ref := retrysafe.Ref{Scope: scope, Key: name}
			before := d.put(retrysafe.Record{
				Ref: ref, State: retrysafe.StateCompleted, ProviderRef: "pay-1", Result: &retrysafe.Result{Status: c.stored},
			})
			c.event.Scope, c.event.Key = ref.Scope, ref.Key
			id, word := "evt-"+name, "unchanged"
			if c.alarm {
				word = "contradicted"
			}
			d.deliver(id, c.event, 200, word)
			after, err := s.Load(t.Context(), ref)
			must(t, err)
			if after.Revision != before.Revision {
				t.Errorf("%s: the key was written", name)
			}
			if !c.alarm {
				d.saw()
				continue
			}
			d.saw(retrysafe.EventContradicted)
			if log := d.log.String(); !strings.Contains(log, "level=ERROR") || !strings.Contains(log, "contradicts") {
				t.Errorf("%s: the log has %q", name, log)
			}
			if state, ok := d.remembered(id); !ok || state != retrysafe.StateCompleted {
				t.Errorf("%s: the event is remembered as %s, %v", name, state, ok)
			}
		}
	})
}

// Success after Retryable: no retry runs it again, and no later event settles the
// contradiction.
func TestW57_SuccessAfterRetryableIsAnOperators(t *testing.T) {
	t.Parallel()
	overStores(t, func(t *testing.T, s retrysafe.Store) {
		d := newDesk(t, s, nil, nil)
		d.put(retrysafe.Record{State: retrysafe.StateRetryable})
		d.deliver("evt-0", declined(), 200, "unchanged")
		d.want(retrysafe.StateRetryable, "")
		d.deliver("evt-1", happened(), 200, "contradicted")
		if r := d.want(retrysafe.StateUnknown, ""); !r.Inquiry.Dead {
			t.Errorf("it is not left to an operator: %+v", r.Inquiry)
		}
		d.saw(retrysafe.EventContradicted)
		d.deliver("evt-2", happened(), 200, "unchanged")
		if r := d.want(retrysafe.StateUnknown, ""); !r.Inquiry.Dead {
			t.Errorf("a second event has settled it: %+v", r.Inquiry)
		}
		if _, _, err := d.engine.Begin(t.Context(), retrysafe.Call{Ref: retrysafe.Ref{Scope: scope, Key: key}}); !errors.Is(err, retrysafe.ErrUnknown) {
			t.Errorf("a retry gets %v", err)
		}
	})
}

// The alarm is about what was found, so it does not depend on a step of the store
// that fails afterwards.
func TestW57_AlarmDoesNotWaitForTheStore(t *testing.T) {
	t.Parallel()
	overStores(t, func(t *testing.T, s retrysafe.Store) {
		d := newDesk(t, s, nil, nil)
		d.put(retrysafe.Record{State: retrysafe.StateRetryable})
		d.fault.Plan(func(st faultstore.Step) faultstore.Fault {
			if st.Op == faultstore.Swap && st.Write.Key == key {
				return faultstore.LoseReply
			}
			return faultstore.None
		})
		d.deliver("evt-1", happened(), 503, "store-unavailable")
		d.saw(retrysafe.EventContradicted)
		d.fault.Plan(nil)
		d.deliver("evt-1", happened(), 200, "unchanged")
		d.want(retrysafe.StateUnknown, "")
	})
}

// Two effects under one key are nothing that an event could settle.
func TestW57_SuccessUnderAnotherIDIsAnOperators(t *testing.T) {
	t.Parallel()
	overStores(t, func(t *testing.T, s retrysafe.Store) {
		d := newDesk(t, s, nil, nil)
		d.put(retrysafe.Record{State: retrysafe.StateUnknown, ProviderRef: "pay-1"})
		other := declined()
		other.ProviderRef = "pay-2"
		d.deliver("evt-1", other, 200, "unchanged") // it is about something else
		d.want(retrysafe.StateUnknown, "")
		other = happened()
		other.ProviderRef = "pay-2"
		d.deliver("evt-2", other, 200, "contradicted")
		own := happened()
		own.ProviderRef = "pay-1"
		d.deliver("evt-3", own, 200, "unchanged")
		if r := d.want(retrysafe.StateUnknown, ""); !r.Inquiry.Dead || r.ProviderRef != "pay-1" {
			t.Errorf("the key is about %s, %+v", r.ProviderRef, r.Inquiry)
		}
		d.saw(retrysafe.EventContradicted)
	})
}

// While an owner has the key the event is refused and forgotten, so that it comes
// again when there is something to settle.
func TestW57_OwnerAtWorkIsNotOvertaken(t *testing.T) {
	t.Parallel()
	overStores(t, func(t *testing.T, s retrysafe.Store) {
		for _, state := range []retrysafe.State{retrysafe.StateInProgress, retrysafe.StateAccepted} {
			d := newDesk(t, s, nil, nil)
			ref := retrysafe.Ref{Scope: scope, Key: state.String()}
			r := d.put(retrysafe.Record{Ref: ref, State: state}).Update()
			event := happened()
			event.Key = ref.Key
			id := "evt-" + ref.Key
			if w := d.deliver(id, event, 503, "key-in-flight"); w.Header().Get("Retry-After") != "60" { // its lease is an hour
				t.Errorf("Retry-After is %q", w.Header().Get("Retry-After"))
			}
			if state, _ := d.remembered(id); state == retrysafe.StateCompleted {
				t.Error("the event is remembered as done")
			}
			r.State, r.Term = retrysafe.StateUnknown, time.Hour
			_, err := s.Swap(t.Context(), r)
			must(t, err)
			d.deliver(id, event, 200, "settled")
			if n := d.reads.Load(); n != 2 {
				t.Errorf("the event was read %d times", n)
			}
		}
	})
}

// An event does not wait for an owner whose lease has lapsed, if its record is to be
// quarantined.
func TestW57_LapsedOwnerIsSweptFirst(t *testing.T) {
	t.Parallel()
	overStores(t, func(t *testing.T, s retrysafe.Store) {
		d := newDesk(t, s, nil, nil)
		d.put(retrysafe.Record{State: retrysafe.StateInProgress}, time.Nanosecond)
		d.deliver("evt-1", happened(), 200, "settled")
		r := d.want(retrysafe.StateCompleted, "as reported by evt-1")
		if len(r.Inquiry.Notes) != 2 {
			t.Errorf("the notes are %+v", r.Inquiry.Notes)
		}
		d.saw(retrysafe.EventLapsed, retrysafe.EventResolved)
	})
}

// What a retry may run again is for the retry: an event does not make it Retryable
// only to contradict it.
func TestW57_LapsedRerunIsLeftAlone(t *testing.T) {
	t.Parallel()
	overStores(t, func(t *testing.T, s retrysafe.Store) {
		d := newDesk(t, s, nil, nil)
		d.put(retrysafe.Record{State: retrysafe.StateInProgress, Effects: retrysafe.EffectsKeyed, Lapse: retrysafe.LapseRerun}, time.Nanosecond)
		if w := d.deliver("evt-1", happened(), 503, "key-in-flight"); w.Header().Get("Retry-After") != "1" { // its lease is over
			t.Errorf("Retry-After is %q", w.Header().Get("Retry-After"))
		}
		d.want(retrysafe.StateInProgress, "")
	})
}

// An event may come before our own record is visible.
func TestW57_EventBeforeItsKeyComesAgain(t *testing.T) {
	t.Parallel()
	overStores(t, func(t *testing.T, s retrysafe.Store) {
		d := newDesk(t, s, nil, nil)
		d.deliver("evt-1", happened(), 404, "no-such-key")
		if state, _ := d.remembered("evt-1"); state == retrysafe.StateCompleted {
			t.Error("the event is remembered as done")
		}
		d.put(retrysafe.Record{State: retrysafe.StateUnknown})
		d.deliver("evt-1", happened(), 200, "settled")
	})
}

func TestMissingKeyIsAcknowledgedOnDemand(t *testing.T) {
	t.Parallel()
	d := newDesk(t, memstore.New(nil), nil, &webhook.Options{Missing: webhook.MissingAcknowledge})
	d.deliver("evt-1", happened(), 200, "acknowledged")
	d.deliver("evt-2", report{ProviderRef: "pay-1", Finding: retrysafe.FindingHappened, Status: 200}, 200, "acknowledged")
	if state, _ := d.remembered("evt-1"); state != retrysafe.StateCompleted {
		t.Errorf("the event is remembered as %s", state)
	}
	d.put(retrysafe.Record{State: retrysafe.StateInProgress})
	d.deliver("evt-3", happened(), 503, "key-in-flight") // only a key that is missing is acknowledged
	if state, _ := d.remembered("evt-3"); state == retrysafe.StateCompleted {
		t.Error("an event about a key in flight is remembered as done")
	}
}

// "Not found" is evidence, and no proof.
func TestW56_NotHappenedNeedsProof(t *testing.T) {
	t.Parallel()
	overStores(t, func(t *testing.T, s retrysafe.Store) {
		d := newDesk(t, s, nil, nil)
		before := d.put(retrysafe.Record{State: retrysafe.StateUnknown, Inquiry: retrysafe.Inquiry{Tries: 3}})
		event := report{Scope: scope, Key: key, Finding: retrysafe.FindingNotHappened}
		d.deliver("evt-1", event, 200, "noted")
		r := d.want(retrysafe.StateUnknown, "")
		if r.Inquiry.Tries != 3 || r.Inquiry.Dead || len(r.Inquiry.Notes) != 1 {
			t.Errorf("the inquiry is %+v", r.Inquiry)
		}
		if off := r.Deadline.Sub(before.Deadline).Abs(); off > time.Minute {
			t.Errorf("the next look was moved from %v to %v", before.Deadline, r.Deadline)
		}
		event.Proof = retrysafe.ProofTombstone
		d.deliver("evt-2", event, 200, "settled")
		d.want(retrysafe.StateRetryable, "")
		d.saw(retrysafe.EventInquired, retrysafe.EventResolved)
	})
}

// An event without news writes nothing, however often the provider sends its like;
// the provider's id is news.
func TestPendingEventsBringTheProvidersID(t *testing.T) {
	t.Parallel()
	d := newDesk(t, memstore.New(nil), nil, nil)
	d.put(retrysafe.Record{State: retrysafe.StateUnknown})
	d.deliver("evt-1", pending(), 200, "unchanged")
	event := pending()
	event.ProviderRef = "pay-1"
	d.deliver("evt-2", event, 200, "noted")
	d.deliver("evt-3", event, 200, "unchanged")
	if r := d.load(); r.State != retrysafe.StateUnknown || r.ProviderRef != "pay-1" || len(r.Inquiry.Notes) != 1 || r.Inquiry.Tries != 0 {
		t.Errorf("the key is %s about %q, %+v", r.State, r.ProviderRef, r.Inquiry)
	}
}

// Dead letters that were only asked about in vain are settled by an event.
func TestDeadLetterIsSettled(t *testing.T) {
	t.Parallel()
	d := newDesk(t, memstore.New(nil), nil, nil)
	d.put(retrysafe.Record{State: retrysafe.StateUnknown, Reason: "lease lapsed", Inquiry: retrysafe.Inquiry{Tries: 20, Dead: true}})
	d.deliver("evt-1", declined(), 200, "settled")
	if r := d.want(retrysafe.StateCompleted, "as reported by evt-1"); r.Inquiry.Dead {
		t.Error("it is still dead")
	}
}

// Faults of a reader's are this side's: the event comes again, and is not lost.
func TestReaderFaultsAreNotRemembered(t *testing.T) {
	t.Parallel()
	overStores(t, func(t *testing.T, s retrysafe.Store) {
		broken := true
		var fault func() (webhook.Statement, error)
		d := newDesk(t, s, func(ctx context.Context, ev webhook.Event) (webhook.Statement, error) {
			if broken {
				return fault()
			}
			return read(ctx, ev)
		}, nil)
		d.put(retrysafe.Record{State: retrysafe.StateUnknown})
		verdict := retrysafe.Evidence{Finding: retrysafe.FindingHappened, Result: retrysafe.Result{Status: 201}}
		for name, f := range map[string]func() (webhook.Statement, error){
			"a panic":         func() (webhook.Statement, error) { panic("about " + key) },
			"a runtime error": func() (webhook.Statement, error) { return webhook.Statement{}, []error{}[len(key)] },
			"an error":        func() (webhook.Statement, error) { return webhook.Statement{}, errors.New("no such type") },
			"no evidence":     func() (webhook.Statement, error) { return webhook.Statement{}, nil },
			"no scope": func() (webhook.Statement, error) {
				return webhook.Statement{Ref: retrysafe.Ref{Key: key}, Evidence: verdict}, nil
			},
			"no answer": func() (webhook.Statement, error) {
				return webhook.Statement{Ref: retrysafe.Ref{Scope: scope, Key: key}, Evidence: retrysafe.Evidence{Finding: retrysafe.FindingHappened}}, nil
			},
			"no finding": func() (webhook.Statement, error) {
				return webhook.Statement{Ref: retrysafe.Ref{Scope: scope, Key: key}, Evidence: retrysafe.Evidence{Finding: 99}}, nil
			},
			"no such proof": func() (webhook.Statement, error) { // with a proof, the operation may run again
				return webhook.Statement{Ref: retrysafe.Ref{Scope: scope, Key: key}, Evidence: retrysafe.Evidence{Finding: retrysafe.FindingNotHappened, Proof: retrysafe.ProofAttested + 1}}, nil
			},
			"no answer to a decline": func() (webhook.Statement, error) {
				return webhook.Statement{Ref: retrysafe.Ref{Scope: scope, Key: key}, Evidence: retrysafe.Evidence{Finding: retrysafe.FindingDeclined, Result: retrysafe.Result{Status: 1000}}}, nil
			},
			"a key of ours": func() (webhook.Statement, error) {
				return webhook.Statement{Ref: retrysafe.Ref{Scope: retrysafe.SystemScope("webhook/test"), Key: "evt-0"}, Evidence: verdict}, nil
			},
		} {
			fault = f
			d.deliver("evt-1", happened(), 500, "event-not-read")
			if state, _ := d.remembered("evt-1"); state == retrysafe.StateCompleted {
				t.Errorf("%s: the event is remembered as done", name)
			}
			d.want(retrysafe.StateUnknown, "")
		}
		broken = false
		d.deliver("evt-1", happened(), 200, "settled")
		log := d.log.String()
		for _, cause := range []string{"out of range", `event=evt-1 code=event-not-read error="read: no such type"`} {
			if !strings.Contains(log, cause) {
				t.Errorf("the log does not tell %q:\n%s", cause, log)
			}
		}
		if strings.Contains(log, key) {
			t.Errorf("the log tells a key:\n%s", log)
		}
	})
}

// The evidence that a reader found is noted in the record, with the event that it is from.
func TestEvidenceIsNoted(t *testing.T) {
	t.Parallel()
	d := newDesk(t, memstore.New(nil), func(ctx context.Context, ev webhook.Event) (webhook.Statement, error) {
		s, err := read(ctx, ev)
		s.Evidence.Text = "charge.succeeded"
		return s, err
	}, nil)
	d.put(retrysafe.Record{State: retrysafe.StateUnknown})
	d.deliver("evt-1", happened(), 200, "settled")
	if notes := d.load().Inquiry.Notes; len(notes) != 1 || !strings.Contains(notes[0].Text, "event evt-1: charge.succeeded") {
		t.Errorf("noted %+v", notes)
	}
}

// The bound of a body is the option's.
func TestBodyIsBounded(t *testing.T) {
	t.Parallel()
	body := pending().body()
	d := newDesk(t, memstore.New(nil), nil, &webhook.Options{MaxBody: int64(len(body))})
	if w := d.send(signed(t, secret, "evt-1", time.Now(), append(body, ' '))); w.Code != 413 || d.reads.Load() != 0 {
		t.Errorf("a byte too much got %d %s", w.Code, w.Body)
	}
	d.deliver("evt-1", pending(), 404, "no-such-key")
}

func TestEventsAboutNoKeyAreIgnored(t *testing.T) {
	t.Parallel()
	d := newDesk(t, memstore.New(nil), func(context.Context, webhook.Event) (webhook.Statement, error) {
		return webhook.Statement{}, webhook.ErrIgnore
	}, nil)
	d.deliver("evt-1", pending(), 200, "ignored")
	d.deliver("evt-1", pending(), 200, "ignored")
	if d.reads.Load() != 1 {
		t.Error("it was read twice")
	}
}

// Whatever step of the store fails, the next delivery finishes the matter, and the
// key is settled once.
func TestW57_StoreFailuresAreMadeGoodByTheNextDelivery(t *testing.T) {
	t.Parallel()
	overStores(t, func(t *testing.T, s retrysafe.Store) {
		for _, op := range []faultstore.Op{faultstore.Load, faultstore.Swap} {
			for _, fault := range []faultstore.Fault{faultstore.LoseRequest, faultstore.LoseReply} {
				d := newDesk(t, s, nil, nil)
				id := string(op) + string(rune('0'+fault))
				ref := retrysafe.Ref{Scope: scope, Key: id}
				d.put(retrysafe.Record{Ref: ref, State: retrysafe.StateUnknown})
				event := happened()
				event.Key = id
				d.fault.Plan(faultstore.FailOnce(op, 1, fault))
				d.deliver(id, event, 503, "store-unavailable")
				d.fault.Plan(nil)
				if w := d.send(signed(t, secret, id, time.Now(), event.body())); w.Code != 200 {
					t.Errorf("%s: the next delivery gets %d %s", id, w.Code, w.Body)
				}
				r, err := s.Load(t.Context(), ref)
				if err != nil || r.State != retrysafe.StateCompleted || len(r.Inquiry.Notes) != 1 {
					t.Errorf("%s: the key is %+v, %v", id, r, err)
				}
			}
		}
	})
}

// A record of a newer version is neither judged nor overwritten.
func TestW59_RecordOfANewerVersionIsLeftAlone(t *testing.T) {
	t.Parallel()
	s := memstore.New(nil)
	d := newDesk(t, s, nil, nil)
	r := d.put(retrysafe.Record{State: retrysafe.StateUnknown}).Update()
	r.Version, r.Term = retrysafe.RecordVersion+1, time.Hour
	_, err := s.Swap(t.Context(), r)
	must(t, err)
	d.deliver("evt-1", happened(), 503, "record-unreadable")
}

// Neither keys nor bodies are logged, whatever happens to an event.
func TestW81_LogsTellNoKeyAndNoBody(t *testing.T) {
	t.Parallel()
	d := newDesk(t, memstore.New(nil), nil, nil)
	private := func(r report) report {
		r.Note = "4242-4242-4242-4242"
		return r
	}
	d.deliver("evt-1", private(happened()), 404, "no-such-key")
	d.put(retrysafe.Record{State: retrysafe.StateRetryable})
	d.deliver("evt-1", private(happened()), 200, "contradicted")
	d.fault.Plan(faultstore.FailOnce(faultstore.Load, 1, faultstore.LoseRequest))
	d.deliver("evt-2", private(happened()), 503, "store-unavailable")
	log := d.log.String()
	for _, secret := range []string{key, scope, "4242-4242", "as reported"} {
		if strings.Contains(log, secret) {
			t.Errorf("the log has %q: %s", secret, log)
		}
	}
	if !strings.Contains(log, "evt-1") || !strings.Contains(log, "key=") {
		t.Errorf("the log does not say what it is about: %s", log)
	}
}

// Two providers may give their events the same ids.
func TestIntakesShareNothingButTheStore(t *testing.T) {
	t.Parallel()
	s := memstore.New(nil)
	d := newDesk(t, s, nil, nil)
	other, err := webhook.New("other", d.engine, webhook.Verifier{Secrets: []webhook.Secret{secret}}, read, nil)
	must(t, err)
	d.put(retrysafe.Record{State: retrysafe.StateUnknown})
	d.deliver("evt-1", happened(), 200, "settled")
	w := httptest.NewRecorder()
	other.ServeHTTP(w, signed(t, secret, "evt-1", time.Now(), happened().body()))
	if w.Code != 200 || !strings.Contains(w.Body.String(), "unchanged") || w.Header().Get("Idempotent-Replayed") != "" {
		t.Errorf("the other provider's event got %d %s", w.Code, w.Body)
	}
}

// An event is remembered for as long as its provider delivers it again.
func TestEventsAreRemembered(t *testing.T) {
	t.Parallel()
	for want, o := range map[time.Duration]*webhook.Options{
		7 * 24 * time.Hour:  nil,
		30 * 24 * time.Hour: {Retention: 30 * 24 * time.Hour},
	} {
		d := newDesk(t, memstore.New(nil), nil, o)
		d.put(retrysafe.Record{State: retrysafe.StateUnknown})
		d.deliver("evt-1", happened(), 200, "settled")
		r, err := d.store.Load(t.Context(), retrysafe.Ref{Scope: retrysafe.SystemScope("webhook/test"), Key: "evt-1"})
		must(t, err)
		if got := r.Deadline.Sub(r.UpdatedAt); got != want {
			t.Errorf("the event is kept for %v, want %v", got, want)
		}
	}
}

func TestNewRefusesWhatCannotWork(t *testing.T) {
	t.Parallel()
	e, err := retrysafe.New(memstore.New(nil), nil)
	must(t, err)
	good := webhook.Verifier{Secrets: []webhook.Secret{secret}}
	for name, build := range map[string]func() (*webhook.Intake, error){
		"no name":      func() (*webhook.Intake, error) { return webhook.New("", e, good, read, nil) },
		"endless name": func() (*webhook.Intake, error) { return webhook.New(strings.Repeat("n", 101), e, good, read, nil) },
		"no engine":    func() (*webhook.Intake, error) { return webhook.New("test", nil, good, read, nil) },
		"no scheme":    func() (*webhook.Intake, error) { return webhook.New("test", e, nil, read, nil) },
		"no reader":    func() (*webhook.Intake, error) { return webhook.New("test", e, good, nil, nil) },
		"no secret":    func() (*webhook.Intake, error) { return webhook.New("test", e, webhook.Stripe{}, read, nil) },
		"no room": func() (*webhook.Intake, error) {
			return webhook.New("test", e, good, read, &webhook.Options{MaxBody: -1})
		},
		"no search": func() (*webhook.Intake, error) {
			return webhook.New("test", e, good, read, &webhook.Options{MaxSearch: -1})
		},
		"no policy": func() (*webhook.Intake, error) {
			return webhook.New("test", e, good, read, &webhook.Options{Missing: 9})
		},
		"no time": func() (*webhook.Intake, error) {
			return webhook.New("test", e, good, read, &webhook.Options{StoreTimeout: -1})
		},
		"no retention": func() (*webhook.Intake, error) {
			return webhook.New("test", e, good, read, &webhook.Options{Retention: -1})
		},
	} {
		if in, err := build(); err == nil || in != nil {
			t.Errorf("%s: New returns %v, %v", name, in, err)
		}
	}
}

// A transaction that holds the key is proof of life.
func TestW57_TransactionIsNotOvertaken(t *testing.T) {
	t.Parallel()
	s := memstore.New(nil)
	d := newDesk(t, s, nil, &webhook.Options{StoreTimeout: time.Second})
	r := d.put(retrysafe.Record{State: retrysafe.StateUnknown})
	tx, err := s.Begin(t.Context())
	must(t, err)
	_, err = tx.Reserve(t.Context(), r.Ref)
	must(t, err)
	if w := d.send(signed(t, secret, "evt-1", time.Now(), happened().body())); w.Code != 503 { // it waits, or is told at once
		t.Errorf("the event got %d %s", w.Code, w.Body)
	}
	must(t, tx.Rollback(t.Context()))
	newDesk(t, s, nil, nil).deliver("evt-1", happened(), 200, "settled")
}

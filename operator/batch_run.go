package operator

import (
	"context"
	"crypto/rand"
	"encoding/base32"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/retrysafe/retrysafe"
)

var idEncoding = base32.StdEncoding

// A batchRun is a batch at work. Before it changes the records of a page it stores which
// they are, so that a repetition of a batch that was killed finds out how each of them
// ended.
type batchRun struct {
	service *Service
	batch   *Batch
	change  change
	pace    *pace
	save    func() error // stores the entry as the checkpoint of the batch
	left    map[retrysafe.Ref]int64

	entry *Entry // of the batch

	mu     sync.Mutex
	counts *BatchReport // those of the entry
	failed error
}

func newBatchRun(d *Service, b *Batch, s *Selection, e *Entry, save func() error) *batchRun {
	left := make(map[retrysafe.Ref]int64, len(s.counted)) // a copy: the selection may be used again
	for ref, revision := range s.counted {
		left[ref] = revision
	}
	counts := *e.Counts
	e.Counts = &counts
	return &batchRun{service: d, batch: b, change: b.change(), pace: newPace(b.Rate), save: save, left: left, entry: e, counts: &counts}
}

// continueFrom adds what earlier tries of the batch have done. A record that one of them
// was about to change has the batch's note if it was changed; its entry in the audit may
// be missing.
func (b *batchRun) continueFrom(ctx context.Context, before *Entry) error {
	b.counts.Counted += before.Counts.Done
	b.counts.Done = before.Counts.Done
	for _, p := range before.pending {
		ref := p.Ref.ref()
		now, err := b.service.fresh(ctx, ref)
		if !answered(err) {
			return err
		}
		a := b.action(ref, p.Revision)
		if _, ok := done(&now, a.author(), a.ID); !ok {
			continue // it is not changed, or has moved on since
		}
		e := b.entryOf(&a)
		if err := e.ends(Snapshot{Revision: p.Revision}, &now, nil); err != nil {
			return err
		}
		if err := b.service.addEntry(ctx, &e); err != nil {
			return err
		}
		b.counts.Counted++
		b.counts.Done++
	}
	return nil
}

// all changes every record of the selection, page by page.
func (b *batchRun) all(ctx, caller context.Context) error {
	for list, err := range b.service.pages(ctx, b.batch.Filter) {
		if err != nil {
			return err
		}
		if err := caller.Err(); err != nil {
			return err
		}
		found := b.take(list)
		if len(found) == 0 {
			continue
		}
		if err := b.changePage(ctx, caller, found); err != nil {
			return err
		}
	}
	b.counts.Changed += len(b.left) // they are in another state now, or gone
	b.entry.pending = nil
	return nil
}

// take returns those of the records that are as they were counted.
func (b *batchRun) take(list []retrysafe.Record) (found []retrysafe.Record) {
	for i := range list {
		revision, ok := b.left[list[i].Ref]
		if !ok {
			continue
		}
		delete(b.left, list[i].Ref)
		if revision == list[i].Revision {
			found = append(found, list[i])
		} else {
			b.counts.Changed++
		}
	}
	return found
}

// changePage changes the records of a page, several at a time, so that a store with group
// commit can batch them. If the caller's context ends, it leaves out the rest.
func (b *batchRun) changePage(ctx, caller context.Context, found []retrysafe.Record) error {
	b.entry.pending = nil
	for i := range found {
		b.entry.pending = append(b.entry.pending, pendingKey{wire(found[i].Ref), found[i].Revision})
	}
	if err := b.save(); err != nil {
		return err
	}
	var unsure []pendingKey
	next := make(chan int)
	var wg sync.WaitGroup
	for range min(batchHands, len(found)) {
		wg.Go(func() {
			for i := range next {
				if err := b.one(ctx, &found[i]); err != nil {
					b.mu.Lock()
					b.failed, unsure = err, append(unsure, pendingKey{wire(found[i].Ref), found[i].Revision})
					b.mu.Unlock()
				}
			}
		})
	}
	stopped := b.hand(caller, next, found)
	wg.Wait()
	b.entry.pending = unsure
	if b.failed == nil && stopped == nil {
		return nil
	}
	return errors.Join(b.failed, stopped, b.save())
}

// hand hands out the records to the goroutines that change them, at the batch's rate,
// until one of them fails or the caller's context ends.
func (b *batchRun) hand(caller context.Context, next chan<- int, found []retrysafe.Record) error {
	defer close(next)
	for i := range found {
		if err := b.pace.wait(caller); err != nil {
			return err
		}
		b.mu.Lock()
		failed := b.failed
		b.mu.Unlock()
		if failed != nil {
			return nil
		}
		next <- i
	}
	return nil
}

// batchHands is how many records a batch changes at once.
const batchHands = 64

// one changes one record and adds its entry to the audit. An error leaves open whether
// the record was changed.
func (b *batchRun) one(ctx context.Context, r *retrysafe.Record) error {
	a := b.action(r.Ref, r.Revision)
	e := b.entryOf(&a)
	from, to, err := b.service.apply(ctx, &a, b.change, r, false)
	if end := e.ends(from, &to, err); end != nil {
		return end
	}
	moved := errors.Is(err, ErrStale) || errors.Is(err, ErrLive) || errors.Is(err, retrysafe.ErrNotFound)
	if !moved {
		if err := b.service.addEntry(ctx, &e); err != nil {
			return err
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case moved:
		b.counts.Changed++
	case err != nil:
		b.counts.Refused++
	default:
		b.counts.Done++
	}
	if b.batch.Progress != nil {
		b.batch.Progress(*b.counts)
	}
	return nil
}

// action returns the action of the batch on one record.
func (b *batchRun) action(ref retrysafe.Ref, revision int64) Action {
	return Action{ID: b.batch.keyID(ref, revision), By: b.batch.By, Why: b.batch.Why, Ref: ref, Revision: revision, verb: b.batch.Verb}
}

// entryOf returns the entry of the action on one record, without its end.
func (b *batchRun) entryOf(a *Action) Entry {
	return Entry{ID: a.ID, By: a.By, Verb: a.verb, Why: a.Why, Ref: a.Ref, KeyHash: retrysafe.HashKey(a.Ref.Key), Seen: a.Revision, Attempt: 1, Batch: b.batch.ID}
}

// addEntry adds the entry of an action that has ended to the audit, unless it is there.
func (d *Service) addEntry(ctx context.Context, e *Entry) error {
	body, err := json.Marshal(e)
	if err != nil {
		return err
	}
	w := retrysafe.Write{Term: d.retain, Record: retrysafe.Record{
		Ref: retrysafe.Ref{Scope: auditScope, Key: e.ID}, Operation: "operator " + e.Verb,
		Fingerprint: fingerprint("batch entry", e.Batch, e.ID), Version: retrysafe.RecordVersion, Attempt: 1, Retain: d.retain,
		State: retrysafe.StateCompleted, Result: &retrysafe.Result{Status: 200, Body: body},
		Effects: retrysafe.EffectsKeyed, Lapse: retrysafe.LapseResume,
	}}
	_, _ = rand.Read(w.Owner[:]) // it never fails
	for try := range tries {
		if try > 0 {
			pause(ctx, time.Duration(try)*50*time.Millisecond)
		}
		step, cancel := context.WithTimeout(ctx, d.timeout)
		_, err = d.store.Create(step, w)
		cancel()
		if err == nil || errors.Is(err, retrysafe.ErrExists) {
			return nil
		}
	}
	return fmt.Errorf("add the entry %s: %w", e.ID, err)
}

// A pace spreads steps evenly over time.
type pace struct {
	every time.Duration // zero is no bound
	next  time.Time
}

func newPace(rate int) *pace {
	if rate <= 0 {
		return &pace{}
	}
	return &pace{every: time.Second / time.Duration(rate)}
}

// wait returns when the next step may be made, or when ctx ends.
func (p *pace) wait(ctx context.Context) error {
	now := time.Now()
	if p.next.Before(now) {
		p.next = now
	}
	at := p.next
	p.next = at.Add(p.every)
	if d := at.Sub(now); d > 0 {
		pause(ctx, d)
	}
	return ctx.Err()
}

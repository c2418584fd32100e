package mysqlstore

import (
	"bytes"
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/groupcommit"
)

// Creations and swaps share batches, because what a batch costs is mostly its round trip
// and its commit. A batch is one transaction in one round trip, if all its creations are of
// new keys and all its swaps are plain. If the server refuses that, nothing was applied,
// and creations and swaps go by themselves.
//
// Where many steps wait, two batches are under way at a time: the server executes both, or
// one while the other is committed and its callers prepare their next steps. They have no
// key in common, so that neither waits for the other. Where few wait, one large batch is
// faster than two small ones.

const (
	// flights is how many batches are under way at most, and beside how many steps have to
	// wait for the second one.
	flights = 2
	beside  = 32
)

// step is the request of one Create or Swap.
type step struct {
	id   id
	w    *retrysafe.Write
	swap bool
}

// stepBatcher sends steps in batches.
type stepBatcher struct {
	s       *Store
	creator creator
	batcher groupcommit.Batcher[step, retrysafe.Record]
}

func (b *stepBatcher) init(s *Store, o Options) {
	b.s, b.creator.s = s, s
	b.batcher = groupcommit.Batcher[step, retrysafe.Record]{
		SendFlight: b.depart, Flights: flights, Key: func(q step) [16]byte { return q.id },
		Overlap: func(_, _ time.Duration, _ bool) bool { return true }, Beside: beside, Gather: true,
		MaxBatch: cmp.Or(o.MaxBatch, 256), MaxQueue: cmp.Or(o.MaxQueue, 10_000),
		Large:   func(q step) bool { return isLarge(q.w) },
		Timeout: s.timeout, DeadlineOnly: retrysafe.DeadlineOnly,
	}
}

// depart sends one batch, and lets the next one begin at once.
func (b *stepBatcher) depart(ctx context.Context, requests []step, f *groupcommit.Flight) []answer {
	f.Executed(1)
	defer f.Committed(1)
	return b.send(ctx, requests)
}

func (b *stepBatcher) send(ctx context.Context, requests []step) []answer {
	var creations []creation
	var swaps []swap
	size := 0
	for _, q := range requests {
		size += sizeOf(q.w)
		if q.swap {
			swaps = append(swaps, swap{q.id, q.w})
		} else {
			creations = append(creations, creation{q.id, q.w})
		}
	}
	var created, swapped []answer
	if len(creations) > 0 && len(swaps) > 0 && size <= maxEncoded && b.s.steps.several && !b.creator.readFirst.Load() {
		created, swapped = b.sendTogether(ctx, creations, swaps)
	}
	if created == nil && len(creations) > 0 {
		created = b.creator.send(ctx, creations)
	}
	if swapped == nil && len(swaps) > 0 {
		swapped = b.s.swapAll(ctx, swaps)
	}
	answers := make([]answer, 0, len(requests))
	for _, q := range requests {
		from := &created
		if q.swap {
			from = &swapped
		}
		answers = append(answers, (*from)[0])
		*from = (*from)[1:]
	}
	return answers
}

// sendTogether applies creations and swaps in one transaction and one round trip: all of
// them or none. It returns no answers if they are not of the kind for that, or if the
// server has refused.
func (b *stepBatcher) sendTogether(ctx context.Context, creations []creation, swaps []swap) (createdNow, swappedNow []answer) {
	if !allNew(creations) || !allPlain(swaps) {
		return nil, nil
	}
	var now int64
	err := b.s.steps.do(ctx, func(c conn) (err error) {
		now, err = c.send(ctx, togetherScript(c, creations, swaps))
		return err
	})
	if err != nil && isRefusal(err) {
		b.s.fallbacks.note(ctx, "a batch in one transaction", err)
		return nil, nil
	}
	createdNow = make([]answer, len(creations))
	for i, q := range creations {
		if createdNow[i].Err = err; err == nil {
			createdNow[i].Value = created(q.w, now)
		}
	}
	return createdNow, swappedAnswers(swaps, now, err)
}

// allNew reports whether each of the creations is of another key and has an owner, by which
// it recognises itself. Keys of batches under way are not among them.
func allNew(creations []creation) bool {
	ids := make(map[id]struct{}, len(creations))
	for _, q := range creations {
		if q.w.Owner.IsZero() {
			return false
		}
		ids[q.id] = struct{}{}
	}
	return len(ids) == len(creations)
}

// togetherScript is the transaction of creations and swaps.
func togetherScript(c conn, creations []creation, swaps []swap) *script {
	order := indexes(len(creations))
	slices.SortFunc(order, func(a, b int) int { return bytes.Compare(creations[a].id[:], creations[b].id[:]) })
	s := new(script)
	s.Grow(sizeOfScript(order, func(i int) int { return sizeOf(creations[i].w) }) + sizeOfScript(indexes(len(swaps)), func(i int) int { return sizeOf(swaps[i].w) }))
	s.begin(c)
	s.create(c, creations, order)
	s.swap(c, swaps)
	s.then(`COMMIT`)
	return s
}

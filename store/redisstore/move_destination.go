package redisstore

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/deployment"
	"github.com/retrysafe/retrysafe/internal/storemove"
)

// Fill implements [storemove.Destination]. Each bucket is closed by a script that looks
// whether it has records. A bucket that a run before has closed was empty then, and what it
// has was imported.
func (m mover) Fill(ctx context.Context, run, source retrysafe.Owner, from string) error {
	k, err := storemove.Change(ctx, m, func(k *storemove.Kept, now time.Time) (storemove.Kept, error) {
		return k.Fill(run, source, from, now)
	})
	if err != nil {
		return fmt.Errorf("redisstore: fill: %w", err)
	}
	again, err := m.gateAll(ctx, "fill", k.Seq, string(idOf(deployment.Ref())), string(idOf(deployment.Probe())))
	if errors.Is(err, storemove.ErrNotEmpty) {
		// A bucket that was open is not empty, so no run has imported anything.
		return fmt.Errorf("redisstore: fill: %w", errors.Join(err, m.open(context.WithoutCancel(ctx), run)))
	}
	if err == nil {
		err = m.empty(ctx, k.Seq, again)
	}
	if err == nil {
		_, err = storemove.Change(ctx, m, func(k *storemove.Kept, _ time.Time) (storemove.Kept, error) { return k.Empty(run) })
	}
	if err != nil {
		return fmt.Errorf("redisstore: fill: %w", err)
	}
	return nil
}

// empty deletes all records of buckets that the run has closed.
func (m mover) empty(ctx context.Context, seq int64, buckets []int) error {
	for len(buckets) > 0 {
		steps := make([]*step, len(buckets))
		for n, b := range buckets {
			steps[n] = indexStep(b, "ids", 0, int64(1)<<53-1, 0, 500)
			steps[n].move = ofRun(seq)
		}
		lists, err := m.ids(ctx, steps)
		if err != nil {
			return err
		}
		var doomed []*step
		var more []int
		for n, list := range lists {
			for _, i := range list {
				doomed = append(doomed, m.importStep(seq, i, nil))
			}
			if len(list) > 0 {
				more = append(more, buckets[n])
			}
		}
		if _, err := m.do(ctx, doomed); err != nil {
			return err
		}
		buckets = more
	}
	return nil
}

func (m mover) ids(ctx context.Context, steps []*step) ([][]id, error) {
	if !m.s.life.Enter() {
		return nil, ErrClosed
	}
	defer m.s.life.Leave()
	return m.s.ids(ctx, steps)
}

// importStep returns the step that stores a record, or deletes it if arg is nil.
func (m mover) importStep(seq int64, i id, arg []byte) *step {
	st := m.s.stepOf(importScript, i, arg, false)
	if st.move = ofRun(seq); arg == nil {
		st.arg = []byte{}
	}
	return st
}

// importBytes is about how much Import sends at a time.
const importBytes = 4 << 20

// Import implements [storemove.Destination].
func (m mover) Import(ctx context.Context, run retrysafe.Owner, records []retrysafe.Record, gone []retrysafe.Ref) error {
	if err := m.importAll(ctx, run, records, gone); err != nil {
		return fmt.Errorf("redisstore: import: %w", err)
	}
	return nil
}

func (m mover) importAll(ctx context.Context, run retrysafe.Owner, records []retrysafe.Record, gone []retrysafe.Ref) error {
	k, _, err := storemove.Read(ctx, m)
	if err != nil {
		return err
	}
	if !k.IsBy(storemove.Filling, run) || !k.Emptied {
		return storemove.ErrOvertaken
	}
	var steps []*step
	size := 0
	send := func() error {
		_, err := m.do(ctx, steps)
		steps, size = steps[:0], 0
		return err
	}
	for _, ref := range gone {
		steps = append(steps, m.importStep(k.Seq, idOf(ref), nil))
	}
	for i := range records {
		arg, err := importArg(&records[i])
		if err != nil {
			return err
		}
		steps = append(steps, m.importStep(k.Seq, idOf(records[i].Ref), arg))
		if size += len(arg); size > importBytes || len(steps) >= 1000 {
			if err := send(); err != nil {
				return err
			}
		}
	}
	return send()
}

// importArg returns the argument of an import; see lua/import.lua. A revision or an
// UpdatedAt that lies in this store's future becomes the server's now.
func importArg(r *retrysafe.Record) ([]byte, error) {
	if r.State == 0 {
		return nil, fmt.Errorf("the record of %q has no state", r.Key)
	}
	i := idOf(r.Ref)
	arg := []byte{byte(r.State)}
	for _, v := range []int64{r.Revision, r.Deadline.Sub(r.ReadAt).Microseconds(), r.CreatedAt.UnixMicro(), r.UpdatedAt.UnixMicro()} {
		arg = binary.BigEndian.AppendUint64(arg, uint64(v))
	}
	arg = fmt.Appendf(arg, "%016d", i.place())
	return appendBody(arg, r, r.Owner, nil, false).bytes, nil
}

// Filled implements [storemove.Destination].
func (m mover) Filled(ctx context.Context, run retrysafe.Owner) error {
	if err := m.open(ctx, run); err != nil {
		return fmt.Errorf("redisstore: open what was filled: %w", err)
	}
	return nil
}

// Unfill implements [storemove.Destination].
func (m mover) Unfill(ctx context.Context, run retrysafe.Owner) error {
	k, _, err := storemove.Read(ctx, m)
	if err == nil && !k.IsBy(storemove.Filling, run) {
		err = storemove.ErrOvertaken
	}
	if err == nil && k.Emptied {
		err = m.empty(ctx, k.Seq, m.allBuckets())
	}
	if err == nil {
		err = m.open(ctx, run)
	}
	if err != nil {
		return fmt.Errorf("redisstore: empty what was filled: %w", err)
	}
	return nil
}

// open writes the note that opens the store, and then opens the buckets. One that is not
// opened here is opened by the next step that finds it closed.
func (m mover) open(ctx context.Context, run retrysafe.Owner) error {
	k, err := storemove.Change(ctx, m, func(k *storemove.Kept, _ time.Time) (storemove.Kept, error) { return k.Open(run) })
	if err != nil {
		return err
	}
	_, _ = m.gateAll(ctx, "open", k.Seq)
	return nil
}

// Filling implements [storemove.Destination].
func (m mover) Filling(ctx context.Context) (run retrysafe.Owner, err error) {
	k, _, err := storemove.Read(ctx, m)
	if err != nil || k.Part != storemove.Filling {
		return run, err
	}
	return k.Run, nil
}

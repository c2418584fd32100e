package redisstore

import (
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/retrysafe/retrysafe/internal/storemove"
)

var (
	_ storemove.Store  = mover{}
	_ storemove.Keeper = mover{}
)

// Mover is for "retrysafe keys copy", which moves the records of one store to another.
// Every step on a store that a move has closed is refused with an error that says so.
func (s *Store) Mover() storemove.Store { return mover{s} }

// mover moves records out of a store and into it. A cluster has no step over all buckets,
// so the note of the move is the one thing that decides: see [storemove.Kept]. Each bucket
// is followed, closed and opened by its mark, which has the number of the run, and which
// every script compares before anything else: see lua/begin.lua and lua/gate.lua.
type mover struct{ s *Store }

// noteKey is the name of the key of the note. It is in the first bucket.
func (s *Store) noteKey() string { return s.keys[0].tag + "move" }

// The steps of a move. Those of a run are refused if another run has replaced it.
const anyRun = "m"

func ofRun(seq int64) string { return anyRun + strconv.FormatInt(seq, 10) }

// ReadNote implements [storemove.Keeper].
func (m mover) ReadNote(ctx context.Context) (text string, now time.Time, err error) {
	return m.note(ctx, "", "")
}

// ReplaceNote implements [storemove.Keeper].
func (m mover) ReplaceNote(ctx context.Context, old, text string) (replaced bool, err error) {
	got, _, err := m.note(ctx, old, text)
	return got == text, err
}

func (m mover) note(ctx context.Context, old, text string) (got string, now time.Time, err error) {
	arg := binary.BigEndian.AppendUint32(nil, uint32(len(old)))
	arg = append(append(arg, old...), text...)
	answers, err := m.do(ctx, []*step{{script: noteScript, bucket: 0, record: m.s.noteKey(), arg: arg, move: anyRun}})
	if err != nil {
		return "", now, err
	}
	got, ok := answers[0].Value.v.(string)
	if !ok {
		return "", now, errReply(answers[0].Value.v)
	}
	return got, fromMicros(answers[0].Value.now), nil
}

// do sends steps of a move.
func (m mover) do(ctx context.Context, steps []*step) ([]answer, error) {
	if !m.s.life.Enter() {
		return nil, ErrClosed
	}
	defer m.s.life.Leave()
	return m.s.do(ctx, steps)
}

// allBuckets returns the numbers of all buckets.
func (m mover) allBuckets() []int {
	all := make([]int, m.s.buckets)
	for b := range all {
		all[b] = b
	}
	return all
}

// gate follows, closes or opens buckets for a run, and returns what the script replied for
// each: see lua/gate.lua.
func (m mover) gate(ctx context.Context, buckets []int, what string, seq int64, more ...any) ([]string, error) {
	steps := make([]*step, len(buckets))
	for n, b := range buckets {
		steps[n] = indexStep(b, append([]any{what, seq}, more...)...)
		steps[n].script, steps[n].move = gateScript, anyRun
	}
	answers, err := m.do(ctx, steps)
	if err != nil {
		return nil, err
	}
	replies := make([]string, len(answers))
	for n, a := range answers {
		var ok bool
		if replies[n], ok = a.Value.v.(string); !ok {
			return nil, errReply(a.Value.v)
		}
	}
	return replies, nil
}

// gateAll is gate for all buckets. It returns the error that the first reply other than ok
// and again stands for.
func (m mover) gateAll(ctx context.Context, what string, seq int64, more ...any) (again []int, err error) {
	replies, err := m.gate(ctx, m.allBuckets(), what, seq, more...)
	if err != nil {
		return nil, err
	}
	for b, reply := range replies {
		switch reply {
		case "ok":
		case "again":
			again = append(again, b)
		case "overtaken":
			return nil, storemove.ErrOvertaken
		case "not empty":
			return nil, storemove.ErrNotEmpty
		case "leaving":
			return nil, storemove.ErrLeaving
		case "filling":
			return nil, storemove.ErrFilling
		default:
			return nil, fmt.Errorf("redisstore: the server's reply to a step of a move is %q", reply)
		}
	}
	return again, nil
}

// reopen decides what becomes of steps on buckets that a move has closed. It returns the
// steps to send again, and whether to wait first because the move is in its cut. The
// others have their errors.
func (t *trip) reopen(ctx context.Context, refused []retry) (again []retry, wait bool) {
	byRun := make(map[string][]int) // the buckets that a run has closed
	for _, r := range refused {
		if b := t.steps[r.index].bucket; r.kind == closedByMove && !slices.Contains(byRun[r.addr], b) {
			byRun[r.addr] = append(byRun[r.addr], b)
		}
	}
	if len(byRun) == 0 {
		return refused, false
	}
	errs := make(map[string]error)
	for run, buckets := range byRun {
		seq, err := strconv.ParseInt(run, 10, 64)
		var cut bool
		if err == nil {
			cut, err = t.s.open(ctx, seq, buckets)
		}
		wait, errs[run] = wait || cut, err
	}
	for _, r := range refused {
		if err := errs[r.addr]; r.kind == closedByMove && err != nil {
			t.answers[r.index].Err = err
			continue
		}
		again = append(again, r)
	}
	return again, wait
}

// open opens buckets that a run has closed, if the note says that the run is over. It
// returns an error if the store is closed, and cut if the move has not decided yet.
func (s *Store) open(ctx context.Context, seq int64, buckets []int) (cut bool, err error) {
	m := mover{s}
	k, now, err := storemove.Read(ctx, m)
	if err != nil {
		return false, fmt.Errorf("redisstore: %w", err)
	}
	switch {
	case k.Closed() != nil:
		return false, fmt.Errorf("redisstore: %w", k.Closed())
	case k.Seq == seq && k.Cutting(now):
		return true, nil
	case k.Seq == seq && k.Overdue(now):
		_, err := storemove.Change(ctx, m, func(k *storemove.Kept, now time.Time) (storemove.Kept, error) {
			if !k.Overdue(now) {
				return *k, storemove.ErrOvertaken
			}
			return k.Stay(seq)
		})
		if err != nil {
			return true, nil //nolint:nilerr // another process has changed the note; the next try sees how
		}
	}
	_, err = m.gate(ctx, buckets, "open", seq)
	return false, err
}

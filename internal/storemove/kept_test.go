package storemove_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/storemove"
)

var (
	now         = time.Unix(1_800_000_000, 0).UTC()
	mine, other = retrysafe.Owner{1}, retrysafe.Owner{2} // runs
	src, src2   = retrysafe.Owner{3}, retrysafe.Owner{4} // sources
)

// kept returns a note of run number 7.
func kept(part storemove.Part, run retrysafe.Owner, change func(*storemove.Kept)) storemove.Kept {
	k := storemove.Kept{Note: storemove.Note{Part: part, Run: run, Source: src, Peer: "elsewhere", At: now.Add(-time.Hour)}, Seq: 7}
	if change != nil {
		change(&k)
	}
	return k
}

// Each step of a move is taken by the run whose turn it is, in a store that is in the state
// for it, and refused to all others. What is refused changes nothing.
func TestStepsOfAMove(t *testing.T) {
	t.Parallel()
	cut := func(at time.Time) func(*storemove.Kept) {
		return func(k *storemove.Kept) { k.Peer, k.CutEnds = "there", at }
	}
	var (
		none     storemove.Kept
		stays    = kept(storemove.Stays, mine, nil)
		followed = kept(storemove.Followed, mine, nil)
		cutting  = kept(storemove.Followed, mine, cut(now.Add(time.Microsecond)))
		overdue  = kept(storemove.Followed, mine, cut(now))
		moved    = kept(storemove.Moved, mine, nil)
		filling  = kept(storemove.Filling, mine, nil)
		emptied  = kept(storemove.Filling, mine, func(k *storemove.Kept) { k.Emptied = true })
	)
	follow := func(run retrysafe.Owner) func(*storemove.Kept) (storemove.Kept, error) {
		return func(k *storemove.Kept) (storemove.Kept, error) { return k.Follow(run, now) }
	}
	cuts := func(run retrysafe.Owner) func(*storemove.Kept) (storemove.Kept, error) {
		return func(k *storemove.Kept) (storemove.Kept, error) { return k.Cut(run, "there", now) }
	}
	retire := func(run retrysafe.Owner) func(*storemove.Kept) (storemove.Kept, error) {
		return func(k *storemove.Kept) (storemove.Kept, error) { return k.Retire(run, now) }
	}
	stay := func(seq int64) func(*storemove.Kept) (storemove.Kept, error) {
		return func(k *storemove.Kept) (storemove.Kept, error) { return k.Stay(seq) }
	}
	fill := func(source retrysafe.Owner) func(*storemove.Kept) (storemove.Kept, error) {
		return func(k *storemove.Kept) (storemove.Kept, error) { return k.Fill(other, source, "here", now) }
	}
	empty := func(run retrysafe.Owner) func(*storemove.Kept) (storemove.Kept, error) {
		return func(k *storemove.Kept) (storemove.Kept, error) { return k.Empty(run) }
	}
	open := func(run retrysafe.Owner) func(*storemove.Kept) (storemove.Kept, error) {
		return func(k *storemove.Kept) (storemove.Kept, error) { return k.Open(run) }
	}
	for _, c := range []struct {
		name    string
		note    storemove.Kept
		step    func(*storemove.Kept) (storemove.Kept, error)
		refused error
		want    storemove.Kept
	}{
		{"follow after a move that was given up", stays, follow(other), nil, storemove.Kept{Note: storemove.Note{Part: storemove.Followed, Run: other, Source: src, At: now}, Seq: 8}},
		{"follow in place of another run", cutting, follow(other), nil, storemove.Kept{Note: storemove.Note{Part: storemove.Followed, Run: other, Source: src, At: now}, Seq: 8}},
		{"follow what was moved", moved, follow(other), storemove.ErrMoved, moved},
		{"follow what is being filled", filling, follow(other), storemove.ErrFilling, filling},

		{"cut", followed, cuts(mine), nil, kept(storemove.Followed, mine, cut(now.Add(storemove.CutLease)))},
		{"cut for longer", cutting, cuts(mine), nil, kept(storemove.Followed, mine, cut(now.Add(storemove.CutLease)))},
		{"cut after the cut has ended by itself", overdue, cuts(mine), storemove.ErrOvertaken, overdue},
		{"cut what another run follows", followed, cuts(other), storemove.ErrOvertaken, followed},
		{"cut what is not followed", stays, cuts(mine), storemove.ErrOvertaken, stays},
		{"cut what was moved", moved, cuts(mine), storemove.ErrMoved, moved},

		{"retire", cutting, retire(mine), nil, storemove.Kept{Note: storemove.Note{Part: storemove.Moved, Run: mine, Source: src, Peer: "there", At: now}, Seq: 7}},
		{"retire without a cut", followed, retire(mine), storemove.ErrOvertaken, followed},
		{"retire after the cut has ended by itself", overdue, retire(mine), storemove.ErrOvertaken, overdue},
		{"retire what another run follows", cutting, retire(other), storemove.ErrOvertaken, cutting},

		{"stay", overdue, stay(7), nil, storemove.Kept{Note: storemove.Note{Part: storemove.Stays, Run: mine, Source: src, At: overdue.At}, Seq: 7}},
		{"stay by an earlier run", overdue, stay(6), storemove.ErrOvertaken, overdue},
		{"stay after the move", moved, stay(7), storemove.ErrOvertaken, moved},

		{"fill", none, fill(src), nil, storemove.Kept{Note: storemove.Note{Part: storemove.Filling, Run: other, Source: src, Peer: "here", At: now}, Seq: 1}},
		{"fill once more", filling, fill(src), nil, storemove.Kept{Note: storemove.Note{Part: storemove.Filling, Run: other, Source: src, Peer: "here", At: now}, Seq: 8}},
		{"fill what was emptied for the same source", emptied, fill(src), nil, storemove.Kept{Note: storemove.Note{Part: storemove.Filling, Run: other, Source: src, Peer: "here", At: now}, Seq: 8, Emptied: true}},
		{"fill from another source", emptied, fill(src2), storemove.ErrFilling, emptied},
		{"fill what was moved", moved, fill(src), storemove.ErrMoved, moved},
		{"fill what is being moved", followed, fill(src), storemove.ErrLeaving, followed},

		{"empty", filling, empty(mine), nil, emptied},
		{"empty for another run", filling, empty(other), storemove.ErrOvertaken, filling},
		{"empty what is followed", followed, empty(mine), storemove.ErrOvertaken, followed},
		{"open", emptied, open(mine), nil, storemove.Kept{Note: storemove.Note{Part: storemove.Stays, Run: mine, At: emptied.At}, Seq: 7}},
		{"open for another run", emptied, open(other), storemove.ErrOvertaken, emptied},
		{"open what was moved", moved, open(mine), storemove.ErrOvertaken, moved},
	} {
		got, err := c.step(&c.note)
		if !errors.Is(err, c.refused) || got != c.want {
			t.Errorf("%s: %+v, %v, want %+v, %v", c.name, got, err, c.want, c.refused)
		}
	}
	if got, err := none.Follow(mine, now); err != nil || got.Source.IsZero() || got.Seq != 1 {
		t.Errorf("the first run follows: %+v, %v, want an identity for the source", got, err)
	}
	for _, c := range []struct {
		note             storemove.Kept
		cutting, overdue bool
		closed           error
	}{{none, false, false, nil}, {stays, false, false, nil}, {followed, false, false, nil}, {cutting, true, false, nil}, {overdue, false, true, nil}, {moved, false, false, storemove.ErrMoved}, {emptied, false, false, storemove.ErrFilling}} {
		if c.note.Cutting(now) != c.cutting || c.note.Overdue(now) != c.overdue || !errors.Is(c.note.Closed(), c.closed) {
			t.Errorf("%+v: cutting %t, overdue %t, closed: %v", c.note, c.note.Cutting(now), c.note.Overdue(now), c.note.Closed())
		}
		text, err := c.note.Encode()
		if err != nil {
			t.Fatal(err)
		}
		if c.note == none {
			text = ""
		}
		if got, err := storemove.DecodeKept(text); got != c.note || err != nil {
			t.Errorf("%+v comes back as %+v, %v", c.note, got, err)
		}
	}
}

// A note that cannot be understood is never taken for none.
func TestNoteThatCannotBeRead(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"{", `{"part":"moved"}`, `{"part":0}`, `{"part":5}`, `{"part":-1}`, `{}`} {
		if k, err := storemove.DecodeKept(text); err == nil || !strings.Contains(err.Error(), "upgrade the program") {
			t.Errorf("%s is read as %+v, %v", text, k, err)
		}
	}
}

// keeper keeps a note, and lets something happen before it is replaced.
type keeper struct {
	text   string
	before func(k *keeper) // once
	lies   bool            // the first replacement is made, and said not to be
	err    error           // of ReadNote
	fails  error           // of ReplaceNote, whether it is made or not
}

func (k *keeper) ReadNote(context.Context) (string, time.Time, error) { return k.text, now, k.err }

func (k *keeper) ReplaceNote(_ context.Context, old, text string) (bool, error) {
	if before := k.before; before != nil {
		k.before = nil
		before(k)
	}
	if k.text != old {
		return false, nil
	}
	k.text = text
	if k.fails != nil {
		return false, k.fails
	}
	lied := k.lies
	k.lies = false
	return !lied, nil
}

// A change of the note is made once, upon what the note says at that moment.
func TestNoteIsChangedOnce(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	follow := func(run retrysafe.Owner) func(k *storemove.Kept, at time.Time) (storemove.Kept, error) {
		return func(k *storemove.Kept, at time.Time) (storemove.Kept, error) { return k.Follow(run, at) }
	}
	k := &keeper{before: func(k *keeper) { // another run is faster
		if _, err := storemove.Change(ctx, k, follow(other)); err != nil {
			t.Error(err)
		}
	}}
	if got, err := storemove.Change(ctx, k, follow(mine)); err != nil || got.Seq != 2 || got.Run != mine {
		t.Errorf("beside another run: %+v, %v", got, err)
	}
	k.lies = true // the reply is lost, and the driver repeats the call
	if got, err := storemove.Change(ctx, k, follow(mine)); err != nil || got.Seq != 3 {
		t.Errorf("a change whose reply was lost: %+v, %v", got, err)
	}
	if got, at, err := storemove.Read(ctx, k); err != nil || got.Seq != 3 || got.Run != mine || !at.Equal(now) {
		t.Errorf("it reads %+v at %v, %v", got, at, err)
	}
	k.fails = errors.New("the connection broke")
	if _, err := storemove.Change(ctx, k, follow(mine)); !errors.Is(err, k.fails) {
		t.Errorf("a change that may have been made: %v", err)
	}
	k.fails = nil
	before := k.text
	if _, err := storemove.Change(ctx, k, func(k *storemove.Kept, at time.Time) (storemove.Kept, error) { return k.Retire(mine, at) }); !errors.Is(err, storemove.ErrOvertaken) || k.text != before {
		t.Errorf("a step that is refused: %v, the note is %s", err, k.text)
	}
	k.text = "{"
	if _, err := storemove.Change(ctx, k, follow(mine)); err == nil || k.text != "{" {
		t.Errorf("over a note that cannot be read: %v, the note is %s", err, k.text)
	}
	if got, _, err := storemove.Read(ctx, k); err == nil {
		t.Errorf("a note that cannot be read is %+v", got)
	}
	k.err = errors.New("no connection")
	if _, err := storemove.Change(ctx, k, follow(mine)); !errors.Is(err, k.err) {
		t.Errorf("without a connection: %v", err)
	}
	if _, _, err := storemove.Read(ctx, k); !errors.Is(err, k.err) {
		t.Errorf("without a connection it reads: %v", err)
	}
}

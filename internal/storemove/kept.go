package storemove

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/retrysafe/retrysafe"
)

// CutLease is how long the writers of a store that keeps a [Kept] are locked out unless
// the mover renews the cut. If the mover is killed in the cut, any process ends the cut
// after that time, and the store serves on.
const CutLease = 10 * time.Second

// A Kept is the note of a store that cannot close all of its data in one step, as Redis
// and DynamoDB cannot. The note is one text, which is replaced by compare-and-swap, and
// it alone decides: the parts of the data are closed after the note says so, and are
// opened after the note says so. So a process that finds a part closed reads the note,
// and opens the part if the run that has closed it did not end as a move.
type Kept struct {
	Note
	// Seq is the number of the run: each run that follows or fills the store has a higher
	// one than all runs before it.
	Seq int64
	// CutEnds is when the cut ends by itself, by the store's clock. It is zero if there is
	// no cut.
	CutEnds time.Time
	// Emptied says that the store was closed and without records: whatever a store that is
	// being filled holds since then was imported.
	Emptied bool
}

// ErrCut says that the store takes no steps for a moment, because its records are about to
// be moved.
var ErrCut = errors.New("the records of this store are being moved to another one; it takes no steps until that is done or given up")

// Cutting reports whether writers are locked out at a time.
func (k *Kept) Cutting(now time.Time) bool { return !k.CutEnds.IsZero() && now.Before(k.CutEnds) }

// Overdue reports whether a cut has ended by itself, so that any process may give the move
// up: see [Kept.Stay].
func (k *Kept) Overdue(now time.Time) bool { return !k.CutEnds.IsZero() && !now.Before(k.CutEnds) }

// Follow returns the note of a store that a run begins to follow.
func (k *Kept) Follow(run retrysafe.Owner, now time.Time) (Kept, error) {
	if err := k.Closed(); err != nil {
		return *k, err
	}
	source := k.Source
	if source.IsZero() {
		source = NewName()
	}
	return Kept{Note: Note{Part: Followed, Run: run, Source: source, At: now}, Seq: k.Seq + 1}, nil
}

// Cut returns the note of a store that locks out its writers for a run that follows it,
// or goes on to.
func (k *Kept) Cut(run retrysafe.Owner, to string, now time.Time) (Kept, error) {
	if err := k.Closed(); err != nil {
		return *k, err
	}
	if !k.IsBy(Followed, run) || k.Overdue(now) {
		return *k, ErrOvertaken
	}
	next := *k
	next.Peer, next.CutEnds = to, now.Add(CutLease)
	return next, nil
}

// Retire returns the note of a store that is closed for good.
func (k *Kept) Retire(run retrysafe.Owner, now time.Time) (Kept, error) {
	if !k.IsBy(Followed, run) || !k.Cutting(now) {
		return *k, ErrOvertaken
	}
	next := *k
	next.Part, next.At, next.CutEnds = Moved, now, time.Time{}
	return next, nil
}

// Stay returns the note of a store that a run of this number does not follow any more.
func (k *Kept) Stay(seq int64) (Kept, error) {
	if k.Part != Followed || k.Seq != seq {
		return *k, ErrOvertaken
	}
	return Kept{Note: Note{Part: Stays, Run: k.Run, Source: k.Source, At: k.At}, Seq: seq}, nil
}

// Fill returns the note of a store that a run begins to fill. Emptied is false: the run
// closes and empties the store next.
func (k *Kept) Fill(run, source retrysafe.Owner, from string, now time.Time) (Kept, error) {
	switch {
	case k.Part == Filling && k.Source == source:
	case k.Closed() != nil:
		return *k, k.Closed()
	case k.Part == Followed:
		return *k, ErrLeaving
	}
	return Kept{Note: Note{Part: Filling, Run: run, Source: source, Peer: from, At: now}, Seq: k.Seq + 1, Emptied: k.Part == Filling && k.Emptied}, nil
}

// Empty returns the note of a store that was found without records after it was closed.
func (k *Kept) Empty(run retrysafe.Owner) (Kept, error) {
	if !k.IsBy(Filling, run) {
		return *k, ErrOvertaken
	}
	next := *k
	next.Emptied = true
	return next, nil
}

// Open returns the note of a store that a run does not fill any more.
func (k *Kept) Open(run retrysafe.Owner) (Kept, error) {
	if !k.IsBy(Filling, run) {
		return *k, ErrOvertaken
	}
	return Kept{Note: Note{Part: Stays, Run: run, At: k.At}, Seq: k.Seq}, nil // the next move from here gives it an identity of its own
}

// keptText is the form in which a note is stored.
type keptText struct {
	Part    Part            `json:"part"`
	Run     retrysafe.Owner `json:"run"`
	Source  retrysafe.Owner `json:"source"`
	Peer    string          `json:"peer,omitempty"`
	At      int64           `json:"at"`
	Seq     int64           `json:"seq"`
	CutEnds int64           `json:"cut_ends,omitempty"`
	Emptied bool            `json:"emptied,omitempty"`
}

// Encode returns the text of the note.
func (k *Kept) Encode() (string, error) {
	t := keptText{Part: k.Part, Run: k.Run, Source: k.Source, Peer: k.Peer, At: k.At.UnixMicro(), Seq: k.Seq, Emptied: k.Emptied}
	if !k.CutEnds.IsZero() {
		t.CutEnds = k.CutEnds.UnixMicro()
	}
	b, err := json.Marshal(t)
	return string(b), err
}

// DecodeKept returns the note of a text. No text is the zero note.
func DecodeKept(text string) (k Kept, err error) {
	if text == "" {
		return k, nil
	}
	var t keptText
	if err := json.Unmarshal([]byte(text), &t); err != nil {
		return k, fmt.Errorf("the note of a move cannot be read: %w; upgrade the program, or restore the note", err)
	}
	if t.Part < Stays || t.Part > Filling {
		return k, fmt.Errorf("the note of a move has part %d, which this program does not know; upgrade the program", t.Part)
	}
	k = Kept{Note: Note{Part: t.Part, Run: t.Run, Source: t.Source, Peer: t.Peer, At: time.UnixMicro(t.At).UTC()}, Seq: t.Seq, Emptied: t.Emptied}
	if t.CutEnds != 0 {
		k.CutEnds = time.UnixMicro(t.CutEnds).UTC()
	}
	return k, nil
}

// A Keeper keeps the text of a note.
type Keeper interface {
	// ReadNote returns the text, nothing if there is none, and the store's time.
	ReadNote(ctx context.Context) (text string, now time.Time, err error)
	// ReplaceNote replaces the text if it is still old.
	ReplaceNote(ctx context.Context, old, text string) (replaced bool, err error)
}

// Read returns the note that a keeper has, and the store's time.
func Read(ctx context.Context, in Keeper) (k Kept, now time.Time, err error) {
	text, now, err := in.ReadNote(ctx)
	if err != nil {
		return k, now, err
	}
	k, err = DecodeKept(text)
	return k, now, err
}

// Change replaces the note by what to returns for it, until no other process was faster.
// An error of to changes nothing and is returned.
func Change(ctx context.Context, in Keeper, to func(k *Kept, now time.Time) (Kept, error)) (Kept, error) {
	for tried := ""; ; {
		old, now, err := in.ReadNote(ctx)
		if err != nil {
			return Kept{}, err
		}
		k, err := DecodeKept(old)
		if err != nil {
			return Kept{}, err
		}
		if tried != "" && old == tried {
			return k, nil // the reply to the last try was that of a repetition
		}
		next, err := to(&k, now)
		if err != nil {
			return k, err
		}
		if tried, err = next.Encode(); err != nil {
			return k, err
		}
		if replaced, err := in.ReplaceNote(ctx, old, tried); replaced || err != nil {
			return next, err
		}
	}
}

package linear

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/prove"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/prove/sandbox"
	"github.com/retrysafe/retrysafe/store/storekit"
)

// A flawed store breaks one rule now and then.
type flawed struct {
	retrysafe.TxStore[sandbox.AddEffect]
	create func(ctx context.Context, w retrysafe.Write) (retrysafe.Record, error)
	swap   func(ctx context.Context, w retrysafe.Write) (retrysafe.Record, error)
	load   func(ctx context.Context, ref retrysafe.Ref) (retrysafe.Record, error)
	end    func(tx retrysafe.Tx, commit bool) error

	mu    sync.Mutex
	calls int
	old   map[retrysafe.Ref]retrysafe.Record
}

// turn reports whether it is time to break the rule.
func (f *flawed) turn() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls++
	return f.calls%20 == 0
}

// remembered returns the first record that was ever seen under a ref.
func (f *flawed) remembered(r retrysafe.Record, err error) (retrysafe.Record, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.old == nil {
		f.old = map[retrysafe.Ref]retrysafe.Record{}
	}
	was, known := f.old[r.Ref]
	if !known && err == nil {
		f.old[r.Ref] = r
	}
	return was, known
}

func (f *flawed) Create(ctx context.Context, w retrysafe.Write) (retrysafe.Record, error) {
	if f.create != nil {
		return f.create(ctx, w)
	}
	return f.TxStore.Create(ctx, w)
}

func (f *flawed) Swap(ctx context.Context, w retrysafe.Write) (retrysafe.Record, error) {
	if f.swap != nil {
		return f.swap(ctx, w)
	}
	return f.TxStore.Swap(ctx, w)
}

func (f *flawed) Load(ctx context.Context, ref retrysafe.Ref) (retrysafe.Record, error) {
	if f.load != nil {
		return f.load(ctx, ref)
	}
	return f.TxStore.Load(ctx, ref)
}

func (f *flawed) BeginTx(ctx context.Context) (retrysafe.Tx, sandbox.AddEffect, error) {
	tx, book, err := f.TxStore.BeginTx(ctx)
	if f.end != nil && err == nil {
		tx = &flawedTx{tx, f}
	}
	return tx, book, err
}

type flawedTx struct {
	retrysafe.Tx
	f *flawed
}

func (t *flawedTx) Commit(context.Context) error   { return t.f.end(t.Tx, true) }
func (t *flawedTx) Rollback(context.Context) error { return t.f.end(t.Tx, false) }

// as returns r as a store would that has stored it for a term.
func as(r, like retrysafe.Record, term time.Duration) retrysafe.Record {
	r.Revision, r.Deadline, r.ReadAt = like.Revision+1, like.ReadAt.Add(term), like.ReadAt
	r.CreatedAt, r.UpdatedAt = like.CreatedAt, like.ReadAt
	return r
}

var flaws = map[string]func(f *flawed){
	"none": func(*flawed) {},
	"a create is granted although the key exists": func(f *flawed) {
		f.create = func(ctx context.Context, w retrysafe.Write) (retrysafe.Record, error) {
			got, err := f.TxStore.Create(ctx, w)
			if errors.Is(err, retrysafe.ErrExists) && f.turn() {
				return as(w.Record, got, w.Term), nil
			}
			return got, err
		}
	},
	"a swap does not look at the revision": func(f *flawed) {
		f.swap = func(ctx context.Context, w retrysafe.Write) (retrysafe.Record, error) {
			if is, err := f.TxStore.Load(ctx, w.Ref); err == nil && is.Owner == w.Expect.Owner {
				w.Expect.Revision = is.Revision
			}
			return f.TxStore.Swap(ctx, w)
		}
	},
	"a swap does not look at the owner": func(f *flawed) {
		f.swap = func(ctx context.Context, w retrysafe.Write) (retrysafe.Record, error) {
			if is, err := f.TxStore.Load(ctx, w.Ref); err == nil && is.Revision == w.Expect.Revision {
				w.Expect.Owner = is.Owner
			}
			return f.TxStore.Swap(ctx, w)
		}
	},
	"a swap stores a checkpoint that it is not to set": func(f *flawed) {
		f.swap = func(ctx context.Context, w retrysafe.Write) (retrysafe.Record, error) {
			w.SetCheckpoint = w.SetCheckpoint || !w.Checkpoint.IsZero()
			return f.TxStore.Swap(ctx, w)
		}
	},
	"a swap does not clear the checkpoint": func(f *flawed) {
		f.swap = func(ctx context.Context, w retrysafe.Write) (retrysafe.Record, error) {
			w.SetCheckpoint = w.SetCheckpoint && !w.Checkpoint.IsZero()
			return f.TxStore.Swap(ctx, w)
		}
	},
	"a swap changes the owner without overwriting": func(f *flawed) {
		f.swap = func(ctx context.Context, w retrysafe.Write) (retrysafe.Record, error) {
			is, err := f.TxStore.Load(ctx, w.Ref)
			if err == nil && is.Fence() == w.Expect && !w.Overwrite && f.turn() {
				next := is.Update()
				next.Record, next.Term, next.Overwrite = storekit.Apply(&is, &w, is.ReadAt), w.Term, true
				next.Owner = w.Owner
				return f.TxStore.Swap(ctx, next)
			}
			return f.TxStore.Swap(ctx, w)
		}
	},
	"a swap keeps what it is to overwrite": func(f *flawed) {
		f.swap = func(ctx context.Context, w retrysafe.Write) (retrysafe.Record, error) {
			w.Overwrite = false
			return f.TxStore.Swap(ctx, w)
		}
	},
	"a swap is confirmed and lost": func(f *flawed) {
		f.swap = func(ctx context.Context, w retrysafe.Write) (retrysafe.Record, error) {
			is, err := f.TxStore.Load(ctx, w.Ref)
			if err == nil && is.Fence() == w.Expect && f.turn() {
				return as(storekit.Apply(&is, &w, is.ReadAt), is, w.Term), nil
			}
			return f.TxStore.Swap(ctx, w)
		}
	},
	"a load shows what was there before": func(f *flawed) {
		f.load = func(ctx context.Context, ref retrysafe.Ref) (retrysafe.Record, error) {
			got, err := f.TxStore.Load(ctx, ref)
			if was, known := f.remembered(got, err); known && err == nil && f.turn() {
				was.ReadAt = got.ReadAt
				return was, nil
			}
			return got, err
		}
	},
	"a load does not find what is there": func(f *flawed) {
		f.load = func(ctx context.Context, ref retrysafe.Ref) (retrysafe.Record, error) {
			if f.turn() {
				return retrysafe.Record{}, retrysafe.ErrNotFound
			}
			return f.TxStore.Load(ctx, ref)
		}
	},
	"what was rolled back is there": func(f *flawed) {
		f.end = func(tx retrysafe.Tx, _ bool) error { return tx.Commit(context.Background()) }
	},
	"what was committed is not": func(f *flawed) {
		f.end = func(tx retrysafe.Tx, _ bool) error { return tx.Rollback(context.Background()) }
	},
}

// Two clients of one process find every flaw, and none where there is none.
func TestFlawedStoresAreFound(t *testing.T) {
	t.Parallel()
	for name, bend := range flaws {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db, err := sandbox.Open(t.Context(), "memory:")
			if err != nil {
				t.Fatal(err)
			}
			f := &flawed{TxStore: db.TxStore()}
			bend(f)
			r := new(prove.Result)
			if err := judge(t.Context(), hunt(t, f, 3_000), r, 0); err != nil {
				t.Fatal(err)
			}
			if found := r.Found > 0; found == (name == "none") {
				t.Errorf("%d violations: %+v", r.Found, r.Violations)
			}
			for _, v := range r.Violations {
				if v.Invariant != "S5" {
					t.Errorf("it is found by %s: %s", v.Invariant, v.What)
				}
			}
		})
	}
}

// hunt lets two clients do steps on a store, and returns what they saw.
func hunt(t *testing.T, s retrysafe.TxStore[sandbox.AddEffect], n int) []*step {
	t.Helper()
	clients := []*client{newClient(s, nil, 1, 0), newClient(s, nil, 2, workers)}
	g := newSharedJournal(n, func(n int) {
		for _, c := range clients {
			c.turn.Store(uint32(1 + n/turnSteps))
		}
	})
	var all sync.WaitGroup
	for _, c := range clients {
		c.turn.Store(1)
		c.log = until{g, n, c}
		all.Go(func() {
			if err := c.work(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if err := last(t.Context(), clients[0], clients[0].turn.Load()); err != nil {
		t.Fatal(err)
	}
	return g.all()
}

// until is a journal that stops its client in the end.
type until struct {
	*sharedJournal
	most int
	c    *client
}

func (u until) note(steps ...*step) error {
	err := u.sharedJournal.note(steps...)
	u.mu.Lock()
	defer u.mu.Unlock()
	u.c.stop.Store(u.n >= u.most)
	return err
}

// A client that is killed in the middle of a word has said what it said before.
func TestKilledClientIsHeard(t *testing.T) {
	t.Parallel()
	var said strings.Builder
	first, second := &step{frame: frame{Worker: 1, Key: 16, Do: load, End: done, Got: observation{Revision: 5}}}, &step{frame: frame{Worker: 1, Key: 17, Do: swap}}
	if err := (pipe{&said}).note(first, second); err != nil {
		t.Fatal(err)
	}
	for cut, want := range map[int]int{0: 2, 1: 1, frameSize: 1, frameSize + 1: 0} {
		g := newSharedJournal(2, func(int) {})
		if err := readSteps(strings.NewReader(said.String()[:said.Len()-cut]), g); err != nil {
			t.Fatal(err)
		}
		all := g.all()
		if len(all) != want {
			t.Errorf("without %d bytes %d steps were heard, want %d", cut, len(all), want)
		}
		if want > 0 && all[0].frame != first.frame {
			t.Errorf("said %v, heard %v", first, all[0])
		}
		if want > 1 && (all[1].End != open || all[1].Return != never) {
			t.Errorf("a step that has not ended was heard as %v", all[1])
		}
	}
}

package sealed

import (
	"context"
	"errors"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/deployment"
)

var (
	_ retrysafe.Store   = (*store)(nil)
	_ retrysafe.Sealer  = (*store)(nil)
	_ retrysafe.Counter = counting{}
)

// store seals what it sends to the store below.
type store struct {
	below retrysafe.Store
	keys  *Keyring
}

var errMissing = errors.New("sealed: a store below and a keyring are needed")

// New returns a store that keeps its records in below, sealed. It is a
// [retrysafe.Counter] exactly if below is one. Nothing may write to below but
// through a sealing store with the same secrets.
func New(below retrysafe.Store, keys *Keyring) (retrysafe.Store, error) {
	if below == nil || keys == nil {
		return nil, errMissing
	}
	s := &store{below: below, keys: keys}
	if counter, ok := below.(retrysafe.Counter); ok {
		return counting{s, counter}, nil
	}
	return s, nil
}

func (s *store) Create(ctx context.Context, w retrysafe.Write) (retrysafe.Record, error) {
	return s.keys.create(ctx, s.below, &w)
}

func (s *store) Swap(ctx context.Context, w retrysafe.Write) (retrysafe.Record, error) {
	if below, ok := s.keys.parseHandle(w.Ref); ok {
		return s.move(ctx, w, below)
	}
	return s.keys.swap(ctx, s.below, &w)
}

func (s *store) Load(ctx context.Context, ref retrysafe.Ref) (retrysafe.Record, error) {
	if below, ok := s.keys.parseHandle(ref); ok {
		got, err := s.below.Load(ctx, below)
		if err != nil {
			return retrysafe.Record{}, err
		}
		return s.keys.show(&got, nil, ref.Scope)
	}
	got, err := s.below.Load(ctx, s.keys.lower(ref))
	return s.keys.raise(&got, err, ref, nil)
}

// List shows a record that cannot be read as a placeholder, under a handle. The records
// that [deployment.Is] names are below this store and no records of it.
func (s *store) List(ctx context.Context, q retrysafe.Query) ([]retrysafe.Record, error) {
	scope := q.Scope
	if q.Scope != "" {
		q.Scope = s.keys.lowerScope(q.Scope)
	}
	if below, ok := s.keys.parseHandle(q.After); ok {
		q.After = below
	} else if q.After != (retrysafe.Ref{}) {
		q.After = s.keys.lower(q.After)
	}
	size := q.Size()
	up := make([]retrysafe.Record, 0, min(size, 100))
	for {
		list, err := s.below.List(ctx, q)
		if err != nil {
			return nil, err
		}
		for i := range list {
			if deployment.Is(list[i].Ref) {
				continue
			}
			r, _ := s.keys.show(&list[i], nil, scope) // its Reason says what is wrong with it
			up = append(up, r)
		}
		if len(list) < q.Size() || len(up) == size {
			return up, nil
		}
		q.After, q.Limit = list[len(list)-1].Ref, size-len(up) // a page that is short is the last one
	}
}

// Purge needs no secret: it deletes what is due and forgettable, readable or not.
func (s *store) Purge(ctx context.Context, limit int) (int, error) { return s.below.Purge(ctx, limit) }

// Sealed implements [retrysafe.Sealer].
func (s *store) Sealed() bool { return true }

// counting is a sealing store over one that counts.
type counting struct {
	*store
	counter retrysafe.Counter
}

func (c counting) Count(ctx context.Context, scope string) (int, error) {
	return c.counter.Count(ctx, c.keys.lowerScope(scope))
}

type creator interface {
	Create(context.Context, retrysafe.Write) (retrysafe.Record, error)
}

// create is Create of a store and of a transaction.
func (k *Keyring) create(ctx context.Context, to creator, w *retrysafe.Write) (retrysafe.Record, error) {
	if _, ok := k.parseHandle(w.Ref); ok {
		return retrysafe.Record{}, errHandle
	}
	down := k.seal(w, true)
	got, err := to.Create(ctx, down)
	return k.raise(&got, err, w.Ref, &echo{&w.Record, &down.Record})
}

// swap is Swap of a store and of a transaction.
func (k *Keyring) swap(ctx context.Context, to retrysafe.Swapper, w *retrysafe.Write) (retrysafe.Record, error) {
	down := k.seal(w, w.Overwrite)
	got, err := to.Swap(ctx, down)
	return k.raise(&got, err, w.Ref, &echo{&w.Record, &down.Record})
}

// seal returns the write for the store below. If it begins an attempt, all fields are
// sealed.
func (k *Keyring) seal(up *retrysafe.Write, begins bool) retrysafe.Write {
	w := k.work()
	defer w.done()
	below := w.lower(up.Ref)
	if begins {
		return w.sealAll(up, below)
	}
	return w.sealStep(up, below, up.SetCheckpoint)
}

// raise opens the record that a step of the store below returned. If the record does
// not open, the error is ErrUnreadable and nothing else: with ErrExists or ErrConflict
// the caller would decide by a record that it cannot read. Want is the Ref that was
// asked for.
func (k *Keyring) raise(got *retrysafe.Record, err error, want retrysafe.Ref, sent *echo) (retrysafe.Record, error) {
	answered := err == nil || errors.Is(err, retrysafe.ErrExists) || errors.Is(err, retrysafe.ErrConflict)
	if !answered || err != nil && got.Ref == (retrysafe.Ref{}) {
		return retrysafe.Record{}, err
	}
	up, bad := k.show(got, sent, want.Scope)
	switch {
	case bad != nil:
		return up, bad
	case up.Ref != want:
		return retrysafe.Record{}, unreadable(keyText, "is that of another record")
	}
	return up, err
}

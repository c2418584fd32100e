package redisstore

import (
	"context"
	"encoding/binary"
	"fmt"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/groupcommit"
	"github.com/retrysafe/retrysafe/store/storekit"
)

var (
	_ retrysafe.Store   = (*Store)(nil)
	_ retrysafe.Counter = (*Store)(nil)
)

// Create implements [retrysafe.Store]. If the key exists nothing is written.
func (s *Store) Create(ctx context.Context, w retrysafe.Write) (retrysafe.Record, error) {
	i := idOf(w.Ref)
	arg := make([]byte, 9, createFixed+sizeOf(&w))
	arg[0] = byte(w.State)
	binary.BigEndian.PutUint64(arg[1:], uint64(w.Term.Microseconds()))
	arg = fmt.Appendf(arg, "%016d", i.place())
	arg = appendBody(arg, &w.Record, w.Owner, nil, false).bytes
	got, err := s.step(ctx, false, s.stepOf(createScript, i, arg, isLarge(&w)))
	if err != nil {
		return retrysafe.Record{}, err
	}
	text, ok := got.v.(string)
	switch {
	case !ok:
		return retrysafe.Record{}, errReply(got.v)
	case len(text) == metaLength:
		return written(w.Record, text), nil
	}
	r, _, err := decode(i, text, got.now)
	switch {
	case err != nil:
		return retrysafe.Record{}, err
	case r.Owner == w.Owner && !w.Owner.IsZero():
		return r, nil
	}
	return r, retrysafe.ErrExists
}

// Swap implements [retrysafe.Swapper]. A swap that does not overwrite keeps what belongs to
// the attempt. The script compares it with what the caller has read, which is nearly always
// the same. If it is not, nothing is written, and the swap is sent again with what is stored.
func (s *Store) Swap(ctx context.Context, w retrysafe.Write) (retrysafe.Record, error) {
	i := idOf(w.Ref)
	var kept *body
	for {
		got, err := s.step(ctx, true, s.stepOf(swapScript, i, swapArg(&w, kept), isLarge(&w)))
		if err != nil {
			return retrysafe.Record{}, err
		}
		switch v := got.v.(type) {
		case int64:
			return retrysafe.Record{}, retrysafe.ErrNotFound
		case string:
			if len(v) == metaLength {
				if !w.Overwrite {
					w.Owner = w.Expect.Owner
				}
				return written(w.Record, v), nil
			}
			r, at, err := decode(i, v, got.now)
			if err != nil {
				return retrysafe.Record{}, err
			}
			if r.Fence() != w.Expect {
				return r, retrysafe.ErrConflict
			}
			if w.Overwrite || kept != nil {
				return retrysafe.Record{}, errReply(got.v) // the script has compared nothing else
			}
			kept, w.Record = &at, storekit.Apply(&r, &w, r.ReadAt)
		default:
			return retrysafe.Record{}, errReply(got.v)
		}
	}
}

// The bytes before the body in the arguments of scripts.
const (
	createFixed = 25
	swapFixed   = 38
)

// swapArg returns the argument of a swap; see lua/swap.lua. Kept is how the stored record
// begins, if it is not what the caller has read.
func swapArg(w *retrysafe.Write, kept *body) []byte {
	arg := make([]byte, swapFixed, swapFixed+sizeOf(w))
	binary.BigEndian.PutUint64(arg, uint64(w.Expect.Revision))
	copy(arg[8:], w.Expect.Owner[:])
	binary.BigEndian.PutUint64(arg[24:], uint64(w.Term.Microseconds()))
	arg[36] = byte(w.State)
	owner, keep := w.Expect.Owner, 0
	if w.Overwrite {
		owner = w.Owner
		if w.Attempt == 1 {
			arg[37] = 1
		}
	}
	b := appendBody(arg, &w.Record, owner, kept, w.SetCheckpoint)
	switch {
	case w.Overwrite:
	case w.SetCheckpoint:
		keep = b.head
	default:
		keep = b.checkpoint
	}
	binary.BigEndian.PutUint32(b.bytes[32:], uint32(keep))
	return b.bytes
}

// Load implements [retrysafe.Store].
func (s *Store) Load(ctx context.Context, ref retrysafe.Ref) (retrysafe.Record, error) {
	i := idOf(ref)
	got, err := s.step(ctx, false, s.stepOf(loadScript, i, nil, false))
	if err != nil {
		return retrysafe.Record{}, err
	}
	text, ok := got.v.(string)
	if !ok {
		return retrysafe.Record{}, retrysafe.ErrNotFound
	}
	r, _, err := decode(i, text, got.now)
	return r, err
}

// stepOf returns a step on a record.
func (s *Store) stepOf(of *script, i id, arg []byte, large bool) *step {
	b := i.bucket(s.buckets)
	return &step{script: of, bucket: b, record: s.keys[b].record(i), arg: arg, large: large}
}

// step sends a step together with others.
func (s *Store) step(ctx context.Context, swap bool, st *step) (reply, error) {
	if !s.life.Enter() {
		return reply{}, ErrClosed
	}
	defer s.life.Leave()
	if err := s.guard.lost(); err != nil {
		return reply{}, err
	}
	n, err := s.topology.node(ctx, st.bucket)
	if err != nil {
		return reply{}, err
	}
	b := &n.begins
	if swap {
		b = &n.swaps
	}
	v, err := b.Do(ctx, st)
	return v, explain(err)
}

// written returns the record that a step has stored, from the meta that the script replied
// with.
func written(r retrysafe.Record, meta string) retrysafe.Record {
	decodeMeta(&r, meta)
	r.ReadAt = r.UpdatedAt
	return r
}

// sizeOf is about how many bytes the body of a record has.
func sizeOf(w *retrysafe.Write) int {
	n := 160 + len(w.Scope) + len(w.Key) + len(w.Operation) + len(w.KeyText) + len(w.Request) + len(w.Checkpoint.Phase) + len(w.Checkpoint.Data) + len(w.ProviderRef) + len(w.Reason)
	if w.Result != nil {
		n += len(w.Result.Body) + 64*len(w.Result.Header)
	}
	return n
}

// isLarge reports whether a step carries so much that others should not wait for it.
func isLarge(w *retrysafe.Write) bool {
	var answer []byte
	if w.Result != nil {
		answer = w.Result.Body
	}
	return groupcommit.Large(w.Request, w.Checkpoint.Data, answer)
}

// errReply says that a reply is none of the script's.
func errReply(v any) error {
	return fmt.Errorf("redisstore: the server's reply to a step is %T of another form", v)
}

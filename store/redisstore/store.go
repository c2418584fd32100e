package redisstore

import (
	"context"
	"encoding/hex"
	"fmt"
	"strconv"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/groupcommit"
)

var (
	_ retrysafe.Store   = (*Store)(nil)
	_ retrysafe.Counter = (*Store)(nil)
)

// Create implements [retrysafe.Store]. If the key exists nothing is written.
func (s *Store) Create(ctx context.Context, w retrysafe.Write) (retrysafe.Record, error) {
	i := idOf(w.Ref)
	k := &s.keys[i.bucket()]
	head, checkpoint, tail := appendHead(nil, &w.Record), appendCheckpoint(nil, w.Checkpoint), appendTail(nil, &w.Record)
	index, _ := k.index(w.State)
	v, err := s.step(ctx, false, &step{
		script: createScript, bucket: i.bucket(), keys: []string{k.record(i), k.ids, index},
		args: []any{
			string(i), hex.EncodeToString(w.Owner[:]), stateDigits(w.State), w.Term.Microseconds(),
			head, sumOf(head), checkpoint, partSum(checkpoint), tail, sumOf(tail),
		},
		large: groupcommit.Large(head, checkpoint, tail),
	})
	if err != nil {
		return retrysafe.Record{}, err
	}
	if meta, ok := v.(string); ok {
		return s.wrote(w.Record, i, meta)
	}
	got, err := s.read(i, v)
	switch {
	case err != nil:
		return retrysafe.Record{}, err
	case got.Owner == w.Owner && !w.Owner.IsZero():
		return got, nil
	}
	return got, retrysafe.ErrExists
}

// Swap implements [retrysafe.Swapper].
func (s *Store) Swap(ctx context.Context, w retrysafe.Write) (retrysafe.Record, error) {
	i := idOf(w.Ref)
	k := &s.keys[i.bucket()]
	head, checkpoint, tail := appendHead(nil, &w.Record), appendCheckpoint(nil, w.Checkpoint), appendTail(nil, &w.Record)
	headSum, checkpointSum := sumOf(head), partSum(checkpoint)
	manner, set := "0", "0"
	switch {
	case w.Overwrite && w.Attempt == 1:
		manner, set = "2", "1"
	case w.Overwrite:
		manner, set = "1", "1"
	case w.SetCheckpoint:
		head, set = nil, "1"
	default:
		head, checkpoint = nil, nil
	}
	index, other := k.index(w.State)
	v, err := s.step(ctx, true, &step{
		script: swapScript, bucket: i.bucket(), keys: []string{k.record(i), index, other},
		args: []any{
			string(i), fmt.Sprintf("%016d", w.Expect.Revision), hex.EncodeToString(w.Expect.Owner[:]), stateDigits(w.State), w.Term.Microseconds(),
			tail, sumOf(tail), manner, hex.EncodeToString(w.Owner[:]), head, headSum, set, checkpoint, checkpointSum,
		},
		large: groupcommit.Large(head, checkpoint, tail),
	})
	if err != nil {
		return retrysafe.Record{}, err
	}
	switch v := v.(type) {
	case string:
		return s.wrote(w.Record, i, v)
	case []any:
		if len(v) == 3 {
			return s.continued(&w, i, v)
		}
	case int64:
		return retrysafe.Record{}, retrysafe.ErrNotFound
	}
	got, err := s.read(i, v)
	if err != nil {
		return retrysafe.Record{}, err
	}
	return got, retrysafe.ErrConflict
}

// Load implements [retrysafe.Store].
func (s *Store) Load(ctx context.Context, ref retrysafe.Ref) (retrysafe.Record, error) {
	i := idOf(ref)
	v, err := s.step(ctx, false, s.load(i))
	if err != nil {
		return retrysafe.Record{}, err
	}
	if _, none := v.(int64); none {
		return retrysafe.Record{}, retrysafe.ErrNotFound
	}
	return s.read(i, v)
}

func (s *Store) load(i id) *step {
	b := i.bucket()
	return &step{script: loadScript, bucket: b, keys: []string{s.keys[b].record(i)}}
}

// step sends a step together with others.
func (s *Store) step(ctx context.Context, swap bool, st *step) (any, error) {
	if !s.life.Enter() {
		return nil, ErrClosed
	}
	defer s.life.Leave()
	if err := s.guard.lost(); err != nil {
		return nil, err
	}
	n, err := s.topology.node(ctx, st.bucket)
	if err != nil {
		return nil, err
	}
	b := &n.begins
	if swap {
		b = &n.swaps
	}
	v, err := b.Do(ctx, st)
	return v, explain(err)
}

// wrote returns the record that a step has stored, from the meta and the number of writes
// that the script replied with.
func (s *Store) wrote(r retrysafe.Record, i id, reply string) (retrysafe.Record, error) {
	if len(reply) <= metaLength {
		return retrysafe.Record{}, errReply(reply)
	}
	if err := decodeMeta(&r, i, reply[:metaLength]); err != nil {
		return retrysafe.Record{}, err
	}
	writes, err := strconv.ParseInt(reply[metaLength:], 10, 64)
	if err != nil {
		return retrysafe.Record{}, errReply(reply)
	}
	s.sawWrites(i.bucket(), writes)
	r.ReadAt = r.UpdatedAt
	return r, nil
}

// continued returns the record of a swap whose caller has not read what belongs to the
// attempt as it is stored.
func (s *Store) continued(w *retrysafe.Write, i id, v []any) (retrysafe.Record, error) {
	reply, _ := v[0].(string)
	r, err := s.wrote(w.Record, i, reply)
	if err != nil {
		return retrysafe.Record{}, err
	}
	head, _ := v[1].(string)
	if err := decodeHead(&r, []byte(head)); err != nil {
		return retrysafe.Record{}, err
	}
	if w.SetCheckpoint {
		return r, nil
	}
	checkpoint, _ := v[2].(string)
	return r, decodeCheckpoint(&r, []byte(checkpoint))
}

// read returns the record that a script has found.
func (s *Store) read(i id, v any) (retrysafe.Record, error) {
	f, ok := v.([]any)
	if !ok || len(f) != 5 {
		return retrysafe.Record{}, errReply(v)
	}
	var text [5]string
	for n := range f {
		text[n], _ = f[n].(string) // nil if the part is not there
	}
	now, err := strconv.ParseInt(text[0], 10, 64)
	if err != nil {
		return retrysafe.Record{}, errReply(v)
	}
	found := stored{now: now, meta: text[1], head: text[2], checkpoint: text[3], tail: text[4]}
	return found.record(i)
}

// errReply says that a reply is none of the script's.
func errReply(v any) error {
	return fmt.Errorf("redisstore: the server's reply to a step is %T of another form", v)
}

func stateDigits(s retrysafe.State) string { return fmt.Sprintf("%03d", uint8(s)) }

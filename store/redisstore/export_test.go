package redisstore

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/retrysafe/retrysafe"
)

// Key returns the name of the key that has a record.
func (s *Store) Key(ref retrysafe.Ref) string {
	i := idOf(ref)
	return s.keys[i.bucket(s.buckets)].record(i)
}

// Bucket returns the bucket of a record in a cluster.
func Bucket(ref retrysafe.Ref) int { return idOf(ref).bucket(clusterBuckets) }

// Client returns the client of the node that has a record.
func (s *Store) Client(ref retrysafe.Ref) *redis.Client {
	s.topology.mu.RLock()
	defer s.topology.mu.RUnlock()
	return s.topology.buckets[idOf(ref).bucket(s.buckets)].client
}

// Slots returns the slots of all buckets.
func Slots(prefix string) map[int]string {
	slots := make(map[int]string)
	for b := range clusterBuckets {
		k := keysOf(prefix, b)
		slots[k.slot] = fmt.Sprint(b)
	}
	return slots
}

// SlotOf returns the slot of a tag.
var SlotOf = slotOf

// PartOf returns a place within a part of a stored record: m is its meta, o its owner, h its
// head, c its checkpoint, t its tail, s its sum, e the meta at its end.
func PartOf(v, part string) (int, error) {
	at, err := splitBody([]byte(v[metaLength : len(v)-metaLength]))
	if err != nil {
		return 0, err
	}
	return map[string]int{
		"m": metaLength / 2, "o": metaLength + 3, "h": metaLength + at.head - 2, "c": metaLength + at.checkpoint - 2,
		"t": metaLength + at.checkpoint + 3, "s": len(v) - metaLength - 2, "e": len(v) - 2,
	}[part], nil
}

// SetBack moves all records ahead of the server's clock, with the highest revision of each
// bucket.
func (s *Store) SetBack(ctx context.Context, d time.Duration) error {
	for b := range s.buckets {
		k, c := &s.keys[b], s.topology.buckets[b].client
		ids, err := c.ZRange(ctx, k.ids, 0, -1).Result()
		if err != nil {
			return err
		}
		for _, i := range ids {
			v, err := c.Get(ctx, k.record(id(i))).Bytes()
			if err != nil {
				return err
			}
			for _, meta := range [][]byte{v[:metaLength], v[len(v)-metaLength:]} {
				for at := 0; at < 32; at += 8 {
					binary.BigEndian.PutUint64(meta[at:], binary.BigEndian.Uint64(meta[at:])+uint64(d.Microseconds()))
				}
			}
			if err := errors.Join(c.Set(ctx, k.record(id(i)), v, 0).Err(), c.ZIncrBy(ctx, k.due, float64(d.Milliseconds()), i).Err()); err != nil {
				return err
			}
		}
		mark, err := c.Get(ctx, k.mark).Result()
		if err != nil {
			return err
		}
		last, err := strconv.ParseInt(mark[16:32], 10, 64)
		if err == nil && last > 0 {
			err = c.Set(ctx, k.mark, fmt.Sprintf("%s%016d%s", mark[:16], last+d.Microseconds(), mark[32:]), 0).Err()
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// IndexAsDone puts a record into the index of deadlines as one that is final and due.
func (s *Store) IndexAsDone(ctx context.Context, ref retrysafe.Ref) error {
	i := idOf(ref)
	return s.Client(ref).ZAdd(ctx, s.keys[i.bucket(s.buckets)].due, redis.Z{Score: 1 - 1e13, Member: string(i)}).Err()
}

// MarkKeys returns the names of the marks of all buckets.
func (s *Store) MarkKeys() (names []string) {
	for b := range s.buckets {
		names = append(names, s.keys[b].mark)
	}
	return names
}

// Gate runs the command of a move on all buckets; see lua/gate.lua.
func (s *Store) Gate(ctx context.Context, what string, seq int64, more ...any) error {
	_, err := mover{s}.gateAll(ctx, what, seq, more...)
	return err
}

// LoadGivenUp returns what a Load gets whose server has another name than the store knows,
// in a batch whose context ends before the step can be sent there: another step of the
// batch has to wait.
func (s *Store) LoadGivenUp(ctx context.Context, ref retrysafe.Ref) (v any, err error) {
	st := s.stepOf(loadScript, idOf(ref), nil, false)
	other := "another server's"
	seen := s.seen[st.bucket].Swap(&other)
	defer s.seen[st.bucket].Store(seen)
	n, err := s.topology.node(ctx, st.bucket)
	if err != nil {
		return nil, err
	}
	t := trip{s: s, steps: []*step{st, st}, answers: make([]answer, 2)}
	unsent := t.make(ctx, n, []retry{{index: 0}}, false)
	ended, cancel := context.WithCancel(ctx)
	cancel()
	if again := t.makeAgain(ended, append(unsent, retry{index: 1, kind: tryAgain}), 0); len(again) > 0 {
		return nil, errors.New("the step is sent again")
	}
	return t.answers[0].Value.v, t.answers[0].Err
}

// Acknowledged returns how many writes of the bucket of a record the store has seen
// acknowledged.
func (s *Store) Acknowledged(ref retrysafe.Ref) int64 {
	return s.marks[idOf(ref).bucket(s.buckets)].Load()
}

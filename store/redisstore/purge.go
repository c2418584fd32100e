package redisstore

import (
	"context"
	"fmt"
	"math/rand/v2"
)

// purgeAtOnce is how many records one round trip deletes at most.
const purgeAtOnce = 128

// Purge implements [retrysafe.Store]. It looks for records that are due by an index, and
// deletes them by a script that looks at each record once more. It begins with any bucket,
// so that none is always last.
func (s *Store) Purge(ctx context.Context, limit int) (int, error) {
	if !s.life.Enter() {
		return 0, ErrClosed
	}
	defer s.life.Leave()
	deleted, first := 0, rand.IntN(s.buckets) //nolint:gosec // any bucket will do
	for k := 0; k < s.buckets && deleted < limit; k += bucketsAtOnce {
		some := make([]int, min(bucketsAtOnce, s.buckets))
		for n := range some {
			some[n] = (first + k + n) % s.buckets
		}
		n, err := s.purge(ctx, some, limit-deleted)
		deleted += n
		if err != nil {
			return deleted, fmt.Errorf("purge keys: %w", err)
		}
	}
	return deleted, nil
}

// purge deletes records of some buckets. A record that is kept, because it is damaged,
// stays in the index: the next round looks behind it.
func (s *Store) purge(ctx context.Context, some []int, limit int) (deleted int, err error) {
	kept := make(map[int]int, len(some))
	for deleted < limit && len(some) > 0 {
		want := min(limit-deleted, purgeAtOnce)
		steps := make([]*step, len(some))
		for n, b := range some {
			steps[n] = indexStep(b, "done", kept[b], want)
		}
		lists, err := s.ids(ctx, steps)
		if err != nil {
			return deleted, err
		}
		var doomed []*step
		var more []int
		for n, list := range lists {
			b, left := some[n], want-len(doomed)
			if len(list) > left || len(list) == want {
				more = append(more, b)
			}
			for _, i := range list[:min(len(list), left)] {
				doomed = append(doomed, s.stepOf(forgetScript, i, nil, false))
			}
		}
		answers, err := s.do(ctx, doomed)
		if err != nil {
			return deleted, err
		}
		for n, a := range answers {
			switch v, _ := a.Value.v.(int64); v {
			case 1:
				deleted++
			case 0:
				kept[doomed[n].bucket]++
			}
		}
		some = more
	}
	return deleted, nil
}

package pgstore

import (
	"context"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/groupcommit"
)

// readBatcher sends loads in batches, so that any number of callers that wait for a key
// needs one connection.
type readBatcher struct {
	batcher groupcommit.Batcher[retrysafe.Ref, retrysafe.Record]
	conns   *connPool
	ids     arrays
}

// depart reads one batch, in one round trip.
func (b *readBatcher) depart(ctx context.Context, refs []retrysafe.Ref, _ *groupcommit.Flight) []answer {
	answers := make([]answer, len(refs))
	requests := make(map[id][]int, len(refs))
	for i, ref := range refs {
		answers[i].Err = retrysafe.ErrNotFound
		k := idOf(ref)
		requests[k] = append(requests[k], i)
	}
	b.ids.reset(len(requests))
	b.ids.column(oidUUID)
	for k := range requests {
		b.ids.uuid(k)
	}
	b.ids.end()
	err := b.conns.persist(ctx, func() error {
		return b.conns.do(ctx, query{statement: &b.conns.s.sql.read, params: b.ids.params(), each: func(v [][]byte) error {
			w := scanRow(v)
			for _, i := range requests[w.id] {
				answers[i].Value, answers[i].Err = w.of(refs[i])
			}
			return nil
		}})
	})
	if err != nil {
		for i := range answers {
			answers[i] = answer{Err: err}
		}
	}
	return answers
}

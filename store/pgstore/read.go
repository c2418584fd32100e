package pgstore

import (
	"context"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/groupcommit"
)

// readLane carries loads, so that any number of waiters needs one connection.
type readLane struct {
	lane groupcommit.Batcher[retrysafe.Ref, retrysafe.Record]
	via  *links
	ids  arrays
}

func (l *readLane) send(ctx context.Context, refs []retrysafe.Ref) []answer {
	answers := make([]answer, len(refs))
	members := make(map[id][]int, len(refs))
	for i, ref := range refs {
		answers[i].Err = retrysafe.ErrNotFound
		k := idOf(ref)
		members[k] = append(members[k], i)
	}
	l.ids.reset(len(members))
	l.ids.column(oidUUID)
	for k := range members {
		l.ids.uuid(k)
	}
	l.ids.end()
	err := l.via.do(ctx, query{statement: &l.via.s.sql.read, params: l.ids.params(), each: func(v [][]byte) error {
		w := scanRow(v)
		for _, i := range members[w.id] {
			answers[i].Value, answers[i].Err = w.of(refs[i])
		}
		return nil
	}})
	if err != nil {
		for i := range answers {
			answers[i] = answer{Err: err}
		}
	}
	return answers
}

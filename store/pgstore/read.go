package pgstore

import (
	"context"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/lane"
)

// readLane carries loads, so that any number of waiters needs one connection.
type readLane struct {
	lane lane.Lane[retrysafe.Ref, retrysafe.Record]
	link link
	ids  arrays
}

func (l *readLane) close(ctx context.Context) error { return l.link.close(ctx) }

func (l *readLane) send(ctx context.Context, refs []retrysafe.Ref) []answer {
	answers := make([]answer, len(refs))
	members := make(map[id][]int, len(refs))
	for i, ref := range refs {
		answers[i].Err = retrysafe.ErrNotFound
		members[idOf(ref)] = append(members[idOf(ref)], i)
	}
	l.ids.reset(len(members))
	l.ids.column(oidUUID)
	for k := range members {
		l.ids.uuid(k)
	}
	l.ids.end()
	err := l.link.do(ctx, query{statement: &l.link.s.sql.read, params: l.ids.params(), each: func(v [][]byte) error {
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

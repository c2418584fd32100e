package pgstore

import "context"

// insertTries is how often a reservation is sent that was neither stored nor found: the
// row that was in its way was gone when it was read.
const insertTries = 2

// contend reserves keys that other sessions reserve at the same time. It waits only
// briefly for a commit that is under way elsewhere. Then it leaves that key out, and the
// others of the batch go on.
func (b *reserveFlight) contend(ctx context.Context, requests []reservation, some []int, answers []answer) error {
	left := some
	for range insertTries {
		if err := b.insert(ctx, requests, left, answers); err != nil {
			return err
		}
		if left = unanswered(left, answers); len(left) == 0 {
			return nil
		}
		// Either the row is this very step's, sent before, or the key is held.
		if err := b.find(ctx, requests, left, answers); err != nil {
			return err
		}
		if left = unanswered(left, answers); len(left) == 0 {
			return nil
		}
	}
	answerBusy(left, answers)
	return nil
}

func (b *reserveFlight) insert(ctx context.Context, requests []reservation, some []int, answers []answer) error {
	b.all.reserve(requests, some)
	err := b.insertBy(ctx, &b.conns.s.sql.insert, requests, some, answers)
	if isLocked(err) {
		err = b.conns.persist(ctx, func() error { return b.insertBy(ctx, &b.conns.s.sql.insertUnlocked, requests, some, answers) })
	}
	return err
}

// insertBy sends the keys that insert has encoded.
func (b *reserveFlight) insertBy(ctx context.Context, stmt *statement, requests []reservation, some []int, answers []answer) error {
	params := b.all.params()
	err := b.conns.do(ctx, query{statement: stmt, params: params, each: func(v [][]byte) error {
		i := requestOf(v[0], requests, some)
		answers[i].Value = inserted(requests[i].w, v[1], v[2])
		return nil
	}}, query{statement: &b.conns.s.sql.others, params: params[:2], each: func(v [][]byte) error {
		i := requestOf(v[0], requests, some)
		answers[i] = existing(scanRow(v), requests[i].w)
		return nil
	}})
	if err != nil {
		reset(some, answers)
	}
	return err
}

// find reads the rows of requests that were not stored. The commit of a row that is this
// very step's is confirmed before it counts.
func (b *reserveFlight) find(ctx context.Context, requests []reservation, some []int, answers []answer) error {
	err := b.conns.persist(ctx, func() error {
		return b.conns.do(ctx, query{statement: &b.conns.s.sql.read, params: b.idsOf(requests, some), each: func(v [][]byte) error {
			for _, i := range some {
				if requests[i].id == id(v[0]) {
					answers[i] = existing(scanRow(v), requests[i].w)
				}
			}
			return nil
		}}, query{statement: &b.conns.s.sql.confirm})
	})
	if err != nil {
		reset(some, answers)
	}
	return err
}

// idsOf is the parameter of a read of the keys that some names.
func (b *reserveFlight) idsOf(requests []reservation, some []int) [][]byte {
	b.ids.reset(len(some))
	b.ids.column(oidUUID)
	for _, i := range some {
		b.ids.uuid(requests[i].id)
	}
	b.ids.end()
	return b.ids.params()
}

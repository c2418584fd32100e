package dynamostore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/storemove"
)

var (
	_ storemove.Store  = mover{}
	_ storemove.Keeper = mover{}
	_ storemove.Lister = mover{}
)

// Mover is for "retrysafe keys copy", which moves the records of one store to another.
// Every step on a table that a move has closed is refused with an error that says so.
func (s *Store) Mover() storemove.Store { return mover{s} }

// mover moves records out of a table and into it. The note of the move, an attribute of
// the item that describes the table, decides whether the table is closed: see
// [storemove.Kept]. Processes follow the note by their permits, so the mover waits until
// those from before are over.
type mover struct{ s *Store }

// ReadNote implements [storemove.Keeper].
func (m mover) ReadNote(ctx context.Context) (text string, now time.Time, err error) {
	self, err := m.s.self(ctx)
	if err != nil {
		return "", now, m.s.explain(err)
	}
	if v, ok := self[attrMove].(*types.AttributeValueMemberS); ok {
		text = v.Value
	}
	return text, m.s.clock.now(), nil
}

// ReplaceNote implements [storemove.Keeper].
func (m mover) ReplaceNote(ctx context.Context, old, new string) (replaced bool, err error) {
	u := newUpdate()
	u.set(attrMove, text(new))
	condition := "attribute_not_exists(" + u.name(attrMove) + ")"
	if old != "" {
		condition = u.name(attrMove) + " = " + u.value(text(old))
	}
	err = m.s.send(ctx, func(ctx context.Context) error {
		_, err := m.s.client.UpdateItem(ctx, u.input(m.s.table, selfID, condition))
		return err
	})
	if _, refused := errors.AsType[*types.ConditionalCheckFailedException](err); refused {
		return false, nil
	}
	return err == nil, m.s.explain(err)
}

// awaitPermits waits until no process has a permit from before. Every now and then it calls
// renew, which keeps a cut from ending by itself.
func (m mover) awaitPermits(ctx context.Context, renew func() error) error {
	start := time.Now()
	self, err := m.s.self(ctx)
	if err != nil {
		return m.s.explain(err)
	}
	wait := waits(leaseOf(self))
	for {
		passed := min(time.Since(start), time.Now().Round(0).Sub(start.Round(0)))
		if passed >= wait {
			return nil
		}
		select {
		case <-time.After(min(wait-passed, storemove.CutLease/4)):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		if err := renew(); err != nil {
			return err
		}
	}
}

// page reads some items of the table, behind an item, with strong consistency. Behind is
// nil if they were the last ones.
func (m mover) page(ctx context.Context, after item, limit int) (items []item, behind item, err error) {
	in := &dynamodb.ScanInput{TableName: &m.s.table, ConsistentRead: ptr(true), Limit: ptr(int32(limit)), ExclusiveStartKey: after}
	var out *dynamodb.ScanOutput
	err = m.s.send(ctx, func(ctx context.Context) (err error) {
		out, err = m.s.client.Scan(ctx, in)
		return err
	})
	if err != nil {
		return nil, nil, m.s.explain(err)
	}
	for _, it := range out.Items {
		if it[attrRevision] != nil { // not the item that describes the table
			items = append(items, it)
		}
	}
	return items, out.LastEvaluatedKey, nil
}

func ptr[T any](v T) *T { return &v }

// wrap says what a step of a move was about.
func (m mover) wrap(verb string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s of table %s: %w", verb, m.s.table, err)
}

// ownNote returns the note if this run has this part in the move.
func (m mover) ownNote(ctx context.Context, part storemove.Part, run retrysafe.Owner) (storemove.Kept, error) {
	k, _, err := storemove.Read(ctx, m)
	if err == nil && !k.IsBy(part, run) {
		err = storemove.ErrOvertaken
	}
	return k, err
}

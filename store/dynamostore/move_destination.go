package dynamostore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/deployment"
	"github.com/retrysafe/retrysafe/internal/storemove"
)

// Fill implements [storemove.Destination]. Whether the table is empty is looked at when no
// process has a permit any more. If it was, all that it holds later was imported, and the
// next run deletes that.
func (m mover) Fill(ctx context.Context, run, source retrysafe.Owner, from string) error {
	k, err := storemove.Change(ctx, m, func(k *storemove.Kept, now time.Time) (storemove.Kept, error) {
		return k.Fill(run, source, from, now)
	})
	if err != nil {
		return m.wrap("fill", err)
	}
	m.s.permit.last.Store(nil)
	if k.Emptied {
		return m.wrap("fill", m.empty(ctx))
	}
	if err = m.awaitPermits(ctx, func() error { return nil }); err == nil {
		err = m.checkEmpty(ctx)
	}
	if errors.Is(err, storemove.ErrNotEmpty) {
		return m.wrap("fill", errors.Join(err, m.open(context.WithoutCancel(ctx), run)))
	}
	if err == nil {
		_, err = storemove.Change(ctx, m, func(k *storemove.Kept, _ time.Time) (storemove.Kept, error) { return k.Empty(run) })
	}
	return m.wrap("fill", err)
}

// checkEmpty returns an error if the table has a record that is not the deployment's.
func (m mover) checkEmpty(ctx context.Context) error {
	for after := item(nil); ; {
		items, behind, err := m.page(ctx, after, 10)
		if err != nil {
			return err
		}
		for _, it := range items {
			d := decoder{it: it}
			if id := string(d.bytes(attrID)); id != string(idOf(deployment.Ref())) && id != string(idOf(deployment.Probe())) {
				return storemove.ErrNotEmpty
			}
		}
		if after = behind; len(behind) == 0 {
			return nil
		}
	}
}

// empty deletes all records.
func (m mover) empty(ctx context.Context) error {
	for after := item(nil); ; {
		items, behind, err := m.page(ctx, after, 1000)
		if err != nil {
			return err
		}
		err = inParallel(len(items), func(i int) error {
			return m.s.send(ctx, func(ctx context.Context) error {
				_, err := m.s.client.DeleteItem(ctx, &dynamodb.DeleteItemInput{TableName: &m.s.table, Key: item{attrID: items[i][attrID]}})
				return err
			})
		})
		if err != nil {
			return m.s.explain(err)
		}
		if after = behind; len(behind) == 0 {
			return nil
		}
	}
}

// Import implements [storemove.Destination]. Each record has the number of the run, so that
// a late write of a run that was replaced changes nothing.
func (m mover) Import(ctx context.Context, run retrysafe.Owner, records []retrysafe.Record, gone []retrysafe.Ref) error {
	k, err := m.ownNote(ctx, storemove.Filling, run)
	if err == nil && !k.Emptied {
		err = storemove.ErrOvertaken
	}
	if err != nil {
		return m.wrap("import", err)
	}
	err = inParallel(len(records)+len(gone), func(i int) error {
		if i < len(gone) {
			return m.importedOnly(&gone[i], m.remove(ctx, k.Seq, gone[i]))
		}
		r := &records[i-len(gone)]
		return m.importedOnly(&r.Ref, m.put(ctx, k.Seq, r))
	})
	return m.wrap("import", err)
}

// importedOnly returns the error of a write of a run, with the key that it was about.
func (m mover) importedOnly(ref *retrysafe.Ref, err error) error {
	if err == nil {
		return nil
	}
	if _, refused := errors.AsType[*types.ConditionalCheckFailedException](err); refused {
		return storemove.ErrOvertaken
	}
	return fmt.Errorf("key %q in scope %q: %w", ref.Key, ref.Scope, m.s.explain(err))
}

// put stores a record. A revision or an UpdatedAt that lies in this store's future becomes
// its now.
func (m mover) put(ctx context.Context, seq int64, record *retrysafe.Record) error {
	r, now := *record, m.s.clock.now()
	if r.State == 0 {
		return errors.New("the record has no state")
	}
	r.Deadline = now.Add(r.Deadline.Sub(r.ReadAt)).Truncate(time.Microsecond)
	r.Revision = min(r.Revision, now.UnixMicro())
	if r.UpdatedAt.After(now) {
		r.UpdatedAt = now
	}
	it := m.s.newItem(idOf(r.Ref), &r)
	it[attrImport] = number(seq)
	in := &dynamodb.PutItemInput{TableName: &m.s.table, Item: it}
	if !deployment.Is(r.Ref) { // that of the destination may be there
		in.ConditionExpression, in.ExpressionAttributeNames, in.ExpressionAttributeValues = importCondition(seq)
	}
	return m.s.send(ctx, func(ctx context.Context) error {
		_, err := m.s.client.PutItem(ctx, in)
		return err
	})
}

// remove deletes a record that is not at the source any more.
func (m mover) remove(ctx context.Context, seq int64, ref retrysafe.Ref) error {
	in := &dynamodb.DeleteItemInput{TableName: &m.s.table, Key: keyOf(idOf(ref))}
	in.ConditionExpression, in.ExpressionAttributeNames, in.ExpressionAttributeValues = importCondition(seq)
	return m.s.send(ctx, func(ctx context.Context) error {
		_, err := m.s.client.DeleteItem(ctx, in)
		return err
	})
}

// importCondition is that of a write of a run: the record is not there, or this run or one
// before has imported it.
func importCondition(seq int64) (condition *string, names map[string]string, values item) {
	u := newUpdate()
	text := fmt.Sprintf("attribute_not_exists(%s) OR %s <= %s", u.name(attrID), u.name(attrImport), u.value(number(seq)))
	return aws.String(text), u.names, u.values
}

// Filled implements [storemove.Destination].
func (m mover) Filled(ctx context.Context, run retrysafe.Owner) error {
	return m.wrap("open", m.open(ctx, run))
}

// Unfill implements [storemove.Destination].
func (m mover) Unfill(ctx context.Context, run retrysafe.Owner) error {
	k, err := m.ownNote(ctx, storemove.Filling, run)
	if err == nil && k.Emptied {
		err = m.empty(ctx)
	}
	if err == nil {
		err = m.open(ctx, run)
	}
	return m.wrap("empty", err)
}

// open opens the table. A process that found it closed reads the note with its next step.
func (m mover) open(ctx context.Context, run retrysafe.Owner) error {
	_, err := storemove.Change(ctx, m, func(k *storemove.Kept, _ time.Time) (storemove.Kept, error) { return k.Open(run) })
	return err
}

// Filling implements [storemove.Destination].
func (m mover) Filling(ctx context.Context) (run retrysafe.Owner, err error) {
	k, _, err := storemove.Read(ctx, m)
	if err != nil {
		return run, fmt.Errorf("read the note of a move: %w", err)
	}
	if k.Part != storemove.Filling {
		return run, nil
	}
	return k.Run, nil
}

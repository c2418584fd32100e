package dynamostore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/store/storekit"
)

const (
	// maxParallel is how many requests one step has under way.
	maxParallel = 8
	// maxBatch is how many items DynamoDB reads in one request.
	maxBatch = 100
)

// List implements [retrysafe.Store]. What is due, and what is not final, is found by an
// index, in the order of ids. Every other query reads the whole table, in an order of
// DynamoDB's own.
func (s *Store) List(ctx context.Context, q retrysafe.Query) ([]retrysafe.Record, error) {
	return permitted(ctx, s, func() ([]retrysafe.Record, error) { return s.list(ctx, q) })
}

func (s *Store) list(ctx context.Context, q retrysafe.Query) (found []retrysafe.Record, err error) {
	if q.Due || len(q.States) > 0 && !slices.ContainsFunc(q.States, retrysafe.State.Forgettable) {
		found, err = s.listByIndex(ctx, &q)
	} else {
		found, err = s.listAll(ctx, &q)
	}
	if err != nil {
		return nil, fmt.Errorf("list keys: %w", s.explain(err))
	}
	return found, nil
}

// listAll reads the table.
func (s *Store) listAll(ctx context.Context, q *retrysafe.Query) (found []retrysafe.Record, err error) {
	filter := newUpdate()
	conditions := []string{"attribute_exists(" + filter.name(attrRevision) + ")"} // not the item that describes the table
	if q.Scope != "" {
		conditions = append(conditions, filter.name(attrScope)+" = "+filter.value(binaryOf([]byte(q.Scope))))
	}
	if len(q.States) > 0 {
		var states []string
		for _, state := range q.States {
			states = append(states, filter.value(number(int64(state))))
		}
		conditions = append(conditions, filter.name(attrState)+" IN ("+strings.Join(states, ", ")+")")
	}
	in := &dynamodb.ScanInput{
		TableName: &s.table, ConsistentRead: aws.Bool(true),
		FilterExpression: aws.String(strings.Join(conditions, " AND ")), ExpressionAttributeNames: filter.names,
	}
	if len(filter.values) > 0 {
		in.ExpressionAttributeValues = filter.values
	} else {
		in.Limit = aws.Int32(int32(q.Size()) + 1) // one more, for the item that describes the table
	}
	if q.After != (retrysafe.Ref{}) {
		in.ExclusiveStartKey = keyOf(afterOf(q.After))
	}
	for {
		var page *dynamodb.ScanOutput
		err := s.send(ctx, func(ctx context.Context) (err error) {
			page, err = s.client.Scan(ctx, in)
			return err
		})
		if err != nil {
			return nil, err
		}
		for _, it := range page.Items {
			if found = append(found, s.listed(it)); len(found) == q.Size() {
				return found, nil
			}
		}
		if len(page.LastEvaluatedKey) == 0 {
			return found, nil
		}
		in.ExclusiveStartKey = page.LastEvaluatedKey
	}
}

// listed returns the record of an item. One that cannot be read is listed with Version 0.
func (s *Store) listed(it item) retrysafe.Record {
	got, err := decode(it)
	if err != nil {
		d := decoder{it: it}
		got.record = retrysafe.Record{Ref: unreadable(d.bytes(attrID)), Reason: err.Error()}
	}
	got.record.ReadAt = s.readAt(&got.record)
	return got.record
}

// listByIndex finds the ids by the index and then reads the items themselves: an entry of
// the index may be late, and its order is that of deadlines, which change while a caller
// pages through a list.
func (s *Store) listByIndex(ctx context.Context, q *retrysafe.Query) (found []retrysafe.Record, err error) {
	now := s.clock.now()
	classes := []string{open, final}
	if len(q.States) > 0 {
		classes = slices.DeleteFunc(classes, func(class string) bool {
			return !slices.ContainsFunc(q.States, func(s retrysafe.State) bool { return classOf(s) == class })
		})
	}
	var after []byte
	first := 0
	if q.After != (retrysafe.Ref{}) {
		after = afterOf(q.After)
		first = shardOf(after, s.shards)
	}
	for ; first < s.shards; first += maxParallel {
		ids, err := s.candidates(ctx, classes, first, min(first+maxParallel, s.shards), q.Due, now, after)
		if err != nil {
			return nil, err
		}
		for part := range slices.Chunk(ids, maxBatch) {
			items, err := s.readBatch(ctx, part)
			if err != nil {
				return nil, err
			}
			for _, id := range part {
				if it := items[string(id)]; it != nil && s.selects(q, it) {
					if found = append(found, s.listed(it)); len(found) == q.Size() {
						return found, nil
					}
				}
			}
		}
	}
	return found, nil
}

// selects reports whether the query selects an item. One that cannot be read is judged by
// what stands beside its parts.
func (s *Store) selects(q *retrysafe.Query, it item) bool {
	d := decoder{it: it}
	r := retrysafe.Record{State: retrysafe.State(d.number(attrState)), Deadline: d.time(attrDue), ReadAt: s.clock.now()}
	if scope, ok := it[attrScope].(*types.AttributeValueMemberB); ok {
		r.Scope = string(scope.Value)
	}
	return d.err == nil && storekit.Matches(q, &r)
}

// candidates returns the ids that the partitions of the index from first to before end
// have, in order and behind an id.
func (s *Store) candidates(ctx context.Context, classes []string, first, end int, due bool, now time.Time, after []byte) (ids [][]byte, err error) {
	lists := make([][][]byte, (end-first)*len(classes))
	err = inParallel(len(lists), func(i int) error {
		in := s.indexQuery(partition(classes[i%len(classes)], first+i/len(classes)), due, now)
		for {
			page, err := s.query(ctx, in)
			if err != nil {
				return err
			}
			lists[i] = append(lists[i], idsOf(page)...)
			if len(page.LastEvaluatedKey) == 0 {
				return nil
			}
			in.ExclusiveStartKey = page.LastEvaluatedKey
		}
	})
	if err != nil {
		return nil, err
	}
	ids = slices.DeleteFunc(slices.Concat(lists...), func(id []byte) bool { return bytes.Compare(id, after) <= 0 })
	slices.SortFunc(ids, bytes.Compare)
	return slices.CompactFunc(ids, bytes.Equal), nil // a record that changes its class may be in both for a moment
}

// indexQuery returns the query of one partition of the index.
func (s *Store) indexQuery(partition string, due bool, now time.Time) *dynamodb.QueryInput {
	u := newUpdate()
	condition := u.name(attrShard) + " = " + u.value(text(partition))
	if due {
		condition += " AND " + u.name(attrDue) + " <= " + u.value(number(micros(now)))
	}
	return &dynamodb.QueryInput{
		TableName: &s.table, IndexName: aws.String(indexDue), KeyConditionExpression: &condition,
		ExpressionAttributeNames: u.names, ExpressionAttributeValues: u.values,
	}
}

func (s *Store) query(ctx context.Context, in *dynamodb.QueryInput) (page *dynamodb.QueryOutput, err error) {
	err = s.send(ctx, func(ctx context.Context) (err error) {
		page, err = s.client.Query(ctx, in)
		return err
	})
	return page, err
}

func idsOf(page *dynamodb.QueryOutput) (ids [][]byte) {
	for _, it := range page.Items {
		if id, ok := it[attrID].(*types.AttributeValueMemberB); ok {
			ids = append(ids, id.Value)
		}
	}
	return ids
}

// readBatch reads items by their ids, with strong consistency.
func (s *Store) readBatch(ctx context.Context, ids [][]byte) (map[string]item, error) {
	items, keys := make(map[string]item, len(ids)), make([]item, len(ids))
	for i, id := range ids {
		keys[i] = keyOf(id)
	}
	want := map[string]types.KeysAndAttributes{s.table: {Keys: keys, ConsistentRead: aws.Bool(true)}}
	for len(want) > 0 {
		var reply *dynamodb.BatchGetItemOutput
		err := s.send(ctx, func(ctx context.Context) (err error) {
			if reply, err = s.client.BatchGetItem(ctx, &dynamodb.BatchGetItemInput{RequestItems: want}); err != nil {
				return err
			}
			if len(reply.Responses) == 0 && len(reply.UnprocessedKeys) > 0 {
				return errUnprocessed
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
		for _, it := range reply.Responses[s.table] {
			if id, ok := it[attrID].(*types.AttributeValueMemberB); ok {
				items[string(id.Value)] = it
			}
		}
		want = reply.UnprocessedKeys
	}
	return items, nil
}

// errUnprocessed is no answer of the service, so the batch is read again after a pause.
var errUnprocessed = errors.New("the service has read none of a batch of items; the table gets more requests than its capacity allows")

// inParallel calls do with 0 to n-1, a few at a time, and returns when all have returned.
func inParallel(n int, do func(i int) error) error {
	errs, slots := make([]error, n), make(chan struct{}, maxParallel)
	var all sync.WaitGroup
	for i := range n {
		slots <- struct{}{}
		all.Go(func() {
			defer func() { <-slots }()
			errs[i] = do(i)
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

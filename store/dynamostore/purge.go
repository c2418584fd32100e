package dynamostore

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/retrysafe/retrysafe"
)

// Purge implements [retrysafe.Store]. State and deadline are part of the condition of each
// delete, so that a record which was claimed meanwhile stays. Where time to live is
// enabled DynamoDB deletes final records by itself, an hour after their deadline or later;
// what it has not deleted is due like any other record. While a move follows the table,
// nothing is deleted.
func (s *Store) Purge(ctx context.Context, limit int) (int, error) {
	return permitted(ctx, s, func() (int, error) { return s.purge(ctx, limit) })
}

func (s *Store) purge(ctx context.Context, limit int) (deleted int, err error) {
	now, first := s.clock.now(), rand.IntN(s.shards) // reapers of several nodes begin at different places
	for i := range s.shards {
		in := s.indexQuery(partition(final, (first+i)%s.shards), true, now)
		for deleted < limit {
			if err := s.permit.ask(ctx, s); err != nil {
				return deleted, fmt.Errorf("purge keys: %w", err)
			}
			if !s.permit.purges(s) {
				return deleted, nil
			}
			in.Limit = aws.Int32(int32(min(limit-deleted, 1000)))
			page, err := s.query(ctx, in)
			if err != nil {
				return deleted, fmt.Errorf("purge keys: %w", s.explain(err))
			}
			n, err := s.deleteDue(ctx, idsOf(page), now)
			if deleted += n; err != nil {
				return deleted, fmt.Errorf("purge keys: %w", s.explain(err))
			}
			if len(page.LastEvaluatedKey) == 0 {
				break
			}
			in.ExclusiveStartKey = page.LastEvaluatedKey
		}
	}
	return deleted, nil
}

// deleteDue deletes the items that are final and due, and returns how many.
func (s *Store) deleteDue(ctx context.Context, ids [][]byte, now time.Time) (int, error) {
	var deleted atomic.Int64
	err := inParallel(len(ids), func(i int) error {
		err := s.send(ctx, func(ctx context.Context) error {
			_, err := s.client.DeleteItem(ctx, s.deletion(ids[i], now))
			return err
		})
		if _, refused := errors.AsType[*types.ConditionalCheckFailedException](err); refused {
			return nil // it was claimed, or another reaper has deleted it
		}
		if err == nil {
			deleted.Add(1)
		}
		return err
	})
	return int(deleted.Load()), err
}

// deletion returns the request that deletes an item if it is final and due. A record whose
// revision the clock has not passed stays: a record that is created later must have a
// higher one, also if the clock stands still because it was set back.
func (s *Store) deletion(id []byte, now time.Time) *dynamodb.DeleteItemInput {
	u := newUpdate()
	at := u.value(number(micros(now)))
	condition := fmt.Sprintf("%s IN (%s, %s, %s) AND %s <= %s AND %s < %s", u.name(attrState),
		u.value(number(int64(retrysafe.StateCompleted))), u.value(number(int64(retrysafe.StateRetryable))), u.value(number(int64(retrysafe.StateExpired))),
		u.name(attrDue), at, u.name(attrRevision), at)
	return &dynamodb.DeleteItemInput{
		TableName: &s.table, Key: keyOf(id), ConditionExpression: &condition,
		ExpressionAttributeNames: u.names, ExpressionAttributeValues: u.values,
	}
}

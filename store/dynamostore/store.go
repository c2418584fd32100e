package dynamostore

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/retrysafe/retrysafe"
)

var _ retrysafe.Store = (*Store)(nil)

// MaxBody is the largest answer body, in bytes, that a record is certain to have room for
// beside its header, its notes and a request of a few kilobytes. Set the limit of your
// answers to at most that: httpkey.Options.MaxResponse, max_response in the gateway.
const MaxBody = 350 << 10

// Store is a [retrysafe.Store] in one table. Its methods may be called concurrently.
type Store struct {
	client *dynamodb.Client
	table  string
	shards int
	clock  *clock
	permit permit
	trail  trail
	// timeout is that of the first try of a request.
	timeout time.Duration
}

// maxRounds is how often a step begins again because the record changed while the step
// was looking at it.
const maxRounds = 8

// errUnsure is the error of a step that was sent again after a lost reply and found that
// another step has written since: the first try may have been applied, and overwritten.
var errUnsure = errors.New("a reply was lost, and the record has changed since: the step may have been applied")

var errRestless = errors.New("the record was created and deleted again and again while this step looked at it")

// Create implements [retrysafe.Store].
func (s *Store) Create(ctx context.Context, w retrysafe.Write) (retrysafe.Record, error) {
	return permitted(ctx, s, func() (retrysafe.Record, error) { return s.insert(ctx, w) })
}

func (s *Store) insert(ctx context.Context, w retrysafe.Write) (retrysafe.Record, error) {
	id, first := idOf(w.Ref), int64(0)
	for range maxRounds {
		next := w.Record
		unsure, err := s.sendWrite(ctx, func(ctx context.Context) error {
			now := s.clock.now()
			next.Revision = now.UnixMicro()
			first = cmp.Or(first, next.Revision)
			next.Deadline, next.CreatedAt, next.UpdatedAt = now.Add(w.Term).Truncate(time.Microsecond), now, now
			_, err := s.client.PutItem(ctx, &dynamodb.PutItemInput{
				TableName: &s.table, Item: s.newItem(id, &next),
				ConditionExpression:                 aws.String("attribute_not_exists(#id)"),
				ExpressionAttributeNames:            map[string]string{"#id": attrID},
				ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
			})
			return err
		})
		if err == nil {
			next.ReadAt = next.UpdatedAt
			return next, nil
		}
		refusal, ok := errors.AsType[*types.ConditionalCheckFailedException](err)
		if !ok {
			return retrysafe.Record{}, fmt.Errorf("create key: %w", s.explain(err))
		}
		stored, err := s.found(ctx, id, refusal.Item)
		switch {
		case errors.Is(err, retrysafe.ErrNotFound) && !unsure: // it was purged in between: the key is free
			continue
		case errors.Is(err, retrysafe.ErrNotFound):
			return retrysafe.Record{}, fmt.Errorf("create key: %w", errUnsure)
		case err != nil:
			return retrysafe.Record{}, fmt.Errorf("create key: %w", err)
		case stored.record.Ref != w.Ref:
			return retrysafe.Record{}, fmt.Errorf("create key: %w", errOtherKey)
		case unsure && stored.record.Revision >= first && stored.nonce != nil: // it was swapped since this step began
			return retrysafe.Record{}, fmt.Errorf("create key: %w", errUnsure)
		case stored.record.Owner == w.Owner && !w.Owner.IsZero():
			return stored.record, nil
		}
		return stored.record, retrysafe.ErrExists
	}
	return retrysafe.Record{}, fmt.Errorf("create key: %w", errRestless)
}

// Swap implements [retrysafe.Store]. It is one conditional update, which writes neither
// the request nor the checkpoint unless the write brings them.
func (s *Store) Swap(ctx context.Context, w retrysafe.Write) (retrysafe.Record, error) {
	return permitted(ctx, s, func() (retrysafe.Record, error) { return s.swap(ctx, w) })
}

func (s *Store) swap(ctx context.Context, w retrysafe.Write) (retrysafe.Record, error) {
	id, nonce, first := idOf(w.Ref), make([]byte, nonceSize), int64(0)
	_, _ = rand.Read(nonce) // it never fails
	for range maxRounds {
		var now time.Time
		var reply *dynamodb.UpdateItemOutput
		unsure, err := s.sendWrite(ctx, func(ctx context.Context) (err error) {
			now = s.clock.notBefore(w.Expect.Revision)
			first = cmp.Or(first, revisionAfter(w.Expect.Revision, now))
			reply, err = s.client.UpdateItem(ctx, s.update(id, &w, now, nonce))
			return err
		})
		if err == nil {
			got, err := decode(reply.Attributes)
			if err != nil {
				return retrysafe.Record{}, fmt.Errorf("swap key: %w", err)
			}
			got.record.ReadAt = now
			return got.record, nil
		}
		refusal, ok := errors.AsType[*types.ConditionalCheckFailedException](err)
		if !ok {
			return retrysafe.Record{}, fmt.Errorf("swap key: %w", s.explain(err))
		}
		stored, err := s.found(ctx, id, refusal.Item)
		switch {
		case errors.Is(err, retrysafe.ErrNotFound) && unsure:
			return retrysafe.Record{}, fmt.Errorf("swap key: %w", errUnsure)
		case err != nil:
			return retrysafe.Record{}, fmt.Errorf("swap key: %w", err)
		case string(stored.nonce) == string(nonce): // this very write; its reply was lost
			return stored.record, nil
		case unsure && stored.record.Revision >= first && stored.replaced != w.Expect.Revision: // what it has replaced may be this write
			return retrysafe.Record{}, fmt.Errorf("swap key: %w", errUnsure)
		case stored.record.Fence() != w.Expect:
			return stored.record, retrysafe.ErrConflict
		}
	}
	return retrysafe.Record{}, fmt.Errorf("swap key: %w", errRestless)
}

// revisionAfter returns the revision of a write at a time.
func revisionAfter(before int64, now time.Time) int64 { return max(before+1, now.UnixMicro()) }

// Load implements [retrysafe.Store].
func (s *Store) Load(ctx context.Context, ref retrysafe.Ref) (retrysafe.Record, error) {
	return permitted(ctx, s, func() (retrysafe.Record, error) { return s.load(ctx, ref) })
}

func (s *Store) load(ctx context.Context, ref retrysafe.Ref) (retrysafe.Record, error) {
	got, err := s.read(ctx, idOf(ref))
	switch {
	case err != nil:
		return retrysafe.Record{}, fmt.Errorf("load key: %w", err)
	case got.record.Ref != ref:
		return retrysafe.Record{}, fmt.Errorf("load key: %w", errOtherKey)
	}
	return got.record, nil
}

// found returns the item that refused a write. The service sends it with the refusal. If
// it did not, because there is none or because the server cannot, the item is read.
func (s *Store) found(ctx context.Context, id []byte, refusal item) (stored, error) {
	if len(refusal) == 0 {
		return s.read(ctx, id)
	}
	got, err := decode(refusal)
	got.record.ReadAt = s.readAt(&got.record)
	return got, err
}

// read reads one item, with strong consistency.
func (s *Store) read(ctx context.Context, id []byte) (got stored, err error) {
	var reply *dynamodb.GetItemOutput
	err = s.send(ctx, func(ctx context.Context) (err error) {
		reply, err = s.client.GetItem(ctx, &dynamodb.GetItemInput{TableName: &s.table, Key: keyOf(id), ConsistentRead: aws.Bool(true)})
		return err
	})
	if err != nil {
		return stored{}, s.explain(err)
	}
	if len(reply.Item) == 0 {
		return stored{}, retrysafe.ErrNotFound
	}
	got, err = decode(reply.Item)
	got.record.ReadAt = s.readAt(&got.record)
	return got, err
}

// readAt returns the time at which r was read. It is never before the last write of r,
// also if the node that wrote it has a faster clock.
func (s *Store) readAt(r *retrysafe.Record) time.Time {
	now := s.clock.now()
	if now.Before(r.UpdatedAt) {
		return r.UpdatedAt
	}
	return now
}

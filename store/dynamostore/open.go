package dynamostore

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/retrysafe/retrysafe/internal/storemove"
)

// Options configure [Open]. Nil and zero values are the defaults.
type Options struct {
	// SkipCreate leaves the account as it is: Open fails with [ErrNoTable] if there is no
	// table.
	SkipCreate bool
	// Shards is over how many partitions the index of what is due is spread in a table that
	// Open creates. Each of them takes about 300 new keys per second, and each search for
	// what is due reads all of them. It cannot be changed later. Default 32.
	Shards int
	// Moving opens the store even if a move has closed it, for "retrysafe keys copy". The
	// steps of such a store are refused all the same.
	Moving bool
}

// ErrNoTable is the error of [Open] with SkipCreate if there is no table, or if it was
// created by other means and is not initialised yet.
var ErrNoTable = errors.New("there is no such table of retrysafe; create it with: retrysafe migrate up")

const (
	defaultShards = 32
	maxShards     = 1024
	// tableVersion is the version of the layout of items.
	tableVersion = 1
	// firstLook and longLook bound the pause between two looks at a table that is being
	// created. Each pause is twice as long as the one before.
	firstLook, longLook = 20 * time.Millisecond, time.Second
)

// Open opens the store in a table. It creates the table if there is none, with on-demand
// capacity, protection against deletion and time to live, and waits until it is active.
// A table whose keys or index are not as the store needs them is refused.
//
// The store sends its requests by a copy of client on which retries are off. The caller
// keeps client, its credentials and its HTTP client. Opts may be nil.
func Open(ctx context.Context, client *dynamodb.Client, table string, opts *Options) (*Store, error) {
	if opts == nil {
		opts = new(Options)
	}
	switch {
	case client == nil:
		return nil, errors.New("dynamostore: open: the client is nil; make one with dynamodb.NewFromConfig")
	case table == "":
		return nil, errors.New("dynamostore: open: the name of the table is empty")
	case opts.Shards < 0 || opts.Shards > maxShards:
		return nil, fmt.Errorf("dynamostore: open: %d shards; choose 1 to %d, or 0 for %d", opts.Shards, maxShards, defaultShards)
	}
	s := &Store{table: table, clock: newClock(), timeout: firstTimeout}
	s.client = dynamodb.New(client.Options(), func(o *dynamodb.Options) {
		o.Retryer = aws.NopRetryer{}
		if o.HTTPClient == nil {
			o.HTTPClient = http.DefaultClient
		}
		o.HTTPClient = timed{o.HTTPClient, s.clock}
	})
	if err := s.open(ctx, opts); err != nil {
		return nil, fmt.Errorf("open table %s: %w", table, s.explain(err))
	}
	return s, nil
}

func (s *Store) open(ctx context.Context, opts *Options) error {
	found, err := s.awaitTable(ctx)
	created := false
	if isNoTable(err) {
		if opts.SkipCreate {
			return ErrNoTable
		}
		if err := s.create(ctx); err != nil {
			return err
		}
		found, err = s.awaitTable(ctx)
		created = true
	}
	if err != nil {
		return err
	}
	if err := checkSchema(found); err != nil {
		return err
	}
	if by := s.clock.correction(); by.Abs() > maxOffset {
		return fmt.Errorf("the clock of this machine is %v away from that of the service; set it, for example by NTP", by.Round(time.Second))
	}
	if created {
		s.enableExpiry(ctx)
	}
	return s.describeItself(ctx, opts)
}

// awaitTable waits until the table, if there is one, and its index are active.
func (s *Store) awaitTable(ctx context.Context) (*types.TableDescription, error) {
	for pause := firstLook; ; pause = min(2*pause, longLook) {
		var found *dynamodb.DescribeTableOutput
		err := s.send(ctx, func(ctx context.Context) (err error) {
			found, err = s.client.DescribeTable(ctx, &dynamodb.DescribeTableInput{TableName: &s.table})
			return err
		})
		if err != nil {
			return nil, err
		}
		if isActive(found.Table) {
			return found.Table, nil
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return nil, fmt.Errorf("the table is %s: %w", found.Table.TableStatus, context.Cause(ctx))
		}
	}
}

// isActive reports whether a table can be used. One that is being changed can.
func isActive(t *types.TableDescription) bool {
	if t.TableStatus != types.TableStatusActive && t.TableStatus != types.TableStatusUpdating {
		return t.TableStatus != types.TableStatusCreating // what else there is does not pass by waiting
	}
	for _, index := range t.GlobalSecondaryIndexes {
		if aws.ToString(index.IndexName) == indexDue && (index.IndexStatus == types.IndexStatusCreating || aws.ToBool(index.Backfilling)) {
			return false
		}
	}
	return true
}

// create creates the table. Several processes may do so at the same time.
func (s *Store) create(ctx context.Context) error {
	attribute := func(name string, of types.ScalarAttributeType) types.AttributeDefinition {
		return types.AttributeDefinition{AttributeName: &name, AttributeType: of}
	}
	err := s.send(ctx, func(ctx context.Context) error {
		_, err := s.client.CreateTable(ctx, &dynamodb.CreateTableInput{
			TableName:   &s.table,
			BillingMode: types.BillingModePayPerRequest,
			AttributeDefinitions: []types.AttributeDefinition{
				attribute(attrID, types.ScalarAttributeTypeB), attribute(attrShard, types.ScalarAttributeTypeS), attribute(attrDue, types.ScalarAttributeTypeN),
			},
			KeySchema: []types.KeySchemaElement{{AttributeName: aws.String(attrID), KeyType: types.KeyTypeHash}},
			GlobalSecondaryIndexes: []types.GlobalSecondaryIndex{{
				IndexName: aws.String(indexDue),
				KeySchema: []types.KeySchemaElement{
					{AttributeName: aws.String(attrShard), KeyType: types.KeyTypeHash}, {AttributeName: aws.String(attrDue), KeyType: types.KeyTypeRange},
				},
				Projection: &types.Projection{ProjectionType: types.ProjectionTypeKeysOnly},
			}},
			DeletionProtectionEnabled: aws.Bool(true),
		})
		return err
	})
	if _, exists := errors.AsType[*types.ResourceInUseException](err); exists {
		return nil // another process creates it, or the first try did
	}
	return err
}

// checkSchema returns an error if the table is not one that [Store.create] could have
// made.
func checkSchema(t *types.TableDescription) error {
	kinds := map[string]types.ScalarAttributeType{}
	for _, a := range t.AttributeDefinitions {
		kinds[aws.ToString(a.AttributeName)] = a.AttributeType
	}
	is := func(keys []types.KeySchemaElement, names ...string) bool {
		if len(keys) != len(names) {
			return false
		}
		for i, k := range keys {
			if aws.ToString(k.AttributeName) != names[i] {
				return false
			}
		}
		return true
	}
	switch {
	case t.TableStatus != types.TableStatusActive && t.TableStatus != types.TableStatusUpdating:
		return fmt.Errorf("the table is %s; it has to be ACTIVE", t.TableStatus)
	case !is(t.KeySchema, attrID) || kinds[attrID] != types.ScalarAttributeTypeB:
		return fmt.Errorf("it is not a table of retrysafe: its key has to be %q (binary) alone; name another table, which is created then", attrID)
	}
	for _, index := range t.GlobalSecondaryIndexes {
		if aws.ToString(index.IndexName) != indexDue {
			continue
		}
		if !is(index.KeySchema, attrShard, attrDue) || kinds[attrShard] != types.ScalarAttributeTypeS || kinds[attrDue] != types.ScalarAttributeTypeN {
			break
		}
		return nil
	}
	return fmt.Errorf("the index %q of the table is missing or has other keys; it has to have %q (string) and %q (number): without it nothing that is due would be found", indexDue, attrShard, attrDue)
}

// enableExpiry lets DynamoDB delete final records by itself. If that fails, as on servers
// that do not know it, [Store.Purge] deletes them, and [Store.Durability] says so.
func (s *Store) enableExpiry(ctx context.Context) {
	_ = s.send(ctx, func(ctx context.Context) error {
		_, err := s.client.UpdateTimeToLive(ctx, &dynamodb.UpdateTimeToLiveInput{
			TableName:               &s.table,
			TimeToLiveSpecification: &types.TimeToLiveSpecification{AttributeName: aws.String(attrExpires), Enabled: aws.Bool(true)},
		})
		return err
	})
}

// selfID is the id of the item that describes the table. It is shorter than that of any
// record.
var selfID = []byte("retrysafe")

// describeItself reads the layout of the table from the item that describes it, and writes
// that item into a new table.
func (s *Store) describeItself(ctx context.Context, opts *Options) error {
	for range maxRounds {
		asked := time.Now()
		self, err := s.self(ctx)
		if err != nil {
			return err
		}
		if len(self) > 0 {
			return s.adopt(self, asked, opts.Moving)
		}
		if opts.SkipCreate {
			return ErrNoTable
		}
		shards := opts.Shards
		if shards == 0 {
			shards = defaultShards
		}
		err = s.send(ctx, func(ctx context.Context) error {
			_, err := s.client.PutItem(ctx, &dynamodb.PutItemInput{
				TableName: &s.table, Item: item{attrID: binaryOf(selfID), attrVersion: number(tableVersion), attrShards: number(int64(shards))},
				ConditionExpression: aws.String("attribute_not_exists(#id)"), ExpressionAttributeNames: map[string]string{"#id": attrID},
			})
			return err
		})
		if _, exists := errors.AsType[*types.ConditionalCheckFailedException](err); err != nil && !exists {
			return err
		}
	}
	return errRestless
}

// self reads the item that describes the table.
func (s *Store) self(ctx context.Context) (item, error) {
	var reply *dynamodb.GetItemOutput
	err := s.send(ctx, func(ctx context.Context) (err error) {
		reply, err = s.client.GetItem(ctx, &dynamodb.GetItemInput{TableName: &s.table, Key: keyOf(selfID), ConsistentRead: aws.Bool(true)})
		return err
	})
	if err != nil {
		return nil, err
	}
	return reply.Item, nil
}

// adopt takes over the layout that an item describes, which was asked for at a time. It
// returns an error if a move has closed the table, unless moving is set.
func (s *Store) adopt(self item, asked time.Time, moving bool) error {
	d := decoder{it: self}
	version, shards := d.number(attrVersion), d.number(attrShards)
	switch {
	case d.err != nil:
		return fmt.Errorf("the item that describes the table: %w", d.err)
	case version != tableVersion:
		return fmt.Errorf("the table has layout version %d, and this program knows only %d; upgrade the program", version, tableVersion)
	case shards < 1 || shards > maxShards:
		return fmt.Errorf("the item that describes the table says %d shards, which is none of 1 to %d; it is damaged", shards, maxShards)
	}
	s.shards = int(shards)
	if err := s.permit.grant(s, self, asked); err != nil && !moving && !errors.Is(err, storemove.ErrCut) {
		return err
	}
	return nil
}

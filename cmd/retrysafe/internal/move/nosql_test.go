package move_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/redis/go-redis/v9"

	"github.com/retrysafe/retrysafe/internal/test/dynamofake"
	"github.com/retrysafe/retrysafe/store/dynamostore"
)

// fake is the server that all tables of these tests are in. Other processes reach it too.
var fake = sync.OnceValue(dynamofake.New)

func newTablePlace(t testing.TB) place {
	t.Helper()
	table := "test-" + strings.ToLower(rand.Text())
	p := place("dynamodb:" + fake().URL + "#" + table)
	s, err := p.openWith(t.Context(), false)
	must(t, err)
	must(t, s.Close())
	p.setSelf(t, "lease", &types.AttributeValueMemberN{Value: "200"}) // so that a mover waits less
	return p
}

// A tableStore is a store in DynamoDB, and its connections.
type tableStore struct {
	*dynamostore.Store
	connections *http.Transport
}

func (s tableStore) Close() error {
	s.connections.CloseIdleConnections()
	return nil
}

func tableClient(url string) (*dynamodb.Client, *http.Transport) {
	transport := &http.Transport{MaxIdleConnsPerHost: 16}
	return dynamodb.New(dynamodb.Options{
		Region: "eu-central-1", BaseEndpoint: &url, HTTPClient: &http.Client{Transport: transport},
		Credentials: credentials.NewStaticCredentialsProvider("local", "local", ""),
	}), transport
}

func openTable(ctx context.Context, at string, moving bool) (store, error) {
	url, table, _ := strings.Cut(at, "#")
	client, connections := tableClient(url)
	s, err := dynamostore.Open(ctx, client, table, &dynamostore.Options{Shards: 2, Moving: moving})
	if err != nil {
		return nil, err
	}
	return tableStore{s, connections}, nil
}

var selfKey = map[string]types.AttributeValue{"id": &types.AttributeValueMemberB{Value: []byte("retrysafe")}}

// setSelf sets an attribute of the item that describes a table, or removes it.
func (p place) setSelf(t testing.TB, name string, v types.AttributeValue) (before types.AttributeValue) {
	t.Helper()
	url, table, _ := strings.Cut(strings.TrimPrefix(string(p), "dynamodb:"), "#")
	client, connections := tableClient(url)
	defer connections.CloseIdleConnections()
	got, err := client.GetItem(t.Context(), &dynamodb.GetItemInput{TableName: &table, Key: selfKey, ConsistentRead: aws.Bool(true)})
	must(t, err)
	before = got.Item[name]
	if got.Item[name] = v; v == nil {
		delete(got.Item, name)
	}
	_, err = client.PutItem(t.Context(), &dynamodb.PutItemInput{TableName: &table, Item: got.Item})
	must(t, err)
	return before
}

// redis returns a client of the server at a place, and what its keys begin with.
func (p place) redis(t testing.TB) (c *redis.Client, prefix string) {
	t.Helper()
	url, prefix, _ := strings.Cut(strings.TrimPrefix(string(p), "redis:"), "#")
	options, err := redis.ParseURL(url)
	must(t, err)
	c = redis.NewClient(options)
	t.Cleanup(func() { _ = c.Close() })
	return c, prefix
}

// reopened opens a source that was moved, for as long as do lasts.
func (p place) reopened(t testing.TB, do func()) {
	t.Helper()
	switch {
	case strings.HasPrefix(string(p), "redis:"):
		c, prefix := p.redis(t)
		for b := range 4 {
			key := fmt.Sprintf("{%s:%02x}:mark", prefix, b)
			mark, err := c.Get(t.Context(), key).Result()
			must(t, err)
			f := strings.Fields(mark[48:])
			must(t, c.Set(t.Context(), key, f[3]+mark[16:48]+f[0], 0).Err())
			defer func() { // with the number of writes that the processes have seen meanwhile
				must(t, c.Set(context.WithoutCancel(t.Context()), key, mark, 0).Err())
			}()
		}
		do()
	case strings.HasPrefix(string(p), "dynamodb:"):
		note := p.setSelf(t, "move", nil)
		do()
		p.setSelf(t, "move", note)
	default:
		p.exec(t, `ALTER TABLE retrysafe_keys_moved RENAME TO retrysafe_keys`)
		defer p.exec(t, `ALTER TABLE retrysafe_keys RENAME TO retrysafe_keys_moved`)
		do()
	}
}

// damage makes a record unreadable.
func (p place) damage(t testing.TB) {
	t.Helper()
	switch kind, _, _ := strings.Cut(string(p), ":"); kind {
	case "redis":
		c, prefix := p.redis(t)
		for b := range 4 {
			ids, err := c.ZRange(t.Context(), fmt.Sprintf("{%s:%02x}:ids", prefix, b), 0, 0).Result()
			must(t, err)
			if len(ids) > 0 {
				must(t, c.SetRange(t.Context(), fmt.Sprintf("{%s:%02x}:%s", prefix, b, ids[0]), 60, "damage").Err())
				// In the log of what is written, as by a step.
				must(t, c.ZAdd(t.Context(), fmt.Sprintf("{%s:%02x}:due", prefix, b), redis.Z{Score: -1e15, Member: "w" + ids[0]}).Err())
				return
			}
		}
		t.Fatal("there is no record")
	case "dynamodb":
		url, table, _ := strings.Cut(strings.TrimPrefix(string(p), "dynamodb:"), "#")
		client, connections := tableClient(url)
		defer connections.CloseIdleConnections()
		all, err := client.Scan(t.Context(), &dynamodb.ScanInput{TableName: &table, ConsistentRead: aws.Bool(true)})
		must(t, err)
		for _, it := range all.Items {
			part, ok := it["attempt"].(*types.AttributeValueMemberB)
			if !ok {
				continue
			}
			part.Value[len(part.Value)/2] ^= 4
			it["rev"] = &types.AttributeValueMemberN{Value: "7"} // a write that was damaged
			_, err = client.PutItem(t.Context(), &dynamodb.PutItemInput{TableName: &table, Item: it})
			must(t, err)
			return
		}
		t.Fatal("there is no record")
	case "sqlite":
		p.exec(t, `UPDATE retrysafe_keys SET rec = x'0102030405060708' WHERE row = (SELECT max(row) FROM retrysafe_keys)`)
	case "mysql":
		p.exec(t, `UPDATE retrysafe_keys SET head = x'0102030405060708' LIMIT 1`)
	default:
		p.exec(t, `UPDATE retrysafe_keys SET head = '\x0102030405060708' WHERE id = (SELECT id FROM retrysafe_keys LIMIT 1)`)
	}
}

// openByHand opens a destination as docs/moving.md says.
func (p place) openByHand(t testing.TB, statements string) {
	t.Helper()
	switch kind, _, _ := strings.Cut(string(p), ":"); kind {
	case "redis":
		c, prefix := p.redis(t)
		must(t, c.Del(t.Context(), fmt.Sprintf("{%s:00}:move", prefix)).Err())
	case "dynamodb":
		p.setSelf(t, "move", nil)
	default:
		p.exec(t, statements)
	}
}

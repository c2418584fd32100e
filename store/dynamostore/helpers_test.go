package dynamostore_test

import (
	"context"
	"crypto/rand"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/test/dynamofake"
	"github.com/retrysafe/retrysafe/internal/test/leftover"
	"github.com/retrysafe/retrysafe/internal/test/testservers"
	"github.com/retrysafe/retrysafe/store/dynamostore"
)

// The store leaves no goroutine behind. What a program sees after a load are the idle
// connections of its HTTP client, two goroutines each, which end with the client.
func TestMain(m *testing.M) {
	testservers.Main(m)
	http.DefaultClient.CloseIdleConnections()
	leftover.None()
}

// patience is for a machine with much else to do: nothing that works takes as long.
const patience = time.Minute

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// dynalite starts the server that all tests share. A test must not kill it.
var dynalite = sync.OnceValues(func() (string, error) {
	d, err := testservers.StartDynalite(context.Background())
	if err != nil {
		return "", err
	}
	return d.URL(), nil
})

func sharedDynalite(t testing.TB) string {
	t.Helper()
	url, err := dynalite()
	must(t, err)
	return url
}

// newClient returns a client with connections of its own, which end with the test.
func newClient(t testing.TB, url string) *dynamodb.Client {
	t.Helper()
	transport := &http.Transport{MaxIdleConnsPerHost: 64}
	t.Cleanup(transport.CloseIdleConnections)
	return dynamodb.New(dynamodb.Options{
		Region: "eu-central-1", BaseEndpoint: &url, HTTPClient: &http.Client{Transport: transport},
		Credentials: credentials.NewStaticCredentialsProvider("local", "local", ""),
	})
}

func newFake(t testing.TB) *dynamofake.Server {
	t.Helper()
	s := dynamofake.New()
	t.Cleanup(s.Close)
	return s
}

// fewShards keeps searches short.
var fewShards = &dynamostore.Options{Shards: 3}

func newTable() string { return "test-" + strings.ToLower(rand.Text()) }

func open(t testing.TB, client *dynamodb.Client, table string) *dynamostore.Store {
	t.Helper()
	s, err := dynamostore.Open(t.Context(), client, table, fewShards)
	must(t, err)
	return s
}

func newOwner() (o retrysafe.Owner) {
	_, _ = rand.Read(o[:]) // it never fails
	return o
}

// fresh returns the write that reserves a key.
func fresh(key string) retrysafe.Write {
	return retrysafe.Write{Term: time.Hour, Record: retrysafe.Record{
		Ref: retrysafe.Ref{Scope: "tenant", Key: key}, Operation: "POST /payments", Owner: newOwner(), Attempt: 1, Request: []byte("request"),
		State: retrysafe.StateInProgress, Lapse: retrysafe.LapseQuarantine, Effects: retrysafe.EffectsUnprotected,
		Version: retrysafe.RecordVersion, Retain: time.Hour,
	}}
}

// done returns the write that completes r.
func done(r retrysafe.Record, term time.Duration) retrysafe.Write {
	w := r.Update()
	w.State, w.Term, w.Result = retrysafe.StateCompleted, term, &retrysafe.Result{Status: 201, Body: []byte("answer of " + r.Key)}
	return w
}

// damage flips a bit of the part of a record that a heartbeat leaves alone.
func damage(ctx context.Context, client *dynamodb.Client, table string, ref retrysafe.Ref) error {
	key := map[string]types.AttributeValue{"id": &types.AttributeValueMemberB{Value: dynamostore.ID(ref)}}
	got, err := client.GetItem(ctx, &dynamodb.GetItemInput{TableName: &table, Key: key, ConsistentRead: aws.Bool(true)})
	if err != nil {
		return err
	}
	part := got.Item[dynamostore.AttemptAttribute].(*types.AttributeValueMemberB)
	part.Value[len(part.Value)/2] ^= 4
	_, err = client.PutItem(ctx, &dynamodb.PutItemInput{TableName: &table, Item: got.Item})
	return err
}

// realService returns a client of the real service and the name of a table that is deleted
// after the test, or skips the test: RETRYSAFE_DYNAMODB is a region, and the credentials
// come from AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN.
func realService(t *testing.T) (*dynamodb.Client, string) {
	t.Helper()
	region := os.Getenv("RETRYSAFE_DYNAMODB")
	if region == "" {
		t.Skip("RETRYSAFE_DYNAMODB names no region of the real service")
	}
	client := dynamodb.New(dynamodb.Options{
		Region:      region,
		Credentials: credentials.NewStaticCredentialsProvider(os.Getenv("AWS_ACCESS_KEY_ID"), os.Getenv("AWS_SECRET_ACCESS_KEY"), os.Getenv("AWS_SESSION_TOKEN")),
	})
	table := "retrysafe-" + newTable()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		_, err := client.UpdateTable(ctx, &dynamodb.UpdateTableInput{TableName: &table, DeletionProtectionEnabled: aws.Bool(false)})
		if err == nil {
			_, err = client.DeleteTable(ctx, &dynamodb.DeleteTableInput{TableName: &table})
		}
		if err != nil {
			t.Errorf("delete table %s yourself: %v", table, err)
		}
	})
	return client, table
}

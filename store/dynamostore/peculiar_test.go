package dynamostore_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/store/dynamostore"
)

func second[T any](_ T, err error) error { return err }

func containsText(err error, text string) bool { return strings.Contains(err.Error(), text) }

// Time to live deletes final records alone, and not before every node takes them for due.
// What it has not deleted yet is a record like any other.
func TestExpiryDeletesOnlyWhatIsFinalAndLongDue(t *testing.T) {
	t.Parallel()
	fake, table := newFake(t), newTable()
	s := open(t, newClient(t, fake.URL), table)
	ctx := t.Context()
	running, err := s.Create(ctx, fresh("running"))
	must(t, err)
	created, err := s.Create(ctx, fresh("final"))
	must(t, err)
	final, err := s.Swap(ctx, done(created, time.Millisecond))
	must(t, err)
	again, err := s.Create(ctx, fresh("again"))
	must(t, err)
	again, err = s.Swap(ctx, done(again, time.Millisecond))
	must(t, err)

	if n := fake.Expire(final.Deadline.Add(59 * time.Minute)); n != 0 {
		t.Errorf("%d items were deleted within the margin", n)
	}
	// It is due, and still there: a claim takes it over, and it does not expire any more.
	late, err := s.Create(ctx, fresh("again"))
	if !errors.Is(err, retrysafe.ErrExists) {
		t.Errorf("Create of an expired record = %v", err)
	}
	claim := fresh("again")
	claim.Overwrite, claim.Expect = true, late.Fence()
	must(t, second(s.Swap(ctx, claim)))
	if n := fake.Expire(again.Deadline.Add(100 * 24 * time.Hour)); n != 1 {
		t.Errorf("%d items were deleted, want the final one", n)
	}
	for key, want := range map[string]error{"running": nil, "again": nil, "final": retrysafe.ErrNotFound} {
		if err := second(s.Load(ctx, fresh(key).Ref)); !errors.Is(err, want) {
			t.Errorf("Load of %q = %v, want %v", key, err, want)
		}
	}
	if _, err := s.Swap(ctx, done(final, time.Hour)); !errors.Is(err, retrysafe.ErrNotFound) {
		t.Errorf("Swap of a deleted record = %v", err)
	}
	must(t, second(s.Swap(ctx, done(running, time.Hour))))
}

// An index that is late shows records as they were. Nothing is done by what it shows.
func TestLateIndexDoesNoHarm(t *testing.T) {
	t.Parallel()
	fake := newFake(t)
	s := open(t, newClient(t, fake.URL), newTable())
	ctx := t.Context()
	w := fresh("k")
	w.State, w.Result, w.Term = retrysafe.StateCompleted, &retrysafe.Result{Status: 200}, 0
	due, err := s.Create(ctx, w)
	must(t, err)
	for !due.Due() {
		due, err = s.Load(ctx, w.Ref)
		must(t, err)
	}
	fake.DelayIndexes(true)
	claim := fresh("k")
	claim.Overwrite, claim.Expect, claim.Attempt = true, due.Fence(), 1
	must(t, second(s.Swap(ctx, claim)))
	if n, err := s.Purge(ctx, 10); n != 0 || err != nil {
		t.Errorf("Purge of a record that was claimed = %d, %v", n, err)
	}
	if list, err := s.List(ctx, retrysafe.Query{Due: true}); len(list) != 0 || err != nil {
		t.Errorf("List shows what is not due any more: %v, %v", list, err)
	}
	other := fresh("other")
	other.Term = 0
	must(t, second(s.Create(ctx, other)))
	fake.DelayIndexes(false)
	list, err := s.List(ctx, retrysafe.Query{States: []retrysafe.State{retrysafe.StateInProgress}})
	if err != nil || len(list) != 2 {
		t.Errorf("List with the index up to date = %v, %v", list, err)
	}
}

// The service may read only a part of a batch of items. The rest is read too: a record that is
// not listed is one that no sweeper finds.
func TestBatchThatIsReadInPartIsReadOn(t *testing.T) {
	t.Parallel()
	s := open(t, newClient(t, newFake(t).URL), newTable())
	const keys = 90 // a batch, and more than the fake reads at once
	for n := range keys {
		must(t, second(s.Create(t.Context(), fresh(fmt.Sprint("k", n)))))
	}
	list, err := s.List(t.Context(), retrysafe.Query{States: []retrysafe.State{retrysafe.StateInProgress}, Limit: 100})
	if len(list) != keys || err != nil {
		t.Errorf("List has %d of %d records, %v", len(list), keys, err)
	}
}

// TestW26_OnlyTheServicesClockCounts: a node whose clock is minutes wrong writes and reads
// times of the service's clock, and time never goes back.
func TestW26_OnlyTheServicesClockCounts(t *testing.T) {
	t.Parallel()
	for _, offset := range []time.Duration{-2 * time.Minute, 0, 2 * time.Minute} {
		fake := newFake(t)
		fake.SetOffset(offset)
		s := open(t, newClient(t, fake.URL), newTable())
		got, err := s.Create(t.Context(), fresh("k"))
		must(t, err)
		if d := time.Until(got.CreatedAt) - offset; d.Abs() > 10*time.Second { // the machine may be slow
			t.Errorf("offset %v: CreatedAt is %v away from the service's clock", offset, d)
		}
		if d, err := s.Durability(t.Context()); err != nil || (d.Correction == 0) != (offset == 0) {
			t.Errorf("offset %v: Durability says %v, %v", offset, d, err)
		}
	}
	fake := newFake(t)
	fake.SetOffset(time.Hour)
	_, err := dynamostore.Open(t.Context(), newClient(t, fake.URL), newTable(), nil)
	if err == nil || !containsText(err, "NTP") {
		t.Errorf("a clock that is an hour wrong: Open = %v", err)
	}
}

// A node whose clock is slower continues the times of a record that a faster one wrote.
func TestTimesOfARecordFollowItsRevisions(t *testing.T) {
	t.Parallel()
	client, table := newClient(t, newFake(t).URL), newTable()
	fast, slow := open(t, client, table), open(t, client, table)
	start := time.Now()
	fast.SetLocal(func() time.Time { return start.Add(time.Since(start) + 300*time.Millisecond) })
	rec, err := fast.Create(t.Context(), fresh("k"))
	must(t, err)
	for i := range 6 {
		beat := rec.Update()
		beat.Term = time.Minute
		next, err := []*dynamostore.Store{slow, fast}[i%2].Swap(t.Context(), beat)
		must(t, err)
		if next.UpdatedAt.Before(rec.UpdatedAt) || next.Revision <= rec.Revision || next.ReadAt.Before(rec.ReadAt) {
			t.Errorf("%v after %v, revision %d after %d", next.UpdatedAt, rec.UpdatedAt, next.Revision, rec.Revision)
		}
		rec = next
		read, err := slow.Load(t.Context(), rec.Ref)
		if err != nil || read.ReadAt.Before(read.UpdatedAt) {
			t.Errorf("ReadAt %v, UpdatedAt %v (%v)", read.ReadAt, read.UpdatedAt, err)
		}
	}
}

// A global table is class D unless its regions are strongly consistent.
func TestGlobalTablesSayWhatTheyCanLose(t *testing.T) {
	t.Parallel()
	fake := newFake(t)
	s := open(t, newClient(t, fake.URL), newTable())
	for _, c := range []struct {
		strong  bool
		regions []string
		class   string
	}{
		{false, nil, "B"}, {false, []string{"eu-central-1"}, "B"}, {false, []string{"eu-central-1", "us-east-1"}, "D"}, {true, []string{"us-east-1"}, "B"},
	} {
		fake.SetReplicas(c.strong, c.regions...)
		d, err := s.Durability(t.Context())
		if err != nil || d.Class != c.class || (d.Class == "D") != (len(d.Caveats) > 0) || !d.Expiry {
			t.Errorf("%v: %v, %v", c, d, err)
		}
		if d.Class == "D" && !strings.Contains(d.String(), "us-east-1") {
			t.Errorf("it does not name the region: %v", d)
		}
	}
}

// A table that is not the store's is refused, with what is wrong.
func TestOpenRefusesOtherTables(t *testing.T) {
	t.Parallel()
	for _, url := range []string{newFake(t).URL, sharedDynalite(t)} {
		client := newClient(t, url)
		create := func(key, index string) string {
			name := newTable()
			in := &dynamodb.CreateTableInput{
				TableName: &name, BillingMode: types.BillingModePayPerRequest,
				AttributeDefinitions: []types.AttributeDefinition{{AttributeName: &key, AttributeType: types.ScalarAttributeTypeB}},
				KeySchema:            []types.KeySchemaElement{{AttributeName: &key, KeyType: types.KeyTypeHash}},
			}
			if index != "" {
				in.AttributeDefinitions = append(in.AttributeDefinitions, types.AttributeDefinition{AttributeName: &index, AttributeType: types.ScalarAttributeTypeS})
				in.GlobalSecondaryIndexes = []types.GlobalSecondaryIndex{{
					IndexName: aws.String("due"), KeySchema: []types.KeySchemaElement{{AttributeName: &index, KeyType: types.KeyTypeHash}},
					Projection: &types.Projection{ProjectionType: types.ProjectionTypeKeysOnly},
				}}
			}
			_, err := client.CreateTable(t.Context(), in)
			must(t, err)
			return name
		}
		for table, want := range map[string]string{
			create("pk", ""): "name another table", create("id", ""): "index", create("id", "other"): "index", "": "empty",
		} {
			if _, err := dynamostore.Open(t.Context(), client, table, nil); err == nil || !containsText(err, want) {
				t.Errorf("Open(%q) = %v, want %q", table, err, want)
			}
		}
		if _, err := dynamostore.Open(t.Context(), client, newTable(), &dynamostore.Options{SkipCreate: true}); !errors.Is(err, dynamostore.ErrNoTable) {
			t.Errorf("Open of a table that is not there = %v", err)
		}
		if _, err := dynamostore.Open(t.Context(), client, newTable(), &dynamostore.Options{Shards: -1}); err == nil {
			t.Error("-1 shards are accepted")
		}
	}
	if _, err := dynamostore.Open(t.Context(), nil, "table", nil); err == nil {
		t.Error("a client that is nil is accepted")
	}
}

// Many processes open a table that is not there yet: it is created once, and all have its
// layout.
func TestOpenCreatesTheTableOnce(t *testing.T) {
	t.Parallel()
	for _, url := range []string{newFake(t).URL, sharedDynalite(t)} {
		table := newTable()
		var all sync.WaitGroup
		for i := range 8 {
			all.Go(func() {
				s, err := dynamostore.Open(t.Context(), newClient(t, url), table, &dynamostore.Options{Shards: 1 + i})
				if err != nil {
					t.Error(err)
					return
				}
				w := fresh(strconv.Itoa(i))
				w.Term = 0
				if err := second(s.Create(t.Context(), w)); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		s, err := dynamostore.Open(t.Context(), newClient(t, url), table, &dynamostore.Options{SkipCreate: true, Shards: 99})
		must(t, err)
		if list, err := s.List(t.Context(), retrysafe.Query{Due: true}); len(list) != 8 || err != nil {
			t.Errorf("%d records are found, %v", len(list), err)
		}
	}
}

// A record that is too large is refused with the limit, and changes nothing.
func TestRecordsOverTheLimitAreRefused(t *testing.T) {
	t.Parallel()
	for _, url := range []string{newFake(t).URL, sharedDynalite(t)} {
		s := open(t, newClient(t, url), newTable())
		large := fresh("large")
		large.Request = bytes.Repeat([]byte("r"), 500_000)
		if err := second(s.Create(t.Context(), large)); err == nil || !containsText(err, "max_response") {
			t.Errorf("Create = %v", err)
		}
		if err := second(s.Load(t.Context(), large.Ref)); !errors.Is(err, retrysafe.ErrNotFound) {
			t.Errorf("Load = %v", err)
		}
		rec, err := s.Create(t.Context(), fresh("k"))
		must(t, err)
		w := done(rec, time.Hour)
		w.Result.Body = bytes.Repeat([]byte("b"), 410_000)
		if err := second(s.Swap(t.Context(), w)); err == nil || errors.Is(err, retrysafe.ErrConflict) || !containsText(err, "max_response") {
			t.Errorf("Swap = %v", err)
		}
		if got, err := s.Load(t.Context(), rec.Ref); err != nil || got.Fence() != rec.Fence() {
			t.Errorf("Load = %v, %v", got.Fence(), err)
		}
	}
}

// What a step costs is part of what the page on DynamoDB says: one request each, and a
// replay writes nothing.
func TestStepsAreOneRequestEach(t *testing.T) {
	t.Parallel()
	fake := newFake(t)
	s := open(t, newClient(t, fake.URL), newTable())
	s.SetLease(time.Hour) // a request that renews it is not the step's
	fake.Requests()
	rec, err := s.Create(t.Context(), fresh("k"))
	must(t, err)
	must(t, second(s.Swap(t.Context(), done(rec, time.Hour))))
	if _, err := s.Create(t.Context(), fresh("k")); !errors.Is(err, retrysafe.ErrExists) {
		t.Error(err)
	}
	must(t, second(s.Load(t.Context(), rec.Ref)))
	if got := fake.Requests(); got["PutItem"] != 2 || got["UpdateItem"] != 1 || got["GetItem"] != 1 || len(got) != 3 {
		t.Errorf("requests: %v", got)
	}
}

// A context that ends while requests fail ends the step, with an error that is no answer.
func TestStepsEndWithTheirContext(t *testing.T) {
	t.Parallel()
	fake := newFake(t)
	s := open(t, newClient(t, fake.URL), newTable())
	fake.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_, err := s.Create(ctx, fresh("k"))
	if !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, retrysafe.ErrExists) {
		t.Errorf("Create = %v", err)
	}
}

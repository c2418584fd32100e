package dynamostore_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/storemove"
	"github.com/retrysafe/retrysafe/internal/test/movetest"
	"github.com/retrysafe/retrysafe/store/dynamostore"
)

// shortPermits makes the permits of a table short, so that a mover waits less.
func shortPermits(t *testing.T, client *dynamodb.Client, table string) {
	t.Helper()
	open(t, client, table)
	setSelf(t, client, table, "lease", &types.AttributeValueMemberN{Value: "200"})
}

var selfKey = map[string]types.AttributeValue{"id": &types.AttributeValueMemberB{Value: []byte("retrysafe")}}

// setSelf sets an attribute of the item that describes a table.
func setSelf(t *testing.T, client *dynamodb.Client, table, name string, v types.AttributeValue) {
	t.Helper()
	_, err := client.UpdateItem(t.Context(), &dynamodb.UpdateItemInput{
		TableName: &table, Key: selfKey, UpdateExpression: aws.String("SET #n = :v"),
		ExpressionAttributeNames: map[string]string{"#n": name}, ExpressionAttributeValues: map[string]types.AttributeValue{":v": v},
	})
	must(t, err)
}

func moveHarness(t *testing.T, url string) movetest.Harness {
	t.Helper()
	client, table := newClient(t, url), newTable()
	shortPermits(t, client, table)
	return movetest.Harness{
		CutEndsRun: true,
		Open: func(ctx context.Context, moving bool) (movetest.Store, error) {
			s, err := dynamostore.Open(ctx, client, table, &dynamostore.Options{Moving: moving})
			if err != nil {
				return nil, err
			}
			return s, nil
		},
	}
}

// moves runs a test on both implementations of the protocol.
func moves(t *testing.T, test func(t *testing.T, h movetest.Harness)) {
	t.Helper()
	for name, url := range map[string]string{"fake": newFake(t).URL, "dynalite": sharedDynalite(t)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, moveHarness(t, url))
		})
	}
}

func TestFollowNotesEveryWrite(t *testing.T) {
	t.Parallel()
	moves(t, movetest.FollowNotesEveryWrite)
}

func TestFillIsOneRuns(t *testing.T) {
	t.Parallel()
	moves(t, movetest.FillIsOneRuns)
}

func TestImportKeepsRecords(t *testing.T) {
	t.Parallel()
	moves(t, movetest.ImportKeepsRecords)
}

// A record that cannot be stored at the destination, or not be deleted there, is an error: it
// would be missing after the move, or be there again.
func TestImportThatIsRefusedIsAnError(t *testing.T) {
	t.Parallel()
	fake, table, run := newFake(t), newTable(), retrysafe.Owner{1}
	shortPermits(t, newClient(t, fake.URL), table)
	target, err := url.Parse(fake.URL)
	must(t, err)
	var refused atomic.Value
	refused.Store("")
	through := httputil.NewSingleHostReverseProxy(target)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if what := refused.Load().(string); what != "" && strings.HasSuffix(r.Header.Get("X-Amz-Target"), what) { //nolint:forcetypeassert // it is always a string
			w.WriteHeader(http.StatusBadRequest)
			_, _ = io.WriteString(w, `{"__type":"com.amazonaws.dynamodb.v20120810#AccessDeniedException","message":"injected"}`)
			return
		}
		through.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	m := open(t, newClient(t, server.URL), table).Mover()
	must(t, m.Fill(t.Context(), run, retrysafe.Owner{9}, "elsewhere"))
	for operation, step := range map[string]func() error{
		".PutItem":    func() error { return m.Import(t.Context(), run, []retrysafe.Record{fresh("new").Record}, nil) },
		".DeleteItem": func() error { return m.Import(t.Context(), run, nil, []retrysafe.Ref{fresh("gone").Ref}) },
	} {
		refused.Store(operation)
		if err := step(); err == nil || errors.Is(err, storemove.ErrOvertaken) || !containsText(err, "AccessDenied") {
			t.Errorf("Import without %s = %v", operation, err)
		}
		refused.Store("")
		must(t, step())
	}
}

func TestMovingOpensWhatIsClosed(t *testing.T) {
	t.Parallel()
	moves(t, movetest.MovingOpensWhatIsClosed)
}

func TestRetireIsUndone(t *testing.T) {
	t.Parallel()
	moves(t, movetest.RetireIsUndone)
}

func TestFillIsUndone(t *testing.T) {
	t.Parallel()
	moves(t, movetest.FillIsUndone)
}

// While a move follows the table nothing is purged, because nothing would tell the mover.
// What DynamoDB itself deletes, long after its deadline, is deleted at the destination too.
func TestFollowedTableIsNotPurged(t *testing.T) {
	t.Parallel()
	fake, table, run := newFake(t), newTable(), retrysafe.Owner{1}
	client := newClient(t, fake.URL)
	shortPermits(t, client, table)
	s, reaper := open(t, client, table), open(t, client, table)
	created, err := s.Create(t.Context(), fresh("final"))
	must(t, err)
	final, err := s.Swap(t.Context(), done(created, time.Millisecond))
	must(t, err)
	_, err = s.Mover().Follow(t.Context(), run)
	must(t, err)
	must(t, second(s.Mover().(storemove.Lister).List(t.Context(), retrysafe.Query{})))
	if n, err := reaper.Purge(t.Context(), 10); n != 0 || err != nil {
		t.Errorf("Purge of a table that is followed = %d, %v", n, err)
	}
	if n := fake.Expire(final.Deadline.Add(2 * time.Hour)); n != 1 {
		t.Fatalf("%d items have expired", n)
	}
	if written, gone, err := s.Mover().Written(t.Context(), run, 10); err != nil || len(written) != 0 || len(gone) != 1 || gone[0] != final.Ref {
		t.Errorf("Written = %v, %v, %v", written, gone, err)
	}
	must(t, s.Mover().Unfollow(t.Context(), run))
}

// holding is an HTTP client that keeps requests back.
type holding struct {
	dynamodb.HTTPClient
	held chan chan struct{} // one for each request that is kept back, to let it go
	only string             // the operation that is kept back
}

func (h *holding) Do(r *http.Request) (*http.Response, error) {
	if strings.HasSuffix(r.Header.Get("X-Amz-Target"), "."+h.only) {
		release := make(chan struct{})
		h.held <- release
		<-release
	}
	return h.HTTPClient.Do(r)
}

// A process is stopped after it has sent a step, while its table is moved. The step is
// carried out in the old table, where the move does not see it. It returns an error, so
// nothing runs by it: neither a reservation nor an answer is reported.
func TestStepThatIsCarriedOutAfterTheCutIsNotReported(t *testing.T) {
	t.Parallel()
	client, table := newClient(t, newFake(t).URL), newTable()
	shortPermits(t, client, table)
	hold := &holding{HTTPClient: client.Options().HTTPClient, held: make(chan chan struct{})}
	slow := open(t, dynamodb.New(client.Options(), func(o *dynamodb.Options) { o.HTTPClient = hold }), table)
	running, err := slow.Create(t.Context(), fresh("running"))
	must(t, err)
	for _, step := range []struct {
		operation string
		do        func(context.Context) error
	}{
		{"PutItem", func(ctx context.Context) error { return second(slow.Create(ctx, fresh("late"))) }},
		{"UpdateItem", func(ctx context.Context) error { return second(slow.Swap(ctx, done(running, time.Hour))) }},
	} {
		hold.only = step.operation
		outcome := make(chan error, 1)
		go func() { outcome <- step.do(t.Context()) }()
		release := <-hold.held
		hold.only = ""
		s := open(t, client, table)
		if step.operation == "PutItem" { // the first time the move is given up after its cut
			_, err := s.Mover().Follow(t.Context(), retrysafe.Owner{1})
			must(t, err)
			must(t, cutWith(t, s, func() { close(release) }, func() error { return <-outcome }, errors.New("given up")))
			continue
		}
		_, err := s.Mover().Follow(t.Context(), retrysafe.Owner{1})
		must(t, err)
		must(t, cutWith(t, s, func() { close(release) }, func() error { return <-outcome }, nil))
	}
	if err := second(slow.Load(t.Context(), running.Ref)); !errors.Is(err, storemove.ErrMoved) {
		t.Errorf("Load after the move = %v", err)
	}
}

// cutWith retires a store. When all processes are locked out, it lets a step go that was
// kept back, and expects that the step is not reported.
func cutWith(t *testing.T, s *dynamostore.Store, release func(), outcome func() error, end error) error {
	t.Helper()
	released := false
	err := s.Mover().Retire(t.Context(), retrysafe.Owner{1}, "elsewhere", func(context.Context, []retrysafe.Record, []retrysafe.Ref) error {
		if !released {
			released = true
			release()
			if err := outcome(); !errors.Is(err, storemove.ErrCut) {
				t.Errorf("a step that was carried out after the cut: %v", err)
			}
		}
		return end
	})
	if end != nil && errors.Is(err, end) {
		return nil
	}
	return err
}

// A mover that is killed in its cut leaves a table that serves again when the cut has
// ended by itself, and the mover cannot retire it any more.
func TestKilledCutEndsByItself(t *testing.T) {
	t.Parallel()
	client, table := newClient(t, newFake(t).URL), newTable()
	shortPermits(t, client, table)
	s, other := open(t, client, table), open(t, client, table)
	_, err := s.Mover().Follow(t.Context(), retrysafe.Owner{1})
	must(t, err)
	err = s.Mover().Retire(t.Context(), retrysafe.Owner{1}, "elsewhere", func(context.Context, []retrysafe.Record, []retrysafe.Ref) error {
		if err := second(other.Create(t.Context(), fresh("k"))); !errors.Is(err, storemove.ErrCut) {
			t.Errorf("Create in the cut = %v", err)
		}
		got, err := client.GetItem(t.Context(), &dynamodb.GetItemInput{TableName: &table, Key: selfKey, ConsistentRead: aws.Bool(true)})
		must(t, err)
		note := got.Item["move"].(*types.AttributeValueMemberS).Value
		past := regexp.MustCompile(`"cut_ends":\d+`).ReplaceAllString(note, `"cut_ends":1`)
		if past == note {
			t.Fatalf("the note has no end of the cut: %s", note)
		}
		setSelf(t, client, table, "move", &types.AttributeValueMemberS{Value: past})
		must(t, second(other.Create(t.Context(), fresh("k"))))
		return nil
	})
	if !errors.Is(err, storemove.ErrOvertaken) {
		t.Errorf("Retire = %v", err)
	}
	must(t, second(s.Create(t.Context(), fresh("another"))))
}

package client_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/retrysafe/retrysafe/client"
	"github.com/retrysafe/retrysafe/internal/test/porthold"
)

// Many calls for one purchase at a time: one effect, one key, and the same answer for all.
func TestConcurrentCallsForOneOperation(t *testing.T) {
	t.Parallel()
	a := newAPI(t, nil, keyed, nil)
	c := newClient(t, client.Options{
		Journal: openJournal(t, t.TempDir()+"/journal"),
		Backoff: func(time.Duration, time.Duration, int, *http.Response) time.Duration { return time.Millisecond },
	})
	var all sync.WaitGroup
	for range 40 {
		all.Go(func() {
			response, err := c.Do("order-1", post(t, a.URL+"/payments", "1"))
			if err != nil {
				t.Error(err)
				return
			}
			if body, _ := io.ReadAll(response.Body); string(body) != `{"paid":"1"}` {
				t.Errorf("got %s", body)
			}
		})
	}
	all.Wait()
	keys := map[string]bool{}
	for _, r := range a.arrived() {
		keys[r.key] = true
	}
	if a.effectsOf("1") != 1 || len(keys) != 1 {
		t.Errorf("%d effects under %d keys", a.effectsOf("1"), len(keys))
	}
}

// Under the name of a stored operation another request is refused, and not sent: another
// method, address, host or body is another operation.
func TestAnotherRequestUnderAnOperationsName(t *testing.T) {
	t.Parallel()
	a := newAPI(t, nil, keyed, nil)
	c := newClient(t, client.Options{Journal: openJournal(t, t.TempDir()+"/journal")})
	response, err := c.Do("order-1", post(t, a.URL+"/payments", "1"))
	paid(t, "1", response, err)
	for name, other := range map[string]func() *http.Request{
		"method": func() *http.Request { r := post(t, a.URL+"/payments", "1"); r.Method = http.MethodPatch; return r },
		"path":   func() *http.Request { return post(t, a.URL+"/payments2", "1") },
		"query":  func() *http.Request { return post(t, a.URL+"/payments?again=1", "1") },
		"host":   func() *http.Request { r := post(t, a.URL+"/payments", "1"); r.Host = "other.example"; return r },
		"body":   func() *http.Request { return post(t, a.URL+"/payments", "2") },
	} {
		if _, err := c.Do("order-1", other()); as[*client.MismatchError](t, err).Status != 0 {
			t.Errorf("another %s: %v", name, err)
		}
	}
	if n := len(a.arrived()); n != 1 {
		t.Errorf("%d requests were sent, want the first", n)
	}
	same := post(t, a.URL+"/payments", "1")
	same.Host = same.URL.Host // as it is by default
	response, err = c.Do("order-1", same)
	paid(t, "1", response, err)
}

// What certainly did not happen is not in the journal, so that it does not happen later. What
// may have happened is.
func TestTheJournalKeepsOnlyWhatIsInDoubt(t *testing.T) {
	t.Parallel()
	j := openJournal(t, t.TempDir()+"/journal")
	c := newClient(t, client.Options{Journal: j, MaxTries: 2})
	port := porthold.New(t)
	_, err := c.Do("refused", post(t, "http://"+port.Addr(), "1"))
	if as[*client.ExhaustedError](t, err).MayHaveHappened {
		t.Error(err)
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/login":
			w.WriteHeader(http.StatusUnauthorized)
		case "/lost":
			hangUp()
		case "/unknown":
			w.WriteHeader(http.StatusConflict)
			_, _ = w.Write([]byte(`{"code":"outcome-unknown"}`))
		case "/expired":
			w.WriteHeader(http.StatusGone)
			_, _ = w.Write([]byte(`{"code":"key-expired"}`))
		}
	}))
	t.Cleanup(server.Close)
	response, err := c.Do("login", post(t, server.URL+"/login", "1"))
	if err != nil || response.StatusCode != 401 {
		t.Errorf("%v, %v", response, err)
	}
	_, err = c.Do("lost", post(t, server.URL+"/lost", "1"))
	if e := as[*client.ExhaustedError](t, err); !e.MayHaveHappened {
		t.Error(err)
	}
	ops, err := j.Operations(t.Context())
	must(t, err)
	if len(ops) != 1 || ops[0].ID != "lost" || !ops[0].Unfinished() {
		t.Errorf("the journal has %+v", ops)
	}
	op := ops[0]
	for _, id := range []string{"unknown", "expired"} {
		_, err = c.Do(id, post(t, server.URL+"/"+id, "1"))
		as[*client.UnknownError](t, err)
	}
	ops, err = j.Operations(t.Context())
	must(t, err)
	if len(ops) != 3 {
		t.Errorf("the journal has %+v", ops)
	}

	op.Abandoned, op.Ended = "anna: it is in the dashboard", time.Now()
	must(t, j.End(t.Context(), op))
	if _, err = c.Do("lost", post(t, server.URL+"/lost", "1")); !errors.Is(err, client.ErrAbandoned) || !strings.Contains(err.Error(), "in the dashboard") {
		t.Errorf("%v", err)
	}
	must(t, j.Forget(t.Context(), "lost"))
	if response, err := c.Do("lost", post(t, server.URL+"/", "1")); err != nil || response.StatusCode != 200 {
		t.Errorf("%v, %v", response, err)
	}
}

// No credentials are in the journal, and each attempt has fresh ones.
func TestCredentialsAreNotInTheJournal(t *testing.T) {
	t.Parallel()
	file := t.TempDir() + "/journal"
	j := openJournal(t, file)
	var got atomic.Pointer[http.Header]
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { h := r.Header.Clone(); got.Store(&h) }))
	t.Cleanup(server.Close)
	c := newClient(t, client.Options{Journal: j, Private: []string{"x-tenant-number"}})
	r := post(t, strings.Replace(server.URL, "http://", "http://anna:hunter2@", 1), "1")
	for name, value := range map[string]string{"Cookie": "hunter2", "X-Api-Key": "hunter2", "X-Auth-Token": "hunter2", "X-Tenant-Number": "hunter2", "X-Shop": "shop-7"} {
		r.Header.Set(name, value)
	}
	_, err := c.Do("1", r)
	must(t, err)
	sent := *got.Load()
	user, password, _ := (&http.Request{Header: sent}).BasicAuth()
	if user != "anna" || password != "hunter2" || sent.Get("X-Api-Key") != "hunter2" || sent.Get("X-Shop") != "shop-7" {
		t.Errorf("sent %v", sent)
	}
	text, err := os.ReadFile(file)
	must(t, err)
	if strings.Contains(string(text), "hunter2") || strings.Contains(string(text), "anna") || !strings.Contains(string(text), "shop-7") {
		t.Errorf("the journal has %s", text)
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
}

// An operation that was begun longer ago than keys are remembered is not sent again.
func TestResumeSendsNothingThatIsTooOld(t *testing.T) {
	t.Parallel()
	j := openJournal(t, t.TempDir()+"/journal")
	var sent atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { sent.Add(1) }))
	t.Cleanup(server.Close)
	old := client.Operation{
		ID: "old", Key: "k-old", Method: http.MethodPost, URL: server.URL, Header: http.Header{"Idempotency-Key": {"k-old"}}, Profile: client.IETF,
		Begun: time.Now().Add(-21 * time.Hour),
	}
	hour := old // an API that has once said that it keeps keys for an hour
	hour.ID, hour.Key, hour.Begun = "hour", "k-hour", time.Now().Add(-2*time.Hour)
	ignored := old
	ignored.ID, ignored.Key, ignored.Begun, ignored.Profile = "ignored", "k-ignored", time.Now(), client.KeysIgnored
	newer := old
	newer.ID, newer.Key, newer.Profile = "newer", "k-newer", "a later one"
	expired := old // young enough, but its key is forgotten
	expired.ID, expired.Key, expired.Begun, expired.Expires = "expired", "k-expired", time.Now().Add(-time.Hour), time.Now().Add(-time.Minute)
	for _, op := range []client.Operation{old, ignored, newer, expired} {
		_, found, err := j.Begin(t.Context(), op)
		must(t, err)
		if found {
			t.Fatal("it is there before it begins")
		}
	}
	resumed := map[string]error{}
	resume := func() {
		must(t, newClient(t, client.Options{Journal: j}).Resume(t.Context(), func(op client.Operation, _ *http.Response, err error) { resumed[op.ID] = err }))
	}
	resume()
	if e := as[*client.UnknownError](t, resumed["old"]); !e.TooOld || e.Operation != "old" {
		t.Errorf("%+v", e)
	}
	if e := as[*client.UnknownError](t, resumed["expired"]); !e.TooOld {
		t.Errorf("%+v", e)
	}
	if e := as[*client.UnknownError](t, resumed["ignored"]); e.TooOld {
		t.Errorf("%+v", e)
	}
	if err := resumed["newer"]; err == nil || !strings.Contains(err.Error(), "newer version") {
		t.Errorf("%v", err)
	}
	_, _, err := j.Begin(t.Context(), hour)
	must(t, err)
	answered := hour
	answered.ID, answered.Key = "answered", "k-answered"
	_, _, err = j.Begin(t.Context(), answered)
	must(t, err)
	answered.Answer, answered.Ended, answered.Expires = &client.Answer{Status: 201}, time.Now().Add(-2*time.Hour), time.Now().Add(-time.Hour)
	must(t, j.End(t.Context(), answered))
	resume()
	if e := as[*client.UnknownError](t, resumed["hour"]); !e.TooOld || sent.Load() != 0 {
		t.Errorf("%+v, %d requests were sent", e, sent.Load())
	}
}

// failing is a journal of which one step fails.
type failing struct {
	client.Journal
	begin, release, end error
}

func (f *failing) Begin(ctx context.Context, op client.Operation) (client.Operation, bool, error) {
	if f.begin != nil {
		return op, false, f.begin
	}
	return f.Journal.Begin(ctx, op)
}

func (f *failing) Release(ctx context.Context, op client.Operation) (bool, error) {
	if f.release != nil {
		return false, f.release
	}
	return f.Journal.Release(ctx, op)
}

func (f *failing) End(ctx context.Context, op client.Operation) error {
	if f.end != nil {
		return f.end
	}
	return f.Journal.End(ctx, op)
}

// A journal that fails: before the request nothing is sent, behind it the caller gets the
// answer, and what cannot be removed is not said to be over.
func TestAJournalThatFails(t *testing.T) {
	t.Parallel()
	full := errors.New("the disk is full")
	a := newAPI(t, nil, keyed, nil)
	f := &failing{Journal: openJournal(t, t.TempDir()+"/journal"), begin: full}
	c := newClient(t, client.Options{Journal: f, MaxTries: 1})
	if _, err := c.Do("1", post(t, a.URL+"/payments", "1")); !errors.Is(err, full) || !strings.Contains(err.Error(), "nothing was sent") || len(a.arrived()) != 0 {
		t.Errorf("%v, and %d requests were sent", err, len(a.arrived()))
	}
	*f = failing{Journal: f.Journal, end: full}
	response, err := c.Do("1", post(t, a.URL+"/payments", "1"))
	paid(t, "1", response, err)
	f.end = nil
	response, err = c.Do("1", post(t, a.URL+"/payments", "1")) // it is unfinished there, and asked for again
	if paid(t, "1", response, err); a.effectsOf("1") != 1 || len(a.arrived()) != 2 {
		t.Errorf("%d effects, %d requests", a.effectsOf("1"), len(a.arrived()))
	}
	f.release = full
	port := porthold.New(t)
	_, err = c.Do("2", post(t, fmt.Sprintf("http://%s/", port.Addr()), "2"))
	if e := as[*client.ExhaustedError](t, err); !e.MayHaveHappened || !errors.Is(err, full) {
		t.Errorf("%+v: it is still in the journal", e)
	}
}

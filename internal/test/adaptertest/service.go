// Package adaptertest holds the adapters of web frameworks to what httpkey does on
// net/http: one suite, over the wire, for the same small service in each framework.
package adaptertest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/httpkey"
	"github.com/retrysafe/retrysafe/store/memstore"
)

// An Adapter is what the suite tests.
type Adapter struct {
	// Serve starts the service, built with the framework, and returns its address as
	// "http://127.0.0.1:1234". It ends with the test. The service has these routes, each
	// behind authentication and the guard:
	//
	//	POST /accounts/{id}/charges  sends what Service.Charge returns
	//	POST /accounts/{id}/refunds  the same
	//	POST /refused                fails with ErrRefused, as the framework wants errors returned
	//	POST /broken                 fails with ErrBroken in the same way
	//	POST /panic                  calls Service.Panic
	//	POST /empty                  sets the status 204, and writes nothing
	//	POST /stream                 writes "one ", flushes, and writes "two"
	//	POST /hijack                 takes the connection; if it gets an error, sends its text
	//	POST /commit                 sends 201 "committed"; stores that in Service.InTx by httpkey.CompleteTx or the adapter's own
	//	GET  /accounts/{id}          sends 200 and the id
	//
	// Authentication is a middleware before the guard. It puts the header X-Tenant into the
	// framework's context, from where the adapter's scope function takes it, and sets the
	// response header Deprecation to the request header X-Outer.
	Serve func(t *testing.T, s *Service) (url string)
	// Pattern is the operation of the first route, by the framework's own pattern.
	Pattern string
	// PlainErrors says that a handler writes its errors itself, as on net/http: it does not
	// return them.
	PlainErrors bool
	// Streams says that the framework gives its answer as a stream, which cannot be held:
	// then /stream and /hijack fail, and the log says why.
	Streams bool
}

// Errors of the service. A framework's test maps ErrRefused to 402 with its text.
var (
	ErrRefused  = errors.New("no funds")
	ErrBroken   = errors.New("a bug")
	ErrNoCaller = errors.New("nothing identifies the caller")
)

// A Service is one configuration of the service, and what became of it.
type Service struct {
	Engine  *retrysafe.Engine
	Options *httpkey.Options
	// Everywhere places the guard before all routes of the framework, also before those
	// that it does not have, instead of on each route.
	Everywhere bool

	t     testing.TB
	mem   *memstore.Store
	log   journal
	runs  atomic.Int32
	held  chan struct{} // if set, runs wait until it is closed
	begun chan struct{} // gets a value for each run

	committed atomic.Int32 // effects of transactions
}

// An Answer is what a handler sends.
type Answer struct {
	Status int
	Header http.Header
	Body   []byte
}

// newService returns a service whose configuration change may alter.
func newService(t testing.TB, policy retrysafe.Policy, change func(*Service)) *Service {
	t.Helper()
	s := &Service{t: t, mem: memstore.New(nil), Options: new(httpkey.Options), begun: make(chan struct{}, 1000)}
	s.Options.Logger = slog.New(slog.NewTextHandler(&s.log, nil))
	// A busy machine is slow, and no test here is about that.
	engine, err := retrysafe.New(s.mem, &retrysafe.Options{Policy: policy, StoreTimeout: time.Minute, SettleTimeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	s.Engine = engine
	if change != nil {
		change(s)
	}
	return s
}

// Tenant is the scope function of the service: tenant is what authentication has put into
// the framework's context.
func Tenant(tenant string) (string, error) {
	switch tenant {
	case "":
		return "acme", nil
	case "anonymous":
		return "", ErrNoCaller
	default:
		return tenant, nil
	}
}

// Charge is the effect: each call counts. The answer shows which call it was, and what the
// handler has read of the request.
func (s *Service) Charge(ctx context.Context, account string, body []byte) *Answer {
	run := s.run(ctx)
	if s.held != nil {
		<-s.held
	}
	a := &Answer{Status: http.StatusCreated, Header: http.Header{
		"Content-Type": {"application/vnd.charge+json"},
		"Location":     {fmt.Sprintf("/charges/%d", run)},
		"Etag":         {fmt.Sprintf(`"%d"`, run)},
		"Link":         {"</a>; rel=a", "</b>; rel=b"},
		"X-Run":        {fmt.Sprint(run)},
	}}
	a.Body = fmt.Appendf(nil, "{\"run\":%d,\"account\":%q,\"body\":%q}\n\x00\xff", run, account, body)
	a.Body = append(a.Body, bytes.Repeat([]byte("."), 3000)...)
	return a
}

// Ran counts a run of any other route.
func (s *Service) Ran(ctx context.Context) { s.run(ctx) }

// Panic counts a run and panics.
func (s *Service) Panic(ctx context.Context) {
	s.run(ctx)
	panic(ErrBroken) //nolint:forbidigo // what a handler under test does
}

// run counts a run. In a guarded handler the execution is in the framework's context, or
// the transaction.
func (s *Service) run(ctx context.Context) int {
	if s.Options.Tx != nil {
		if tx, err := httpkey.Tx[*memstore.Tx](ctx); err != nil {
			s.t.Errorf("the framework's context: %v", err)
		} else {
			tx.OnCommit(func() { s.committed.Add(1) })
		}
	}
	_, guarded := retrysafe.FromContext(ctx)
	if want := !s.Options.Optional && !s.Options.Observe && s.Options.Tx == nil; guarded != want {
		s.t.Errorf("the handler's context has an execution: %v, want %v", guarded, want)
	}
	n := int(s.runs.Add(1))
	s.begun <- struct{}{}
	return n
}

// records returns all that is stored.
func (s *Service) records(t testing.TB) []retrysafe.Record {
	t.Helper()
	all, err := s.mem.List(context.WithoutCancel(t.Context()), retrysafe.Query{Limit: retrysafe.MaxList})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// ranTimes fails unless the handlers ran as often.
func (s *Service) ranTimes(t testing.TB, want int) {
	t.Helper()
	if got := int(s.runs.Load()); got != want {
		t.Fatalf("the handlers ran %d times, want %d", got, want)
	}
}

// untouched fails if a handler ran or anything is stored.
func (s *Service) untouched(t testing.TB) {
	t.Helper()
	s.ranTimes(t, 0)
	if all := s.records(t); len(all) != 0 {
		t.Fatalf("%d records are stored, want none: %+v", len(all), all)
	}
}

// InTx counts an effect in a transaction of the store, in which complete stores the
// answer.
func (s *Service) InTx(ctx context.Context, complete func(retrysafe.Tx) error) error {
	s.run(ctx)
	tx, err := s.mem.Begin(ctx)
	if err != nil {
		return err
	}
	tx.OnCommit(func() { s.committed.Add(1) })
	if err := complete(tx); err != nil {
		return err
	}
	return tx.Commit(ctx)
}

// journal is where the guard logs.
type journal struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (j *journal) Write(p []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.Write(p)
}

func (j *journal) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.String()
}

package janitor_test

import (
	"bytes"
	"errors"
	"log/slog"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/test/faultstore"
	"github.com/retrysafe/retrysafe/internal/test/leftover"
	"github.com/retrysafe/retrysafe/internal/test/testservers"
	"github.com/retrysafe/retrysafe/janitor"
	"github.com/retrysafe/retrysafe/store/memstore"
	"github.com/retrysafe/retrysafe/store/pgstore"
	"github.com/retrysafe/retrysafe/store/sqlitestore"
)

func TestMain(m *testing.M) {
	testservers.Main(m)
	leftover.None()
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

var (
	quiet = slog.New(slog.DiscardHandler)
	ref   = retrysafe.Ref{Scope: "tenant", Key: "key"}
)

func call() retrysafe.Call { return retrysafe.Call{Ref: ref, Operation: "POST /payments"} }

func answer(body string) retrysafe.Result { return retrysafe.Result{Status: 201, Body: []byte(body)} }

// world is two nodes over one store, and what was told of them. The steps of the
// one that may turn into a zombie can be made to fail.
type world struct {
	*retrysafe.Engine
	zombie *retrysafe.Engine
	mem    *memstore.Store
	fault  *faultstore.Store

	mu     sync.Mutex
	events []retrysafe.Event
}

func (w *world) Observe(e retrysafe.Event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.events = append(w.events, e)
}

// saw returns how many events there were of this kind.
func (w *world) saw(kind retrysafe.EventKind) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := 0
	for _, e := range w.events {
		if e.Kind == kind {
			n++
		}
	}
	return n
}

func newWorld(t *testing.T, p retrysafe.Policy) *world {
	t.Helper()
	w := &world{mem: memstore.New(nil)}
	w.fault = faultstore.New(w.mem)
	var err error
	w.Engine, err = retrysafe.New(w.mem, &retrysafe.Options{Policy: p, Observer: w})
	must(t, err)
	w.zombie, err = retrysafe.New(w.fault, &retrysafe.Options{Policy: p, Observer: w})
	must(t, err)
	return w
}

// opts are options of any duty in this world.
func (w *world) opts() janitor.Options { return janitor.Options{Logger: quiet, Observer: w} }

func (w *world) sweeper() *janitor.Sweeper {
	o := w.opts()
	return janitor.NewSweeper(w.fault, &o)
}

func (w *world) reconciler(r janitor.Resolver, o janitor.ReconcilerOptions) *janitor.Reconciler {
	if o.Logger == nil {
		o.Logger = quiet
	}
	o.Observer = w
	return janitor.NewReconciler(w.mem, r, &o)
}

// begins begins an attempt, which must run.
func (w *world) begins(t *testing.T) *retrysafe.Execution {
	t.Helper()
	x, out, err := w.Begin(t.Context(), call())
	if x == nil {
		t.Fatalf("Begin = %+v, %v; want an execution", out, err)
	}
	return x
}

// refused begins an attempt, which must be refused.
func (w *world) refused(t *testing.T, why error) {
	t.Helper()
	if x, out, err := w.Begin(t.Context(), call()); !errors.Is(err, why) {
		t.Errorf("Begin = %v, %+v, %v; want %v", x, out, err, why)
	}
}

// replays begins an attempt, which must get this answer.
func (w *world) replays(t *testing.T, status int, body string) {
	t.Helper()
	_, out, err := w.Begin(t.Context(), call())
	if out == nil || out.Status != status || body != "" && string(out.Body) != body {
		t.Errorf("Begin = %+v, %v; want the answer %d %s", out, err, status, body)
	}
}

func (w *world) record(t *testing.T) retrysafe.Record {
	t.Helper()
	r, err := w.mem.Load(t.Context(), ref)
	must(t, err)
	return r
}

// is checks the state of the record.
func (w *world) is(t *testing.T, want retrysafe.State) {
	t.Helper()
	if r := w.record(t); r.State != want {
		t.Errorf("it is %s (%s), want %s", r.State, r.Reason, want)
	}
}

// falls begins an attempt on a node that is stopped in the midst of it, as by
// SIGSTOP, until wake is called. Its lease runs out, and it is swept. In a bubble of
// synctest only.
func (w *world) falls(t *testing.T) (x *retrysafe.Execution, wake func()) {
	t.Helper()
	x, out, err := w.zombie.Begin(t.Context(), call())
	if x == nil {
		t.Fatalf("Begin = %+v, %v; want an execution", out, err)
	}
	w.fault.Plan(failAll)
	time.Sleep(w.Policy().Lease + time.Second)
	o := w.opts()
	once(t, janitor.NewSweeper(w.mem, &o), 1)
	return x, func() { w.fault.Plan(nil) }
}

// record returns the record of an attempt under a key. With no term it is due.
func record(key string, state retrysafe.State, term time.Duration) retrysafe.Write {
	r := retrysafe.Write{Term: term, Record: retrysafe.Record{
		Ref: retrysafe.Ref{Scope: "tenant", Key: key}, Operation: "POST /payments",
		State: state, Version: retrysafe.RecordVersion, Owner: retrysafe.Owner{1}, Attempt: 1,
		Effects: retrysafe.EffectsUnprotected, Lapse: retrysafe.LapseQuarantine, Retain: 24 * time.Hour,
	}}
	if state == retrysafe.StateCompleted {
		a := answer("answer of " + key)
		r.Result = &a
	}
	return r
}

func put(t *testing.T, s retrysafe.Store, r retrysafe.Write) retrysafe.Record {
	t.Helper()
	got, err := s.Create(t.Context(), r)
	must(t, err)
	return got
}

func load(t *testing.T, s retrysafe.Store, key string) retrysafe.Record {
	t.Helper()
	r, err := s.Load(t.Context(), retrysafe.Ref{Scope: "tenant", Key: key})
	must(t, err)
	return r
}

// once does a duty once, which must not fail.
func once(t *testing.T, d janitor.Duty, want int) {
	t.Helper()
	if n, err := d.RunOnce(t.Context()); err != nil || n != want {
		t.Errorf("the %s changed %d records, %v; want %d", d.Schedule().Name, n, err, want)
	}
}

// eachStore runs a test over every store there is.
func eachStore(t *testing.T, test func(t *testing.T, s retrysafe.Store)) {
	t.Helper()
	for name, open := range map[string]func(t *testing.T) retrysafe.Store{
		"memory": func(*testing.T) retrysafe.Store { return memstore.New(nil) },
		"sqlite": func(t *testing.T) retrysafe.Store {
			s, err := sqlitestore.Open(t.Context(), filepath.Join(t.TempDir(), "keys.db"), nil)
			must(t, err)
			t.Cleanup(func() { _ = s.Close() })
			return s
		},
		"postgresql": func(t *testing.T) retrysafe.Store {
			s, err := pgstore.Open(t.Context(), testservers.Shared(t), nil)
			must(t, err)
			t.Cleanup(func() { _ = s.Close() })
			return s
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, open(t))
		})
	}
}

// logs is where a logger writes that many use at once.
type logs struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *logs) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(b)
}

func (l *logs) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

func (l *logs) logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }

var failAll = faultstore.FailAll(faultstore.LoseRequest)

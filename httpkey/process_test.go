package httpkey_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/httpkey"
	"github.com/retrysafe/retrysafe/internal/test/standstill"
	"github.com/retrysafe/retrysafe/store/sqlitestore"
)

// Processes that accept and run requests over one file, and die or fall silent.
// A child is this very binary again, told what to do by its environment.
const (
	childFile = "RETRYSAFE_HTTPKEY_FILE"
	childMode = "RETRYSAFE_HTTPKEY_MODE"
)

// silence is how long an owner may be silent in these tests.
const silence = time.Second

var processPolicies = map[string]retrysafe.Policy{
	"keyed":       {Effects: retrysafe.EffectsKeyed, Lapse: retrysafe.LapseRerun, Lease: silence},
	"unprotected": {Lease: silence},
}

// gate holds back the swaps of a store while a test has locked it.
type gate struct {
	*sqlitestore.Store
	mu sync.RWMutex
}

func (g *gate) Swap(ctx context.Context, w retrysafe.Write) (retrysafe.Record, error) {
	g.mu.RLock()
	defer g.mu.RUnlock()
	return g.Store.Swap(ctx, w)
}

// place is a process's view of the file: its own store, guard and worker.
type place struct {
	*bundle
	store *gate
}

// openPlace opens the file as a process would. Its handler makes its effect in the
// file's own table, by its downstream key where that is honoured, then calls
// pause, then answers with its name.
func openPlace(ctx context.Context, file, mode, name string, pause func(*gate)) (*place, error) {
	s, err := sqlitestore.Open(ctx, file, nil)
	if err != nil {
		return nil, err
	}
	if _, err := s.DB().ExecContext(ctx, `CREATE TABLE IF NOT EXISTS effects (by TEXT UNIQUE)`); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	p := &place{store: &gate{Store: s}, bundle: new(bundle)}
	policy := processPolicies[mode]
	e, err := retrysafe.New(p.store, &retrysafe.Options{Policy: policy, StoreTimeout: time.Minute, SettleTimeout: time.Minute})
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	p.guard, err = httpkey.New(e, tenant, &httpkey.Options{Async: true, Logger: discard})
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	p.Handler = p.guard.Handler(p.counted(func(w http.ResponseWriter, r *http.Request) {
		x, _ := retrysafe.FromContext(r.Context())
		by := x.DownstreamKey("charge")
		if policy.Effects == retrysafe.EffectsUnprotected {
			by = x.Record().Owner.String()
		}
		_, err := s.DB().ExecContext(context.WithoutCancel(r.Context()), `INSERT INTO effects (by) VALUES (?) ON CONFLICT DO NOTHING`, by)
		if err != nil {
			panic(err)
		}
		pause(p.store)
		w.WriteHeader(http.StatusCreated)
		fmt.Fprint(w, "paid by the "+name)
	}))
	return p, nil
}

// runChild is all that a child does: it runs what waits, and falls silent, or dies,
// between the effect and the answer.
func runChild(file, mode string) int {
	mode, dies := mode, false
	if mode == "dies" {
		mode, dies = "keyed", true
	}
	ctx := context.Background()
	p, err := openPlace(ctx, file, mode, "child", func(g *gate) {
		g.mu.Lock() // no step is under way that would hold the file's lock
		defer g.mu.Unlock()
		if dies {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {}
		}
		fmt.Println("paid")
		_, _ = fmt.Scanln() // its parent stops it here
	})
	if err != nil {
		fmt.Println(err)
		return 3
	}
	w, err := httpkey.NewWorker(p.guard, map[string]http.Handler{payments: p.Handler}, &httpkey.WorkerOptions{Rest: time.Nanosecond})
	if err != nil {
		fmt.Println(err)
		return 3
	}
	n, err := w.RunOnce(ctx)
	fmt.Println("ran", n, err)
	return 0
}

// here opens the file in this process.
func here(t *testing.T, file, mode string) *place {
	t.Helper()
	p, err := openPlace(t.Context(), file, mode, "parent", func(*gate) {})
	must(t, err)
	t.Cleanup(func() { must(t, p.store.Close()) })
	return p
}

// child is a process of its own over the file.
type child struct {
	*exec.Cmd
	in  io.Writer
	out *bufio.Reader
}

func start(t *testing.T, file, mode string) *child {
	t.Helper()
	self, err := os.Executable()
	must(t, err)
	c := &child{Cmd: exec.CommandContext(t.Context(), self)}
	c.Env = append(os.Environ(), childFile+"="+file, childMode+"="+mode)
	c.Stderr = t.Output()
	c.in, err = c.StdinPipe()
	must(t, err)
	out, err := c.StdoutPipe()
	must(t, err)
	c.out = bufio.NewReader(out)
	must(t, c.Start())
	return c
}

// says fails unless that is the child's next line.
func (c *child) says(t *testing.T, want string) {
	t.Helper()
	if line, err := c.out.ReadString('\n'); line != want+"\n" {
		t.Fatalf("the child says %q, %v, want %q", line, err, want)
	}
}

// stop makes the child fall silent between its effect and its answer.
func (c *child) stop(t *testing.T) {
	t.Helper()
	c.says(t, "paid")
	must(t, standstill.Begin(c.Process))
}

// goOn lets it go on, and waits until it has come to its end.
func (c *child) goOn(t *testing.T) {
	t.Helper()
	must(t, standstill.End(c.Process))
	_, err := io.WriteString(c.in, "go on\n")
	must(t, err)
	c.says(t, "ran 1 <nil>")
	must(t, c.Wait())
}

// record returns the record of the key that most tests use.
func (p *place) record(t *testing.T) retrysafe.Record {
	t.Helper()
	r, err := p.store.Load(t.Context(), retrysafe.Ref{Scope: "acme", Key: key})
	must(t, err)
	return r
}

// sweep waits until the record's owner has been silent for too long, and does what
// a sweeper does about that. A retry that came so late has done it already.
func (p *place) sweep(t *testing.T) {
	t.Helper()
	for {
		r := p.record(t)
		if next, ok := retrysafe.DecideLapse(r); ok {
			_, err := p.store.Swap(t.Context(), next)
			must(t, err)
			return
		}
		switch r.State {
		case retrysafe.StateInProgress:
		case retrysafe.StateAccepted:
			return
		default:
			t.Fatalf("the record is %s", r.State)
		}
		time.Sleep(10 * time.Millisecond) // a lease of a real store's clock
	}
}

func (p *place) effects(t *testing.T, want int) {
	t.Helper()
	var n int
	must(t, p.store.DB().QueryRowContext(t.Context(), `SELECT count(*) FROM effects`).Scan(&n))
	if n != want {
		t.Fatalf("%d effects, want %d", n, want)
	}
}

func TestAcceptedRequestOutlivesTheProcess(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "keys.db")
	before, err := openPlace(t.Context(), file, "keyed", "parent", func(*gate) {})
	must(t, err)
	before.post(t, key, `{"a":1}`).accepted(t)
	must(t, before.store.Close())

	died := start(t, file, "dies") // it takes the request up, and is killed
	var killed *exec.ExitError
	if err := died.Wait(); !errors.As(err, &killed) {
		t.Fatalf("the child ended with %v", err)
	}
	after := here(t, file, "keyed")
	after.effects(t, 1)
	after.post(t, key, `{"a":1}`).accepted(t)
	after.sweep(t)
	after.post(t, key, `{"a":2}`).refused(t, 422, "key-reused")
	after.work(t, 1)
	if got := after.post(t, key, `{"a":1}`); got.status != 201 || got.body != "paid by the parent" {
		t.Errorf("got %d %s", got.status, got.body)
	}
	if r := after.record(t); r.Attempt != 2 {
		t.Errorf("attempt %d, want 2", r.Attempt)
	}
	after.effects(t, 1)
}

// A worker that falls silent beyond its lease and goes on: another one has run the
// request meanwhile, and its answer stands. The provider has heard of one charge.
func TestZombieWorkerOfAKeyedRequestIsRefused(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "keys.db")
	p := here(t, file, "keyed")
	p.post(t, key, `{}`).accepted(t)
	zombie := start(t, file, "keyed")
	zombie.stop(t)
	p.effects(t, 1)
	p.post(t, key, `{}`).accepted(t)
	p.sweep(t)
	if got := p.record(t).State; got != retrysafe.StateAccepted {
		t.Errorf("the swept record is %s", got)
	}
	p.work(t, 1)
	first := p.post(t, key, `{}`)
	settled := p.record(t)

	zombie.goOn(t)
	if got := p.record(t); got.Revision != settled.Revision || got.State != retrysafe.StateCompleted {
		t.Errorf("the zombie has moved the record to %s", got.State)
	}
	if first.body != "paid by the parent" {
		t.Errorf("got %d %s", first.status, first.body)
	}
	p.post(t, key, `{}`).same(t, first)
	p.effects(t, 1)
}

// The same, before another worker has claimed the request: the zombie is refused, and
// the request runs again under the same downstream key.
func TestZombieWorkerOfASweptRequestIsRefused(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "keys.db")
	p := here(t, file, "keyed")
	p.post(t, key, `{}`).accepted(t)
	zombie := start(t, file, "keyed")
	zombie.stop(t)
	p.sweep(t)
	zombie.goOn(t)
	p.post(t, key, `{}`).accepted(t)
	p.work(t, 1)
	if got := p.post(t, key, `{}`); got.body != "paid by the parent" {
		t.Errorf("got %d %s", got.status, got.body)
	}
	p.effects(t, 1)
}

// No worker runs an unprotected request again: the zombie's answer is the only one,
// and it may still store it.
func TestZombieWorkerOfAnUnprotectedRequestAnswersLate(t *testing.T) {
	t.Parallel()
	for name, giveUp := range map[string]func(*testing.T, *place){
		"swept": func(t *testing.T, p *place) { p.sweep(t) },
		"given up by a retry": func(t *testing.T, p *place) {
			for p.post(t, key, `{}`).status == http.StatusAccepted {
				time.Sleep(10 * time.Millisecond) // a lease of a real store's clock
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			file := filepath.Join(t.TempDir(), "keys.db")
			p := here(t, file, "unprotected")
			p.post(t, key, `{}`).accepted(t)
			zombie := start(t, file, "unprotected")
			zombie.stop(t)
			giveUp(t, p)
			for range 3 {
				p.post(t, key, `{}`).refused(t, 409, "outcome-unknown")
				p.work(t, 0)
			}
			p.effects(t, 1)
			zombie.goOn(t)
			got := p.post(t, key, `{}`)
			if got.status != 201 || got.body != "paid by the child" {
				t.Errorf("got %d %s", got.status, got.body)
			}
			p.post(t, key, `{}`).same(t, got)
			p.effects(t, 1)
			p.ranTimes(t, 0)
		})
	}
}

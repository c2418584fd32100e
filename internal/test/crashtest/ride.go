package crashtest

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/retrysafe/retrysafe"
)

// A Garage is one database in which rides are booked, in three steps: the ride, in
// a transaction; its charge, at a provider; its receipt, in a transaction.
type Garage[X any] struct {
	Store retrysafe.TxStore[X]
	// DB is the store's own database.
	DB *sql.DB
	// Exec runs a statement in a transaction.
	Exec func(ctx context.Context, tx X, statement string) error
	// Close ends all of it.
	Close func() error
}

// OpenGarage opens the garage that where names. It makes no tables but the store's.
type OpenGarage[X any] func(ctx context.Context, where string) (*Garage[X], error)

// What the child that books a ride is told, by its environment.
const (
	envRideWhere    = "RETRYSAFE_RIDE_WHERE"
	envRideKey      = "RETRYSAFE_RIDE_KEY"
	envRideMode     = "RETRYSAFE_RIDE_MODE"
	envRidePoint    = "RETRYSAFE_RIDE_POINT"
	envRideProvider = "RETRYSAFE_RIDE_PROVIDER"
	envRideDeath    = "RETRYSAFE_RIDE_DEATH"
)

// How a child dies around its charge.
const (
	deathInCall     = "in the call"     // the provider has booked, and kills it
	deathAfterReply = "after the reply" // it knows, and has told nobody
)

// acknowledged begins the line in which a child says what its client has seen.
const acknowledged = "acknowledged "

// A ride is one program that books rides.
type ride[X any] struct {
	*Garage[X]
	fuse     Fuse
	provider string
	death    string
}

var rideModes = map[string]retrysafe.Policy{
	"keyed":       {Effects: retrysafe.EffectsKeyed, Lapse: retrysafe.LapseResume},
	"unprotected": {},
}

func (r *ride[X]) engine(mode string) (*retrysafe.Engine, error) {
	policy := rideModes[mode]
	policy.Lease, policy.Reconcile = Lease, time.Second
	return retrysafe.New(mined{r.Store, &r.fuse}, &retrysafe.Options{Policy: policy, StoreTimeout: patience, SettleTimeout: patience})
}

// book is the operation.
func (r *ride[X]) book(ctx context.Context, e *retrysafe.Engine, key string) (retrysafe.Outcome, error) {
	call := retrysafe.Call{Ref: retrysafe.Ref{Scope: "tenant", Key: key}, Operation: "ride"}
	return e.Do(ctx, call, func(ctx context.Context, _ *retrysafe.Execution) (res retrysafe.Result, err error) {
		id, err := r.insert(ctx, "ride", "rides", key)
		if err != nil {
			return res, err
		}
		// No two attempts would send the same.
		request := fmt.Sprintf("%s, process %d at %s", id, os.Getpid(), time.Now())
		charge, err := retrysafe.Effect(ctx, "charge", []byte(request), r.charge)
		if err != nil {
			return res, err
		}
		receipt, err := r.insert(ctx, "receipt", "receipts", key)
		if err != nil {
			return res, err
		}
		return retrysafe.Result{Status: 201, Body: []byte(id + " " + charge + " " + receipt)}, nil
	})
}

// insert is a phase that adds a row.
func (r *ride[X]) insert(ctx context.Context, phase, table, key string) (string, error) {
	return retrysafe.PhaseTx(ctx, minedTxStore[X]{r.Store, &r.fuse}, phase, func(ctx context.Context, tx X) (string, error) {
		r.fuse.Pass()
		err := r.Exec(ctx, tx, `INSERT INTO `+table+` (key) VALUES ('`+key+`')`)
		r.fuse.Pass()
		return phase + "_" + strconv.Itoa(os.Getpid()), err
	})
}

// charge calls the provider.
func (r *ride[X]) charge(ctx context.Context, a retrysafe.Attempt) (string, error) {
	r.fuse.Pass()
	post, err := http.NewRequestWithContext(ctx, http.MethodPost, r.provider, bytes.NewReader(a.Request))
	if err != nil {
		return "", err
	}
	post.Close = true // a connection that is used once is not used for a second call behind our back
	post.Header.Set("Idempotency-Key", a.Key)
	if r.death == deathInCall {
		post.Header.Set("Kill", strconv.Itoa(os.Getpid()))
	}
	res, err := http.DefaultClient.Do(post)
	if err != nil {
		return "", err
	}
	defer res.Body.Close()
	id, err := io.ReadAll(res.Body)
	if r.death == deathAfterReply {
		die()
	}
	r.fuse.Pass()
	a.Provider(string(id))
	return string(id), err
}

// provider is a payment provider that honours keys.
type provider struct {
	*httptest.Server
	mu      sync.Mutex
	charges map[string]*charge // by their keys
}

type charge struct {
	id, request string
	calls       int
}

func newProvider(t *testing.T) *provider {
	t.Helper()
	p := &provider{charges: map[string]*charge{}}
	p.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Errorf("the provider was sent half a request: %v", err)
		}
		id := p.book(t, r.Header.Get("Idempotency-Key"), string(body))
		if pid, err := strconv.Atoi(r.Header.Get("Kill")); err == nil {
			_ = syscall.Kill(pid, syscall.SIGKILL)
			<-r.Context().Done() // it hears no reply
			return
		}
		_, _ = io.WriteString(w, id)
	}))
	t.Cleanup(p.Close)
	return p
}

func (p *provider) book(t *testing.T, key, request string) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	c := p.charges[key]
	if c == nil {
		c = &charge{id: fmt.Sprintf("ch_%d", len(p.charges)+1), request: request}
		p.charges[key] = c
	}
	if c.calls++; c.request != request {
		t.Errorf("one key, two requests: %q and %q", c.request, request)
	}
	return c.id
}

// of returns how often the provider was called for a ride.
func (p *provider) of(key string) (calls int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if c := p.charges[retrysafe.DownstreamKey("", retrysafe.Ref{Scope: "tenant", Key: key}, "charge")]; c != nil {
		return c.calls
	}
	return 0
}

// isRide runs the child, if this process is one, and reports that.
func isRide[X any](t *testing.T, open OpenGarage[X]) bool {
	t.Helper()
	where := os.Getenv(envRideWhere)
	if where == "" {
		return false
	}
	g, err := open(t.Context(), where)
	must(t, err)
	r := &ride[X]{Garage: g, provider: os.Getenv(envRideProvider), death: os.Getenv(envRideDeath)}
	r.fuse.left, _ = strconv.Atoi(os.Getenv(envRidePoint))
	e, err := r.engine(os.Getenv(envRideMode))
	must(t, err)
	out, err := r.book(t.Context(), e, os.Getenv(envRideKey))
	must(t, err)
	_, _ = os.Stdout.WriteString("\n" + acknowledged + string(out.Body) + "\n") // what a client has seen
	r.fuse.Pass()
	must(t, g.Close())
	return true
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// depot is the parent's side: a garage, a provider, and children that die.
type depot[X any] struct {
	ride[X]
	t     *testing.T
	where string
	at    *provider
	mode  string
	e     *retrysafe.Engine
}

func newDepot[X any](t *testing.T, open OpenGarage[X], where, mode string) *depot[X] {
	t.Helper()
	g, err := open(t.Context(), where)
	must(t, err)
	t.Cleanup(func() {
		if err := g.Close(); err != nil {
			t.Error(err)
		}
	})
	for _, table := range []string{"rides", "receipts"} { // nothing but the transactions keeps a second row out
		_, err := g.DB.ExecContext(t.Context(), `CREATE TABLE IF NOT EXISTS `+table+` (key TEXT NOT NULL)`)
		must(t, err)
	}
	d := &depot[X]{t: t, where: where, at: newProvider(t), mode: mode}
	d.ride = ride[X]{Garage: g, provider: d.at.URL}
	d.e, err = d.engine(mode)
	must(t, err)
	return d
}

// kill lets a child book a ride, and returns what its client was shown before it
// died.
func (d *depot[X]) kill(key string, point int, death string) (shown string, killed bool) {
	test, _, _ := strings.Cut(d.t.Name(), "/")
	child := exec.CommandContext(d.t.Context(), os.Args[0], "-test.run=^"+test+"$")
	child.Env = append(os.Environ(), envRideWhere+"="+d.where, envRideKey+"="+key, envRideMode+"="+d.mode,
		envRidePoint+"="+strconv.Itoa(point), envRideProvider+"="+d.at.URL, envRideDeath+"="+death)
	printed, err := child.Output()
	var exit *exec.ExitError
	if killed = errors.As(err, &exit) && exit.Sys().(syscall.WaitStatus).Signaled(); !killed && err != nil {
		d.t.Errorf("%s: the child failed by itself: %v\n%s", key, err, printed)
	}
	if _, rest, ok := strings.Cut(string(printed), acknowledged); ok {
		shown, _, _ = strings.Cut(rest, "\n")
	}
	return shown, killed
}

// record returns the record of a ride and its steps, if there are any.
func (d *depot[X]) record(key string) (retrysafe.Record, []retrysafe.Step) {
	r, err := d.Store.Load(d.t.Context(), retrysafe.Ref{Scope: "tenant", Key: key})
	if err != nil && !errors.Is(err, retrysafe.ErrNotFound) {
		d.t.Error(err)
	}
	steps, err := r.Checkpoint.Steps()
	if err != nil {
		d.t.Error(err)
	}
	return r, steps
}

// settle retries until the ride is final, and returns its answer, or nil if nobody
// knows whether it happened.
func (d *depot[X]) settle(key string) *retrysafe.Outcome {
	for deadline := time.Now().Add(Lease + patience); ; time.Sleep(20 * time.Millisecond) {
		out, err := d.book(d.t.Context(), d.e, key)
		switch {
		case err == nil:
			return &out
		case errors.Is(err, retrysafe.ErrUnknown):
			return nil
		case time.Now().After(deadline):
			d.t.Errorf("%s is not final long after its lease: %v", key, err)
			return nil
		}
	}
}

// rows makes sure that a ride was booked once, and has one receipt.
func (d *depot[X]) rows(key string) {
	for _, table := range []string{"rides", "receipts"} {
		var n int
		if err := d.DB.QueryRowContext(d.t.Context(), `SELECT count(*) FROM `+table+` WHERE key = '`+key+`'`).Scan(&n); err != nil || n != 1 {
			d.t.Errorf("%s has %d rows in %s, want 1 (%v)", key, n, table, err)
		}
	}
}

// atOnce does n things, a few at a time, until one of them reports false.
func atOnce(do func(i int) bool) {
	var next atomic.Int64
	var stop atomic.Bool
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for !stop.Load() {
				if !do(int(next.Add(1))) {
					stop.Store(true)
				}
			}
		})
	}
	all.Wait()
}

// SweepRide kills a child that books a ride at every point, before and after each
// step of the store and inside of each phase. Each time the ride is finished by a
// retry, and what was finished before is not repeated.
func SweepRide[X any](t *testing.T, open OpenGarage[X], where func(t *testing.T) string) {
	t.Helper()
	if isRide(t, open) {
		return
	}
	d := newDepot(t, open, where(t), "keyed")
	var points atomic.Int64
	atOnce(func(point int) bool {
		key := fmt.Sprintf("point-%d", point)
		shown, killed := d.kill(key, point, "")
		_, steps := d.record(key)
		charged, calls := false, d.at.of(key)
		for i := range steps {
			charged = charged || steps[i].Name == "charge" && !steps[i].Open
		}
		final := d.settle(key)
		switch {
		case final == nil:
			t.Errorf("%s has no answer", key)
		case shown != "" && shown != string(final.Body):
			t.Errorf("%s: a client was shown %q, a retry gets %q", key, shown, final.Body)
		}
		d.rows(key)
		if after := d.at.of(key); after < 1 || charged && after != calls {
			t.Errorf("%s: the provider was called %d times, %d before the crash; the charge was stored: %v", key, after, calls, charged)
		}
		if killed {
			points.Add(1)
		}
		return killed
	})
	if points.Load() < 20 {
		t.Errorf("only %d points were passed; the sweep missed the steps", points.Load())
	}
	t.Logf("killed at %d points", points.Load())
}

// KillAroundTheCharge kills a child between an outside charge and its record, that
// often. Where the provider honours keys there is one charge, and every ride ends
// with its answer. Where nobody protects the charge there is no second call,
// however often the client retries.
func KillAroundTheCharge[X any](t *testing.T, open OpenGarage[X], where func(t *testing.T) string, rounds int) {
	t.Helper()
	if isRide(t, open) {
		return
	}
	deaths := []string{deathInCall, deathAfterReply}
	t.Run("keyed", func(t *testing.T) {
		t.Parallel()
		d := newDepot(t, open, where(t), "keyed")
		atOnce(func(round int) bool {
			if round > rounds {
				return false
			}
			key := fmt.Sprintf("round-%d", round)
			d.die(key, deaths[round%2])
			if final := d.settle(key); final == nil {
				t.Errorf("%s has no answer", key)
			}
			d.rows(key)
			if calls := d.at.of(key); calls != 2 {
				t.Errorf("%s: the provider was called %d times, want 2", key, calls)
			}
			return true
		})
		if len(d.at.charges) != rounds {
			t.Errorf("%d charges for %d rides", len(d.at.charges), rounds)
		}
	})
	t.Run("unprotected", func(t *testing.T) {
		t.Parallel()
		d := newDepot(t, open, where(t), "unprotected")
		for round, death := range deaths {
			key := fmt.Sprintf("unprotected-%d", round)
			d.die(key, death)
			for range 10 {
				if final := d.settle(key); final != nil {
					t.Errorf("%s was answered: %s", key, final.Body)
				}
			}
			if r, _ := d.record(key); r.State != retrysafe.StateUnknown || d.at.of(key) != 1 {
				t.Errorf("%s is %s, and the provider was called %d times", key, r.State, d.at.of(key))
			}
		}
	})
}

// die kills a child around its charge, and makes sure that its record says so.
func (d *depot[X]) die(key, death string) {
	if shown, killed := d.kill(key, 0, death); !killed || shown != "" {
		d.t.Errorf("%s: the child was not killed, and showed %q", key, shown)
	}
	if _, steps := d.record(key); len(steps) != 2 || !steps[1].Open || len(steps[1].Request) == 0 || d.at.of(key) != 1 {
		d.t.Errorf("%s: after the crash is stored %+v, and the provider was called %d times", key, steps, d.at.of(key))
	}
}

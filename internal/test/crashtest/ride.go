package crashtest

import (
	"bytes"
	"context"
	"database/sql"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/retrysafe/retrysafe"
)

// A Garage is one database in which rides are booked, in three steps: the ride, in a
// transaction; its charge, at a provider; its receipt, in a transaction.
type Garage[X any] struct {
	Store retrysafe.TxStore[X]
	// DB is the store's own database.
	DB *sql.DB
	// Exec runs a statement in a transaction.
	Exec func(ctx context.Context, tx X, statement string) error
	// Close closes the store and the database.
	Close func() error
}

// OpenGarage opens the garage at where. It creates no tables but the store's.
type OpenGarage[X any] func(ctx context.Context, where string) (*Garage[X], error)

// The environment variables of a child that books a ride.
const (
	envRideWhere    = "RETRYSAFE_RIDE_WHERE"
	envRideKey      = "RETRYSAFE_RIDE_KEY"
	envRideMode     = "RETRYSAFE_RIDE_MODE"
	envRidePoint    = "RETRYSAFE_RIDE_POINT"
	envRideProvider = "RETRYSAFE_RIDE_PROVIDER"
	envRideDeath    = "RETRYSAFE_RIDE_DEATH"
)

// When a child is killed around its charge.
const (
	deathInCall     = "in the call"     // the provider has charged, and kills the child
	deathAfterReply = "after the reply" // the child has the reply, and has not stored it
)

// acknowledged begins the line in which a child prints the answer that its client got.
const acknowledged = "acknowledged "

// A ride is the state of one process that books rides.
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
		// Each attempt makes another request; Effect must send the stored one.
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
		err := r.Exec(ctx, tx, `INSERT INTO `+table+` (ride) VALUES ('`+key+`')`)
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
	post.Close = true // without keep-alive the transport does not resend the request
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
			<-r.Context().Done() // the child gets no reply
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

// isRide runs the child, if this process is one, and reports whether it is.
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
	_, _ = os.Stdout.WriteString("\n" + acknowledged + string(out.Body) + "\n") // the answer that a client got
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

package linear

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/prove"
	"github.com/retrysafe/retrysafe/httpkey"
)

// tenants are several tenants over one store. Some use the engine in this process, some
// send requests over HTTP.
type tenants struct {
	r      *prove.Result
	store  retrysafe.Store
	engine *retrysafe.Engine
	web    http.Handler
	status http.Handler
	seed   uint64

	inProcess, overHTTP []*tenant
	callers             []*caller
	unanswered          atomic.Int64  // questions without an answer of the store
	round               atomic.Uint64 // of what is timed
}

func newTenants(s retrysafe.Store, seed uint64, r *prove.Result) (*tenants, error) {
	t := &tenants{r: r, store: s, seed: seed, inProcess: tenantsOf(asScopes), overHTTP: tenantsOf(asPrincipals)}
	var err error
	if t.engine, err = retrysafe.New(s, &retrysafe.Options{StoreTimeout: patience, SettleTimeout: patience}); err != nil {
		return nil, err
	}
	guard, err := httpkey.New(t.engine, principal, &httpkey.Options{
		ShortKeys: httpkey.StrictnessIgnore, PersonalData: httpkey.StrictnessIgnore, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return nil, err
	}
	t.web, t.status = guard.Handler(http.HandlerFunc(serve)), guard.Status(paymentOperation)
	return t, nil
}

// lanes is how many questions a tenant asks at once. Each lane has its own keys, so
// that it knows what it must get, and they are the same for every tenant.
const lanes = 8

// askAll lets all tenants ask so many questions in all.
func (t *tenants) askAll(ctx context.Context, questions int, step func(done, of int)) error {
	for _, who := range slices.Concat(t.inProcess, t.overHTTP) {
		if err := empty(ctx, t.store, who.name); err != nil {
			return err
		}
	}
	each := max(1, questions/(lanes*(len(t.inProcess)+len(t.overHTTP))))
	many := max(1, each/6) // of each key a tenant asks about six times
	program, visitor := keysOf(anyKeys, lanes*many), keysOf(textKeys, lanes*many)
	for lane := range lanes {
		for i := range t.inProcess {
			t.addCaller(t.inProcess[i], program, lane, (*caller).byEngine)
			t.addCaller(t.overHTTP[i], visitor, lane, (*caller).byHTTP)
		}
	}
	var all sync.WaitGroup
	var asked atomic.Int64
	for _, c := range t.callers {
		all.Go(func() {
			for range each {
				if ctx.Err() != nil {
					return
				}
				c.ask(ctx)
				if n := asked.Add(1); n%1000 == 0 {
					step(int(n), questions)
				}
			}
		})
	}
	all.Wait()
	t.r.Count("questions", int(asked.Load()))
	if mute := t.unanswered.Load(); mute > asked.Load()/100 {
		return fmt.Errorf("the store did not answer %d of %d questions", mute, asked.Load())
	}
	return ctx.Err()
}

// addCaller adds a caller: one lane of a tenant.
func (t *tenants) addCaller(who *tenant, keys []string, lane int, by transport) {
	c := &caller{tenants: t, tenant: who, transport: by, known: map[string]*keyState{}}
	for i := lane; i < len(keys); i += lanes {
		c.keys = append(c.keys, keys[i])
	}
	c.rand = rand.New(rand.NewPCG(t.seed, uint64(len(t.callers))))
	t.callers = append(t.callers, c)
}

// checkLists compares what the store lists of each scope with what the tenants know.
func (t *tenants) checkLists(ctx context.Context) error {
	known, doubt := map[*tenant]int{}, map[*tenant]bool{}
	for _, c := range t.callers {
		for _, f := range c.known {
			if f.is != fresh {
				known[c.tenant]++
			}
			doubt[c.tenant] = doubt[c.tenant] || f.is == lost
		}
	}
	for who, want := range known {
		n, err := t.countRecords(ctx, who)
		if err != nil {
			return err
		}
		if n != want && !doubt[who] {
			t.r.Violatef("S7", "", "the list of %q has %d records, and %d are its own", who.name, n, want)
		}
	}
	return nil
}

// countRecords looks at all records of a tenant, and returns how many there are.
func (t *tenants) countRecords(ctx context.Context, who *tenant) (n int, err error) {
	q := retrysafe.Query{Scope: who.name, Limit: 1000}
	for {
		page, err := t.store.List(ctx, q)
		if err != nil {
			return n, fmt.Errorf("list scope %q: %w", who.name, err)
		}
		for i := range page {
			rec := &page[i]
			n, q.After = n+1, rec.Ref
			if rec.Scope != who.name || rec.Result != nil && !strings.Contains(string(rec.Result.Body), who.token) {
				t.r.Violatef("S7", rec.Key, "the list of %q has a record of %q: %+v", who.name, rec.Scope, rec.Result)
			}
		}
		if len(page) < q.Size() {
			return n, nil
		}
	}
}

// leaked returns a tenant other than c whose token is in a text.
func (c *caller) leaked(text string) *tenant {
	for _, all := range [][]*tenant{c.inProcess, c.overHTTP} {
		for _, other := range all {
			if other != c.tenant && strings.Contains(text, other.token) {
				return other
			}
		}
	}
	return nil
}

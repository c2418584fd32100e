package misusetest

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"testing"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/httpkey"
)

// RandomOrders calls the steps of a transaction, an execution and the transaction form in
// random orders, a number of sequences of each. Whatever their order: an effect happens at
// most once, and a client that gets a success gets one that was committed.
func RandomOrders[X any](t *testing.T, open OpenShop[X], where string, rnd *rand.Rand, sequences int) {
	t.Helper()
	s := start(t, open, where, inTx)
	seen := map[string]int{}
	for i := range sequences {
		o := &orders[X]{service: s, rnd: rnd}
		o.check(t, fmt.Sprintf("steps-%020d", i), s.guard.Handler(http.HandlerFunc(o.steps)), seen)
		h, err := httpkey.TxHandler(s.guard, s.Store, o.form)
		if err != nil {
			t.Fatal(err)
		}
		o.check(t, fmt.Sprintf("form-%021d", i), h, seen)
	}
	t.Logf("what the clients got: %v", seen)
	if seen["201"] == 0 || seen["500"] == 0 || seen["409"] == 0 {
		t.Errorf("the sequences are too much alike: %v", seen)
	}
}

// orders is a handler that does its steps in a random order.
type orders[X any] struct {
	*service[X]
	rnd   *rand.Rand
	trace []string
}

// check sends one order several times.
func (o *orders[X]) check(t *testing.T, key string, h http.Handler, seen map[string]int) {
	t.Helper()
	o.trace = nil
	var success *response
	for range 3 {
		got := post(t, h, key)
		o.trace = append(o.trace, fmt.Sprint(got))
		seen[fmt.Sprint(got.status)]++
		rows := o.rows(t, key)
		switch {
		case rows > 1:
			t.Fatalf("%s: %d effects after %q", key, rows, o.trace)
		case got.status == http.StatusCreated && rows != 1:
			t.Fatalf("%s: a success without its effect after %q", key, o.trace)
		case success != nil && (got.status != success.status || got.body != success.body):
			t.Fatalf("%s: another answer after %q", key, o.trace)
		case got.status == http.StatusCreated:
			success = &got
		}
	}
}

func (o *orders[X]) note(step string) { o.trace = append(o.trace, step) }

// steps is a handler with a transaction of its own. At its end it rolls back what is open,
// as most handlers do.
func (o *orders[X]) steps(w http.ResponseWriter, r *http.Request) {
	ctx := context.WithoutCancel(r.Context())
	x, _ := retrysafe.FromContext(r.Context())
	var tx *sql.Tx
	taken := false // by CompleteTx
	defer func() {
		if tx != nil && (!taken || o.rnd.IntN(2) == 0) {
			_ = tx.Rollback()
		}
	}()
	for range 1 + o.rnd.IntN(7) {
		switch o.rnd.IntN(12) {
		case 0, 1, 2:
			if tx == nil {
				o.note("begin")
				tx = o.own(r)
			}
		case 3, 4:
			if tx != nil {
				o.note("CompleteTx")
				taken = httpkey.CompleteTx(ctx, w, o.Join(tx)) == nil || taken
			}
		case 5, 6:
			if tx != nil {
				o.note("commit")
				_ = tx.Commit()
			}
		case 7:
			if tx != nil {
				o.note("rollback")
				_ = tx.Rollback()
			}
		case 8, 9:
			o.note("201")
			created(w)
		case 10:
			o.note("500")
			http.Error(w, "sorry", http.StatusInternalServerError)
		default:
			o.settle(ctx, x, tx)
		}
	}
}

// settle takes a step on the execution itself, past the guard. A transaction that is open
// would make it wait.
func (o *orders[X]) settle(ctx context.Context, x *retrysafe.Execution, tx *sql.Tx) {
	if tx != nil {
		_ = tx.Rollback()
		o.note("rollback")
	}
	switch o.rnd.IntN(3) {
	case 0:
		o.note("Complete")
		_ = x.Complete(ctx, retrysafe.Result{Status: http.StatusCreated, Body: []byte("ordered")})
	case 1:
		o.note("Fail")
		_ = x.Fail(ctx, errors.New("sorry"))
	default:
		o.note("Quarantine")
		_ = x.Quarantine(ctx, errors.New("sorry"))
	}
}

// form is a function for the transaction form.
func (o *orders[X]) form(w http.ResponseWriter, r *http.Request, tx X) (err error) {
	ctx := context.WithoutCancel(r.Context())
	o.note("effect")
	if err := o.Exec(ctx, tx, insert(r)); err != nil {
		return err
	}
	for range 1 + o.rnd.IntN(5) {
		switch o.rnd.IntN(10) {
		case 0:
			o.note("commit")
			_ = commit(ctx, any(tx))
		case 1:
			o.note("rollback")
			rollback(ctx, any(tx))
		case 2, 3, 4:
			o.note("201")
			created(w)
		case 5:
			o.note("500")
			http.Error(w, "sorry", http.StatusInternalServerError)
		case 6:
			o.note("flush and hijack")
			_ = http.NewResponseController(w).Flush()
			_, _, _ = http.NewResponseController(w).Hijack()
		case 7:
			o.note("error")
			return errors.New("sorry")
		case 8:
			o.note("panic")
			must(errors.New("sorry"))
		default:
			o.note("503")
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}
	return nil
}

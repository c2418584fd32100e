package operator_test

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/test/testservers"
	"github.com/retrysafe/retrysafe/operator"
	"github.com/retrysafe/retrysafe/store/memstore"
	"github.com/retrysafe/retrysafe/store/pgstore"
	"github.com/retrysafe/retrysafe/store/sqlitestore"
)

func TestMain(m *testing.M) { testservers.Main(m) }

// onEachStore runs a test on every kind of store that keeps records itself.
func onEachStore(t *testing.T, test func(t *testing.T, s retrysafe.Store)) {
	t.Helper()
	t.Run("memory", func(t *testing.T) {
		t.Parallel()
		test(t, memstore.New(nil))
	})
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		test(t, sqlite(t, filepath.Join(t.TempDir(), "keys.db")))
	})
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		test(t, postgres(t))
	})
}

func sqlite(t testing.TB, path string) *sqlitestore.Store {
	t.Helper()
	s, err := sqlitestore.Open(t.Context(), path, nil)
	must(t, err)
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func postgres(t testing.TB) *pgstore.Store {
	t.Helper()
	s, err := pgstore.Open(t.Context(), testservers.Shared(t), nil)
	must(t, err)
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func newDesk(t testing.TB, s retrysafe.Store, opts *operator.Options) *operator.Service {
	t.Helper()
	var o operator.Options
	if opts != nil {
		o = *opts
	}
	o.StoreTimeout = cmp.Or(o.StoreTimeout, time.Minute) // the machine may be busy
	d, err := operator.New(s, &o)
	must(t, err)
	return d
}

func newEngine(t testing.TB, s retrysafe.Store, p retrysafe.Policy) *retrysafe.Engine {
	t.Helper()
	e, err := retrysafe.New(s, &retrysafe.Options{Policy: p, StoreTimeout: time.Minute, SettleTimeout: time.Minute})
	must(t, err)
	return e
}

var (
	anna   = "anna"
	print1 = retrysafe.Fingerprint{Alg: 1, Sum: [32]byte{1}}
	print2 = retrysafe.Fingerprint{Alg: 1, Sum: [32]byte{2}}
	paid   = retrysafe.Result{Status: 201, Header: map[string][]string{"Content-Type": {"text/plain"}}, Body: []byte("paid")}
)

// in returns a record of acct_1's payment in a state, which lasts for an hour.
func in(state retrysafe.State, key string) retrysafe.Write {
	w := retrysafe.Write{Term: time.Hour, Record: retrysafe.Record{
		Ref: retrysafe.Ref{Scope: "acct_1", Key: key}, Operation: "POST /payments", Fingerprint: print1,
		State: state, Version: retrysafe.RecordVersion, Owner: owner(), Attempt: 1, Retain: 24 * time.Hour,
	}}
	if state == retrysafe.StateCompleted {
		w.Result = &paid
	}
	return w
}

func owner() (o retrysafe.Owner) {
	_, _ = rand.Read(o[:])
	return o
}

// put stores a record as it is.
func put(t testing.TB, s retrysafe.Store, w retrysafe.Write) retrysafe.Record {
	t.Helper()
	got, err := s.Create(t.Context(), w)
	must(t, err)
	return got
}

func load(t testing.TB, s retrysafe.Store, ref retrysafe.Ref) retrysafe.Record {
	t.Helper()
	r, err := s.Load(t.Context(), ref)
	must(t, err)
	return r
}

// seen is an action of anna's on a record as she saw it.
func seen(r retrysafe.Record) operator.Action {
	return operator.Action{By: anna, Why: "looked it up", Ref: r.Ref, Revision: r.Revision}
}

func callOf(r retrysafe.Record) retrysafe.Call {
	return retrysafe.Call{Ref: r.Ref, Operation: r.Operation, Fingerprint: r.Fingerprint}
}

// asks sends a request under the record's key. It counts runs and answers with
// what it is given.
func asks(t testing.TB, e *retrysafe.Engine, c retrysafe.Call, body string) (out retrysafe.Outcome, ran bool, err error) {
	t.Helper()
	out, err = e.Do(t.Context(), c, func(context.Context, *retrysafe.Execution) (retrysafe.Result, error) {
		ran = true
		return retrysafe.Result{Status: 201, Body: []byte(body)}, nil
	})
	return out, ran, err
}

// audited returns the audit, the newest first.
func audited(t testing.TB, d *operator.Service, f operator.AuditFilter) []operator.Entry {
	t.Helper()
	all, err := d.Audit(t.Context(), f)
	must(t, err)
	return all
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// refused checks that an action was refused for a reason, and that the audit says
// the same.
func refused(t testing.TB, d *operator.Service, e operator.Entry, err, why error) {
	t.Helper()
	var r *operator.RefusedError
	if !errors.Is(err, why) || !errors.As(err, &r) {
		t.Fatalf("got %v, want a refusal for %v", err, why)
	}
	if e.Outcome != operator.StatusRefused || e.Text == "" || r.Entry.ID != e.ID {
		t.Errorf("entry %+v", e)
	}
	for _, a := range audited(t, d, operator.AuditFilter{Ref: e.Ref}) {
		if a.ID == e.ID && a.Outcome == operator.StatusRefused && a.Text == e.Text {
			return
		}
	}
	t.Error("the refusal is not in the audit")
}

// lastNote checks the last note of a record.
func lastNote(t testing.TB, r retrysafe.Record, by, id string) {
	t.Helper()
	n := len(r.Inquiry.Notes)
	if n == 0 {
		t.Fatalf("%s has no note", r.Key)
	}
	note := r.Inquiry.Notes[n-1]
	if note.By != "operator "+by || note.State != r.State || note.ID != id || note.At.IsZero() {
		t.Errorf("the last note is %+v", note)
	}
}

func key(i int) string { return fmt.Sprintf("key-%04d", i) }

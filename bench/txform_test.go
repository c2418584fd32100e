package bench_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/httpkey"
	"github.com/retrysafe/retrysafe/store/pgstore"
	"github.com/retrysafe/retrysafe/store/sqlitestore"
)

// The ways in which a handler commits its effect, over HTTP without a network.
const (
	formAlone  = "the transaction alone"
	formByHand = "CompleteTx by hand"
	formOurs   = "TxHandler"
)

// A till is a database with payments and keys in it, and what a handler does in its
// transactions.
type till[T any] struct {
	store    retrysafe.TxStore[T]
	begin    func(context.Context) (T, error)
	pay      func(context.Context, T, *call) error
	commit   func(context.Context, T) error
	rollback func(context.Context, T) error
	join     func(T) retrysafe.Tx
	close    func() error
}

// A formKeeper answers calls through a handler.
type formKeeper struct {
	handler http.Handler
	end     func() error
}

type callKey struct{}

func callOf(r *http.Request) *call { return r.Context().Value(callKey{}).(*call) }

func (k *formKeeper) serve(ctx context.Context, c *call) (replayed bool, err error) {
	r := httptest.NewRequestWithContext(context.WithValue(ctx, callKey{}, c), http.MethodPost, "/payments", strings.NewReader(payment))
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Idempotency-Key", c.key)
	w := httptest.NewRecorder()
	k.handler.ServeHTTP(w, r)
	if w.Code != http.StatusCreated {
		return false, fmt.Errorf("%d: %s", w.Code, w.Body)
	}
	return w.Header().Get("Idempotent-Replayed") == "true", nil
}

func (k *formKeeper) close() error { return k.end() }

// write sends the answer.
func (a answer) write(w http.ResponseWriter) {
	w.Header().Set("Content-Type", a.contentType)
	w.Header().Set("Location", a.location)
	w.WriteHeader(a.status)
	_, _ = w.Write(a.body)
}

// keeper returns the till behind a handler of this form.
func (t *till[T]) keeper(form string) (keeper, error) {
	h, err := t.handler(form)
	if err != nil {
		return nil, errors.Join(err, t.close())
	}
	return &formKeeper{h, t.close}, nil
}

func (t *till[T]) handler(form string) (http.Handler, error) {
	if form == formAlone {
		return t.own(func(http.ResponseWriter, *http.Request, T) error { return nil }), nil
	}
	opts := patient
	opts.Policy.Effects = retrysafe.EffectsInTx
	engine, err := retrysafe.New(t.store, &opts)
	if err != nil {
		return nil, err
	}
	guard, err := httpkey.New(engine, func(r *http.Request) (string, error) { return callOf(r).scope, nil }, nil)
	if err != nil {
		return nil, err
	}
	if form == formByHand {
		return guard.Handler(t.own(func(w http.ResponseWriter, r *http.Request, tx T) error {
			return httpkey.CompleteTx(r.Context(), w, t.join(tx))
		})), nil
	}
	return httpkey.TxHandler(guard, t.store, func(w http.ResponseWriter, r *http.Request, tx T) error {
		if err := t.pay(r.Context(), tx, callOf(r)); err != nil {
			return err
		}
		callOf(r).handle().write(w)
		return nil
	})
}

// own is a handler with a transaction of its own. Last is its last step before the
// commit.
func (t *till[T]) own(last func(http.ResponseWriter, *http.Request, T) error) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx := r.Context()
		tx, err := t.begin(ctx)
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		if err = t.pay(ctx, tx, callOf(r)); err == nil {
			callOf(r).handle().write(w)
			err = last(w, r, tx)
		}
		if err == nil {
			err = t.commit(ctx, tx)
		}
		if err != nil {
			http.Error(w, errors.Join(err, t.rollback(ctx, tx)).Error(), http.StatusInternalServerError)
		}
	})
}

// postgresForm is a handler over pgx.
func postgresForm(form string) system {
	return system{form, func(ctx context.Context, url string) (keeper, error) {
		b, err := openBusiness(ctx, url)
		if err != nil {
			return nil, err
		}
		pool := b.(*businessKeeper).pool
		s, err := pgstore.New(ctx, pool, nil)
		if err != nil {
			return nil, errors.Join(err, b.close())
		}
		t := &till[pgx.Tx]{
			store: s, begin: pool.Begin, pay: pay,
			commit:   func(ctx context.Context, tx pgx.Tx) error { return tx.Commit(ctx) },
			rollback: func(ctx context.Context, tx pgx.Tx) error { return tx.Rollback(ctx) },
			join:     func(tx pgx.Tx) retrysafe.Tx { return s.Tx(tx) },
			close:    func() error { return errors.Join(s.Close(), b.close()) },
		}
		return t.keeper(form)
	}}
}

// sqliteForm is a handler over a new file.
func sqliteForm(form string, dir func() string) system {
	return system{form, func(ctx context.Context, _ string) (keeper, error) {
		s, err := sqlitestore.Open(ctx, filepath.Join(dir(), "keys.db"), nil)
		if err != nil {
			return nil, err
		}
		if _, err := s.DB().ExecContext(ctx, `CREATE TABLE payments (id INTEGER PRIMARY KEY, account TEXT NOT NULL, amount INTEGER NOT NULL)`); err != nil {
			return nil, errors.Join(err, s.Close())
		}
		t := &till[*sql.Tx]{
			store: s,
			begin: func(ctx context.Context) (*sql.Tx, error) { return s.DB().BeginTx(ctx, nil) },
			pay: func(ctx context.Context, tx *sql.Tx, c *call) error {
				_, err := tx.ExecContext(ctx, `INSERT INTO payments (account, amount) VALUES (?, ?)`, c.scope, 1200)
				return err
			},
			commit:   func(_ context.Context, tx *sql.Tx) error { return tx.Commit() },
			rollback: func(_ context.Context, tx *sql.Tx) error { return tx.Rollback() },
			join:     func(tx *sql.Tx) retrysafe.Tx { return s.Tx(tx) },
			close:    s.Close,
		}
		return t.keeper(form)
	}}
}

// txForm: a handler whose effect and answer commit together, with the transaction of
// httpkey.TxHandler, with its own and CompleteTx, and with its own and no guard at all.
// SQLite has one writer, so it has one client.
func txForm(l *lab) {
	t := table{
		title: "The transaction form over HTTP",
		note:  "A handler writes one row in the store's own database, and answer and effect commit together. With CompleteTx the key is reserved in a commit of its own before.",
		head:  append([]string{"store"}, loadHead[:6]...),
	}
	forms := []string{formAlone, formByHand, formOurs}
	for _, on := range []struct {
		store   string
		clients int
		measure func(clients int) map[string]series
	}{
		{"PostgreSQL", 32, func(clients int) map[string]series {
			return l.freshEach(l.bed(l), clients, postgresForm(formAlone), postgresForm(formByHand), postgresForm(formOurs))
		}},
		{"SQLite", 1, func(clients int) map[string]series {
			return l.freshFiles(clients, sqliteForm(formAlone, l.TempDir), sqliteForm(formByHand, l.TempDir), sqliteForm(formOurs, l.TempDir))
		}},
	} {
		all := on.measure(on.clients)
		for _, form := range forms {
			t.loadRow(on.clients, form, all[form])
			last := &t.rows[len(t.rows)-1]
			*last = append([]string{on.store}, (*last)[:6]...)
		}
		what := "TxHandler on " + on.store + ", operations/s, " + clientsText(on.clients)
		l.report.find(finding{what: what, beside: formByHand, got: all[formOurs].over(all[formByHand], perSecond), goal: atLeast(1)})
		l.report.find(finding{what: what, beside: formAlone, got: all[formOurs].over(all[formAlone], perSecond)})
	}
	l.report.add(t)
}

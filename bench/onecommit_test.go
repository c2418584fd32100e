package bench_test

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// business is an operation's own transaction with no idempotency at all: begin,
// one INSERT, commit.
var business = system{"the transaction alone", openBusiness}

const businessSchema = `
CREATE TABLE payments (
    id      BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    account TEXT   NOT NULL,
    amount  BIGINT NOT NULL,
    made    TIMESTAMPTZ NOT NULL DEFAULT now()
)`

type businessKeeper struct{ pool *pgxpool.Pool }

func openBusiness(ctx context.Context, url string) (keeper, error) {
	pool, err := openPool(ctx, url)
	if err != nil {
		return nil, err
	}
	if _, err := pool.Exec(ctx, businessSchema); err != nil {
		pool.Close()
		return nil, err
	}
	return &businessKeeper{pool}, nil
}

// pay is what the operation does to the database.
func pay(ctx context.Context, tx pgx.Tx, c *call) error {
	_, err := tx.Exec(ctx, `INSERT INTO payments (account, amount) VALUES ($1, $2)`, c.scope, 1200)
	return err
}

func (k *businessKeeper) serve(ctx context.Context, c *call) (replayed bool, err error) {
	tx, err := k.pool.Begin(ctx)
	if err != nil {
		return false, err
	}
	if err := pay(ctx, tx, c); err != nil {
		return false, errors.Join(err, tx.Rollback(ctx))
	}
	c.handle()
	return false, tx.Commit(ctx)
}

func (k *businessKeeper) close() error {
	k.pool.Close()
	return nil
}

// oneCommit: the operation's effect and its answer in one commit of the
// operation's own database.
func oneCommit(l *lab) {
	const clients = 32
	systems := []system{business, oursOneCommit}
	all := l.freshEach(l.bed(l), clients, systems...)
	t := table{
		title: "One commit",
		note:  "The operation writes one row in the store's own database, and answer and effect commit together.",
		head:  loadHead,
	}
	for _, s := range systems {
		t.loadRow(clients, s.name, all[s.name])
	}
	l.report.add(t)
	l.report.find(finding{
		what: "one-commit mode, operations/s, " + clientsText(clients), beside: business.name,
		got: all[oursOneCommit.name].over(all[business.name], perSecond), goal: atLeast(0.55), stretch: atLeast(0.7),
	})
}

package sandbox_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/prove/sandbox"
	"github.com/retrysafe/retrysafe/internal/test/testservers"
)

func TestMain(m *testing.M) { testservers.Main(m) }

// What a check does in its sandbox is gone with it, and what was there before stays.
func TestYardLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	postgres, dir := testservers.Shared(t), t.TempDir()
	for name, address := range map[string]string{
		"postgres": postgres, "sqlite": "sqlite:" + filepath.Join(dir, "mine.db"), "memory": "memory:",
	} {
		y, err := sandbox.New(ctx, address)
		must(t, err)
		p, err := sandbox.Open(ctx, y.URL)
		must(t, err)
		other, err := sandbox.Open(ctx, y.URL) // a second process would
		must(t, err)
		must(t, other.Close())
		e, err := retrysafe.New(p.Store, &retrysafe.Options{Policy: retrysafe.Policy{Effects: retrysafe.EffectsInTx}})
		must(t, err)
		call := retrysafe.Call{Ref: retrysafe.Ref{Scope: "t", Key: "k"}, Operation: "pay"}
		for range 2 {
			out, err := retrysafe.DoTx(ctx, e, p.TxStore(), call, func(ctx context.Context, book sandbox.AddEffect) (retrysafe.Result, error) {
				return retrysafe.Result{Status: 201}, book(ctx, "k", "me")
			})
			if err != nil || out.Status != 201 {
				t.Errorf("%s: %+v, %v", name, out, err)
			}
		}
		if effects, err := p.Effects(ctx); err != nil || len(effects) != 1 || len(effects["k"]) != 1 {
			t.Errorf("%s: effects %v, %v", name, effects, err)
		}
		must(t, p.Close())
		must(t, y.Close(ctx))
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
	conn, err := pgx.Connect(ctx, postgres)
	must(t, err)
	defer func() { must(t, conn.Close(ctx)) }()
	var n int
	must(t, conn.QueryRow(ctx, `SELECT count(*) FROM pg_class WHERE relname LIKE 'retrysafe%' OR relname = 'effects'`).Scan(&n))
	if n != 0 {
		t.Errorf("%d tables are left behind", n)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

package inbox_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/retrysafe/retrysafe/internal/test/testservers"
)

// What an inbox costs beside the bare transaction with its effect, on a durable
// server.
func BenchmarkOnce(b *testing.B) {
	pg := testservers.NewPostgres(b, nil)
	p := pgxPlace(b, pg.URL("postgres")+"&pool_max_conns=16")
	ledger := p.ledger(b)
	payload := []byte(strings.Repeat("p", 1000))
	var n atomic.Int64
	inParallel := func(b *testing.B, do func(ctx context.Context) error) {
		b.SetParallelism(8)
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				if err := do(context.Background()); err != nil {
					b.Error(err)
				}
			}
		})
		b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "messages/s")
	}
	b.Run("bare", func(b *testing.B) {
		inParallel(b, func(ctx context.Context) error {
			tx, err := p.begin(ctx)
			if err != nil {
				return err
			}
			if err := p.book(ctx, tx); err != nil {
				return err
			}
			return p.end(tx, true)
		})
	})
	b.Run("fresh", func(b *testing.B) {
		inParallel(b, func(ctx context.Context) error {
			m := payment(fmt.Sprint(n.Add(1)))
			m.Payload = payload
			fresh, err := ledger.Once(ctx, m, p.book)
			if err == nil && !fresh {
				err = fmt.Errorf("%s is not fresh", m.Key)
			}
			return err
		})
	})
	again := payment("again")
	again.Payload = payload
	if _, err := ledger.Once(b.Context(), again, p.book); err != nil {
		b.Fatal(err)
	}
	b.Run("again", func(b *testing.B) {
		inParallel(b, func(ctx context.Context) error {
			_, err := ledger.Once(ctx, again, func(context.Context, pgx.Tx) error { return fmt.Errorf("it runs again") })
			return err
		})
	})
}

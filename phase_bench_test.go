package retrysafe_test

import (
	"context"
	"strconv"
	"testing"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/store/memstore"
)

// What three steps of an operation cost in memory, beside none and beside three
// bare checkpoints of about the same size. A store on disk adds its writes: one for
// each phase, two for each effect, a transaction for each PhaseTx.
func BenchmarkSteps(b *testing.B) {
	type booked struct{ ID, Customer string }
	value := booked{"ride_8e03978e", "customer_42"}
	names := [...]string{"ride", "charge", "receipt"}
	data := []byte(`{"ID":"ride_8e03978e","Customer":"customer_42"}`)
	var mem *memstore.Store
	phase := func(ctx context.Context, name string) error {
		_, err := retrysafe.Phase(ctx, name, func(context.Context) (booked, error) { return value, nil })
		return err
	}
	for _, c := range []struct {
		name string
		step func(ctx context.Context, x *retrysafe.Execution, name string) error
	}{
		{"none", func(context.Context, *retrysafe.Execution, string) error { return nil }},
		{"Save", func(ctx context.Context, x *retrysafe.Execution, name string) error {
			return x.Save(ctx, retrysafe.Checkpoint{Phase: name, Data: data})
		}},
		{"Phase", func(ctx context.Context, _ *retrysafe.Execution, name string) error { return phase(ctx, name) }},
		{"Effect", func(ctx context.Context, _ *retrysafe.Execution, name string) error {
			_, err := retrysafe.Effect(ctx, name, data, func(context.Context, retrysafe.Attempt) (booked, error) { return value, nil })
			return err
		}},
		{"PhaseTx", func(ctx context.Context, _ *retrysafe.Execution, name string) error {
			_, err := retrysafe.PhaseTx(ctx, mem, name, func(context.Context, *memstore.Tx) (booked, error) { return value, nil })
			return err
		}},
	} {
		b.Run(c.name, func(b *testing.B) {
			mem = memstore.New(nil)
			e, err := retrysafe.New(mem, &retrysafe.Options{Policy: resumes})
			if err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				call := retrysafe.Call{Ref: retrysafe.Ref{Scope: c.name, Key: strconv.Itoa(i)}}
				x, _, err := e.Begin(b.Context(), call)
				if err != nil {
					b.Fatal(err)
				}
				for _, name := range names {
					if err := c.step(x.Context(), x, name); err != nil {
						b.Fatal(err)
					}
				}
				if err := x.Release(b.Context(), nil); err != nil {
					b.Fatal(err)
				}
				x.Stop()
			}
		})
	}
	b.Run("Phase, passed", func(b *testing.B) {
		mem = memstore.New(nil)
		e, err := retrysafe.New(mem, &retrysafe.Options{Policy: resumes})
		if err != nil {
			b.Fatal(err)
		}
		b.ReportAllocs()
		for b.Loop() {
			x, _, err := e.Begin(b.Context(), retrysafe.Call{Ref: retrysafe.Ref{Scope: "passed", Key: "key"}})
			if err != nil {
				b.Fatal(err)
			}
			for _, name := range names {
				if err := phase(x.Context(), name); err != nil {
					b.Fatal(err)
				}
			}
			if err := x.Release(b.Context(), nil); err != nil {
				b.Fatal(err)
			}
			x.Stop()
		}
	})
}

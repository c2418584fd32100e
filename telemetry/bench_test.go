package telemetry_test

import (
	"testing"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/telemetry"
)

func BenchmarkObserve(b *testing.B) {
	for _, kind := range []retrysafe.EventKind{retrysafe.EventReserved, retrysafe.EventReplayed, retrysafe.EventInFlight, retrysafe.EventCompleted, retrysafe.EventLapsed} {
		for name, opts := range map[string]*telemetry.Options{"plain": nil, "tenants": {Tenants: 100}} {
			b.Run(kind.String()+"/"+name, func(b *testing.B) {
				m := telemetry.New(opts)
				m.Routes("POST /payments", "POST /transfers", "POST /charges")
				o := m.Observer()
				e := retrysafe.Event{Kind: kind, Ref: retrysafe.Ref{Scope: "tenant-4711", Key: "k"}, Operation: "POST /payments", State: retrysafe.StateUnknown}
				if kind == retrysafe.EventCompleted {
					e.Took = 12 * time.Millisecond
				}
				b.ReportAllocs()
				for b.Loop() {
					o.Observe(e)
				}
			})
		}
	}
}

func BenchmarkExchange(b *testing.B) {
	m := telemetry.New(nil)
	m.Routes("POST /payments", "POST /transfers", "POST /charges")
	b.ReportAllocs()
	for b.Loop() {
		m.Exchange("POST /payments", "replay", 201, 300*time.Microsecond)
	}
}

package httpkey

import (
	"strconv"
	"testing"
)

// BenchmarkLimits is what the limits add to a request, beside what the store costs: for
// a replay, whose token for a new key comes back, and for a request over the limit.
func BenchmarkLimits(b *testing.B) {
	tenants := make([]string, 1000)
	for i := range tenants {
		tenants[i] = "tenant-" + strconv.Itoa(i)
	}
	for name, l := range map[string]Limits{
		"replay":  {NewKeys: 1e6, Lookups: 1e12},
		"refused": {NewKeys: 1e-6, NewKeysBurst: 1, Lookups: 1e12},
	} {
		b.Run(name, func(b *testing.B) {
			lim, err := newLimiter(l, nil)
			if err != nil {
				b.Fatal(err)
			}
			for _, tenant := range tenants { // the first request of a tenant makes its limiter
				lim.lookups.take(tenant)
				lim.newKeys.take(tenant)
			}
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				tenant := tenants[i%len(tenants)]
				if _, ok := lim.lookups.take(tenant); !ok {
					b.Fatal("a look-up is refused")
				}
				if _, ok := lim.newKeys.take(tenant); ok {
					lim.newKeys.giveBack(tenant)
				}
			}
		})
	}
	b.Run("tenants", func(b *testing.B) { // all of them new
		lim, err := newLimiter(Limits{NewKeys: 1}, nil)
		if err != nil {
			b.Fatal(err)
		}
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			lim.newKeys.take(tenants[i%len(tenants)] + strconv.Itoa(i))
		}
	})
}

package tenant_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/gateway/tenant"
)

func benchmark(b *testing.B, f tenant.Func, requests ...*http.Request) {
	b.Helper()
	for _, r := range requests {
		must1[string](b)(f(r))
	}
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		if _, err := f(requests[i%len(requests)]); err != nil {
			b.Fatal(err)
		}
		i++
	}
}

func BenchmarkHeader(b *testing.B) {
	f := tenant.Header(tenantHeader, prefixes("127.0.0.0/8", "192.0.2.0/24"))
	benchmark(b, f, request([2]string{tenantHeader, "7d2f6e1c-acme"}), request([2]string{tenantHeader, "9a41c0de-umbrella"}))
}

func BenchmarkBearer(b *testing.B) {
	benchmark(b, tenant.Bearer(), bearing("sk_live_4eC39HqLyjWDarjtT1zdp7dc"))
}

func BenchmarkNone(b *testing.B) { benchmark(b, tenant.None(), request()) }

// A token that is remembered, and one that is verified each time.
func BenchmarkJWT(b *testing.B) {
	for _, s := range []signer{
		{id: "rsa", method: jwt.SigningMethodRS256, private: rsaPrivate()},
		{id: "ed", method: jwt.SigningMethodEdDSA, private: edPrivate()},
	} {
		is, clock := newIssuer(b), newClock()
		is.publish(s)
		b.Run("remembered/"+s.method.Alg(), func(b *testing.B) { benchmark(b, is.jwt(b).Tenant, bearing(is.token(b))) })
		b.Run("verified/"+s.method.Alg(), func(b *testing.B) {
			j := is.jwt(b)
			j.SetNow(clock.now)
			verify := func(r *http.Request) (string, error) {
				clock.pass(time.Minute) // nothing is remembered for longer
				return j.Tenant(r)
			}
			benchmark(b, verify, bearing(is.token(b, with("exp", clock.now().AddDate(100, 0, 0).Unix()))))
		})
	}
}

func BenchmarkJWTParallel(b *testing.B) {
	is := newIssuer(b)
	j := is.jwt(b)
	r := bearing(is.token(b))
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if _, err := j.Tenant(r); err != nil {
				b.Error(err)
			}
		}
	})
}

package gateway_test

import (
	"testing"
)

// "Every state-changing endpoint in a multi-step flow either enforces Idempotency-Key
// or rejects the request": routes that match everything leave no step out, also one
// that was added later, and each step is an operation of its own.
func TestSeed001_NoStepOfAFlowIsLeftOut(t *testing.T) {
	t.Parallel()
	b := setup(t, withRoutes(route("POST /"), route("PATCH /"), route("PUT /"), route("DELETE /")))
	steps := [][2]string{
		{"POST", "/orders"}, {"POST", "/orders/7/payments"}, {"PATCH", "/orders/7"}, {"PUT", "/orders/7/address"},
		{"DELETE", "/orders/7/items/1"}, {"POST", "/added/last/week"},
	}
	for _, step := range steps {
		if got := b.do(t, b.request(t, step[0], step[1], `{}`)); got.status != 400 {
			t.Errorf("%s %s without a key got %d", step[0], step[1], got.status)
		}
	}
	b.upstream.called(t, 0)
	for i, step := range steps {
		for _, replayed := range []bool{false, true} {
			k := with("Idempotency-Key", key+string(rune('a'+i)))
			b.do(t, b.request(t, step[0], step[1], `{}`, k)).is(t, 201, `{"got":{}}`, replayed)
		}
	}
	b.upstream.called(t, len(steps))
}

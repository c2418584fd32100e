package retrysafe_test

import (
	"context"
	"encoding/hex"
	"testing"

	"github.com/retrysafe/retrysafe"
)

// What is stored in records and known to providers and log readers stays the same in every
// release: a retry after an upgrade must match the record, and must reach the provider under
// the same key.
func TestDerivedNamesNeverChange(t *testing.T) {
	t.Parallel()
	const sum = "1e8771838196f9c22e37983ea1bd9ee8a34c1c657ad61e06f0f72d9a21359c19"
	of := retrysafe.FingerprintOf("acme", "POST /payments", []byte(`{"amount":1}`))
	if got := hex.EncodeToString(of.Sum[:]); got != sum || of.Alg != 6 {
		t.Errorf("FingerprintOf = %d %s", of.Alg, got)
	}
	intent := map[string]int{"amount": 1}
	js, err := retrysafe.FingerprintJSON("acme", "POST /payments", intent)
	must(t, err)
	if got := hex.EncodeToString(js.Sum[:]); got != sum || js.Alg != 7 {
		t.Errorf("FingerprintJSON = %d %s", js.Alg, got)
	}
	account := retrysafe.Ref{Scope: "acme", Key: "key-1"}
	for call, want := range map[string]string{"charge0": "056c70b1-47bc-8004-9766-be350efef1e8", "charge1": "5ff43ce4-9f9f-8ef0-ae4e-5abed02700ab"} {
		if got := retrysafe.DownstreamKey("shop", account, call); got != want {
			t.Errorf("DownstreamKey of %s = %s, want %s", call, got, want)
		}
	}
	if got := retrysafe.HashKey("key-1"); got != "d86d62341599f476" || retrysafe.HashKey("") != "" {
		t.Errorf("HashKey = %q, and %q of no key", got, retrysafe.HashKey(""))
	}

	b := setup(t, retrysafe.Policy{})
	_, err = retrysafe.DoJSON(t.Context(), b.Engine, retrysafe.Call{Ref: account, Operation: "POST /payments"}, intent,
		func(context.Context, *retrysafe.Execution) (int, error) { return 1, nil })
	must(t, err)
	r, err := b.mem.Load(t.Context(), account)
	must(t, err)
	if r.Fingerprint != js || r.Result.Header["Content-Type"][0] != "application/json" {
		t.Errorf("DoJSON stored %+v", r)
	}
}

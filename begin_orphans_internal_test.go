package retrysafe

import "testing"

// Once a defect: reservations that never arrived fill the memory of orphans for ever.
func TestOrphansNeverFillUpForGood(t *testing.T) {
	t.Parallel()
	var o orphans
	for i := range maxOrphans {
		o.add(Owner{byte(i), byte(i >> 8), 1}) // requests that were lost: no retry ever finds their records
	}
	late := Owner{2, 2, 2}
	o.add(late)
	if !o.take(late) {
		t.Error("after 10,000 lost requests no lost reply is ever remembered again")
	}
}

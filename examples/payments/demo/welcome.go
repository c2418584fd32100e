package demo

import (
	"crypto/rand"
	"fmt"
	"strconv"
	"strings"

	"github.com/retrysafe/retrysafe/httpkey"
)

// welcome returns the commands to try, with new keys as the profile has them.
func welcome(api, provider string, p *httpkey.Profile) string {
	payment, transfer, charge := newKey(), newKey(), newKey()
	written := func(key string) string { return `"` + key + `"` }
	if p.Opaque { // quotes would be part of the key
		written = func(key string) string { return key }
	}
	return strings.NewReplacer(
		"API", api, "PROVIDER", provider,
		"CALLER", `-H 'Authorization: Bearer demo-a' -H 'Content-Type: application/json'`,
		`"PAYMENT"`, written(payment), `"TRANSFER"`, written(transfer), `"CHARGE"`, written(charge), "TRANSFER", transfer,
		"# 422", "# "+strconv.Itoa(p.Mismatch),
	).Replace(tryThis)
}

// newKey generates a key as clients do: a random UUID.
func newKey() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // it never fails
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

const tryThis = `
Try these in another terminal, in this order (Ctrl-C stops it):

# 201: a payment, which is a row in our own database
curl -i API/payments CALLER -H 'Idempotency-Key: "PAYMENT"' -d '{"amount": 1200, "currency": "EUR", "account_id": 1}'
# 201 again, with Idempotent-Replayed: true: the stored answer; the order of members does not matter
curl -i API/payments CALLER -H 'Idempotency-Key: "PAYMENT"' -d '{"account_id": 1, "currency": "EUR", "amount": 1200}'
# 422: another amount is another payment, and this key is taken
curl -i API/payments CALLER -H 'Idempotency-Key: "PAYMENT"' -d '{"amount": 9900, "currency": "EUR", "account_id": 1}'

# 202: a transfer, which a worker takes to the provider; the same line again is 201 as soon as there is an answer
curl -i API/transfers CALLER -H 'Idempotency-Key: "TRANSFER"' -d '{"amount": 1200, "currency": "EUR", "account_id": 1}'
# 201: a charge, for which the provider is called in line and without a key
curl -i API/charges CALLER -H 'Idempotency-Key: "CHARGE"' -d '{"amount": 1200, "currency": "EUR", "account_id": 1}'
# 200: what our tables have under a key
curl -i 'API/ledger?key=TRANSFER' CALLER
# 200: what the provider has really charged under it
curl -i 'PROVIDER/ledger?key=TRANSFER'

Let the provider fail, and send a transfer or a charge under a new key:

# 200: it declines once: the answer is 402, and stays so
curl -i -X PUT PROVIDER/faults -d '{"mode": "decline", "times": 1}'
# 200: it is slow once: a transfer is 202 meanwhile, a charge waits
curl -i -X PUT PROVIDER/faults -d '{"mode": "slow", "delay": "2s", "times": 1}'
# 200: it fails three times and has not charged: a transfer is sent again; a charge is 502, then 409, and an operator has to resolve it
curl -i -X PUT PROVIDER/faults -d '{"mode": "error_before", "times": 3}'
# 200: it fails three times and has charged: a transfer is sent again under its key, and charged once; a charge is 502, then 409 until the provider's ledger was asked, then 201
curl -i -X PUT PROVIDER/faults -d '{"mode": "error_after", "times": 3}'
# 200: it charges and drops the connection, three times: as before
curl -i -X PUT PROVIDER/faults -d '{"mode": "drop_after", "times": 3}'
# 200: it works again
curl -i -X PUT PROVIDER/faults -d '{"mode": "none"}'
`

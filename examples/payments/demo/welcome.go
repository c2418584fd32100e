package demo

import "strings"

// welcome says what to try.
func welcome(api, provider string) string {
	return strings.NewReplacer("API", api, "PROVIDER", provider, "CALLER", `-H 'Authorization: Bearer demo-a' -H 'Content-Type: application/json'`).Replace(tryThis)
}

const tryThis = `
Try these in another terminal, in this order (Ctrl-C stops it):

# 201: a payment, which is a row in our own database
curl -i API/payments CALLER -H 'Idempotency-Key: "8e03978e-40d5-43dd-bc93-6894a57f9324"' -d '{"amount": 1200, "currency": "EUR", "account_id": 1}'
# 201 again, with Idempotent-Replayed: true: the stored answer; the order of members does not matter
curl -i API/payments CALLER -H 'Idempotency-Key: "8e03978e-40d5-43dd-bc93-6894a57f9324"' -d '{"account_id": 1, "currency": "EUR", "amount": 1200}'
# 422: another amount is another payment, and this key is taken
curl -i API/payments CALLER -H 'Idempotency-Key: "8e03978e-40d5-43dd-bc93-6894a57f9324"' -d '{"amount": 9900, "currency": "EUR", "account_id": 1}'

# 202: a transfer, which a worker takes to the provider; the same line again is 201 as soon as there is an answer
curl -i API/transfers CALLER -H 'Idempotency-Key: "2f1c0c5e-6b7a-4c0e-9d53-0a4f5b7c8d91"' -d '{"amount": 1200, "currency": "EUR", "account_id": 1}'
# 201: a charge, for which the provider is called in line and without a key
curl -i API/charges CALLER -H 'Idempotency-Key: "b7d7ad0e-51d9-4f0b-8a41-3c2f8e6d9a10"' -d '{"amount": 1200, "currency": "EUR", "account_id": 1}'
# 200: what our tables have under a key
curl -i 'API/ledger?key=2f1c0c5e-6b7a-4c0e-9d53-0a4f5b7c8d91' CALLER
# 200: what the provider has really charged under it
curl -i 'PROVIDER/ledger?key=2f1c0c5e-6b7a-4c0e-9d53-0a4f5b7c8d91'

Let the provider fail, and send a transfer or a charge under a new key:

# 200: it declines once: the answer is 402, and stays so
curl -i -X PUT PROVIDER/faults -d '{"mode": "decline", "times": 1}'
# 200: it is slow once: a transfer is 202 meanwhile, a charge waits
curl -i -X PUT PROVIDER/faults -d '{"mode": "slow", "delay": "2s", "times": 1}'
# 200: it fails three times and has not charged: a transfer is sent again; a charge is 502, then 409, and an operator's
curl -i -X PUT PROVIDER/faults -d '{"mode": "error_before", "times": 3}'
# 200: it fails three times and has charged: a transfer is sent again under its key, and charged once; a charge is 502, then 409 until the provider's ledger was asked, then 201
curl -i -X PUT PROVIDER/faults -d '{"mode": "error_after", "times": 3}'
# 200: it charges and drops the line, three times: as before
curl -i -X PUT PROVIDER/faults -d '{"mode": "drop_after", "times": 3}'
# 200: it is well again
curl -i -X PUT PROVIDER/faults -d '{"mode": "none"}'
`

package bench_test

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"
)

// A call is one request, the same for every system: whose it is, its key as
// clients make them, the hash of what it asks for.
type call struct {
	tenant int64
	scope  string
	key    string
	hash   [sha256.Size]byte
}

const (
	operation  = "POST /payments"
	answerSize = 200
	tenants    = 100
)

// newCall returns a call with a key that is not in use: a version 4 UUID, as text.
func newCall(rng *rand.Rand) call {
	var id [16]byte
	for at := range 2 {
		for n, i := rng.Uint64(), 0; i < 8; n, i = n>>8, i+1 {
			id[8*at+i] = byte(n)
		}
	}
	id[6], id[8] = id[6]&0x0f|0x40, id[8]&0x3f|0x80
	var text [36]byte
	hex.Encode(text[0:], id[0:4])
	hex.Encode(text[9:], id[4:6])
	hex.Encode(text[14:], id[6:8])
	hex.Encode(text[19:], id[8:10])
	hex.Encode(text[24:], id[10:16])
	text[8], text[13], text[18], text[23] = '-', '-', '-', '-'
	tenant := rng.Int64N(tenants)
	return call{
		tenant: tenant,
		scope:  "acct_" + strconv.FormatInt(tenant, 10),
		key:    string(text[:]),
		hash:   sha256.Sum256([]byte(payment)),
	}
}

// An answer is what the handler says: a status, two headers and a body of JSON.
type answer struct {
	status                int
	contentType, location string
	body                  []byte
}

// handle is the operation itself. It costs next to nothing, since what surrounds
// it is measured.
func (c *call) handle() answer {
	body := make([]byte, 0, answerSize)
	body = fmt.Appendf(body, `{"id": "pay_%s", "object": "payment", "amount": 1200, "currency": "EUR", "status": "succeeded", "account": %q, "description": "`, c.key, c.scope)
	for len(body) < answerSize-2 {
		body = append(body, "invoice "[len(body)%8])
	}
	body = append(body, `"}`...)
	return answer{http.StatusCreated, "application/json", "/payments/pay_" + c.key, body}
}

package gateway

import (
	"errors"
	"net/http"

	"github.com/retrysafe/retrysafe/internal/test/poison"
)

var errPoisoned = errors.New("gateway: the error of another request")

// Every object that goes back to a pool while tests run has in each field that belongs
// to one request what would spoil the next one.
func init() {
	poison.Pools(func(x any) {
		switch x := x.(type) {
		case *upstreamCall:
			x.body, x.incomplete = poison.Bytes(x.body), errPoisoned
		case *passthrough:
			x.status, x.length, x.err, x.body = http.StatusTeapot, -1, errPoisoned, &requestBody{}
		case *[copyBuffer]byte:
			poison.Bytes(x[:])
		}
	})
}

package gateway

import (
	"errors"
	"net/http"
	"net/url"

	"github.com/retrysafe/retrysafe/internal/test/poison"
)

var errPoisoned = errors.New("gateway: the error of another request")

// Every object that goes back to a pool while tests run has in each field that belongs
// to one request what would spoil the next one.
func init() {
	poison.Pools(func(x any) {
		switch x := x.(type) {
		case *upstreamCall:
			x.body, x.held, x.incomplete = poison.Bytes(x.body), true, errPoisoned
			spoil(&x.out)
		case *passthrough:
			x.status, x.length, x.err, x.body = http.StatusTeapot, -1, errPoisoned, &requestBody{}
			spoil(&x.out)
		case *[copyBuffer]byte:
			poison.Bytes(x[:])
		}
	})
}

// spoil gives a request to the upstream what the next one must not have.
func spoil(o *outbound) {
	o.request = http.Request{Method: "POISON", Host: "poison.invalid", Body: http.NoBody, ContentLength: 7, Close: true}
	o.url = url.URL{Opaque: "poison"}
	o.call.Rested, o.w = -1, nil
	if o.header != nil {
		o.header["X-Poison"] = []string{"of another request"}
	}
}

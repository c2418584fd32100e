package http1

import (
	"errors"
	"net/http"

	"github.com/retrysafe/retrysafe/internal/test/poison"
)

// Every exchange that goes back to its pool while tests run has in each field that belongs
// to one request what would spoil the next one.
func init() {
	poison.Pools(func(x any) {
		if x, ok := x.(*exchange); ok {
			if x.header != nil {
				x.header["X-Poison"] = []string{"of another answer"}
			}
			x.out = poison.Bytes(x.out)
			x.kept, x.failed, x.sender = true, errors.New("of another request"), &sender{}
			x.own = http.Response{StatusCode: http.StatusTeapot, Close: true, ContentLength: 7, Trailer: http.Header{"X-Poison": nil}}
			x.res = &x.own
			x.body = answerBody{left: 7, first: true, err: errors.New("of another answer")}
		}
	})
}

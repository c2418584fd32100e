package httpkey

import "net/http"

// Fail says that what w holds is not the handler's answer. It is never stored: the
// attempt is settled as failed, by what is proven, the cause is logged, and the client
// gets a problem. Adapters of frameworks call it when a handler has ended and its answer
// is not in w. An answer that CompleteTx has stored, or that is already being sent, stays
// as it is.
//
// W is the handler's ResponseWriter or one that unwraps to it. Outside a guard Fail does
// nothing.
func Fail(w http.ResponseWriter, cause error) {
	for {
		switch t := w.(type) {
		case *exchange:
			t.fail(cause)
			return
		case interface{ Unwrap() http.ResponseWriter }:
			w = t.Unwrap()
		default:
			return
		}
	}
}

func (x *exchange) fail(cause error) {
	if x.sealed || x.direct {
		return
	}
	x.fault = cause
	x.status, x.header, x.sent, x.buf = http.StatusInternalServerError, nil, nil, nil
}

package httpkey_test

import (
	"net/http"
	"testing"
)

// A call of gRPC has its status behind the body, so a guard of HTTP cannot judge it. It
// is refused before anything is reserved, with and without a key.
func TestRPCIsRefusedBeforeAnythingIsReserved(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for _, media := range []string{
		"application/grpc", "application/grpc+proto", "application/grpc+json", "application/grpc-web", "application/grpc-web+proto",
		"application/grpc-web-text", "application/grpc; charset=utf-8", "Application/GRPC+Proto",
		"application/connect+proto", "application/connect+json", "application/connect+proto;v=1",
	} {
		b.post(t, key, "\x00\x00\x00\x00\x00", with("Content-Type", media)).refused(t, 415, "rpc-unsupported")
		b.post(t, "", "\x00\x00\x00\x00\x00", with("Content-Type", media)).refused(t, 415, "rpc-unsupported")
	}
	second := func(r *http.Request) { r.Header["Content-Type"] = []string{"application/json", "application/grpc"} }
	b.post(t, key, `{}`, second).refused(t, 415, "rpc-unsupported")
	b.untouched(t)
}

// A unary call of Connect is a plain POST whose status says how it ended.
func TestUnaryConnectIsGuardedAsAPlainPost(t *testing.T) {
	t.Parallel()
	for _, media := range []string{"application/proto", "application/json", "application/json; charset=utf-8"} {
		b := setup(t)
		connect := with("Connect-Protocol-Version", "1")
		b.post(t, key, `{"n":1}`, with("Content-Type", media), connect).ran(t, 1, false)
		b.post(t, key, `{"n":1}`, with("Content-Type", media), connect).ran(t, 1, true)
		b.post(t, key, `{"n":2}`, with("Content-Type", media), connect).refused(t, 422, "key-reused")
	}
}

// Where keys are optional, a call without one passes as if there were no guard.
func TestRPCWithoutAKeyPassesWhereKeysAreOptional(t *testing.T) {
	t.Parallel()
	b := setup(t, func(c *config) { c.Optional = true })
	grpc := with("Content-Type", "application/grpc+proto")
	b.post(t, "", "\x00", grpc).ran(t, 1, false)
	b.post(t, key, "\x00", grpc).refused(t, 415, "rpc-unsupported")
	b.ranTimes(t, 1)
}

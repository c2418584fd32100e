package client_test

import (
	"context"
	"net/http/httptrace"
)

// contextTrace returns what a transport tells a request that has a connection.
func contextTrace(ctx context.Context) func() {
	trace := httptrace.ContextClientTrace(ctx)
	if trace == nil || trace.GotConn == nil {
		return nil
	}
	return func() { trace.GotConn(httptrace.GotConnInfo{}) }
}

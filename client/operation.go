package client

import (
	"bytes"
	"context"
	"net/http"
	"time"
)

// An Operation is one request and what became of it, as a journal keeps it. It is enough to
// send the request again in another process, except for credentials, which are not in it; see
// [Options.Authorize].
type Operation struct {
	// ID is the caller's own name for the operation, such as an order number; the key, if
	// the caller gave none. It is unique in a journal.
	ID string `json:"id"`
	// Key is the value of the key's header, as it is sent.
	Key    string      `json:"key"`
	Method string      `json:"method"`
	URL    string      `json:"url"`
	Host   string      `json:"host,omitempty"` // if it is not that of the URL
	Header http.Header `json:"header"`         // with the key's, without credentials
	Body   []byte      `json:"body,omitempty"`
	// Profile is that of the API.
	Profile Profile `json:"profile"`
	// Begun is when the operation was stored, directly before its first attempt.
	Begun time.Time `json:"begun"`

	// Answer is the final one. Without it, and unless it was abandoned, the operation is
	// unfinished.
	Answer *Answer `json:"answer,omitempty"`
	// Abandoned is the reason for which a person has abandoned the operation.
	Abandoned string `json:"abandoned,omitempty"`
	// Ended is when Answer or Abandoned was stored.
	Ended time.Time `json:"ended,omitzero"`
	// Expires is when the API forgets the key, if it said so.
	Expires time.Time `json:"expires,omitzero"`
}

// Unfinished reports whether the operation has no outcome yet.
func (o *Operation) Unfinished() bool { return o.Answer == nil && o.Abandoned == "" }

// same reports whether two operations are the same request.
func (o *Operation) same(other *Operation) bool {
	return o.Method == other.Method && o.URL == other.URL && o.Host == other.Host && bytes.Equal(o.Body, other.Body)
}

// An Answer is a final answer.
type Answer struct {
	Status int         `json:"status"`
	Header http.Header `json:"header"`
	Body   []byte      `json:"body,omitempty"`
	// Streamed: the body was larger than Options.MaxAnswer and is not in Body. A later call
	// for the operation asks the API again, with the same key.
	Streamed bool `json:"streamed,omitempty"`
}

// A Journal keeps operations beyond the life of a process. Its methods may be called
// concurrently. What they have stored is durable when they return.
type Journal interface {
	// Begin stores an operation. If there is one with its ID already, Begin stores nothing
	// and returns that one and true.
	Begin(ctx context.Context, op Operation) (Operation, bool, error)
	// End stores the outcome of an unfinished operation: Answer or Abandoned, Ended and
	// Expires. It does nothing if the operation has an outcome, or is not there.
	End(ctx context.Context, op Operation) error
	// Release removes an unfinished operation that was not executed, so that it is not sent
	// later either. It returns false and leaves the operation there if another Begin has
	// found it: that call may be sending it.
	Release(ctx context.Context, op Operation) (bool, error)
	// Operations returns all operations, the oldest first.
	Operations(ctx context.Context) ([]Operation, error)
}

type operationKey struct{}

// WithOperation returns a context for a request that names its operation: the caller's own
// name for what the request does, such as an order number. With a journal, a second request
// for the same operation gets the first one's answer.
func WithOperation(ctx context.Context, id string) context.Context {
	return context.WithValue(ctx, operationKey{}, id)
}

func operationID(ctx context.Context) string {
	id, _ := ctx.Value(operationKey{}).(string)
	return id
}

// Package client sends POSTs that may be retried: one key for each operation, the same key
// and the same bytes on every attempt, until there is a final answer or an error that says
// what is known.
//
//	c, err := client.New(nil)
//	...
//	http.DefaultClient.Transport = c // or c.Do("order-17", request)
//
// It works with every API that honours Idempotency-Key, behind retrysafe or not, and imports
// no other package of retrysafe. A [Client] is an [http.RoundTripper], so that it can stand
// under an [http.Client] or under the library of a provider.
//
// With a journal ([Options.Journal]; package client/journal has two) each operation is stored
// before its first byte is sent. A process that died sends its unfinished operations again by
// [Client.Resume], with the same keys, and a second call for the same operation, by the
// caller's own name for it, gets the first call's answer.
//
// Every error that [Client] returns for a keyed request is about the operation:
// [*MismatchError], [*InFlightError], [*UnknownError] and [*ExhaustedError] say whether it may
// have happened. An error of another type means that nothing was sent.
package client

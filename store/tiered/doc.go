// Package tiered keeps answers in this process's memory, before any store.
//
// A Completed record never changes until it expires, so a retry of a finished
// operation need not ask the store again. A caching store is a [retrysafe.Store]
// itself: put it before the one that keeps the records, and a replay costs no
// round trip.
//
//	cache := tiered.New(below, nil)
//	engine, err := retrysafe.New(cache, nil)
//
// # What is cached
//
// Completed records that are readable and not due, as they came back from the
// store below. Create and Load of such a key are answered from memory. All else
// goes below: every reservation, every Swap, List, Purge, Count. That a key is
// absent is never cached, for a key that is taken for free is run a second time.
//
// # What may be stale
//
// Nothing that this handle has returned, List included, is ever followed by
// something older. A Swap through it is seen by its next call, also when its
// reply was lost.
//
// What others do to a Completed record before it is due is seen after
// [Options.MaxAge] at the latest: an operator on another node, or in a
// transaction of the store below, who erases or forgets an answer. Until then a
// retry here still gets the answer that it got before; it never runs because of
// it. An operator who cannot wait calls [Store.Forget] or [Store.Flush] on each
// node. The same holds for a Swap that was reported as failed and is applied
// later, and for a store whose clock is set forward.
//
// # Time
//
// ReadAt of a cached record is the store's, and goes on by this process's
// monotonic clock; the node's wall clock never gets into a record. It is behind
// the store's time by no more than the reply took that brought the record, so
// it may differ by that much from what List or another node says.
//
// Whether a record is due is judged more strictly, from the moment the store
// was asked. So what the store calls due is not handed out any more: the store
// is asked, and decides. That is why neither an expired key that runs again nor
// Purge, which deletes only what is due, has to be told to the cache. If a
// machine was suspended, which stops its monotonic clock, what is cached is not
// trusted beyond the time on its wall clock either.
//
// # Transactions
//
// A transaction of the caller's is begun on the store below, also by
// [retrysafe.DoTx], and knows nothing of the cache. It settles what is in flight,
// creates what is absent and claims what is due or retryable; none of these is
// ever answered from the cache, so what it commits is seen at once.
//
// # With sealed records
//
// Before a sealing store the cache holds plaintext, and a replay opens nothing.
// Behind one it holds what is sealed; then Forget needs the name below, which
// only the sealing store knows, and Flush is the way.
//
// What is no longer trusted leaves the memory when something new is cached, when
// it is asked for, or by Flush. Nothing runs in the background.
package tiered

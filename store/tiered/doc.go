// Package tiered keeps answers in this process's memory, in front of any store.
//
// A Completed record never changes until it expires, so a retry of a finished operation
// need not ask the store again. A caching store is a [retrysafe.Store] itself: put it
// in front of the one that keeps the records, and a replay costs no round trip.
//
//	cache := tiered.New(below, nil)
//	engine, err := retrysafe.New(cache, nil)
//	go cache.Run(ctx) // drops what operators change on other nodes
//
// # What is cached
//
// Completed records that are readable and not due, as they came back from the store
// below. Create and Load of such a key are answered from memory. All else goes below:
// every reservation, every Swap, List, Purge, Count. The absence of a key is never
// cached: if a used key were taken for free, its operation would run a second time.
//
// # What may be stale
//
// After this handle has returned a record, by List too, it never returns an older one.
// A Swap through it is visible to its next call, also when its reply was lost.
//
// A Completed record changes before it is due only by an operator, which may erase or
// forget an answer on another node. [Store.Run] follows these changes where the store
// below is a [retrysafe.ChangeFeed]: the change is visible within a second. A cache that
// has not been able to read the changes for five seconds does not answer any more, until
// it can; nor does one whose Run has ended.
//
// Without Run, or over another store, the change is visible after [Options.MaxAge] at the
// latest. Until then a retry here still gets the answer that it got before; it never
// runs because of it. To make it visible at once, call [Store.Forget] or [Store.Flush]
// on each node. MaxAge also bounds what no feed tells: a Completed record that was
// changed by a transaction of the caller's, or by a Swap that was reported as failed and
// is applied later, and a store whose clock is set forward.
//
// # Time
//
// ReadAt of a cached record is the store's time, advanced by this process's monotonic
// clock; the node's wall clock never enters a record. It lags behind the store's time
// by at most the latency of the reply that brought the record, so it may differ by that
// much from what List or another node returns.
//
// Whether a record is due is decided more strictly, counted from the moment the store
// was asked. So a record that the store calls due is not served from the cache any
// more: the store is asked, and decides. That is why the cache need not be notified of
// an expired key that runs again, nor of Purge, which deletes only what is due. If the
// machine was suspended, which stops its monotonic clock, cached records are not
// trusted beyond their time on the wall clock either.
//
// # Transactions
//
// A transaction of the caller's is begun on the store below, also by [retrysafe.DoTx],
// and does not use the cache. It settles what is in flight, creates what is absent and
// claims what is due or retryable. None of these is ever answered from the cache, so
// its commit is visible at once.
//
// # With sealed records
//
// In front of a sealing store the cache holds plaintext, and a replay decrypts nothing.
// Behind one it holds sealed records; then Forget needs the key's name below, which
// only the sealing store knows, so use Flush.
//
// Records that are no longer trusted are removed when a new one is cached, when they
// are asked for, or by Flush. Nothing runs in the background but [Store.Run].
package tiered

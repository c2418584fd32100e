// Package janitor settles and deletes records in the background, so that no key stays
// stuck when its client does not retry. A [Sweeper] settles attempts whose lease ran
// out, a [Reconciler] asks about unknown outcomes, and a [Reaper] deletes records whose
// retention is over.
//
//	err := janitor.Run(ctx,
//		janitor.NewSweeper(store, nil),
//		janitor.NewReconciler(store, resolver, nil),
//		janitor.NewReaper(store, nil),
//	)
//
// Every node may run all three, over any store. There is no leader. Each change is one
// compare-and-swap of the record that was found due: if two nodes pick the same record,
// one swap wins and the other node skips the record. The decisions are pure functions
// of the root package and depend on the record alone.
//
// Constructors start nothing. [Run] starts one goroutine for each duty and returns when
// all of them have ended.
package janitor

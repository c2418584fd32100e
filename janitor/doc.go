// Package janitor does what must be done while nobody asks for it, so that nothing
// stays stuck: a [Sweeper] settles attempts whose owners fell silent, a
// [Reconciler] finds out what became of those that nobody knows, and a [Reaper]
// deletes what is forgotten.
//
//	err := janitor.Run(ctx,
//		janitor.NewSweeper(store, nil),
//		janitor.NewReconciler(store, resolver, nil),
//		janitor.NewReaper(store, nil),
//	)
//
// Every node may run all of it, over any store. There is no leader: each change is
// one compare-and-swap of the record that was found due, so of two who come at the
// same time one is too late and leaves it, and an old copy overwrites nothing. What
// is decided is decided by pure functions of the root package, from the record alone.
//
// Constructors start nothing. [Run] starts a goroutine for each duty and has ended
// them all when it returns.
package janitor

// Package operator holds the actions of a person on a record: the verbs behind the
// command line and the console.
//
//	service, err := operator.New(store, nil)
//	page, err := service.List(ctx, operator.Filter{Dead: true})
//	entry, err := service.Resolve(ctx, operator.Action{
//		By: "anna", Why: "ch_17 is in Stripe's dashboard",
//		Ref: record.Ref, Revision: record.Revision,
//	}, retrysafe.Result{Status: 201, Body: answer})
//
// # What holds for every verb
//
// A verb is one compare-and-swap on the revision that the operator saw. If the record
// has changed since then, the action is refused with [ErrStale], and the error says
// what the record is now. Of two operators one wins.
//
// A verb is itself an operation under an idempotency key, [Action.ID], in a scope of
// retrysafe's own, over the same store. So a double click gets the outcome of the first
// click, an action whose reply was lost can be repeated under the same ID, and its
// answer is the entry in the audit. Refused actions are in the audit too. Author, verb
// and reason are stored before the record is changed.
//
// A verb leaves a note in the record, written in the same swap.
//
// This package does not authorise: the caller has authenticated the person in
// [Action.By]. Do not expose it to clients: it shows stored answers.
//
// # Many records at once
//
// After an outage, [Service.Groups] shows what needs a person in groups. A [Batch] applies
// one verb to all records that a [Filter] selects: [Service.Select] counts them, and
// [Service.Apply] changes each by one compare-and-swap at the revision at which it was
// counted.
//
// # Caches
//
// If the store is a cache, as store/tiered is, the service drops the cached record of a
// key before it reads the key, and the change passes through the cache. On other nodes
// an answer may stay cached for up to their MaxAge.
package operator

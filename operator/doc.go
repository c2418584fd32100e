// Package operator is what a person may do to a record, safely: the verbs behind
// the command line and the console.
//
//	desk, err := operator.New(store, nil)
//	page, err := desk.List(ctx, operator.Filter{Dead: true})
//	entry, err := desk.Resolve(ctx, operator.Action{
//		By: "anna", Why: "ch_17 is in Stripe's dashboard",
//		Ref: record.Ref, Revision: record.Revision,
//	}, retrysafe.Result{Status: 201, Body: answer})
//
// # What holds for every verb
//
// It is one compare-and-swap on the revision that the person saw. Who acts on an
// old page is refused with [ErrStale], and told what the record is now. Of two
// operators one wins.
//
// It is an operation under a key itself, [Action.ID], in a scope of retrysafe's
// own, over the same store. So a second click gets the outcome of the first, an
// action whose reply was lost is repeated under the same ID without harm, and its
// answer is the entry in the audit. What was refused is in the audit too. Who
// asked, for what and why is stored before the record is touched.
//
// It leaves a note in the record, written in the same step.
//
// Who may do what is not decided here: the caller has authenticated the person in
// [Action.By]. Nothing here is for clients, whose answers it shows.
//
// # Caches
//
// A caching store before the records, as store/tiered is, is asked to drop what
// it holds of a key before the key is looked at, and sees the change itself. On
// other nodes an answer may be cached for as long as their MaxAge says.
package operator

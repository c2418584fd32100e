// Package otel follows retrysafe with OpenTelemetry: spans for what happens to a key, and
// the metrics of package telemetry as OpenTelemetry's.
//
//	tracer := otel.New(nil) // the global provider
//	engine, err := retrysafe.New(store, &retrysafe.Options{Tracer: tracer})
//	...
//	reconciler := janitor.NewReconciler(store, resolver, &janitor.ReconcilerOptions{Options: janitor.Options{Tracer: tracer}})
//	worker, err := outbox.NewWorker(store, sink, &outbox.Options{Tracer: tracer})
//
// # Spans
//
// A call has one span of these names: "retrysafe reserve" if it ran or was refused,
// "retrysafe replay" if it got a stored answer. An attempt has a "retrysafe run", in whose
// context the operation runs, and a "retrysafe settle". A worker of an outbox makes a
// "retrysafe deliver" for each try of a message, in the trace that enqueued it, and a
// reconciler a "retrysafe reconcile" for each question.
//
// The reservation's span ends when the store has confirmed it, before the operation runs.
// So it is exported although the process may be killed while the operation runs. The
// record keeps its trace context, and each later span about the key links to it: a replay,
// a further attempt, a question of a reconciler, on any node.
//
// A span has the operation, the number of the attempt, the outcome, and the hashes of key
// and scope, as logs have them: [retrysafe.HashKey]. It never has a key, a body, a header
// or the text of an error.
//
// The page docs/tracing.md lists all attributes.
package otel

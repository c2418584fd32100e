// Package telemetry shows what retrysafe does as metrics of Prometheus.
//
//	metrics := telemetry.New(nil)
//	metrics.Routes("POST /payments")
//	engine, err := retrysafe.New(store, &retrysafe.Options{Observer: metrics.Observer()})
//	...
//	metrics.Janitor(sweeper, reaper)
//	metrics.Store(engine.Healthy)
//	admin.Handle("GET /metrics", metrics.Handler())
//
// Events of the engine, the janitor, webhooks and operators are counted as they come,
// by the [Metrics.Observer] that all of them are given.
//
// What others count themselves is read when somebody scrapes: [Metrics.Janitor],
// [Metrics.Outbox], [Metrics.Cache], [Metrics.Guard] and [Metrics.Store] each add a
// source, and may be called for as many as there are, which are shown as one. Each
// returns a function that forgets the source, for when a configuration is replaced by
// another: its counts stay counted. Who never forgets need not.
//
// # What can become a label
//
// Nothing that a client sends. Keys are in no metric. Routes are those that were
// declared; all else is "other". Tenants are hashed, only where [Options.Tenants]
// asks for them, and only so many. So there is a bound to the number of series,
// whatever is sent.
//
// The page docs/metrics.md has all of them, and which of them to be woken by.
package telemetry

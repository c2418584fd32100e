// Package telemetry exports what retrysafe does as Prometheus metrics.
//
//	metrics := telemetry.New(nil)
//	metrics.Routes("POST /payments")
//	engine, err := retrysafe.New(store, &retrysafe.Options{Observer: metrics.Observer()})
//	...
//	metrics.Janitor(sweeper, reaper)
//	metrics.Store(engine.Healthy)
//	admin.Handle("GET /metrics", metrics.Handler())
//
// [Metrics.Observer] counts the events of engines, janitors, webhooks and operators as
// they occur. Give it to all of them.
//
// Counters that other packages keep are read at each scrape: [Metrics.Janitor],
// [Metrics.Outbox], [Metrics.Cache], [Metrics.Batches], [Metrics.Guard] and
// [Metrics.Store] each add a source. What the store knows of unknown outcomes is read by
// a duty, [Metrics.Unknowns], never by a scrape. Each may be called several times; sources of one kind are merged. Each
// returns a function that removes the source when a configuration is replaced; its
// counts are kept. The function need not be called.
//
// # What can become a label
//
// Nothing that a client sends becomes a label. Keys are in no metric. Only declared
// routes have a label of their own; all others are "other". Tenants are labels only if
// [Options.Tenants] says so; they are hashed, and their number is bounded. So the
// number of series is bounded, whatever clients send.
//
// The page docs/metrics.md lists all metrics, and the alerts to set.
package telemetry

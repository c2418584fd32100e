package telemetry

// The metrics that are read at each scrape.
var (
	buildInfo    = gauges("retrysafe_build_info", "Version of the running program; always 1.", highest, "version", "goversion")
	responses    = counts("retrysafe_responses_total", "Requests that were answered.", "route", "outcome", "status")
	tenantEvents = counts("retrysafe_tenant_events_total", "All events, by tenant.", "tenant", "event")

	tenantDuplicates = counts("retrysafe_tenant_duplicates_prevented_total", "Calls that came again and whose operation did not run again, by tenant.", "tenant")

	ttlPruned   = counts("api_idempotency_ttl_pruned_total", "Records that were deleted because their retention was over.")
	passes      = counts("retrysafe_janitor_passes_total", "Passes of a duty that have ended.", "duty")
	failures    = counts("retrysafe_janitor_failures_total", "Passes that ended with an error.", "duty")
	lastSuccess = gauges("retrysafe_janitor_last_success_timestamp_seconds", "When a pass last ended without an error; before the first success, when this process began to count.", lowest, "duty")
	overtaken   = counts("retrysafe_janitor_overtaken_total", "Records that another process had changed meanwhile.", "duty")
	unreadable  = gauges("retrysafe_janitor_unreadable_records", "Records that the last pass could not read.", highest, "duty")
	records     = counts("retrysafe_janitor_records_total", "Records that a duty has changed, by result.", "duty", "result")
	questions   = counts("retrysafe_reconcile_questions_total", "Calls of resolvers, by result; skipped are those that an open breaker prevented.", "result")

	breakersOpen = gauges("retrysafe_reconcile_breakers_open", "Resolvers that are not asked now because they failed too often in a row.", highest)

	messages      = counts("retrysafe_outbox_messages_total", "Delivery attempts, by result.", "result")
	waiting       = gauges("retrysafe_outbox_waiting_messages", "Messages that wait to be delivered.", highest)
	dead          = gauges("retrysafe_outbox_dead_letters", "Dead letters: messages that were given up and wait for an operator.", highest)
	oldestWaiting = gauges("retrysafe_outbox_oldest_message_seconds", "Age of the oldest message that is ready to be sent.", highest)
	oldestDead    = gauges("retrysafe_outbox_oldest_dead_letter_seconds", "Time since the oldest dead letter became one.", highest)
	scrapeErrors  = counts("retrysafe_scrape_errors_total", "Sources that could not be read.", "source")

	cacheHits     = counts("retrysafe_cache_hits_total", "Reads that the cache answered without the store.")
	cacheMisses   = counts("retrysafe_cache_misses_total", "Reads that went to the store, new keys included.")
	cacheBypassed = counts("retrysafe_cache_bypassed_total", "Reads that a cached record could have answered, while the store's changes could not be read.")
	cacheEvicted  = counts("retrysafe_cache_evicted_total", "Records that were evicted to make room for others.")
	cacheEntries  = gauges("retrysafe_cache_entries", "Records in the cache.", sum)
	cacheBytes    = gauges("retrysafe_cache_bytes", "Memory of the records in the cache, in bytes.", sum)

	sharedCacheHits   = counts("retrysafe_shared_cache_hits_total", "Reads that the shared cache answered without the store.")
	sharedCacheMisses = counts("retrysafe_shared_cache_misses_total", "Reads that went past the shared cache to the store, new keys included.")

	batches         = counts("retrysafe_store_batches_total", "Batches that were sent to the store.")
	batchRequests   = counts("retrysafe_store_batch_requests_total", "Requests that were in these batches.")
	batchesInFlight = gauges("retrysafe_store_batches_in_flight", "Batches that the store has not answered yet.", sum)
	batchWaiting    = gauges("retrysafe_store_batch_waiting_requests", "Requests that wait for the next batch.", sum)

	unknownOutcomes = gauges("retrysafe_unknown_outcomes", "Keys whose outcome is unknown, by the class of the reason, as last read from the store.", highest, "reason")
	unknownOldest   = gauges("retrysafe_unknown_oldest_seconds", "For how long at least the oldest unknown outcome has been unknown; 0 if there is none.", highest)
	unknownDead     = gauges("retrysafe_unknown_dead_letters", "Unknown outcomes that no resolver is asked about again.", highest)
	unknownDisputed = gauges("retrysafe_unknown_disputed", "Unknown outcomes whose evidence contradicts itself: the operation may have happened twice.", highest)

	findings      = counts("retrysafe_guard_findings_total", "Requests that guards refused or, where a rule is not enforced, would have refused.", "code", "enforced")
	limitRefusals = counts("retrysafe_limit_refusals_total", "Requests that were refused and connections that were closed, by the limit that was reached.", "limit")
	limitUsed     = gauges("retrysafe_limit_used", "How much of a limit is used; memory is in bytes.", sum, "limit")
	limitMax      = gauges("retrysafe_limit_max", "How much of it there is.", sum, "limit")

	webhookEvents     = counts("retrysafe_webhook_events_total", "Events of providers, by what became of them. Redeliveries of events that were taken in are not counted.", "webhook", "outcome")
	ledgerRuns        = counts("retrysafe_ledger_runs_total", "Comparisons of ledgers that this process has ended.", "ledger", "result")
	ledgerDifferences = gauges("retrysafe_ledger_differences", "Differences of the latest day that was compared, by any node.", highest, "ledger", "kind")
	ledgerLastRun     = gauges("retrysafe_ledger_last_run_timestamp_seconds", "When this process last ended a comparison, in whichever way; before the first, when it began to count.", highest, "ledger")
	ledgerLastSuccess = gauges("retrysafe_ledger_last_success_timestamp_seconds", "When the latest day was compared, by any node; before the first, when this process began to count.", highest, "ledger")

	configRefused = gauges("retrysafe_config_reload_refused", "1 after a reload of the configuration was refused, so that the former one is at work; 0 otherwise.", highest)

	storeUp = gauges("retrysafe_store_up", "1 while the store answers, 0 while reservations are refused.", lowest)
)

package telemetry

// What is read when somebody scrapes.
var (
	buildInfo    = gauges("retrysafe_build_info", "What runs; always 1.", highest, "version", "goversion")
	responses    = counts("retrysafe_responses_total", "Requests that were answered.", "route", "outcome", "status")
	tenantEvents = counts("retrysafe_tenant_events_total", "All events, by tenant.", "tenant", "event")

	ttlPruned   = counts("api_idempotency_ttl_pruned_total", "Records that were deleted because their retention was over.")
	passes      = counts("retrysafe_janitor_passes_total", "How often a duty was done.", "duty")
	failures    = counts("retrysafe_janitor_failures_total", "Passes that ended with an error.", "duty")
	lastSuccess = gauges("retrysafe_janitor_last_success_timestamp_seconds", "When a pass last ended without an error; before the first, since when it is waited for.", lowest, "duty")
	overtaken   = counts("retrysafe_janitor_overtaken_total", "Records that somebody else had moved meanwhile.", "duty")
	unreadable  = gauges("retrysafe_janitor_unreadable_records", "Records of the last pass that this program cannot read.", highest, "duty")
	records     = counts("retrysafe_janitor_records_total", "What became of records.", "duty", "result")
	questions   = counts("retrysafe_reconcile_questions_total", "Resolvers that were asked.", "result")

	messages      = counts("retrysafe_outbox_messages_total", "What became of deliveries.", "result")
	waiting       = gauges("retrysafe_outbox_waiting_messages", "Messages that wait to be delivered.", highest)
	dead          = gauges("retrysafe_outbox_dead_letters", "Messages that were given up and are left to an operator.", highest)
	oldestWaiting = gauges("retrysafe_outbox_oldest_message_seconds", "How long the oldest message that could be sent has waited.", highest)
	oldestDead    = gauges("retrysafe_outbox_oldest_dead_letter_seconds", "How long the oldest dead letter has been one.", highest)
	scrapeErrors  = counts("retrysafe_scrape_errors_total", "Sources that could not be read.", "source")

	cacheHits    = counts("retrysafe_cache_hits_total", "Calls that were answered without the store.")
	cacheMisses  = counts("retrysafe_cache_misses_total", "Calls that the store was asked for, new keys included.")
	cacheEvicted = counts("retrysafe_cache_evicted_total", "Records that had to make room for others.")
	cacheEntries = gauges("retrysafe_cache_entries", "Records in the cache.", sum)
	cacheBytes   = gauges("retrysafe_cache_bytes", "Their memory.", sum)

	findings = counts("retrysafe_guard_findings_total", "What guards refused or, where it was not enforced, would have.", "code", "enforced")
	storeUp  = gauges("retrysafe_store_up", "1 while the store answers, 0 while reservations are refused.", lowest)
)

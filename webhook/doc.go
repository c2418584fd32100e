// Package webhook receives a provider's events and settles unknown outcomes by them.
//
//	intake, err := webhook.New("stripe", engine, webhook.Stripe{Secrets: secrets}, read, nil)
//	mux.Handle("POST /hooks/stripe", intake)
//
// The intake verifies the signature of an event and remembers the event by its id. A
// function of yours reads the event: it says which key the event is about and what it
// proves. Then the record of the key is settled as [retrysafe.DecideEvidence] decides.
// A redelivery gets the first answer. An event with a wrong signature or an old time
// stamp stores nothing.
//
// An event never overwrites an answer, and never settles an attempt whose owner is
// still at work. Evidence that contradicts the record raises an alarm:
// [retrysafe.EventContradicted], and an error in the log.
package webhook

// Package webhook takes in what a provider reports by itself, and settles by it
// what nobody knew.
//
//	intake, err := webhook.New("stripe", engine, webhook.Stripe{Secrets: secrets}, read, nil)
//	mux.Handle("POST /hooks/stripe", intake)
//
// An event is verified, remembered by its id, read by a function of yours that says
// which key it is about and what it proves, and then an unknown outcome becomes what
// [retrysafe.DecideEvidence] says. A redelivery gets the first answer. What is not the
// provider's own, or not from now, stores nothing.
//
// An event never overwrites an answer and never overtakes an owner at work. Evidence
// that cannot be true together with the record is an alarm:
// [retrysafe.EventContradicted], and a line in the log.
package webhook

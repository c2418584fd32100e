// Package httpsink delivers messages of an outbox as HTTP requests: signed webhooks,
// and calls of APIs that know an idempotency key.
//
//	sink, err := httpsink.New(httpsink.To(httpsink.Endpoint{
//		URL: "https://example.com/hooks", Secrets: secrets,
//	}), nil)
//	worker, err := outbox.NewWorker(store, sink, nil)
//
// A message goes out byte for byte as it was enqueued, once for each try: the
// transport never sends it again by itself. Its key is the Idempotency-Key, and the
// webhook-id if the endpoint has secrets.
//
// Whose endpoints are given by strangers can be given private ones. So the address
// that is really dialled must be a public one, or on a list of yours; no redirect is
// followed, no proxy is taken from the environment, and a URL has no credentials.
package httpsink

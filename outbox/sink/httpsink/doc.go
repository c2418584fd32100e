// Package httpsink delivers messages of an outbox as HTTP requests: signed webhooks,
// and calls of APIs that honour an idempotency key.
//
//	sink, err := httpsink.New(httpsink.To(httpsink.Endpoint{
//		URL: "https://example.com/hooks", Secrets: secrets,
//	}), nil)
//	worker, err := outbox.NewWorker(store, sink, nil)
//
// A message is sent byte for byte as it was enqueued, once for each try: the transport
// never sends it again by itself. Its key is the Idempotency-Key, and the webhook-id if
// the endpoint has secrets.
//
// Endpoints often come from users, and could point into a private network (SSRF). So the
// address that is dialled must be public or in [Options.Allow]. No redirect is followed,
// no proxy is taken from the environment, and a URL with credentials is refused.
package httpsink

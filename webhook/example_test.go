package webhook_test

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/store/memstore"
	"github.com/retrysafe/retrysafe/webhook"
)

// readPayment reads the events of a provider like Stripe. Tenant and key were given
// to it as metadata of the payment, and come back in each event.
func readPayment(_ context.Context, ev webhook.Event) (webhook.Statement, error) {
	var event struct {
		Type string
		Data struct {
			Object struct {
				ID       string
				Metadata struct{ Tenant, Key string }
			}
		}
	}
	if err := json.Unmarshal(ev.Body, &event); err != nil {
		return webhook.Statement{}, errors.New("the event is not JSON of the form that is known here")
	}
	payment := event.Data.Object
	evidence := retrysafe.Evidence{ProviderRef: payment.ID, Text: event.Type}
	switch event.Type {
	case "payment_intent.succeeded":
		evidence.Finding = retrysafe.FindingHappened
		evidence.Result = retrysafe.Result{Status: 201, Body: []byte(`{"payment":"` + payment.ID + `"}`)}
	case "payment_intent.canceled": // it will never be charged
		evidence.Finding = retrysafe.FindingDeclined
		evidence.Result = retrysafe.Result{Status: 402, Body: []byte(`{"error":"declined"}`)}
	case "payment_intent.processing", "payment_intent.payment_failed": // another may follow
		evidence.Finding = retrysafe.FindingUnknown
	default:
		return webhook.Statement{}, webhook.ErrIgnore
	}
	ref := retrysafe.Ref{Scope: payment.Metadata.Tenant, Key: payment.Metadata.Key}
	return webhook.Statement{Ref: ref, Evidence: evidence}, nil
}

// An unknown outcome is settled by what the provider reports, and the client's next
// retry gets the answer.
func Example_intake() {
	ctx, mux := context.Background(), http.NewServeMux()
	engine, err := retrysafe.New(memstore.New(nil), nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	secrets := []webhook.Secret{"whsec_the_one_that_stripe_shows"}
	intake, err := webhook.New("stripe", engine, webhook.Stripe{Secrets: secrets}, readPayment, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	mux.Handle("/hooks/stripe", intake)

	// A payment whose answer was lost.
	call := retrysafe.Call{Ref: retrysafe.Ref{Scope: "tenant-1", Key: "order-42"}}
	_, err = engine.Do(ctx, call, func(context.Context, *retrysafe.Execution) (retrysafe.Result, error) {
		return retrysafe.Result{}, errors.New("the provider did not answer in time")
	})
	fmt.Println(err)

	// The provider's event, twice.
	body := `{"id":"evt_1","type":"payment_intent.succeeded","data":{"object":{"id":"pi_7","metadata":{"tenant":"tenant-1","key":"order-42"}}}}`
	for range 2 {
		event := httptest.NewRequest(http.MethodPost, "/hooks/stripe", strings.NewReader(body))
		event.Header.Set("Stripe-Signature", webhook.SignStripe(secrets[0], time.Now(), []byte(body)))
		answer := httptest.NewRecorder()
		mux.ServeHTTP(answer, event)
		fmt.Print(answer.Code, " ", answer.Body)
	}

	// The client's retry.
	_, out, err := engine.Begin(ctx, call)
	fmt.Println(out.Status, string(out.Body), err)
	// Output:
	// the provider did not answer in time
	// 200 {"outcome":"settled"}
	// 200 {"outcome":"settled"}
	// 201 {"payment":"pi_7"} <nil>
}

// notification is an event of a provider like Adyen: the signature is in the body,
// over some of its fields, and there is neither an id nor a time stamp.
type notification struct {
	PspReference, MerchantReference, EventCode, Success string
	AdditionalData                                      struct{ HmacSignature string }
}

// fieldScheme knows how such a provider signs.
type fieldScheme struct{ key []byte }

func (s fieldScheme) Verify(_ http.Header, body []byte) (webhook.Event, error) {
	var n notification
	if err := json.Unmarshal(body, &n); err != nil {
		return webhook.Event{}, webhook.ErrMalformed
	}
	got, err := base64.StdEncoding.DecodeString(n.AdditionalData.HmacSignature)
	if err != nil || !hmac.Equal(got, s.sign(&n)) {
		return webhook.Event{}, webhook.ErrForged
	}
	// The same on each delivery, different for each event, and all of it signed.
	return webhook.Event{ID: n.PspReference + " " + n.EventCode + " " + n.Success}, nil
}

func (s fieldScheme) sign(n *notification) []byte {
	m := hmac.New(sha256.New, s.key)
	m.Write([]byte(strings.Join([]string{n.PspReference, n.MerchantReference, n.EventCode, n.Success}, ":")))
	return m.Sum(nil)
}

// readNotification reads such events. Nothing but what is signed is believed.
func readNotification(_ context.Context, ev webhook.Event) (webhook.Statement, error) {
	var n notification
	if err := json.Unmarshal(ev.Body, &n); err != nil {
		return webhook.Statement{}, err
	}
	if n.EventCode != "AUTHORISATION" {
		return webhook.Statement{}, webhook.ErrIgnore
	}
	evidence := retrysafe.Evidence{
		Finding: retrysafe.FindingDeclined, ProviderRef: n.PspReference, Text: n.EventCode,
		Result: retrysafe.Result{Status: 402, Body: []byte(`{"error":"refused"}`)},
	}
	if n.Success == "true" {
		evidence.Finding = retrysafe.FindingHappened
		evidence.Result = retrysafe.Result{Status: 201, Body: []byte(`{"payment":"` + n.PspReference + `"}`)}
	}
	tenant, key, ok := strings.Cut(n.MerchantReference, "/")
	if !ok {
		return webhook.Statement{}, webhook.ErrIgnore // it was not sent by us
	}
	return webhook.Statement{Ref: retrysafe.Ref{Scope: tenant, Key: key}, Evidence: evidence}, nil
}

// A provider that signs in its own way needs a scheme of its own.
func ExampleScheme() {
	engine, _ := retrysafe.New(memstore.New(nil), nil)
	x, _, _ := engine.Begin(context.Background(), retrysafe.Call{Ref: retrysafe.Ref{Scope: "tenant-1", Key: "order-42"}})
	_ = x.Quarantine(context.Background(), errors.New("the provider did not answer in time"))

	scheme := fieldScheme{key: []byte("the key that both sides know")}
	intake, err := webhook.New("adyen", engine, scheme, readNotification, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	n := notification{PspReference: "7914073381342284", MerchantReference: "tenant-1/order-42", EventCode: "AUTHORISATION", Success: "true"}
	n.AdditionalData.HmacSignature = base64.StdEncoding.EncodeToString(scheme.sign(&n))
	send := func() {
		body, _ := json.Marshal(n)
		answer := httptest.NewRecorder()
		intake.ServeHTTP(answer, httptest.NewRequest(http.MethodPost, "/hooks/adyen", strings.NewReader(string(body))))
		fmt.Print(answer.Code, " ", answer.Body)
	}
	send()
	n.MerchantReference = "tenant-2/order-1"
	send()
	// Output:
	// 200 {"outcome":"settled"}
	// 401 {"type":"https://github.com/retrysafe/retrysafe/blob/main/docs/webhooks.md#event-forged","title":"Event is not signed","status":401,"detail":"None of its signatures was made with a secret that is known here.","code":"event-forged","retryable":false}
}

// While a secret is being replaced, events signed with either are taken in.
func ExampleVerifier() {
	scheme := webhook.Verifier{Secrets: []webhook.Secret{
		webhook.Secret(os.Getenv("WEBHOOK_SECRET")),
		webhook.Secret(os.Getenv("WEBHOOK_SECRET_BEFORE")),
	}}
	fmt.Println(scheme.Check())
	// Output: webhook: a secret has 0 bytes, and needs 24
}

// Payments that are found by the provider's id, in a table that the handler writes.
func ExampleOptions() {
	payments := map[string]retrysafe.Ref{"pi_7": {Scope: "tenant-1", Key: "order-42"}}
	options := &webhook.Options{
		Find: func(_ context.Context, providerRef string) (retrysafe.Ref, error) {
			ref, ok := payments[providerRef]
			if !ok {
				return ref, retrysafe.ErrNotFound
			}
			return ref, nil
		},
	}
	ref, err := options.Find(context.Background(), "pi_7")
	fmt.Println(ref.Key, err)
	// Output: order-42 <nil>
}

// GitHub and providers that sign like it.
func ExampleGitHub() {
	scheme := webhook.GitHub(webhook.Secret("a secret that was set at GitHub"))
	fmt.Println(scheme.Check(), scheme.Header, scheme.IDHeader)
	// Output: <nil> X-Hub-Signature-256 X-GitHub-Delivery
}

// A provider that signs like Slack: a version, the time stamp and the body.
func ExampleHMAC() {
	scheme := webhook.HMAC{
		Secrets:         []webhook.Secret{"the secret that both sides know"},
		Header:          "X-Slack-Signature",
		Prefix:          "v0=",
		Signed:          "v0:{timestamp}:{body}",
		TimestampHeader: "X-Slack-Request-Timestamp",
		IDPointer:       "/event_id",
	}
	fmt.Println(scheme.Check())
	// Output: <nil>
}

// Keys that are found by the downstream key that the provider was given.
func ExampleIntake_Observe() {
	const namespace = "shop"
	told := &observers{}
	engine, _ := retrysafe.New(memstore.New(nil), &retrysafe.Options{Namespace: namespace, Observer: told})
	read := func(_ context.Context, ev webhook.Event) (webhook.Statement, error) {
		return webhook.Statement{DownstreamKey: string(ev.Body), Evidence: retrysafe.Evidence{
			Finding: retrysafe.FindingHappened, Result: retrysafe.Result{Status: 201},
		}}, nil
	}
	intake, err := webhook.New("github", engine, webhook.GitHub("a secret that was set at GitHub"), read, &webhook.Options{
		DownstreamKeys: func(ref retrysafe.Ref) []string { return []string{retrysafe.DownstreamKey(namespace, ref, "charge")} },
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	told.all = append(told.all, intake)

	x, _, _ := engine.Begin(context.Background(), retrysafe.Call{Ref: retrysafe.Ref{Scope: "tenant-1", Key: "order-42"}})
	downstream := x.DownstreamKey("charge")
	_ = x.Quarantine(context.Background(), errors.New("the provider did not answer in time"))

	event := httptest.NewRequest(http.MethodPost, "/hooks/github", strings.NewReader(downstream))
	m := hmac.New(sha256.New, []byte("a secret that was set at GitHub"))
	m.Write([]byte(downstream))
	event.Header.Set("X-Hub-Signature-256", fmt.Sprintf("sha256=%x", m.Sum(nil)))
	event.Header.Set("X-GitHub-Delivery", "72d3162e-cc78-11e3-81ab-4c9367dc0958")
	answer := httptest.NewRecorder()
	intake.ServeHTTP(answer, event)
	fmt.Print(answer.Code, " ", answer.Body)
	// Output: 200 {"outcome":"settled"}
}

// observers are told the same events.
type observers struct{ all []retrysafe.Observer }

func (o *observers) Observe(e retrysafe.Event) {
	for _, one := range o.all {
		one.Observe(e)
	}
}

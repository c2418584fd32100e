package webhook_test

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/retrysafe/retrysafe/internal/test/hammer"
	"github.com/retrysafe/retrysafe/webhook"
)

// The example that the implementations of Standard Webhooks are tested with.
var vector = struct {
	id, body, signature string
	at                  time.Time
}{"msg_p5jXN8AQM9LWM0D4loKWxJek", `{"test": 2432232314}`, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=", time.Unix(1614265330, 0)}

const (
	otherSignature = "v1,Ceo5qEr07ixe2NLpvHk3FH9bwy/WavXrAFQ/9tdO6mc="
	stripeSecret   = webhook.Secret("whsec_test_secret_of_stripe")
	stripeBody     = `{"id":"evt_1","object":"event"}`
	// By openssl, over 1492774577.{"id":"evt_1","object":"event"}
	stripeSignature = "2487a665b0ecf1d2d463404ca93fa3c8fde4b8f9dec1858688b2fa858cd36e16"
)

var stripeAt = time.Unix(1492774577, 0)

func TestSignIsTheStandards(t *testing.T) {
	t.Parallel()
	got, err := webhook.Sign(secret, vector.id, vector.at, []byte(vector.body))
	if err != nil || got != vector.signature {
		t.Errorf("Sign = %q, %v; want %q", got, err, vector.signature)
	}
	for _, bad := range []struct {
		secret webhook.Secret
		id     string
	}{{"whsec_hunter two!", "msg_1"}, {"whsec_c2hvcnQ=", "msg_1"}, {"", "msg_1"}, {secret, ""}, {secret, "msg.1"}} {
		if got, err := webhook.Sign(bad.secret, bad.id, vector.at, nil); err == nil {
			t.Errorf("Sign with id %q = %q, want an error", bad.id, got)
		} else if bad.secret != "" && strings.Contains(err.Error(), strings.TrimPrefix(plain(bad.secret), "whsec_")) {
			t.Errorf("the error shows the secret: %v", err)
		}
	}
}

func plain(s webhook.Secret) string { return string(s) }

func TestVerifier(t *testing.T) {
	t.Parallel()
	with := func(change func(http.Header)) http.Header {
		h := http.Header{}
		h.Set(webhook.HeaderID, vector.id)
		h.Set(webhook.HeaderTimestamp, "1614265330")
		h.Set(webhook.HeaderSignature, vector.signature)
		if change != nil {
			change(h)
		}
		return h
	}
	set := func(name, value string) func(http.Header) { return func(h http.Header) { h.Set(name, value) } }
	for name, c := range map[string]struct {
		header  http.Header
		body    string
		secrets []webhook.Secret
		now     time.Duration // after it was signed
		want    error
	}{
		"as signed":                       {},
		"secret without its prefix":       {secrets: []webhook.Secret{"MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"}},
		"the next secret beside it":       {secrets: []webhook.Secret{next, secret}},
		"the next secret behind it":       {secrets: []webhook.Secret{secret, next}},
		"the first of several signatures": {header: with(set(webhook.HeaderSignature, vector.signature+" "+otherSignature))},
		"the next secret alone":           {secrets: []webhook.Secret{next}, want: webhook.ErrForged},
		"one of several signatures":       {header: with(set(webhook.HeaderSignature, otherSignature+" v2,"+vector.signature[3:]+" v1a,x "+vector.signature))},
		"several, none of them":           {header: with(set(webhook.HeaderSignature, otherSignature+" "+otherSignature)), want: webhook.ErrForged},
		"another version only":            {header: with(set(webhook.HeaderSignature, "v2,"+vector.signature[3:])), want: webhook.ErrForged},
		"half a signature":                {header: with(set(webhook.HeaderSignature, vector.signature[:20])), want: webhook.ErrForged},
		"an empty signature":              {header: with(set(webhook.HeaderSignature, "v1,")), want: webhook.ErrForged},
		"another body":                    {body: `{"test": 2432232315}`, want: webhook.ErrForged},
		"another id":                      {header: with(set(webhook.HeaderID, "msg_2")), want: webhook.ErrForged},
		"another time":                    {header: with(set(webhook.HeaderTimestamp, "1614265331")), want: webhook.ErrForged},
		"the same time written otherwise": {header: with(set(webhook.HeaderTimestamp, "01614265330")), want: webhook.ErrForged},
		"at the end of the tolerance":     {now: 5 * time.Minute},
		"too late":                        {now: 5*time.Minute + time.Second, want: webhook.ErrLate},
		"from the future":                 {now: -5*time.Minute - time.Second, want: webhook.ErrLate},
		"no id":                           {header: with(func(h http.Header) { h.Del(webhook.HeaderID) }), want: webhook.ErrMalformed},
		"no time":                         {header: with(func(h http.Header) { h.Del(webhook.HeaderTimestamp) }), want: webhook.ErrMalformed},
		"no signature":                    {header: with(func(h http.Header) { h.Del(webhook.HeaderSignature) }), want: webhook.ErrMalformed},
		"two ids":                         {header: with(func(h http.Header) { h.Add(webhook.HeaderID, "msg_2") }), want: webhook.ErrMalformed},
		"an id that could be cut":         {header: with(set(webhook.HeaderID, vector.id+".1614265330")), want: webhook.ErrMalformed},
		"a time that is none":             {header: with(set(webhook.HeaderTimestamp, "now")), want: webhook.ErrMalformed},
		"a time before time":              {header: with(set(webhook.HeaderTimestamp, "-1614265330")), want: webhook.ErrMalformed},
		"a time after time":               {header: with(set(webhook.HeaderTimestamp, "99999999999999999999")), want: webhook.ErrMalformed},
	} {
		if c.header == nil {
			c.header = with(nil)
		}
		if c.body == "" {
			c.body = vector.body
		}
		if c.secrets == nil {
			c.secrets = []webhook.Secret{secret}
		}
		v := webhook.Verifier{Secrets: c.secrets, Now: func() time.Time { return vector.at.Add(c.now) }}
		must(t, v.Check())
		ev, err := v.Verify(c.header, []byte(c.body))
		if !errors.Is(err, c.want) || (err == nil) != (c.want == nil) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
		if err == nil && (ev.ID != vector.id || !ev.At.Equal(vector.at)) {
			t.Errorf("%s: the event is %+v", name, ev)
		}
	}
}

func TestStripe(t *testing.T) {
	t.Parallel()
	if got, want := webhook.SignStripe(stripeSecret, stripeAt, []byte(stripeBody)), "t=1492774577,v1="+stripeSignature; got != want {
		t.Errorf("SignStripe = %q, want %q", got, want)
	}
	const zeros = "0000000000000000000000000000000000000000000000000000000000000000"
	good := "t=1492774577,v1=" + stripeSignature
	for name, c := range map[string]struct {
		header  string
		body    string
		secrets []webhook.Secret
		now     time.Duration
		want    error
		says    string
	}{
		"as signed":                 {},
		"beside v0 and another v1":  {header: "t=1492774577,v0=" + zeros + ",v1=" + zeros + ",v1=" + stripeSignature},
		"the next secret beside it": {secrets: []webhook.Secret{next, stripeSecret}},
		"the next secret alone":     {secrets: []webhook.Secret{next}, want: webhook.ErrForged},
		"with spaces":               {header: "t=1492774577, v1=" + stripeSignature},
		"v0 only":                   {header: "t=1492774577,v0=" + stripeSignature, want: webhook.ErrForged},
		"another time":              {header: "t=1492774578,v1=" + stripeSignature, want: webhook.ErrForged},
		"another body":              {body: `{"id":"evt_2"}`, want: webhook.ErrForged},
		"too late":                  {now: 6 * time.Minute, want: webhook.ErrLate},
		"from the future":           {now: -6 * time.Minute, want: webhook.ErrLate},
		"two times":                 {header: "t=1492774577," + good, want: webhook.ErrMalformed, says: "two time stamps"},
		"another letter behind it":  {header: good + "f", want: webhook.ErrForged},
		"no time":                   {header: "v1=" + stripeSignature, want: webhook.ErrMalformed},
		"nonsense":                  {header: ",=,,t", want: webhook.ErrMalformed},
		"signed, without an id": {
			header: webhook.SignStripe(stripeSecret, stripeAt, []byte(`{"object":"event"}`)), body: `{"object":"event"}`, want: webhook.ErrMalformed,
		},
		"signed, not JSON": {header: webhook.SignStripe(stripeSecret, stripeAt, []byte("id")), body: "id", want: webhook.ErrMalformed},
	} {
		if c.header == "" {
			c.header = good
		}
		if c.body == "" {
			c.body = stripeBody
		}
		if c.secrets == nil {
			c.secrets = []webhook.Secret{stripeSecret}
		}
		s := webhook.Stripe{Secrets: c.secrets, Now: func() time.Time { return stripeAt.Add(c.now) }}
		must(t, s.Check())
		ev, err := s.Verify(http.Header{"Stripe-Signature": {c.header}}, []byte(c.body))
		if !errors.Is(err, c.want) || (err == nil) != (c.want == nil) || err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want %v %s", name, err, c.want, c.says)
		}
		if err == nil && (ev.ID != "evt_1" || !ev.At.Equal(stripeAt)) {
			t.Errorf("%s: the event is %+v", name, ev)
		}
	}
	s := webhook.Stripe{Secrets: []webhook.Secret{stripeSecret}, Now: func() time.Time { return stripeAt }}
	for says, h := range map[string]http.Header{
		"there is no Stripe-Signature":            {},
		"there is more than one Stripe-Signature": {"Stripe-Signature": {good, good}},
	} {
		if ev, err := s.Verify(h, []byte(stripeBody)); !errors.Is(err, webhook.ErrMalformed) || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: the event is %+v, %v", says, ev, err)
		}
	}
}

// A scheme without a good secret says so, and takes nothing in all the same.
func TestSchemesNeedSecrets(t *testing.T) {
	t.Parallel()
	for name, s := range map[string]interface {
		webhook.Scheme
		Check() error
	}{
		"none":                 webhook.Verifier{},
		"empty":                webhook.Verifier{Secrets: []webhook.Secret{""}},
		"short":                webhook.Verifier{Secrets: []webhook.Secret{secret, "whsec_c2hvcnQ="}},
		"negative tolerance":   webhook.Verifier{Secrets: []webhook.Secret{secret}, Tolerance: -1},
		"a byte too short":     webhook.Verifier{Secrets: []webhook.Secret{webhook.Secret(base64.StdEncoding.EncodeToString(make([]byte, 23)))}},
		"Stripe, none":         webhook.Stripe{},
		"Stripe, too short":    webhook.Stripe{Secrets: []webhook.Secret{"fifteen letters"}},
		"Stripe, empty":        webhook.Stripe{Secrets: []webhook.Secret{""}},
		"Stripe, no tolerance": webhook.Stripe{Secrets: []webhook.Secret{stripeSecret}, Tolerance: -1},
	} {
		if err := s.Check(); err == nil {
			t.Errorf("%s: Check has no objection", name)
		}
		h := http.Header{"Stripe-Signature": {webhook.SignStripe("", time.Now(), []byte(stripeBody))}}
		if _, err := s.Verify(h, []byte(stripeBody)); err == nil || errors.Is(err, webhook.ErrForged) {
			t.Errorf("%s: an event is %v, want what is wrong with the scheme", name, err)
		}
	}
}

// The tolerance of each scheme is the option's.
func TestToleranceIsTheOptions(t *testing.T) {
	t.Parallel()
	const tolerance = time.Hour
	at := time.Unix(1_600_000_000, 0)
	body := []byte(stripeBody)
	standard, err := webhook.Sign(secret, "msg_1", at, body)
	must(t, err)
	header := headers(
		webhook.HeaderID, "msg_1", webhook.HeaderTimestamp, "1600000000", webhook.HeaderSignature, standard,
		"Stripe-Signature", webhook.SignStripe(stripeSecret, at, body),
		"X-Signature", signHMAC(hmacSecret, "1600000000."+stripeBody),
	)
	for off, want := range map[time.Duration]error{tolerance: nil, -tolerance: nil, tolerance + time.Second: webhook.ErrLate, -tolerance - time.Second: webhook.ErrLate} {
		now := func() time.Time { return at.Add(off) }
		for _, s := range []webhook.Scheme{
			webhook.Verifier{Secrets: []webhook.Secret{secret}, Tolerance: tolerance, Now: now},
			webhook.Stripe{Secrets: []webhook.Secret{stripeSecret}, Tolerance: tolerance, Now: now},
			webhook.HMAC{
				Secrets: []webhook.Secret{hmacSecret}, Header: "X-Signature", Signed: "{timestamp}.{body}", TimestampHeader: webhook.HeaderTimestamp,
				Tolerance: tolerance, Now: now,
			},
		} {
			if _, err := s.Verify(header, body); !errors.Is(err, want) || (err == nil) != (want == nil) {
				t.Errorf("%T, %v off: %v, want %v", s, off, err, want)
			}
		}
	}
}

func TestSecretsAreNotPrinted(t *testing.T) {
	t.Parallel()
	v := webhook.Verifier{Secrets: []webhook.Secret{secret}}
	text, err := json.Marshal(struct{ Secrets []webhook.Secret }{v.Secrets})
	must(t, err)
	for _, shown := range []string{
		fmt.Sprint(v), fmt.Sprintf("%+v %#v %q %x", v, v, secret, secret), fmt.Sprintf("%s %d", secret, secret), string(text),
	} {
		if strings.Contains(shown, "MfKQ9r8G") || strings.Contains(shown, "4d664b51") {
			t.Errorf("%s shows the secret", shown)
		}
	}
}

// No header and no body makes a scheme panic, or is taken for signed.
func FuzzSchemes(f *testing.F) {
	hammer.Add(f, vector.id, "1614265330", otherSignature, []byte(vector.body))
	hammer.Add(f, "", "t=1,v1=00", "v1, v1,=", []byte(stripeBody))
	v := webhook.Verifier{Secrets: []webhook.Secret{next}}
	s := webhook.Stripe{Secrets: []webhook.Secret{next}}
	hub := webhook.GitHub(next)
	custom := webhook.HMAC{Secrets: []webhook.Secret{next}, Header: webhook.HeaderSignature, Signed: "{timestamp}.{body}", TimestampHeader: webhook.HeaderTimestamp, IDPointer: "/id"}
	hammer.Fuzz(f, func(t *testing.T, id, timestamp, signature string, body []byte) {
		h := http.Header{}
		h.Set(webhook.HeaderID, id)
		h.Set(webhook.HeaderTimestamp, timestamp)
		h.Set(webhook.HeaderSignature, signature)
		h.Set("Stripe-Signature", "t="+timestamp+","+signature)
		if _, err := v.Verify(h, body); err == nil {
			t.Error("the standard's scheme takes it")
		}
		if _, err := s.Verify(h, body); err == nil {
			t.Error("Stripe's scheme takes it")
		}
		h.Set("X-Hub-Signature-256", "sha256="+signature)
		h.Set("X-GitHub-Delivery", id)
		if _, err := hub.Verify(h, body); err == nil {
			t.Error("GitHub's scheme takes it")
		}
		if _, err := custom.Verify(h, body); err == nil {
			t.Error("the configurable scheme takes it")
		}
	})
}

package config

import (
	"net/http"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/retrysafe/retrysafe/internal/jsonrule"
)

// webhooks refuses endpoints that could take no event, and rules that could prove nothing.
func (k *checker) webhooks() {
	names, paths := map[string]bool{}, map[string]bool{}
	for i := range k.Webhooks {
		w, at := &k.Webhooks[i], element("webhooks", i)
		switch {
		case w.Name == "":
			k.refuse(child(at, "name"), "it is missing; it names the provider in metrics and logs, such as stripe")
		case !isWebhookName(w.Name):
			k.refuse(child(at, "name"), "%s is not a name: it has at most 64 small letters, digits, hyphens and underscores", quote(w.Name))
		case names[w.Name]:
			k.refuse(child(at, "name"), "another webhook is called %s too", w.Name)
		}
		names[w.Name] = true
		k.webhookPath(child(at, "path"), w)
		if w.Path != "" && paths[w.Path] {
			k.refuse(child(at, "path"), "another webhook is at %s too", quote(w.Path))
		}
		paths[w.Path] = true
		k.webhookSignature(at, w)
		k.webhookFind(child(at, "find"), w, k.webhookOperations(child(at, "operations"), w))
		k.lasting(child(at, "retention"), w.Retention)
		k.positive(child(at, "max_body"), w.MaxBody)
		if w.stamped() {
			k.lasting(child(at, "tolerance"), w.Tolerance)
			if w.Retention < 2*w.Tolerance {
				k.refuse(child(at, "retention"), "it is %s; an event could be sent again after it is forgotten, while its time stamp is still within the tolerance of %s", printSpan(w.Retention), printSpan(w.Tolerance))
			}
		} else if w.Tolerance != newWebhook().Tolerance {
			k.refuse(child(at, "tolerance"), "this scheme has no time stamp; an event is refused a second time for as long as retention remembers it")
		}
		if len(w.Rules) == 0 {
			k.refuse(child(at, "rules"), "there are none, so no event would prove anything; write such as: - { when: { /type: payment.succeeded }, outcome: happened, answer: { status: 201 } }")
		}
		for j := range w.Rules {
			k.webhookRule(element(child(at, "rules"), j), &w.Rules[j])
		}
	}
}

// webhookPath refuses a path that a provider could not reach, or that is a route's.
func (k *checker) webhookPath(at string, w *Webhook) {
	switch p := w.Path; {
	case p == "": // of a webhook without a name
		return
	case p[0] != '/' || path.Clean(p) != p || p == "/" || strings.ContainsAny(p, "{}?#%;\\ \t"):
		k.refuse(at, "%s is not a path such as /hooks/stripe: it begins with a slash, and has no braces, escapes, query and empty or dot segments", quote(p))
		return
	case strings.HasPrefix(p+"/", reserved) && (!strings.HasPrefix(p, WebhookPrefix) || p == WebhookPrefix):
		k.refuse(at, "%s: what begins with %s belongs to the gateway itself, except what begins with %s", quote(p), reserved, WebhookPrefix)
		return
	}
	for i, r := range k.Routes {
		if k.broken(element("routes", i)) || !matchesPath(r, w.Path) {
			continue
		}
		where := element("routes", i)
		if r.Line > 0 {
			where += " on line " + strconv.Itoa(r.Line)
		}
		k.refuse(at, "%s (%s) is about %s too, and its requests would be taken for events; use another path, or leave it out: then it is %s", where, quote(r.Match), quote(w.Path), WebhookPrefix+w.Name)
		return
	}
}

// matchesPath reports whether a route is about a path, in any method and at any host.
func matchesPath(r Route, p string) bool {
	method, rest := r.split()
	host, _, _ := strings.Cut(rest, "/")
	mux := http.NewServeMux()
	if register(mux, r) != nil {
		return false // it is refused for itself
	}
	if method == "" {
		method = http.MethodPost
	}
	q, err := http.NewRequest(method, "http://"+host+p, http.NoBody) //nolint:noctx // it is only matched
	if host == "" || err != nil {
		q, err = http.NewRequest(method, "http://x"+p, http.NoBody) //nolint:noctx // as above
	}
	if err != nil {
		return false
	}
	_, pattern := mux.Handler(q)
	return pattern != ""
}

// webhookSignature refuses a scheme that verifies nothing.
func (k *checker) webhookSignature(at string, w *Webhook) {
	secrets := child(at, "secrets")
	if len(w.Secrets) == 0 && len(w.SecretFiles) > 0 {
		secrets = child(at, "secret_files")
	}
	switch {
	case w.Scheme == "":
		k.refuse(child(at, "scheme"), "it is missing; it is standard, stripe, github or hmac")
		return
	case len(w.Secrets)+len(w.SecretFiles) == 0:
		k.refuse(secrets, "there are none; without a secret every event would be refused: secrets: [\"${WEBHOOK_SECRET}\"], or secret_files")
		return
	}
	s := child(at, "signature")
	if w.Scheme != "hmac" {
		if w.Signature != newWebhook().Signature {
			k.refuse(s, "it is for scheme: hmac; %s knows how its events are signed", w.Scheme)
		}
	} else {
		k.header(child(s, "header"), w.Signature.Header, "it is missing; it is the header that has the signature, such as X-Signature")
		for name, header := range map[string]string{"timestamp_header": w.Signature.TimestampHeader, "id_header": w.Signature.IDHeader} {
			if header != "" && !isToken(header) {
				k.refuse(child(s, name), "%w", errNoHeader(header))
			}
		}
	}
	if k.broken(secrets) || k.broken(child(at, "secret_files")) || k.broken(s) || w.Scheme == "hmac" && w.Signature.Header == "" {
		return
	}
	if err := w.Verifier().Check(); err != nil {
		where, why := secrets, strings.TrimPrefix(err.Error(), "webhook: ")
		for _, f := range [][2]string{{"IDPointer", "id_pointer"}, {"IDHeader", "id_header"}, {"TimestampHeader", "timestamp_header"}, {"Signed", "signed"}, {"Tolerance", "tolerance"}} {
			if strings.Contains(why, f[0]) {
				why = strings.ReplaceAll(why, f[0], f[1])
				if where == secrets {
					where = child(s, f[1])
				}
			}
		}
		k.refuse(where, "%s", why)
	}
}

// webhookFind refuses ways to find a key that find none, or that of another tenant, where
// it is known which routes the webhook covers.
func (k *checker) webhookFind(at string, w *Webhook, known bool) {
	f := &w.Find
	for _, p := range []struct{ name, pointer string }{
		{"downstream_key", f.DownstreamKey}, {"key", f.Key}, {"tenant", f.Tenant}, {"provider_ref", f.ProviderRef},
	} {
		if _, err := jsonrule.ParsePointer(p.pointer); err != nil {
			k.refuse(child(at, p.name), "%w", err)
		}
	}
	covered := k.covered(w)
	switch {
	case f.DownstreamKey == "" && f.Key == "" && f.ProviderRef == "":
		k.refuse(at, "it is missing; it is the JSON pointer to what an event says about its key: downstream_key, key with tenant, or provider_ref")
	case f.DownstreamKey != "" && f.Key != "":
		k.refuse(child(at, "key"), "downstream_key is there too; keep one of them")
	case f.DownstreamKey != "" && known && !slices.ContainsFunc(covered, func(s *Settings) bool { return s.DeriveKey != "" }):
		k.refuse(child(at, "downstream_key"), "no route of this webhook has derive_key, so the service gets no such key and no event can have it; add derive_key, or use key")
	case f.Key == "" && f.Tenant != "":
		k.refuse(child(at, "tenant"), "it belongs to key, which is not there")
	case f.Key == "":
	case k.Tenant.From == "bearer":
		k.refuse(child(at, "key"), "with tenant from: bearer the tenant is a hash of a token, which no event can have; use downstream_key")
	case k.Tenant.From == "none" && f.Tenant != "":
		k.refuse(child(at, "tenant"), "with tenant from: none there is one tenant; leave it out")
	case k.Tenant.From != "none" && k.Tenant.From != "" && f.Tenant == "":
		k.refuse(child(at, "tenant"), "it is missing; two tenants may have the same key, so an event must say whose it is")
	case slices.ContainsFunc(covered, func(s *Settings) bool { return s.PerOperation || s.BindPrincipal }):
		k.refuse(child(at, "key"), "a route of this webhook has scope: operation or bind: principal, so tenant and key are not enough to find its keys; use downstream_key, or name the other routes in operations")
	}
}

// covered returns the settings of what a webhook's events may be about.
func (k *checker) covered(w *Webhook) (all []*Settings) {
	if w.Covers("") && !k.Defaults.Off {
		all = append(all, &k.Defaults)
	}
	for i := range k.Routes {
		if r := &k.Routes[i]; !r.Off && w.Covers(r.Match) {
			all = append(all, &r.Settings)
		}
	}
	return all
}

// webhookOperations refuses operations that no route has, and reports whether there are none.
func (k *checker) webhookOperations(at string, w *Webhook) (known bool) {
	var there []string
	for i := range k.Routes {
		if !k.Routes[i].Off {
			there = append(there, k.Routes[i].Match)
		}
	}
	for i, match := range w.Operations {
		if !slices.Contains(there, match) {
			k.refuse(element(at, i), "%s is not the match of a guarded route%s", quote(match), didYouMean(match, there))
			return false
		}
	}
	return true
}

// webhookRule refuses a rule that proves nothing, or less than it says.
func (k *checker) webhookRule(at string, r *WebhookRule) {
	answer := child(at, "answer")
	known := r.Outcome == OutcomeHappened || r.Outcome == OutcomeDeclined
	switch {
	case r.Outcome == "":
		k.refuse(child(at, "outcome"), "it is missing; it is happened, declined, not_happened, pending or ignore")
		return
	case r.Final && r.Outcome != OutcomeNotHappened:
		k.refuse(child(at, "final"), "it is for outcome: not_happened; %s needs no such proof", r.Outcome)
		return
	case !known && (r.Answer.Status != 0 || len(r.Answer.Headers) > 0 || r.Answer.Body+r.Answer.BodyFrom != ""):
		k.refuse(answer, "it is for outcome: happened and declined; after %s there is no answer yet", r.Outcome)
		return
	case !known:
		return
	}
	a := &r.Answer
	switch {
	case r.Outcome == OutcomeHappened && (a.Status < 200 || a.Status > 399):
		k.refuse(child(answer, "status"), "it is %d; what has happened is answered by a status from 200 to 399, such as 201", a.Status)
		return
	case r.Outcome == OutcomeDeclined && (a.Status < 400 || a.Status > 599):
		k.refuse(child(answer, "status"), "it is %d; what was declined is answered by a status from 400 to 599, such as 402", a.Status)
		return
	}
	for name := range a.Headers {
		if err := wrongAnswerHeader(name); err != nil {
			k.refuse(child(child(answer, "headers"), name), "%w", err)
		}
	}
	a.Rule(func(field string, err error) {
		name, header := strings.CutPrefix(field, "headers.")
		if err == nil || header && wrongAnswerHeader(name) != nil { // that is refused already
			return
		}
		k.refuse(child(answer, field), "%w", err)
	})
}

// wrongAnswerHeader refuses a header that an answer cannot have.
func wrongAnswerHeader(name string) error {
	if http.CanonicalHeaderKey(name) == "Content-Type" {
		return nil
	}
	return wrongHeader(name)
}

package config

import (
	"crypto"
	"slices"
	"strings"
	"time"

	"github.com/retrysafe/retrysafe/internal/answerrule"
	"github.com/retrysafe/retrysafe/webhook"
)

// A Webhook is an endpoint for the events of one provider.
type Webhook struct {
	// Name names it in metrics and logs, and separates its events from others.
	Name string
	// Path is where the provider sends its events. Default /.retrysafe/webhooks/NAME.
	Path string
	// Scheme is how events are signed: "standard", "stripe", "github" or "hmac".
	Scheme string
	// Secrets are accepted, and those that SecretFiles have: FileSecrets.
	Secrets     []Secret
	SecretFiles []string
	FileSecrets []Secret
	// Signature describes the scheme "hmac".
	Signature Signature
	// Tolerance is how far from now an event may have been signed, where the scheme has
	// a time stamp.
	Tolerance time.Duration
	// Retention is how long an event is remembered.
	Retention time.Duration
	MaxBody   int64
	Find      WebhookFind
	// Operations are the routes, by their patterns, that the events are about. Default:
	// all.
	Operations []string
	// Missing is what becomes of an event whose key does not exist: MissingRetry or
	// MissingAcknowledge. Unmatched is what becomes of one that no rule is for:
	// UnmatchedRefuse or UnmatchedIgnore.
	Missing, Unmatched string
	// Rules say what an event proves. The first one whose conditions hold counts.
	Rules []WebhookRule
}

// The words of Missing and Unmatched.
const (
	MissingRetry       = "retry"
	MissingAcknowledge = "acknowledge"
	UnmatchedRefuse    = "refuse"
	UnmatchedIgnore    = "ignore"
)

// A Signature is how a provider signs the bodies of its events; see [webhook.HMAC].
type Signature struct {
	Header, Prefix      string
	Hash, Encoding      string
	Signed              string
	TimestampHeader     string
	IDHeader, IDPointer string
}

// A WebhookFind says by which JSON pointers the key of an event is found: DownstreamKey,
// or Key and Tenant, or else ProviderRef. ProviderRef is stored with the evidence.
type WebhookFind struct{ DownstreamKey, Key, Tenant, ProviderRef string }

// A WebhookRule says what an event proves.
type WebhookRule struct {
	// When has the texts of which one must be at a JSON pointer, by the pointer. All
	// conditions must hold.
	When map[string][]string
	// Outcome is one of the constants below.
	Outcome string
	// Final says that what did not happen cannot happen any more.
	Final bool
	// Answer is what retries get, if the outcome is known.
	Answer Answer
}

// Outcomes of a rule.
const (
	OutcomeHappened    = "happened"
	OutcomeDeclined    = "declined"
	OutcomeNotHappened = "not_happened"
	OutcomePending     = "pending"
	OutcomeIgnore      = "ignore"
)

// An Answer is a response that is built from an event.
type Answer struct {
	Status         int
	Headers        map[string]string
	Body, BodyFrom string
}

// inEvent has the places of an answer to an event: {/pointer}.
var inEvent = answerrule.Vocabulary{Document: true}

// Rule returns the rule by which the answer is built, and tells refuse what is wrong with
// its fields.
func (a *Answer) Rule(refuse func(field string, err error)) *answerrule.Rule {
	return answerrule.New(&answerrule.Answer{Status: a.Status, Header: a.Headers, Body: a.Body, BodyFrom: a.BodyFrom}, &inEvent, refuse)
}

// WebhookPrefix is where webhooks are that have no path of their own.
const WebhookPrefix = reserved + "webhooks/"

func newWebhook() Webhook {
	return Webhook{
		Tolerance: 5 * time.Minute, Retention: 7 * day, MaxBody: 1 << 20,
		Signature: Signature{Hash: "sha256", Encoding: "hex", Signed: "{body}"},
		Missing:   MissingRetry, Unmatched: UnmatchedRefuse,
	}
}

func (w *Webhook) fields() section {
	return section{
		{"name", text(&w.Name)},
		{"path", text(&w.Path)},
		{"scheme", words(&w.Scheme, "standard", "stripe", "github", "hmac")},
		{"secrets", secretList{&w.Secrets}},
		{"secret_files", texts(&w.SecretFiles)},
		{"signature", section{
			{"header", text(&w.Signature.Header)},
			{"prefix", text(&w.Signature.Prefix)},
			{"hash", words(&w.Signature.Hash, "sha256", "sha512")},
			{"encoding", words(&w.Signature.Encoding, "hex", "base64")},
			{"signed", text(&w.Signature.Signed)},
			{"timestamp_header", text(&w.Signature.TimestampHeader)},
			{"id_header", text(&w.Signature.IDHeader)},
			{"id_pointer", text(&w.Signature.IDPointer)},
		}},
		{"tolerance", span(&w.Tolerance)},
		{"retention", span(&w.Retention)},
		{"max_body", size(&w.MaxBody)},
		{"find", section{
			{"downstream_key", text(&w.Find.DownstreamKey)},
			{"key", text(&w.Find.Key)},
			{"tenant", text(&w.Find.Tenant)},
			{"provider_ref", text(&w.Find.ProviderRef)},
		}},
		{"operations", texts(&w.Operations)},
		{"missing", words(&w.Missing, MissingRetry, MissingAcknowledge)},
		{"unmatched", words(&w.Unmatched, UnmatchedRefuse, UnmatchedIgnore)},
		{"rules", sections[WebhookRule]{&w.Rules, nil, (*WebhookRule).fields}},
	}
}

func (r *WebhookRule) fields() section {
	return section{
		{"when", conditions{&r.When}},
		{"outcome", words(&r.Outcome, OutcomeHappened, OutcomeDeclined, OutcomeNotHappened, OutcomePending, OutcomeIgnore)},
		{"final", flag(&r.Final)},
		{"answer", section{
			{"status", statusCode(&r.Answer.Status)},
			{"headers", textMap{&r.Answer.Headers}},
			{"body", text(&r.Answer.Body)},
			{"body_from", text(&r.Answer.BodyFrom)},
		}},
	}
}

// webhookFields are the fields of the list of webhooks.
func (c *Config) webhookFields() value {
	return sections[Webhook]{&c.Webhooks, newWebhook, (*Webhook).fields}
}

// completeWebhooks fills in the paths.
func (c *Config) completeWebhooks() {
	for i := range c.Webhooks {
		if w := &c.Webhooks[i]; w.Path == "" && w.Name != "" {
			w.Path = WebhookPrefix + w.Name
		}
	}
}

// Verifier returns the scheme that the webhook's events are verified by. Its Check
// method says what is wrong with it.
func (w *Webhook) Verifier() interface {
	webhook.Scheme
	Check() error
} {
	var secrets []webhook.Secret
	for _, s := range slices.Concat(w.Secrets, w.FileSecrets) {
		secrets = append(secrets, webhook.Secret(s))
	}
	switch w.Scheme {
	case "stripe":
		return webhook.Stripe{Secrets: secrets, Tolerance: w.Tolerance}
	case "github":
		return webhook.GitHub(secrets...)
	case "hmac":
		s := &w.Signature
		h := webhook.HMAC{
			Secrets: secrets, Hash: crypto.SHA256, Header: s.Header, Prefix: s.Prefix, Base64: s.Encoding == "base64", Signed: s.Signed,
			TimestampHeader: s.TimestampHeader, IDHeader: s.IDHeader, IDPointer: s.IDPointer,
		}
		if s.Hash == "sha512" {
			h.Hash = crypto.SHA512
		}
		if w.stamped() {
			h.Tolerance = w.Tolerance
		}
		return h
	default:
		return webhook.Verifier{Secrets: secrets, Tolerance: w.Tolerance}
	}
}

// stamped reports whether the scheme has a time stamp.
func (w *Webhook) stamped() bool {
	return w.Scheme == "standard" || w.Scheme == "stripe" || w.Scheme == "hmac" && w.Signature.TimestampHeader != ""
}

// readWebhookSecrets reads the secrets of webhooks, which are all in files of their own.
func (r *reader) readWebhookSecrets(c *Config) {
	for i := range c.Webhooks {
		w := &c.Webhooks[i]
		for j, file := range w.SecretFiles {
			path := element(child(element("webhooks", i), "secret_files"), j)
			if r.broken(path) {
				continue
			}
			text, info, err := readSecret(file)
			if err != nil {
				m := r.src.find(path)
				r.errs = append(r.errs, &FieldError{m.file, m.line, m.column, path, err})
				r.bad = append(r.bad, path, child(element("webhooks", i), "secrets"))
				continue
			}
			w.FileSecrets = append(w.FileSecrets, Secret(text))
			if public(info) {
				r.src.notes = append(r.src.notes, Note{path, quote(file) + " can be read by every user of this machine: chmod 600"})
			}
		}
	}
}

// webhookFiles are the files that secrets of webhooks are in.
func (c *Config) webhookFiles() (all []string) {
	for i := range c.Webhooks {
		all = append(all, c.Webhooks[i].SecretFiles...)
	}
	return all
}

// literalWebhookSecrets are the paths of secrets of webhooks that the file itself holds.
func (c *Config) literalWebhookSecrets() (paths []string) {
	for i := range c.Webhooks {
		for j := range c.Webhooks[i].Secrets {
			paths = append(paths, element(child(element("webhooks", i), "secrets"), j))
		}
	}
	return paths
}

// Covers reports whether the webhook's events may settle keys of a route. The pattern of
// the default route is empty; a webhook without Operations covers it too.
func (w *Webhook) Covers(match string) bool {
	return len(w.Operations) == 0 || slices.Contains(w.Operations, match)
}

// isWebhookName reports whether a name is short and made of small letters, digits,
// hyphens and underscores.
func isWebhookName(name string) bool {
	return name != "" && len(name) <= 64 && strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789-_") == ""
}

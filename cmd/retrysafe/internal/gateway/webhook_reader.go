package gateway

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/gateway/config"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/gateway/tenant"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/printable"
	"github.com/retrysafe/retrysafe/httpkey"
	"github.com/retrysafe/retrysafe/internal/answerrule"
	"github.com/retrysafe/retrysafe/internal/jsonrule"
	"github.com/retrysafe/retrysafe/webhook"
)

// An eventReader reads the events of a webhook by the rules of the configuration.
type eventReader struct {
	name       string
	tenantFrom string // how callers are told apart
	quoted     bool   // a key may come with the quotes that are no part of it
	downstream *jsonrule.Pointer
	key        *jsonrule.Pointer
	tenant     *jsonrule.Pointer
	provider   *jsonrule.Pointer
	rules      []eventRule
	ignore     bool // events that no rule is for
	logger     *slog.Logger

	mu        sync.Mutex
	unmatched map[string]bool // kinds of events that were logged
}

// An eventRule is one rule.
type eventRule struct {
	when     []jsonrule.Condition
	ignore   bool
	evidence retrysafe.Evidence
	answer   *answerrule.Rule // nil if the outcome has none
}

// maxUnmatched bounds how many kinds of events are logged, and remembered for that.
const maxUnmatched = 100

func newEventReader(w *config.Webhook, c *config.Config, logger *slog.Logger) (*eventReader, error) {
	r := &eventReader{
		name: w.Name, tenantFrom: c.Tenant.From, quoted: c.Profile != httpkey.Stripe.Name, ignore: w.Unmatched == config.UnmatchedIgnore,
		logger: logger, unmatched: make(map[string]bool),
	}
	for _, f := range []struct {
		text string
		to   **jsonrule.Pointer
	}{
		{w.Find.DownstreamKey, &r.downstream}, {w.Find.Key, &r.key}, {w.Find.Tenant, &r.tenant}, {w.Find.ProviderRef, &r.provider},
	} {
		if f.text == "" {
			continue
		}
		p, err := jsonrule.ParsePointer(f.text)
		if err != nil {
			return nil, fmt.Errorf("find: %w", err)
		}
		*f.to = &p
	}
	if r.downstream == nil && r.key == nil && r.provider == nil {
		return nil, errors.New("find: nothing says which key an event is about")
	}
	for i := range w.Rules {
		rule, err := newEventRule(&w.Rules[i])
		if err != nil {
			return nil, fmt.Errorf("rules[%d]: %w", i, err)
		}
		r.rules = append(r.rules, rule)
	}
	return r, nil
}

func newEventRule(c *config.WebhookRule) (rule eventRule, err error) {
	for _, at := range slices.Sorted(maps.Keys(c.When)) {
		p, err := jsonrule.ParsePointer(at)
		if err != nil {
			return rule, err
		}
		rule.when = append(rule.when, jsonrule.Condition{At: p, Is: c.When[at]})
	}
	switch c.Outcome {
	case config.OutcomeHappened:
		rule.evidence.Finding = retrysafe.FindingHappened
	case config.OutcomeDeclined:
		rule.evidence.Finding = retrysafe.FindingDeclined
	case config.OutcomeNotHappened:
		rule.evidence.Finding = retrysafe.FindingNotHappened
		if c.Final {
			rule.evidence.Proof = retrysafe.ProofTombstone
		}
		return rule, nil
	case config.OutcomePending:
		return rule, nil
	case config.OutcomeIgnore:
		rule.ignore = true
		return rule, nil
	default:
		return rule, fmt.Errorf("outcome: %q is none", c.Outcome)
	}
	rule.answer = c.Answer.Rule(func(field string, wrong error) {
		if wrong != nil {
			err = errors.Join(err, fmt.Errorf("answer.%s: %w", field, wrong))
		}
	})
	return rule, err
}

// read is a [webhook.Reader].
func (r *eventReader) read(_ context.Context, ev webhook.Event) (webhook.Statement, error) {
	d, err := jsonrule.Parse(ev.Body)
	if err != nil {
		return webhook.Statement{}, errors.New("the body is not one JSON document") // the cause may quote it
	}
	rule := r.match(d)
	switch {
	case rule == nil && r.ignore, rule != nil && rule.ignore:
		return webhook.Statement{}, webhook.ErrIgnore
	case rule == nil:
		r.logUnmatched(r.kind(d))
		return webhook.Statement{}, webhook.ErrUnmatched
	}
	e := webhook.Statement{Evidence: rule.evidence}
	e.Evidence.Text = r.kind(d)
	if r.provider != nil {
		e.Evidence.ProviderRef, _ = d.Text(*r.provider)
	}
	switch {
	case r.downstream != nil:
		text, _ := d.Text(*r.downstream)
		e.DownstreamKey = strings.ToLower(text)
	case r.key != nil:
		if e.Ref, err = r.ref(d); err != nil {
			return webhook.Statement{}, err
		}
	}
	if e.DownstreamKey == "" && e.Ref.Key == "" && (e.Evidence.ProviderRef == "" || r.downstream != nil) {
		return webhook.Statement{}, retrysafe.ErrNotFound // an operation that did not come through this gateway
	}
	if rule.answer != nil {
		if e.Evidence.Result, err = rule.answer.Result(&answerrule.Source{Document: d, Body: ev.Body, Kind: "application/json"}); err != nil {
			return webhook.Statement{}, fmt.Errorf("answer: %w", err)
		}
	}
	return e, nil
}

// match returns the first rule whose conditions hold, or nil.
func (r *eventReader) match(d jsonrule.Document) *eventRule {
	for i := range r.rules {
		if d.Fulfils(r.rules[i].when) {
			return &r.rules[i]
		}
	}
	return nil
}

// ref returns the key that an event carries with its tenant.
func (r *eventReader) ref(d jsonrule.Document) (ref retrysafe.Ref, err error) {
	key, _ := d.Text(*r.key)
	if n := len(key) - 1; r.quoted && n > 0 && key[0] == '"' && key[n] == '"' {
		key = key[1:n]
	}
	name, number := "", false
	if r.tenant != nil {
		name, _ = d.Text(*r.tenant)
		text, _ := d.JSON(*r.tenant)
		number = len(text) > 0 && text[0] != '"'
	}
	scope, ok := tenant.ScopeOf(r.tenantFrom, name, number)
	if key == "" || !ok {
		return ref, retrysafe.ErrNotFound
	}
	return retrysafe.Ref{Scope: scope, Key: key}, nil
}

// kind names an event by what the conditions of the rules look at.
func (r *eventReader) kind(d jsonrule.Document) string {
	const most = 100
	var parts, seen []string
	for i := range r.rules {
		for _, c := range r.rules[i].when {
			at := c.At.String()
			if text, ok := d.Text(c.At); ok && !slices.Contains(seen, at) {
				seen = append(seen, at)
				parts = append(parts, at+" "+printable.Text(strings.ToValidUTF8(text[:min(len(text), most)], "")))
			}
		}
	}
	return strings.Join(parts, ", ")
}

// logUnmatched logs a kind of events that no rule is for, once.
func (r *eventReader) logUnmatched(kind string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.unmatched[kind] || len(r.unmatched) >= maxUnmatched {
		return
	}
	r.unmatched[kind] = true
	r.logger.Warn("retrysafe: no rule of a webhook is for such events; they are refused, so that they come again",
		"webhook", r.name, "event", kind, "fix", "add a rule to the webhook, with outcome: ignore for events that prove nothing")
}

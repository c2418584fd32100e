package operator

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/failreason"
)

// content reports whether a record has what the filter asks for beyond what a store's
// query selects. Of a record that cannot be read this is not known, so it has nothing of
// it.
func (f *Filter) content(r *retrysafe.Record) bool {
	if f.Tenant == "" && f.Operation == "" && f.Reason == "" && f.Status == 0 && f.Since.IsZero() && f.Until.IsZero() {
		return true
	}
	at := r.CreatedAt
	if f.written {
		at = r.UpdatedAt
	}
	return r.Readable() &&
		(f.Tenant == "" || f.Tenant == tenantOf(r.Scope)) &&
		(f.Operation == "" || matches(f.Operation, r.Operation)) &&
		(f.Reason == "" || matches(f.Reason, failreason.Kind(r.Reason)) || matches(f.Reason, r.Reason)) &&
		(f.Status == 0 || f.Status == failreason.Status(r.Reason)) &&
		(f.Since.IsZero() || !at.Before(f.Since)) && (f.Until.IsZero() || at.Before(f.Until))
}

// tenantOf returns the tenant that a scope belongs to. A guard that narrows the scope
// separates its parts by this character, which no part has in it.
func tenantOf(scope string) string {
	tenant, _, _ := strings.Cut(scope, "\x1f")
	return tenant
}

// matches reports whether text is what the pattern says, in which an asterisk stands for
// any text.
func matches(pattern, text string) bool {
	parts := strings.Split(pattern, "*")
	first, last := parts[0], parts[len(parts)-1]
	if len(parts) == 1 {
		return pattern == text
	}
	text, begins := strings.CutPrefix(text, first)
	text, ends := strings.CutSuffix(text, last) // of what is left: the two ends do not overlap
	if !begins || !ends {
		return false
	}
	for _, part := range parts[1 : len(parts)-1] {
		at := strings.Index(text, part)
		if at < 0 {
			return false
		}
		text = text[at+len(part):]
	}
	return true
}

// text returns the filter for readers of the audit. Two filters that select different
// records have different texts.
func (f *Filter) text() string {
	var parts []string
	add := func(name, value string) {
		if value != "" {
			parts = append(parts, fmt.Sprintf("%s=%q", name, value))
		}
	}
	add("scope", f.Scope)
	add("tenant", f.Tenant)
	for _, s := range slices.Compact(slices.Sorted(slices.Values(f.States))) {
		add("state", s.String())
	}
	add("operation", f.Operation)
	add("reason", f.Reason)
	if f.Status != 0 {
		parts = append(parts, fmt.Sprintf("status=%d", f.Status))
	}
	for name, t := range map[string]time.Time{"since": f.Since, "until": f.Until} {
		if !t.IsZero() {
			add(name, t.UTC().Format(time.RFC3339Nano))
		}
	}
	if f.Due {
		parts = append(parts, "due")
	}
	if f.Dead {
		parts = append(parts, "dead")
	}
	slices.Sort(parts)
	return cmp.Or(strings.Join(parts, " "), "all")
}

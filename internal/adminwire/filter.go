package adminwire

import (
	"fmt"
	"net/url"
	"strconv"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/operator"
)

// A Filter selects records. Fields that are absent select all.
type Filter struct {
	Scope     string    `json:"scope,omitempty"`
	Tenant    string    `json:"tenant,omitempty"`
	Operation string    `json:"operation,omitempty"`
	Reason    string    `json:"reason,omitempty"`
	Status    int       `json:"status,omitempty"`
	States    []string  `json:"states,omitempty"`
	Since     time.Time `json:"since,omitzero"`
	Until     time.Time `json:"until,omitzero"`
	Due       bool      `json:"due,omitempty"`
	Dead      bool      `json:"dead,omitempty"`
	// ScopeBytes and TenantBytes are there if the name is not UTF-8.
	ScopeBytes  []byte `json:"scope_base64,omitempty"`
	TenantBytes []byte `json:"tenant_base64,omitempty"`
}

// NewFilter returns a filter in JSON. System, After and Limit are not part of it.
func NewFilter(f *operator.Filter) Filter {
	j := Filter{
		Scope: f.Scope, Tenant: f.Tenant, Operation: f.Operation, Reason: f.Reason, Status: f.Status,
		Since: f.Since, Until: f.Until, Due: f.Due, Dead: f.Dead, ScopeBytes: rawBytes(f.Scope), TenantBytes: rawBytes(f.Tenant),
	}
	for _, s := range f.States {
		j.States = append(j.States, s.String())
	}
	return j
}

// Operator returns the filter as package operator takes it.
func (j *Filter) Operator() (operator.Filter, error) {
	f := operator.Filter{
		Scope: textOr(j.Scope, j.ScopeBytes), Tenant: textOr(j.Tenant, j.TenantBytes), Operation: j.Operation, Reason: j.Reason,
		Status: j.Status, Since: j.Since, Until: j.Until, Due: j.Due, Dead: j.Dead,
	}
	for _, name := range j.States {
		s, err := ParseState(name)
		if err != nil {
			return f, err
		}
		f.States = append(f.States, s)
	}
	return f, nil
}

// EncodeFilter adds a filter to the query of a URL, where any bytes may be.
func EncodeFilter(q url.Values, f *operator.Filter) {
	set := func(name, value string) {
		if value != "" {
			q.Set(name, value)
		}
	}
	set("scope", f.Scope)
	set("tenant", f.Tenant)
	set("operation", f.Operation)
	set("reason", f.Reason)
	setInt(q, "status", int64(f.Status))
	for _, s := range f.States {
		q.Add("state", s.String())
	}
	SetTime(q, "since", f.Since)
	SetTime(q, "until", f.Until)
	for name, on := range map[string]bool{"due": f.Due, "dead": f.Dead, "system": f.System} {
		if on {
			q.Set(name, "true")
		}
	}
	set("after", FormatRef(f.After))
	setInt(q, "limit", int64(f.Limit))
}

func setInt(q url.Values, name string, n int64) {
	if n != 0 {
		q.Set(name, strconv.FormatInt(n, 10))
	}
}

// SetTime adds a time to the query of a URL, unless it is zero.
func SetTime(q url.Values, name string, t time.Time) {
	if !t.IsZero() {
		q.Set(name, t.UTC().Format(time.RFC3339Nano))
	}
}

// A Query reads the query of a URL. Err is the first parameter that cannot be read, or
// that there is not.
type Query struct {
	Values url.Values
	Err    error
	known  map[string]bool
}

// ParseQuery returns the query of a URL. Parameters that are not read by the end are
// reported by [Query.End].
func ParseQuery(raw string) *Query {
	q := &Query{known: map[string]bool{}}
	if q.Values, q.Err = url.ParseQuery(raw); q.Err != nil {
		q.Err = fmt.Errorf("the query cannot be read: %w", q.Err)
	}
	return q
}

func (q *Query) fail(name, text string) {
	if q.Err == nil {
		q.Err = fmt.Errorf("%s=%q %s", name, q.Values.Get(name), text)
	}
}

// Text returns a parameter, or nothing.
func (q *Query) Text(name string) string {
	q.known[name] = true
	if len(q.Values[name]) > 1 {
		q.fail(name, "is there twice")
	}
	return q.Values.Get(name)
}

// Int returns a number between low and high, or zero for none.
func (q *Query) Int(name string, low, high int64) int64 {
	text := q.Text(name)
	if text == "" {
		return 0
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < low || n > high {
		q.fail(name, fmt.Sprintf("is not a number from %d to %d", low, high))
		return 0
	}
	return n
}

// Bool returns a parameter that is true or false.
func (q *Query) Bool(name string) bool {
	switch q.Text(name) {
	case "true":
		return true
	case "", "false":
	default:
		q.fail(name, "is neither true nor false")
	}
	return false
}

// Time returns a time, or the zero time.
func (q *Query) Time(name string) time.Time {
	text := q.Text(name)
	if text == "" {
		return time.Time{}
	}
	t, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		q.fail(name, "is not a time such as 2026-03-01T12:00:00Z")
	}
	return t
}

// Ref returns the name of a record, or the zero name.
func (q *Query) Ref(name string) retrysafe.Ref {
	ref, ok := ParseRef(q.Text(name))
	if !ok {
		q.fail(name, "is not a ref as a record has it")
	}
	return ref
}

// Filter returns the filter in the query.
func (q *Query) Filter() operator.Filter {
	f := operator.Filter{
		Scope: q.Text("scope"), Tenant: q.Text("tenant"), Operation: q.Text("operation"), Reason: q.Text("reason"),
		Status: int(q.Int("status", 100, 599)), Since: q.Time("since"), Until: q.Time("until"),
		Due: q.Bool("due"), Dead: q.Bool("dead"), System: q.Bool("system"), After: q.Ref("after"), Limit: int(q.Int("limit", 1, MaxLimit)),
	}
	q.known["state"] = true
	for _, name := range q.Values["state"] {
		s, err := ParseState(name)
		if err != nil && q.Err == nil {
			q.Err = err
		}
		f.States = append(f.States, s)
	}
	return f
}

// End returns what cannot be read, or is not known: a filter that is misspelt must not
// select everything.
func (q *Query) End() error {
	for name := range q.Values {
		if q.Err == nil && !q.known[name] {
			q.Err = fmt.Errorf("there is no parameter %q here", name)
		}
	}
	return q.Err
}

// MaxLimit bounds how many records one request may list: each of them is read whole.
// MaxAudit is the bound for entries of the audit.
const (
	MaxLimit = 1000
	MaxAudit = 10_000
)

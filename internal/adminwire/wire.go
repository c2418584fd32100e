package adminwire

import (
	"math"
	"time"
	"unicode/utf8"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/operator"
)

// rawBytes returns the bytes of text that is not UTF-8, and nothing of other text.
func rawBytes(text string) []byte {
	if utf8.ValidString(text) {
		return nil
	}
	return []byte(text)
}

// textOr returns the bytes if there are any, and the text otherwise.
func textOr(text string, bytes []byte) string {
	if len(bytes) > 0 {
		return string(bytes)
	}
	return text
}

func seconds(s float64) time.Duration { return time.Duration(math.Round(s * float64(time.Second))) }

// A Person is the holder of the token that a request shows.
type Person struct {
	Name string `json:"name"`
	Role string `json:"role"`
}

// A Page is a part of a list. Next is the after of the next page; it is absent at the end.
type Page struct {
	Records []Record `json:"records"`
	Next    string   `json:"next,omitempty"`
}

// A Group is a number of operations that need a person for the same reason.
type Group struct {
	State     string    `json:"state"`
	Disputed  bool      `json:"disputed,omitempty"`
	Operation string    `json:"operation"`
	Reason    string    `json:"reason,omitempty"`
	Status    int       `json:"status,omitempty"`
	Count     int       `json:"count"`
	Dead      int       `json:"dead"`
	OldestAt  time.Time `json:"oldest_at"`
	Age       float64   `json:"age_seconds"`
}

// Groups is what needs a person, the largest group first.
type Groups struct {
	Groups []Group `json:"groups"`
}

// NewGroups returns groups in JSON.
func NewGroups(list []operator.Group) Groups {
	all := Groups{Groups: []Group{}}
	for i := range list {
		g := &list[i]
		all.Groups = append(all.Groups, Group{g.State.String(), g.Disputed, g.Operation, g.Reason, g.Status, g.Count, g.Dead, g.Oldest, g.Age.Seconds()})
	}
	return all
}

// Operator returns the groups as package operator has them.
func (all *Groups) Operator() (list []operator.Group, err error) {
	for i := range all.Groups {
		g := &all.Groups[i]
		state, err := ParseState(g.State)
		if err != nil {
			return nil, err
		}
		list = append(list, operator.Group{State: state, Disputed: g.Disputed, Operation: g.Operation, Reason: g.Reason, Status: g.Status,
			Count: g.Count, Dead: g.Dead, Oldest: g.OldestAt, Age: seconds(g.Age)})
	}
	return list, nil
}

// An Audit is a part of the audit, the newest entry first.
type Audit struct {
	Entries []operator.Entry `json:"entries"`
}

// An Action is one action on the record or message that its path names. ID makes it safe
// to repeat: an action that is sent twice acts once, and is answered with how it ended.
type Action struct {
	ID       string `json:"id,omitempty"`
	Revision int64  `json:"revision,omitempty"`
	Why      string `json:"why"`
	// ProviderRef and Answer are for resolve and decline.
	ProviderRef string       `json:"provider_ref,omitempty"`
	Answer      *GivenAnswer `json:"answer,omitempty"`
	// Force redrives a message although its receiver may have forgotten its key.
	Force bool `json:"force,omitempty"`
}

// A GivenAnswer is the answer that retries get from now on. Its body is text, or bytes.
type GivenAnswer struct {
	Status    int                 `json:"status"`
	Headers   map[string][]string `json:"headers,omitempty"`
	Body      string              `json:"body,omitempty"`
	BodyBytes []byte              `json:"body_base64,omitempty"`
	// The answer has no body on purpose, although [operator.LacksBody] holds.
	NoBody bool `json:"no_body,omitempty"`
}

// NewGivenAnswer returns an answer in JSON.
func NewGivenAnswer(r *retrysafe.Result, noBody bool) *GivenAnswer {
	a := &GivenAnswer{Status: r.Status, Headers: r.Header, NoBody: noBody}
	if utf8.Valid(r.Body) {
		a.Body = string(r.Body)
	} else {
		a.BodyBytes = r.Body
	}
	return a
}

// Result returns the answer. Like the command it has an empty body where there is none.
func (a *GivenAnswer) Result() retrysafe.Result {
	return retrysafe.Result{Status: a.Status, Header: a.Headers, Body: []byte(textOr(a.Body, a.BodyBytes))}
}

// An Outcome is how an action ended. Replayed says that an earlier request did it.
type Outcome struct {
	Entry    operator.Entry `json:"entry"`
	Replayed bool           `json:"replayed,omitempty"`
	// Record and Message are what was revealed.
	Record  *Record  `json:"record,omitempty"`
	Message *Message `json:"message,omitempty"`
}

// Operator returns how an action ended, as package operator has it.
func (o *Outcome) Operator() operator.Entry {
	e := o.Entry
	e.Replayed = o.Replayed
	return e
}

// A BatchRequest is one action on all records that a filter selects. A dry run of it needs
// neither ID nor Why, and returns a [Selection]. Then Selection says that exactly those
// records are to be changed, each if it is still as it was counted. Without it AtMost is
// required: if more records match, nothing is changed.
type BatchRequest struct {
	ID        string       `json:"id,omitempty"`
	Why       string       `json:"why,omitempty"`
	Verb      string       `json:"verb"`
	Filter    Filter       `json:"filter"`
	Answer    *GivenAnswer `json:"answer,omitempty"`
	Rate      int          `json:"rate,omitempty"`
	Selection string       `json:"selection,omitempty"`
	AtMost    int          `json:"at_most,omitempty"`
}

// A Selection is what a batch would change. ID names it for a while.
type Selection struct {
	ID         string   `json:"id"`
	Count      int      `json:"count"`
	Disputed   int      `json:"disputed,omitempty"`
	Unreadable int      `json:"unreadable,omitempty"`
	Sample     []Record `json:"sample"`
}

// A QuarantineRequest sets aside what a restored backup calls unfinished.
type QuarantineRequest struct {
	ID         string    `json:"id,omitempty"`
	Why        string    `json:"why,omitempty"`
	Since      time.Time `json:"since,omitzero"`
	Until      time.Time `json:"until,omitzero"`
	Scope      string    `json:"scope,omitempty"`
	ScopeBytes []byte    `json:"scope_base64,omitempty"`
	SpareInTx  bool      `json:"spare_in_tx,omitempty"`
}

// NewQuarantineRequest returns a request for what s selects.
func NewQuarantineRequest(s *operator.Suspects) QuarantineRequest {
	return QuarantineRequest{ID: s.ID, Why: s.Why, Since: s.Since, Until: s.Until, Scope: s.Scope, ScopeBytes: rawBytes(s.Scope), SpareInTx: s.SpareInTx}
}

// Operator returns the request as package operator takes it.
func (q *QuarantineRequest) Operator(by string) operator.Suspects {
	return operator.Suspects{ID: q.ID, By: by, Why: q.Why, Since: q.Since, Until: q.Until, Scope: textOr(q.Scope, q.ScopeBytes), SpareInTx: q.SpareInTx}
}

// A Job is a batch or a quarantine that runs in the server, or has ended.
type Job struct {
	ID   string `json:"id"`
	Verb string `json:"verb"`
	By   string `json:"by"`
	// State is running, done, interrupted, or open: it runs in another process, or was
	// interrupted there. The same request goes on with one that was interrupted.
	State string `json:"state"`
	// Counts is the progress of a batch, Report that of a quarantine.
	Counts *operator.BatchReport `json:"counts,omitempty"`
	Report *operator.Report      `json:"report,omitempty"`
	// Entry is the entry in the audit, when it is done.
	Entry    *operator.Entry `json:"entry,omitempty"`
	Replayed bool            `json:"replayed,omitempty"`
	// Problem is why it was refused or interrupted.
	Problem *Problem `json:"problem,omitempty"`
}

// The states of a job.
const (
	JobRunning     = "running"
	JobDone        = "done"
	JobInterrupted = "interrupted"
	JobOpen        = "open"
)

// A Duties is which background duties are to make one pass; none is all.
type Duties struct {
	Only []string `json:"only,omitempty"`
}

// A Pass is what each duty has done.
type Pass struct {
	Duties map[string]map[string]uint64 `json:"duties"`
}

// A Status describes the program and its store.
type Status struct {
	Version string `json:"version,omitempty"`
	Store   struct {
		Kind      string `json:"kind"`
		Schema    int    `json:"schema_version"`
		Newest    int    `json:"newest_schema_version"`
		Encrypted bool   `json:"encrypted"`
		// Announces says that running gateways follow a change within a second.
		Announces bool `json:"announces_changes"`
		Outbox    bool `json:"outbox"`
	} `json:"store"`
	// Identity is the hash of the settings that the keys are stored under. It is absent if
	// no gateway has noted its settings in the store.
	Identity string `json:"identity_sha256,omitempty"`
}

// A Problem is an answer to a request that was not carried out (RFC 9457).
type Problem struct {
	Title  string `json:"title"`
	Status int    `json:"status"`
	Code   string `json:"code"`
	Detail string `json:"detail,omitempty"`
	// Entry is how the audit has the refusal. Record is the record as it is now.
	Entry    *operator.Entry `json:"entry,omitempty"`
	Replayed bool            `json:"replayed,omitempty"`
	Record   *Record         `json:"record,omitempty"`
}

// Codes of problems that the command tells apart.
const (
	CodeInvalid     = "invalid-request"
	CodeRefused     = "refused"
	CodeMismatch    = "other-action"
	CodeNotFound    = "not-found"
	CodeUnreadable  = "unreadable"
	CodeUnsupported = "unsupported"
	CodeUnavailable = "store-unavailable"
	CodeUnsure      = "outcome-unknown"
	CodeForbidden   = "forbidden"
	CodeRunning     = "running"
	CodeSelection   = "selection-unknown"
	CodeTooMany     = "too-many"
	CodeSlowed      = "too-many-wrong-tokens"
)

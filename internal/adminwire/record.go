package adminwire

import (
	"fmt"
	"maps"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/failreason"
)

// A Record is what is stored of one key. Its request, the body of its answer and the data
// of its checkpoint are there only if they were revealed.
type Record struct {
	Key
	Version     uint8      `json:"version"`
	Operation   string     `json:"operation,omitempty"`
	State       string     `json:"state"`
	Due         bool       `json:"due"`
	Dead        bool       `json:"dead,omitempty"`
	Disputed    bool       `json:"disputed,omitempty"`
	UnderReview bool       `json:"under_review,omitempty"`
	Unreadable  bool       `json:"unreadable,omitempty"`
	Attempt     int        `json:"attempt"`
	Effects     string     `json:"effects"`
	Lapse       string     `json:"lapse"`
	Revision    int64      `json:"revision"`
	CreatedAt   time.Time  `json:"created_at"`
	UpdatedAt   time.Time  `json:"updated_at"`
	Deadline    time.Time  `json:"deadline"`
	ReadAt      time.Time  `json:"read_at"`
	Answer      *Answer    `json:"answer,omitempty"`
	RequestSize int        `json:"request_bytes,omitempty"`
	Request     []byte     `json:"request_base64,omitempty"`
	Checkpoint  *Progress  `json:"checkpoint,omitempty"`
	ProviderRef string     `json:"provider_ref,omitempty"`
	Reason      string     `json:"reason,omitempty"`
	Upstream    int        `json:"upstream_status,omitempty"`
	Tries       int        `json:"tries,omitempty"`
	Notes       []Note `json:"notes,omitempty"`
}

// An Answer is what retries get. Without the role act there are names instead of headers.
type Answer struct {
	Status      int                 `json:"status"`
	Headers     map[string][]string `json:"headers,omitempty"`
	HeaderNames []string            `json:"header_names,omitempty"`
	Omitted     bool                `json:"omitted,omitempty"`
	BodySize    int                 `json:"body_bytes"`
	Body        *string             `json:"body,omitempty"`
	BodyBytes   []byte              `json:"body_base64,omitempty"`
}

// A Progress is how far an operation in phases has come.
type Progress struct {
	Phase string     `json:"phase,omitempty"`
	Size  int        `json:"data_bytes"`
	Data  []byte     `json:"data_base64,omitempty"`
	Steps []Step `json:"steps,omitempty"`
}

// A Step is a phase or an effect, without what it was called with and returned.
type Step struct {
	Name        string `json:"name"`
	Effect      bool   `json:"effect,omitempty"`
	Open        bool   `json:"open,omitempty"`
	Calls       int    `json:"calls,omitempty"`
	ProviderRef string `json:"provider_ref,omitempty"`
}

// A Note is what others than its owners did to a record.
type Note struct {
	At     time.Time `json:"at"`
	By     string    `json:"by"`
	State  string    `json:"state"`
	Text   string    `json:"text"`
	Action string    `json:"action,omitempty"`
}

// A Detail is how much of a record a reader gets. Each one includes those before.
type Detail uint8

const (
	// Names is for the role read: of an answer's headers only the names.
	Names Detail = iota
	// Headers is for the role act.
	Headers
	// Contents is for a reader whose look at them is in the audit.
	Contents
)

// NewRecord returns a record for a reader. Unreadable says that parts of it may be wrong.
func NewRecord(r *retrysafe.Record, d Detail, unreadable bool) Record {
	j := Record{
		Key: NewKey(r.Ref), Version: r.Version, Operation: r.Operation, State: r.State.String(), Due: r.Due(),
		Dead: r.Inquiry.Dead, Disputed: r.Inquiry.Disputed, UnderReview: r.UnderReview(), Unreadable: unreadable || !r.Readable(),
		Attempt: r.Attempt, Effects: r.Effects.String(), Lapse: r.Lapse.String(), Revision: r.Revision,
		CreatedAt: r.CreatedAt, UpdatedAt: r.UpdatedAt, Deadline: r.Deadline, ReadAt: r.ReadAt,
		RequestSize: len(r.Request), ProviderRef: r.ProviderRef, Reason: r.Reason, Upstream: failreason.Status(r.Reason), Tries: r.Inquiry.Tries,
	}
	if unreadable {
		j.Version = 0
	}
	for _, n := range r.Inquiry.Notes {
		j.Notes = append(j.Notes, Note{n.At, n.By, n.State.String(), n.Text, n.ID})
	}
	if !r.Checkpoint.IsZero() {
		p := &Progress{Phase: r.Checkpoint.Phase, Size: len(r.Checkpoint.Data)}
		steps, _ := r.Checkpoint.Steps() // a checkpoint without a step log has none
		for _, s := range steps {
			p.Steps = append(p.Steps, Step{s.Name, s.Effect, s.Open, s.Calls, s.ProviderRef})
		}
		if d >= Contents {
			p.Data = r.Checkpoint.Data
		}
		j.Checkpoint = p
	}
	if d >= Contents {
		j.Request = r.Request
	}
	if r.Result != nil {
		j.Answer = newAnswer(r.Result, d)
	}
	return j
}

func newAnswer(r *retrysafe.Result, d Detail) *Answer {
	a := &Answer{Status: r.Status, Omitted: r.Omitted, BodySize: len(r.Body)}
	if d == Names {
		a.HeaderNames = slices.Sorted(maps.Keys(r.Header))
	} else {
		a.Headers = r.Header
	}
	switch {
	case d < Contents:
	case utf8.Valid(r.Body):
		body := string(r.Body)
		a.Body = &body
	default:
		a.BodyBytes = r.Body
	}
	return a
}

// Result returns the answer. Its body is empty if it was not revealed.
func (a *Answer) Result() *retrysafe.Result {
	r := &retrysafe.Result{Status: a.Status, Header: a.Headers, Omitted: a.Omitted, Body: a.BodyBytes}
	if a.Body != nil {
		r.Body = []byte(*a.Body)
	}
	for _, name := range a.HeaderNames {
		if r.Header == nil {
			r.Header = map[string][]string{}
		}
		r.Header[name] = []string{"(hidden from the role read)"}
	}
	return r
}

// View returns the record for the command.
func (j *Record) View() (View, error) {
	ref, ok := ParseRef(j.Ref)
	if !ok {
		return View{}, fmt.Errorf("%q names no record", j.Ref)
	}
	state, err := ParseState(j.State)
	if err != nil && !j.Unreadable {
		return View{}, err
	}
	v := View{Record: retrysafe.Record{
		Ref: ref, Version: j.Version, Operation: j.Operation, State: state, Attempt: j.Attempt, Revision: j.Revision,
		CreatedAt: j.CreatedAt, UpdatedAt: j.UpdatedAt, Deadline: j.Deadline, ReadAt: j.ReadAt, Request: j.Request,
		ProviderRef: j.ProviderRef, Reason: j.Reason, Inquiry: retrysafe.Inquiry{Tries: j.Tries, Dead: j.Dead, Disputed: j.Disputed},
	}, remote: &sizes{request: j.RequestSize}}
	v.Effects = named(j.Effects, retrysafe.EffectsInTx)
	v.Lapse = named(j.Lapse, retrysafe.LapseFail)
	for _, n := range j.Notes {
		at, _ := ParseState(n.State) // one that this program does not know is shown as none
		v.Inquiry.Notes = append(v.Inquiry.Notes, retrysafe.Note{At: n.At, By: n.By, State: at, Text: n.Text, ID: n.Action})
	}
	if p := j.Checkpoint; p != nil {
		v.Checkpoint, v.remote.checkpoint = retrysafe.Checkpoint{Phase: p.Phase, Data: p.Data}, p.Size
		if v.Checkpoint.Data == nil {
			v.Checkpoint.Data = []byte{}
		}
		for _, s := range p.Steps {
			v.remote.steps = append(v.remote.steps, retrysafe.Step{Name: s.Name, Effect: s.Effect, Open: s.Open, Calls: s.Calls, ProviderRef: s.ProviderRef})
		}
	}
	if j.Answer != nil {
		v.Result, v.remote.body = j.Answer.Result(), j.Answer.BodySize
	}
	return v, nil
}

// ParseState returns the state with a name.
func ParseState(name string) (retrysafe.State, error) {
	for s := retrysafe.StateAccepted; s.Valid(); s++ {
		if s.String() == name {
			return s, nil
		}
	}
	return 0, fmt.Errorf("there is no state %q", name)
}

// named returns the value up to last that has a name, or zero.
func named[T interface {
	~uint8
	fmt.Stringer
}](name string, last T) T {
	for v := T(0); v <= last; v++ {
		if v.String() == name {
			return v
		}
	}
	return 0
}

// A View is a record as a reader got it: from a store as a whole, or from the API without
// its contents.
type View struct {
	retrysafe.Record
	remote *sizes // nil: the record is whole
}

// sizes are what is known of contents that are not there.
type sizes struct {
	request, checkpoint, body int
	steps                     []retrysafe.Step
}

// RequestSize returns how many bytes the stored request has.
func (v *View) RequestSize() int {
	if v.remote != nil {
		return v.remote.request
	}
	return len(v.Request)
}

// BodySize returns how many bytes the body of the answer has.
func (v *View) BodySize() int {
	switch {
	case v.remote != nil:
		return v.remote.body
	case v.Result == nil:
		return 0
	}
	return len(v.Result.Body)
}

// CheckpointSize returns how many bytes the data of the checkpoint has.
func (v *View) CheckpointSize() int {
	if v.remote != nil {
		return v.remote.checkpoint
	}
	return len(v.Checkpoint.Data)
}

// Steps returns the steps of the checkpoint, without their contents if they are not there.
func (v *View) Steps() []retrysafe.Step {
	if v.remote != nil {
		return v.remote.steps
	}
	steps, _ := v.Checkpoint.Steps() // a checkpoint without a step log has none
	return steps
}

// Views returns records of a store.
func Views(records []retrysafe.Record) []View {
	list := make([]View, len(records))
	for i := range records {
		list[i].Record = records[i]
	}
	return list
}

// A ViewPage is a part of a list of records.
type ViewPage struct {
	Records []View
	Next    retrysafe.Ref
	More    bool
}

// A Counted is what a batch would change. Of is the selection itself, as the source of it
// has it.
type Counted struct {
	Count, Disputed, Unreadable int
	Sample                      []View
	Of                          any
}

package prove

import (
	"fmt"
	"sync"
	"time"
)

// A Verdict is what became of a check.
type Verdict string

// The verdicts.
const (
	// Passed: it was carried out, and the promise held.
	Passed Verdict = "passed"
	// Failed: a promise was broken.
	Failed Verdict = "failed"
	// Broken: it could not be carried out. It shows nothing.
	Broken Verdict = "broken"
	// Skipped: it cannot be carried out here, and Why says why.
	Skipped Verdict = "skipped"
)

// A Result is what one check has shown. Its methods may be called concurrently.
type Result struct {
	Check   string   `json:"check"`
	Goal    string   `json:"goal"`
	Shows   string   `json:"shows"`
	Holds   []string `json:"holds"`
	Store   string   `json:"store,omitempty"` // redacted
	Verdict Verdict  `json:"verdict"`
	// Why says what kept the check from being carried out.
	Why     string        `json:"why,omitempty"`
	Seed    uint64        `json:"seed"`
	Began   time.Time     `json:"began"`
	Took    time.Duration `json:"took_ns"`
	Figures []Figure      `json:"figures"`
	// Violations are the first of those found; Found counts them all.
	Violations []Violation `json:"violations"`
	Found      int         `json:"found"`
	// Err is what Why says, as the check returned it.
	Err error `json:"-"`

	mu sync.Mutex
}

// A Figure is one thing that was counted or measured.
type Figure struct {
	Name  string  `json:"name"`
	Value float64 `json:"value"`
	// Unit is empty for a count.
	Unit string `json:"unit,omitempty"`
}

// A Violation is a promise that was broken.
type Violation struct {
	// Invariant is the promise, such as S1.
	Invariant string `json:"invariant"`
	// Key is the idempotency key it happened to, if it was one.
	Key  string `json:"key,omitempty"`
	What string `json:"what"`
	// Seed shows it again, where a seed decides everything.
	Seed uint64 `json:"seed,omitempty"`
	// Trace is how it came about, in order.
	Trace []string `json:"trace,omitempty"`
}

// mostViolations is how many a result keeps.
const mostViolations = 20

// Violate notes a broken promise.
func (r *Result) Violate(v Violation) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.Found++; len(r.Violations) < mostViolations {
		r.Violations = append(r.Violations, v)
	}
}

// Violatef notes a broken promise about a key, or about none.
func (r *Result) Violatef(invariant, key, format string, args ...any) {
	r.Violate(Violation{Invariant: invariant, Key: key, What: fmt.Sprintf(format, args...)})
}

// Count adds to a figure that counts something.
func (r *Result) Count(name string, n int) { r.add(name, float64(n), "") }

// Measure sets a figure.
func (r *Result) Measure(name string, value float64, unit string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f := r.figure(name)
	f.Value, f.Unit = value, unit
}

func (r *Result) add(name string, n float64, unit string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f := r.figure(name)
	f.Value, f.Unit = f.Value+n, unit
}

// Figure returns what was counted or measured under a name, or 0.
func (r *Result) Figure(name string) float64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.figure(name).Value
}

// figure returns the figure of that name, new if there was none. The caller holds mu.
func (r *Result) figure(name string) *Figure {
	for i := range r.Figures {
		if r.Figures[i].Name == name {
			return &r.Figures[i]
		}
	}
	r.Figures = append(r.Figures, Figure{Name: name})
	return &r.Figures[len(r.Figures)-1]
}

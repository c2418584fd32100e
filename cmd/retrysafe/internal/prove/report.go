package prove

import (
	"encoding/json"
	"io"
	"time"
)

// A Report is what several checks have shown.
type Report struct {
	// Program is the version that was checked, Machine what it ran on.
	Program string `json:"program"`
	Machine string `json:"machine"`
	// Size is "change" or "release".
	Size   string        `json:"size"`
	Seed   uint64        `json:"seed"`
	Began  time.Time     `json:"began"`
	Took   time.Duration `json:"took_ns"`
	Stores []StoreFacts  `json:"stores"`
	// Verdict is the worst of the results'.
	Verdict Verdict   `json:"verdict"`
	Results []*Result `json:"results"`
}

// StoreFacts are what a store says of itself.
type StoreFacts struct {
	URL  string `json:"url"` // redacted
	Kind string `json:"kind"`
	// Class is what it promises, and under which settings.
	Class string `json:"class"`
}

// severity orders the verdicts. What was skipped is no news, good or bad.
var severity = map[Verdict]int{Skipped: 0, Passed: 1, Broken: 2, Failed: 3}

// End closes the report: the results are all there.
func (r *Report) End(now time.Time) {
	r.Took = now.Sub(r.Began)
	r.Verdict = Skipped
	for _, one := range r.Results {
		if severity[one.Verdict] > severity[r.Verdict] {
			r.Verdict = one.Verdict
		}
	}
}

// Count returns how many results have a verdict.
func (r *Report) Count(v Verdict) (n int) {
	for _, one := range r.Results {
		if one.Verdict == v {
			n++
		}
	}
	return n
}

// JSON writes the report for other programs.
func (r *Report) JSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(r)
}

// ReadReport reads a report that JSON has written.
func ReadReport(from io.Reader) (*Report, error) {
	var r Report
	err := json.NewDecoder(from).Decode(&r)
	return &r, err
}

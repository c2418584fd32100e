package conform

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

// A Report is what a run has shown.
type Report struct {
	URL       string        `json:"url"`
	Operation string        `json:"operation"`
	Profile   string        `json:"profile"`
	RunID     string        `json:"run_id"` // part of all keys of the run
	Began     time.Time     `json:"began"`
	Took      time.Duration `json:"took_ns"`
	Results   []Result      `json:"results"`
}

// A Result is the verdict of one check.
type Result struct {
	Check       string   `json:"check"`
	Clause      string   `json:"clause"`
	Requirement string   `json:"requirement"`
	Severity    string   `json:"severity"` // critical, major, minor, note
	Needs       []string `json:"needs,omitempty"`
	// Verdict is one of: holds, violated, not optimal, observation, not supported, set-up
	// failed, dependency failed, not tested.
	Verdict string `json:"verdict"`
	Why     string `json:"why"`
	// Weak says why the verdict is weaker than it could be.
	Weak     string        `json:"weak,omitempty"`
	Requests int           `json:"requests"`
	Took     time.Duration `json:"took_ns"`
	// Exchanges are what was sent and received, if the requirement does not hold or could
	// not be tested.
	Exchanges []Exchange `json:"exchanges,omitempty"`
}

// An Exchange is a request and its answer as they were on the wire, without credentials.
type Exchange struct {
	Step     string        `json:"step"`
	Sent     string        `json:"sent"`
	Received string        `json:"received"`
	Took     time.Duration `json:"took_ns"`
	// Curl is a command that sends the request again. Credentials are variables in it.
	Curl string `json:"curl"`
}

// Err returns an error that lists what is violated, or nil.
func (r *Report) Err() error {
	var all []error
	for _, result := range r.Results {
		if result.Verdict == violated {
			all = append(all, fmt.Errorf("%s is violated: %s", result.Check, result.Why))
		}
	}
	if len(all) == 0 && r.tally(holds) == 0 {
		return errors.New("no check could be carried out: " + r.firstFailedSetup())
	}
	return errors.Join(all...)
}

func (r *Report) firstFailedSetup() string {
	for _, result := range r.Results {
		if result.Verdict == setupFailed {
			return result.Check + ": " + result.Why
		}
	}
	return "none was asked for that can be tested with these options"
}

// Fails reports whether a check of at least this severity (critical, major or minor) does
// not hold.
func (r *Report) Fails(severity string) bool {
	order := []string{critical, major, minor}
	limit := slices.Index(order, severity)
	return slices.ContainsFunc(r.Results, func(result Result) bool {
		at := slices.Index(order, result.Severity)
		return at >= 0 && at <= limit && (result.Verdict == violated || result.Verdict == notOptimal)
	})
}

// tally returns how many checks have a verdict.
func (r *Report) tally(verdict string) (n int) {
	for _, result := range r.Results {
		if result.Verdict == verdict {
			n++
		}
	}
	return n
}

var verdictOrder = []string{holds, violated, notOptimal, observation, notSupported, setupFailed, dependencyFailed, notTested}

// summary returns all counts in one line.
func (r *Report) summary() string {
	var parts []string
	for _, v := range verdictOrder {
		if n := r.tally(v); n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, v))
		}
	}
	return strings.Join(parts, ", ")
}

// requests returns how many requests were sent.
func (r *Report) requests() (n int) {
	for _, result := range r.Results {
		n += result.Requests
	}
	return n
}

// weak returns the checks whose verdict is weaker than it could be, by reason.
func (r *Report) weak() (reasons []string, by map[string][]string) {
	by = map[string][]string{}
	for _, result := range r.Results {
		if result.Weak != "" {
			if by[result.Weak] == nil {
				reasons = append(reasons, result.Weak)
			}
			by[result.Weak] = append(by[result.Weak], result.Check)
		}
	}
	return reasons, by
}

// Write writes the report as text, ansi (text with colours), json, junit or html.
func (r *Report) Write(w io.Writer, format string) error {
	switch format {
	case "text":
		return r.text(w, false)
	case "ansi":
		return r.text(w, true)
	case "json":
		e := json.NewEncoder(w)
		e.SetIndent("", "  ")
		return e.Encode(r)
	case "junit":
		return r.junit(w)
	case "html":
		return r.html(w)
	default:
		return fmt.Errorf("there is no format %q; they are text, ansi, json, junit, html", format)
	}
}

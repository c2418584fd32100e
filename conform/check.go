package conform

import "fmt"

// The verdicts of a check.
const (
	holds            = "holds"
	violated         = "violated"
	notOptimal       = "not optimal"
	observation      = "observation"
	notSupported     = "not supported"
	setupFailed      = "set-up failed"
	dependencyFailed = "dependency failed"
	notTested        = "not tested"
)

// A check puts one requirement to the test.
type check struct {
	id       string
	clause   string // where the requirement comes from
	says     string // the requirement, in words
	severity string
	needs    []string // checks without which this one says nothing
	// blind says that an answer of this check may be lost, so that without a probe
	// effects can only be inferred.
	blind bool
	// probes is how often effects are counted at most.
	probes int
	// missing says what the options lack for this check, or is empty.
	missing func(s *settings) string
	plan    func(s *settings) []step
	run     func(t *trial) finding
}

// A step is a request that a check announces.
type step struct {
	name string
	what string
	// times is how often it is sent at most.
	times int
	make  func(t *trial) *message
}

// A finding is what a check has seen. A failure becomes a verdict by the severity of the
// check.
type finding struct {
	verdict string
	why     string
}

const failure = "failure"

func hold(format string, args ...any) finding  { return finding{holds, fmt.Sprintf(format, args...)} }
func fails(format string, args ...any) finding { return finding{failure, fmt.Sprintf(format, args...)} }
func observed(format string, args ...any) finding {
	return finding{observation, fmt.Sprintf(format, args...)}
}
func unsupported(format string, args ...any) finding {
	return finding{notSupported, fmt.Sprintf(format, args...)}
}
func untested(format string, args ...any) finding {
	return finding{notTested, fmt.Sprintf(format, args...)}
}
func badSetup(format string, args ...any) finding {
	return finding{setupFailed, fmt.Sprintf(format, args...)}
}

// under returns the verdict of a finding by the severity of its check.
func (f finding) under(severity string) string {
	if f.verdict != failure {
		return f.verdict
	}
	switch severity {
	case critical, major:
		return violated
	case minor:
		return notOptimal
	default:
		return observation
	}
}

// checks returns all checks, each after those that it needs.
func checks() []check {
	var all []check
	for _, group := range [][]check{baseChecks, replayChecks, keyChecks, mismatchChecks, scopeChecks, fingerprintChecks, flightChecks, answerChecks, worldChecks} {
		all = append(all, group...)
	}
	return all
}

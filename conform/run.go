package conform

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
)

const (
	weakAlike = "all operations are answered alike, so that a replay cannot be told from a second run without an effects URL or a marker"
)

// A Planned is a request that a run will send.
type Planned struct {
	// Check is the identity of the check that sends it, Step its name there, and What what
	// it is.
	Check, Step, What string
	// Times is how often it is sent at most.
	Times int
	// Sent is the request as it is written to the connection, without its credentials.
	Sent string
}

// Plan returns every request that [Run] sends at most, and sends none. Requests that are
// not sent because of what an earlier answer says are listed too. RunID makes it the plan
// of that run.
func Plan(o *Options) ([]Planned, error) {
	s, err := o.settle()
	if err != nil {
		return nil, err
	}
	chosen, err := s.chosen()
	if err != nil {
		return nil, err
	}
	var all []Planned
	for i := range chosen {
		c := &chosen[i]
		if s.skip(c) != "" {
			continue
		}
		t := &trial{s: s, check: c}
		for _, st := range s.steps(c) {
			all = append(all, Planned{Check: c.id, Step: st.name, What: st.what, Times: st.times, Sent: st.make(t).text()})
		}
	}
	return all, nil
}

// Checks returns what each check requires, without a verdict.
func Checks() []Result {
	var all []Result
	for _, c := range checks() {
		all = append(all, Result{Check: c.id, Clause: c.clause, Requirement: c.says, Severity: c.severity, Needs: c.needs})
	}
	return all
}

// steps returns what a check sends, with the questions to the effects URL.
func (s *settings) steps(c *check) []step {
	steps := c.plan(s)
	if c.probes > 0 && s.probe != nil {
		times := c.probes
		if s.perKey() {
			times-- // there is no baseline to read
		}
		steps = append(slices.Clone(steps), step{probeStep, "the number of effects", times, func(t *trial) *message { return t.probeMessage(0) }})
	}
	return steps
}

// skip returns why a check is not tested with these options, or an empty text.
func (s *settings) skip(c *check) string {
	if s.severity(c) == off {
		return "the profile switches it off"
	}
	if c.missing != nil {
		return c.missing(s)
	}
	return ""
}

func (s *settings) severity(c *check) string {
	if severity, ok := s.profile.Severity[c.id]; ok {
		return severity
	}
	return c.severity
}

// chosen returns the checks that were asked for, and those that they need.
func (s *settings) chosen() ([]check, error) {
	all := append(checks(), coverage(s)...)
	if len(s.Only) == 0 {
		return all, nil
	}
	wanted := map[string]bool{}
	for _, only := range s.Only {
		found := false
		for _, c := range all {
			group, _, _ := strings.Cut(c.id, "/")
			if c.id == only || group == only {
				wanted[c.id], found = true, true
			}
		}
		if !found {
			return nil, fmt.Errorf("there is no check %q; they are %s", only, strings.Join(groups(all), ", "))
		}
	}
	// Checks that others need stand before them, so one pass from the end finds them all.
	for _, c := range slices.Backward(all) {
		if wanted[c.id] {
			for _, id := range c.needs {
				wanted[id] = true
			}
		}
	}
	return slices.DeleteFunc(all, func(c check) bool { return !wanted[c.id] && c.id != "base/answer" && c.id != "base/effects" }), nil
}

// groups returns the parts before the slash, in order.
func groups(all []check) (names []string) {
	for _, c := range all {
		if group, _, _ := strings.Cut(c.id, "/"); !slices.Contains(names, group) {
			names = append(names, group)
		}
	}
	return names
}

// Run sends the requests of all checks and returns what they show. An error means that
// the options are wrong or the API cannot be tested as they say, and that there is no
// report; what the API does wrong is in the report.
func Run(ctx context.Context, o *Options) (*Report, error) {
	s, err := o.settle()
	if err != nil {
		return nil, err
	}
	chosen, err := s.chosen()
	if err != nil {
		return nil, err
	}
	w := newWire(s)
	for _, u := range []*url.URL{s.base, s.probe} {
		if u != nil {
			if err := w.reach(ctx, u); err != nil {
				return nil, err
			}
		}
	}
	r := &runner{s: s, w: w, verdicts: map[string]string{}, causes: map[string]string{}}
	if s.Webhooks != "" {
		if r.hooks, err = listen(ctx, s.Webhooks); err != nil {
			return nil, fmt.Errorf("listen for webhooks: %w", err)
		}
		defer r.hooks.close()
	}
	report := &Report{URL: s.base.String(), Operation: s.Request.Method + " " + s.Request.Path, Profile: s.profile.Name, RunID: s.RunID, Began: time.Now().UTC()}
	for i := range chosen {
		result, err := r.run(ctx, &chosen[i])
		if err != nil {
			return nil, err
		}
		report.Results = append(report.Results, *result)
		if s.OnResult != nil {
			s.OnResult(result)
		}
	}
	report.Took = time.Since(report.Began)
	return report, nil
}

// A runner runs checks, one after the other.
type runner struct {
	s        *settings
	w        *wire
	hooks    *receiver
	verdicts map[string]string
	causes   map[string]string // of checks whose dependency failed, the first one that did
	home     *answer           // of an ordinary operation
	alike    bool              // all operations are answered alike
	counts   bool              // the effects URL counts
}

func (r *runner) run(ctx context.Context, c *check) (*Result, error) {
	severity := r.s.severity(c)
	result := &Result{Check: c.id, Clause: c.clause, Requirement: c.says, Severity: severity, Needs: c.needs}
	defer func() { r.verdicts[c.id] = result.Verdict }()
	if why := r.s.skip(c); why != "" {
		result.Verdict, result.Why = notTested, why
		return result, nil
	}
	for _, id := range c.needs {
		if v := r.verdicts[id]; v == violated || v == notOptimal || v == setupFailed || v == dependencyFailed {
			r.causes[c.id] = cmp.Or(r.causes[id], id+" is "+v)
			result.Verdict, result.Why = dependencyFailed, r.causes[c.id]
			return result, nil
		}
	}
	t := &trial{
		ctx: ctx, s: r.s, w: r.w, check: c, steps: r.s.steps(c), used: map[string]int{},
		probe: r.s.probe != nil && (r.counts || c.id == "base/effects"), home: r.home, alike: r.alike, hooks: r.hooks,
	}
	began := time.Now()
	f := c.run(t)
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	for _, a := range t.log {
		if err := redirect(r.s.base, a); err != nil {
			return nil, err
		}
	}
	r.note(c, t, f)
	f = t.weighed(f)
	result.Verdict, result.Why, result.Weak, result.Took = f.under(severity), f.why, t.weak, time.Since(began)
	result.Requests = len(t.log)
	if f.verdict == failure || f.verdict == setupFailed {
		result.Exchanges = exchanges(t.log)
	}
	return result, nil
}

// note keeps what later checks need to know.
func (r *runner) note(c *check, t *trial, f finding) {
	switch {
	case c.id == "base/answer" && len(t.log) == 2:
		r.home, r.alike = t.log[0], t.log[0].same(t.log[1])
	case c.id == "base/effects":
		r.counts = f.verdict == holds && t.probeErr == nil
	}
}

// weighed returns the finding of a trial as far as it can be trusted.
func (t *trial) weighed(f finding) finding {
	switch {
	case t.overdrawn != "":
		return badSetup("this check tried to send %q more often than it announces; that is a bug of the verifier", t.overdrawn)
	case t.probeErr != nil:
		return badSetup("%v", t.probeErr)
	case f.verdict == failure && t.check.id != "answers/429" && t.limited():
		return badSetup("the API answered 429, which says nothing about its keys; lower the rate, or raise its limit")
	case t.weak == weakAnswers && t.alike && f.verdict == holds:
		t.weak = weakAlike
		return untested("%s", weakAlike)
	}
	return f
}

// limited reports whether the API has refused a request because there were too many.
func (t *trial) limited() bool {
	return slices.ContainsFunc(t.log, func(a *answer) bool { return a.status == http.StatusTooManyRequests })
}

// redirect returns an error for an answer that leads to another host.
func redirect(base *url.URL, a *answer) error {
	if a.status < 300 || a.status > 399 || a.status == http.StatusNotModified {
		return nil
	}
	if to, err := a.sent.url.Parse(a.header.Get("Location")); err == nil && to.Host != "" && !strings.EqualFold(to.Host, a.sent.url.Host) {
		return fmt.Errorf("%s redirects to another host, %s: %w", base.Host, to.Host, errRedirect)
	}
	return nil
}

var errRedirect = errors.New("nothing was sent there; verify that URL instead, if it is yours")

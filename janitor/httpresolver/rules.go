package httpresolver

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/answerrule"
	"github.com/retrysafe/retrysafe/internal/jsonrule"
	"github.com/retrysafe/retrysafe/janitor"
)

// What a rule may say.
const (
	happened    = "happened"
	declined    = "declined"
	notHappened = "not_happened"
	tombstoned  = "tombstoned"
	pending     = "pending"
	unknown     = "unknown"
)

var meanings = []string{happened, declined, notHappened, tombstoned, pending, unknown}

// rules are those of a lookup, checked.
type rules struct {
	all []rule
	ref *jsonrule.Pointer
}

// A rule is a [Rule] that has been checked.
type rule struct {
	statuses []string
	when     []jsonrule.Condition
	present  []jsonrule.Pointer
	absent   []absence
	then     string
	answer   *answerrule.Rule
}

// An absence is a place that must be empty, in one that must not be.
type absence struct{ whole, part jsonrule.Pointer }

// parse reads the rules, and tells refuse what is wrong with them.
func (r *rules) parse(l *Lookup, refuse func(field string, err error)) {
	if l.ProviderRef != "" {
		at, err := jsonrule.ParsePointer(l.ProviderRef)
		refuse("provider_ref", err)
		r.ref = &at
	}
	if len(l.Rules) == 0 {
		refuse("rules", errors.New("there are none, so no reply would mean anything"))
	}
	broken := false
	for i := range l.Rules {
		path := fmt.Sprintf("rules[%d]", i)
		one := parseRule(&l.Rules[i], func(field string, err error) {
			broken = broken || err != nil
			refuse(path+field, err)
		})
		for j := range r.all {
			if !broken && r.all[j].covers(&one) {
				refuse(path, fmt.Errorf("it can never match: rules[%d], which comes first, matches every reply that it would", j))
				break
			}
		}
		r.all = append(r.all, one)
	}
}

func parseRule(from *Rule, refuse func(field string, err error)) (r rule) {
	r.then = from.Then
	switch {
	case from.Then == "":
		refuse(".then", fmt.Errorf("it is missing; it is one of %s", strings.Join(meanings, ", ")))
	case !slices.Contains(meanings, from.Then):
		refuse(".then", fmt.Errorf("%q is none of %s%s", from.Then, strings.Join(meanings, ", "), strings.NewReplacer("{", "", "}", "").Replace(answerrule.Nearest(from.Then, meanings))))
	}
	if len(from.Status) == 0 {
		refuse(".status", errors.New("it is missing; it has the statuses of the replies, such as 200 or 4xx"))
	}
	for i, s := range from.Status {
		refuse(fmt.Sprintf(".status[%d]", i), checkStatus(s, from.Then))
		r.statuses = append(r.statuses, s)
	}
	for _, text := range slices.Sorted(maps.Keys(from.When)) {
		at, err := jsonrule.ParsePointer(text)
		if err == nil && len(from.When[text]) == 0 {
			err = errors.New("it can never match: there is no text that it may be")
		}
		refuse(".when."+text, err)
		r.when = append(r.when, jsonrule.Condition{At: at, Is: from.When[text]})
	}
	for i, text := range from.Present {
		at, err := jsonrule.ParsePointer(text)
		refuse(fmt.Sprintf(".present[%d]", i), err)
		if slices.Contains(from.Absent, text) {
			refuse(fmt.Sprintf(".present[%d]", i), fmt.Errorf("it can never match: %q must be absent too", text))
		}
		r.present = append(r.present, at)
	}
	for i, text := range from.Absent {
		part, err := jsonrule.ParsePointer(text)
		if err == nil && text == "" {
			err = errors.New("it can never match: a document is never absent")
		}
		if _, ok := from.When[text]; ok && err == nil {
			err = fmt.Errorf("it can never match: when needs a value at %q", text)
		}
		refuse(fmt.Sprintf(".absent[%d]", i), err)
		whole, _ := jsonrule.ParsePointer(text[:max(strings.LastIndexByte(text, '/'), 0)]) // a part of a pointer is one
		r.absent = append(r.absent, absence{whole, part})
	}
	answers := from.Then == happened || from.Then == declined
	switch {
	case answers && from.Answer == nil:
		refuse(".answer", fmt.Errorf("it is missing; %s needs the answer that retries get", from.Then))
	case !answers && from.Answer != nil && slices.Contains(meanings, from.Then):
		refuse(".answer", fmt.Errorf("only %s and %s have one", happened, declined))
	case from.Answer != nil:
		a := answerrule.Answer{Status: from.Answer.Status, Header: from.Answer.Header, Body: from.Answer.Body, BodyFrom: from.Answer.BodyFrom}
		r.answer = answerrule.New(&a, &inAnswer, func(field string, err error) { refuse(".answer."+field, err) })
	}
	return r
}

// checkStatus refuses what is no status, and statuses that say nothing of the operation but
// only of the question.
func checkStatus(s, then string) error {
	if len(s) != 3 || s[0] < '1' || s[0] > '5' || s[1:] != "xx" && strings.Trim(s[1:], "0123456789") != "" {
		return fmt.Errorf("%q is not a status such as 200, 404 or 2xx", s)
	}
	if s[0] == '2' || then == pending || then == unknown {
		return nil
	}
	about := "the question, not the operation; only pending or unknown can follow from it"
	switch {
	case s == "4xx":
		return errors.New("among 4xx are 401, 403 and 429, which say something of the question, not of the operation; write the status that you mean, such as 404")
	case s[0] != '4':
		return fmt.Errorf("a %s says something of %s", s, about)
	case slices.Contains([]string{"400", "401", "403", "405", "407", "408", "421", "425", "426", "429", "431"}, s):
		return fmt.Errorf("a %s says something of %s", s, about)
	}
	return nil
}

// covers reports whether r matches every reply that o matches.
func (r *rule) covers(o *rule) bool {
	for _, s := range o.statuses {
		if !slices.ContainsFunc(r.statuses, func(p string) bool { return p == s || p[1:] == "xx" && p[0] == s[0] }) {
			return false
		}
	}
	for _, c := range r.when {
		narrower := func(d jsonrule.Condition) bool {
			return d.At.String() == c.At.String() && !slices.ContainsFunc(d.Is, func(text string) bool { return !slices.Contains(c.Is, text) })
		}
		if !slices.ContainsFunc(o.when, narrower) {
			return false
		}
	}
	for _, p := range r.present {
		same := func(q jsonrule.Pointer) bool { return q.String() == p.String() }
		if !slices.ContainsFunc(o.present, same) && !slices.ContainsFunc(o.when, func(c jsonrule.Condition) bool { return same(c.At) }) {
			return false
		}
	}
	for _, a := range r.absent {
		if !slices.ContainsFunc(o.absent, func(b absence) bool { return b.part.String() == a.part.String() }) {
			return false
		}
	}
	return true
}

// matches reports whether the rule is about a reply. Doc is nil if the reply is not JSON.
func (r *rule) matches(status int, doc *jsonrule.Document) bool {
	text := strconv.Itoa(status)
	if !slices.ContainsFunc(r.statuses, func(p string) bool { return p == text || p[1:] == "xx" && p[0] == text[0] && len(text) == 3 }) {
		return false
	}
	if len(r.when)+len(r.present)+len(r.absent) == 0 {
		return true
	}
	return doc != nil && doc.Fulfils(r.when) &&
		!slices.ContainsFunc(r.present, func(p jsonrule.Pointer) bool { return !doc.Has(p) }) &&
		!slices.ContainsFunc(r.absent, func(a absence) bool { return !doc.Has(a.whole) || doc.Has(a.part) })
}

// understand returns what a reply says, by the first rule that matches it.
func (r *rules) understand(n *names, got *reply) (v retrysafe.Evidence, err error) {
	var doc *jsonrule.Document
	from := answerrule.Source{Body: got.body, Kind: got.header.Get("Content-Type"), Value: n.value}
	if d, err := jsonrule.Parse(got.body); err == nil {
		doc, from.Document = &d, d
	}
	i := slices.IndexFunc(r.all, func(one rule) bool { return one.matches(got.status, doc) })
	if i < 0 {
		what := ""
		if doc == nil {
			what = ", and its body is not JSON"
		}
		return v, fmt.Errorf("no rule matches the reply: its status is %d%s", got.status, what)
	}
	one := &r.all[i]
	ref := ""
	if r.ref != nil && doc != nil {
		ref, _ = doc.Text(*r.ref)
	}
	text := fmt.Sprintf("status %d, rule %d", got.status, i+1)
	if ref != "" {
		text += ", " + ref
	}
	var result retrysafe.Result
	if one.answer != nil {
		if result, err = one.answer.Result(&from); err != nil {
			return v, fmt.Errorf("the answer of rule %d: %w", i+1, err)
		}
	}
	switch one.then {
	case happened:
		v = janitor.Happened(result, text)
	case declined:
		v = janitor.Declined(result, text)
	case notHappened:
		v = janitor.NotHappened(text)
	case tombstoned:
		v = janitor.Tombstoned(text)
	default:
		v = janitor.StillUnknown(one.then + ": " + text)
	}
	v.ProviderRef = ref
	return v, nil
}

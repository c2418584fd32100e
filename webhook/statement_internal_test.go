package webhook

import (
	"crypto"
	"strings"
	"testing"

	"github.com/retrysafe/retrysafe"
)

// The last of each kind of evidence counts, and what is beyond is refused.
func TestStatementsAtTheirBounds(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		v  retrysafe.Evidence
		ok bool
	}{
		{retrysafe.Evidence{Finding: retrysafe.FindingNotHappened, Proof: retrysafe.ProofAttested}, true},
		{retrysafe.Evidence{Finding: retrysafe.FindingNotHappened, Proof: retrysafe.ProofAttested + 1}, false},
		{retrysafe.Evidence{Finding: retrysafe.FindingNotHappened + 1}, false},
		{retrysafe.Evidence{Finding: retrysafe.FindingHappened, Result: retrysafe.Result{Status: 100}}, true},
		{retrysafe.Evidence{Finding: retrysafe.FindingHappened, Result: retrysafe.Result{Status: 99}}, false},
		{retrysafe.Evidence{Finding: retrysafe.FindingDeclined, Result: retrysafe.Result{Status: 999}}, true},
		{retrysafe.Evidence{Finding: retrysafe.FindingDeclined, Result: retrysafe.Result{Status: 1000}}, false},
	} {
		e := Statement{Ref: retrysafe.Ref{Scope: "s", Key: "k"}, Evidence: c.v}
		if err := e.check(); (err == nil) != c.ok {
			t.Errorf("%+v: %v", c.v, err)
		}
	}
}

// A listing of all scopes answers no question about one, and none is answered by a record
// that cannot be read.
func TestQuestionsAreAnsweredByTheirRecords(t *testing.T) {
	t.Parallel()
	s := newSurvey(1)
	all, one := &question{downstream: "d"}, &question{scope: "s", downstream: "d"}
	s.waiting = []*question{all, one}
	if got := s.take(""); len(got) != 1 || got[0] != all || len(s.waiting) != 1 || s.waiting[0] != one {
		t.Errorf("took %d questions, and %d wait", len(got), len(s.waiting))
	}
	in := &Intake{o: Options{DownstreamKeys: func(retrysafe.Ref) []string { return []string{"d"} }}}
	q := &question{downstream: "d"}
	in.compare(&retrysafe.Record{Ref: retrysafe.Ref{Scope: "s", Key: "k"}}, []*question{q})
	if q.matches != 0 {
		t.Error("a record that cannot be read is the answer")
	}
	in.compare(&retrysafe.Record{Ref: retrysafe.Ref{Scope: "s", Key: "k"}, Version: retrysafe.RecordVersion}, []*question{q})
	if q.matches != 1 {
		t.Error("the record is not the answer")
	}
}

// The shortest secret that may be used, and a signed text in which a digit follows the time.
func TestSchemesAtTheirBounds(t *testing.T) {
	t.Parallel()
	for n, ok := range map[int]bool{15: false, 16: true} {
		if err := (Stripe{Secrets: []Secret{Secret(strings.Repeat("s", n))}}).Check(); (err == nil) != ok {
			t.Errorf("a secret of %d characters: %v", n, err)
		}
	}
	for joint, ok := range map[string]bool{"0": false, "9": false, ":": true, "/": true} {
		h := HMAC{Secrets: []Secret{"a secret of enough characters"}, Hash: crypto.SHA256, Header: "X-S", TimestampHeader: "X-T", Signed: "{timestamp}" + joint + "{body}"}
		if err := h.Check(); (err == nil) != ok {
			t.Errorf("%q between the time and the body: %v", joint, err)
		}
	}
}

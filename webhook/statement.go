package webhook

import (
	"errors"
	"fmt"

	"github.com/retrysafe/retrysafe"
)

// A Statement is what an event proves, and about which key.
type Statement struct {
	// Ref is the key that the event is about. If the event does not carry it, the key
	// is looked up by DownstreamKey or, without that, by the evidence's ProviderRef, in
	// Ref's scope if that is set.
	Ref retrysafe.Ref
	// DownstreamKey is the key that the operation's outside call carried, see
	// [Options.DownstreamKeys].
	DownstreamKey string
	// Evidence says what became of the operation. With FindingHappened and
	// FindingDeclined it holds the answer for retries.
	Evidence retrysafe.Evidence
}

// ErrIgnore is what a [Reader] returns for an event that is about no key. The event is
// acknowledged and remembered.
var ErrIgnore = errors.New("webhook: event is about no key")

// ErrUnmatched is what a [Reader] returns for an event that it does not know. The event is
// refused, so that its evidence is not lost when the reader learns to read it.
var ErrUnmatched = errors.New("webhook: event is not known to its reader")

// check returns an error if the statement is invalid, whatever the record says.
func (e *Statement) check() error {
	v := &e.Evidence
	switch {
	case e.Ref.IsSystem():
		return errors.New("its key belongs to retrysafe itself")
	case e.Ref.Key != "" && e.Ref.Scope == "":
		return errors.New("its key has no scope")
	case e.Ref.Key == "" && e.DownstreamKey == "" && v.ProviderRef == "":
		return errors.New("the statement has neither a key, a downstream key nor a provider's id; return ErrIgnore for an event that is about no key")
	case v.Finding > retrysafe.FindingNotHappened || v.Proof > retrysafe.ProofAttested:
		return errors.New("the evidence has a finding or a proof that is not one of the constants")
	case (v.Finding == retrysafe.FindingHappened || v.Finding == retrysafe.FindingDeclined) && (v.Result.Status < 100 || v.Result.Status > 999):
		return fmt.Errorf("a statement that the operation %s needs the answer for retries, with a status", v.Finding)
	}
	return nil
}

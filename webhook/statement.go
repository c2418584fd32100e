package webhook

import (
	"errors"
	"fmt"

	"github.com/retrysafe/retrysafe"
)

// Evidence is what an event proves, and about what.
type Statement struct {
	// Ref is the key that the event is about. Where the event does not have it, the
	// key is found by the verdict's ProviderRef, in Ref's scope if that is set.
	Ref retrysafe.Ref
	// Verdict is what became of the operation. With Happened and Declined it has
	// the answer that retries get.
	Evidence retrysafe.Evidence
}

// ErrIgnore is what a [Reader] returns for an event that is about no key. It is
// acknowledged and remembered.
var ErrIgnore = errors.New("webhook: event is about no key")

// check reports what cannot be acted upon, whatever the record says.
func (e *Statement) check() error {
	v := &e.Evidence
	switch {
	case e.Ref.IsSystem():
		return errors.New("its key belongs to retrysafe itself")
	case e.Ref.Key != "" && e.Ref.Scope == "":
		return errors.New("its key has no scope")
	case e.Ref.Key == "" && v.ProviderRef == "":
		return errors.New("it has neither a key nor a provider's id; return ErrIgnore for what is about no key")
	case v.Finding > retrysafe.FindingNotHappened || v.Proof > retrysafe.ProofAttested:
		return errors.New("its verdict holds a value that is none of the constants")
	case (v.Finding == retrysafe.FindingHappened || v.Finding == retrysafe.FindingDeclined) && (v.Result.Status < 100 || v.Result.Status > 999):
		return fmt.Errorf("that it %s needs the answer that retries get, with a status", v.Finding)
	}
	return nil
}

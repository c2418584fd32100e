package sealed

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"

	"github.com/retrysafe/retrysafe"
)

// A handle is the Key by which a record that cannot be read is known above:
//
//	"unreadable." ‖ base64url(tag (16 bytes) ‖ Scope below behind its length ‖ Key below)
//
// The tag covers the Scope beside which the handle was shown. Nobody makes one
// without the index secret, so a client's key is never taken for one, and one
// that was shown beside a scope is worth nothing in another.
const (
	handlePrefix = "unreadable."
	tagSize      = 16
)

var errHandle = fmt.Errorf("sealed: the key is a handle of a record that cannot be read: %w", retrysafe.ErrUnreadable)

// show returns the record below opened, or its face and why it does not open.
// Scope is the one that was asked for, if any.
func (k *Keyring) show(below *retrysafe.Record, sent *echo, scope string) (retrysafe.Record, error) {
	w := k.work()
	defer w.done()
	up, err := w.openAll(below, sent)
	if err != nil {
		return w.face(below, scope, err), err
	}
	return up, nil
}

// face returns what is shown of a record that does not open, because of why: its
// plain fields, a handle, and Version 0, by which no reader of records takes it
// for one that it can act upon.
func (w *work) face(below *retrysafe.Record, scope string, why error) retrysafe.Record {
	up := *below
	up.KeyText, up.Request, up.Checkpoint, up.Version = nil, nil, retrysafe.Checkpoint{}, 0
	up.Reason, up.Inquiry = why.Error(), faceInquiry(&below.Inquiry)
	if below.Result != nil {
		up.Result = faceResult(below.Result)
	}
	if scope == "" {
		scope = handlePrefix + below.Scope
		if ref, _, err := w.openNames(below); err == nil {
			scope = ref.Scope
		}
	}
	up.Ref = w.keys.handle(scope, below.Ref)
	return up
}

// faceResult returns what is shown of an answer that does not open. Whoever
// replays it all the same says that its body was not kept.
func faceResult(below *retrysafe.Result) *retrysafe.Result {
	return &retrysafe.Result{Status: below.Status, Omitted: true}
}

// handle returns the Ref by which the record below is known above in scope.
func (k *Keyring) handle(scope string, below retrysafe.Ref) retrysafe.Ref {
	payload := append(appendString(nil, below.Scope), below.Key...)
	text := append(k.tag(scope, payload), payload...)
	return retrysafe.Ref{Scope: scope, Key: handlePrefix + base64.RawURLEncoding.EncodeToString(text)}
}

// parseHandle returns the Ref below of a handle, and false for any other key.
func (k *Keyring) parseHandle(ref retrysafe.Ref) (retrysafe.Ref, bool) {
	text, ok := strings.CutPrefix(ref.Key, handlePrefix)
	if !ok {
		return retrysafe.Ref{}, false
	}
	b, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil || len(b) < tagSize || !hmac.Equal(b[:tagSize], k.tag(ref.Scope, b[tagSize:])) {
		return retrysafe.Ref{}, false
	}
	scope, key, ok := cutString(b[tagSize:])
	return retrysafe.Ref{Scope: scope, Key: string(key)}, ok
}

func (k *Keyring) tag(scope string, payload []byte) []byte {
	h := hmac.New(sha256.New, k.index.handle)
	h.Write(append(appendString(nil, scope), payload...))
	return h.Sum(nil)[:tagSize]
}

// move is a Swap by handle: a write of a caller that cannot read the record. It
// reads first what the write must leave alone. That is still one atomic step, for
// the swap below holds only for the revision that was read.
func (s *store) move(ctx context.Context, up retrysafe.Write, below retrysafe.Ref) (retrysafe.Record, error) {
	stored, err := s.below.Load(ctx, below)
	if err != nil {
		return retrysafe.Record{}, err
	}
	shown, bad := s.keys.show(&stored, nil, up.Scope)
	if bad == nil || stored.Fence() != up.Expect {
		return shown, retrysafe.ErrConflict // also if it opens here: the caller decided by a face
	}
	refuse := func(why string) (retrysafe.Record, error) {
		return shown, fmt.Errorf("sealed: a record that cannot be read %s: %w", why, retrysafe.ErrUnreadable)
	}
	keeps := stored.Result != nil && up.Result.Equal(shown.Result)
	switch {
	case up.Overwrite:
		return refuse("is not claimed")
	case stored.State == retrysafe.StateUnknown && up.State != retrysafe.StateUnknown && up.State != retrysafe.StateCompleted:
		return refuse("stays unknown until it can be read or is completed")
	case stored.Result != nil && !keeps && up.State != retrysafe.StateExpired:
		return refuse("keeps its answer until it is expired")
	}

	up.Version = stored.Version // the face hides it, and what is sealed is bound to it
	up.SetCheckpoint = false
	w := s.keys.work()
	down := w.sealStep(&up, below, false)
	w.done()
	if keeps {
		down.Result = stored.Result
	}
	if up.Reason == shown.Reason {
		down.Reason = stored.Reason
	}
	if len(up.Inquiry.Notes) == 0 && sameCounts(&up.Inquiry, &shown.Inquiry) {
		down.Inquiry = stored.Inquiry
	}
	got, err := s.below.Swap(ctx, down)
	if err != nil && !errors.Is(err, retrysafe.ErrConflict) {
		return retrysafe.Record{}, err
	}
	shown, _ = s.keys.show(&got, nil, up.Scope)
	return shown, err
}

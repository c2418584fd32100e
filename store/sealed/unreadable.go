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

// A handle is the Key above of a record that cannot be read:
//
//	"unreadable." ‖ base64url(tag (16 bytes) ‖ Scope below behind its length ‖ Key below)
//
// The tag is an HMAC with the index secret, and covers the Scope that the handle was
// shown with. So a client's key is never taken for a handle, and a handle that was
// shown in one scope is not valid in another.
const (
	handlePrefix = "unreadable."
	tagSize      = 16
)

var errHandle = fmt.Errorf("sealed: the key is a handle of a record that cannot be read: %w", retrysafe.ErrUnreadable)

// show returns the opened record, or its placeholder and why it does not open. Scope is
// the one that was asked for, if any.
func (k *Keyring) show(below *retrysafe.Record, sent *echo, scope string) (retrysafe.Record, error) {
	w := k.work()
	defer w.done()
	up, err := w.openAll(below, sent)
	if err != nil {
		return w.placeholder(below, scope, err), err
	}
	return up, nil
}

// placeholder returns what is shown of a record that does not open, because of why: its
// plain fields, a handle, and Version 0, which makes every reader refuse it.
func (w *work) placeholder(below *retrysafe.Record, scope string, why error) retrysafe.Record {
	up := *below
	up.KeyText, up.Request, up.Checkpoint, up.Version = nil, nil, retrysafe.Checkpoint{}, 0
	up.Reason, up.Inquiry = why.Error(), placeholderInquiry(&below.Inquiry)
	if below.Result != nil {
		up.Result = placeholderResult(below.Result)
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

// placeholderResult returns what is shown of an answer that does not open. Omitted is
// set, so that a replay of it would say that the body was not kept.
func placeholderResult(below *retrysafe.Result) *retrysafe.Result {
	return &retrysafe.Result{Status: below.Status, Omitted: true}
}

// handle returns the Ref above, in scope, of the record below.
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

// move is a Swap by handle, for a caller that cannot read the record. It first reads
// the fields that the write must leave alone. It is still one atomic step: the swap
// below expects the revision that was read.
func (s *store) move(ctx context.Context, up retrysafe.Write, below retrysafe.Ref) (retrysafe.Record, error) {
	stored, err := s.below.Load(ctx, below)
	if err != nil {
		return retrysafe.Record{}, err
	}
	shown, bad := s.keys.show(&stored, nil, up.Scope)
	if bad == nil || stored.Fence() != up.Expect {
		return shown, retrysafe.ErrConflict // also if it opens here: the caller decided by a placeholder
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

	up.Version = stored.Version // the placeholder hides it, and sealed fields are bound to it
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

package stores

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/storeurl"
	"github.com/retrysafe/retrysafe/internal/adminwire"
	"github.com/retrysafe/retrysafe/internal/deployment"
	"github.com/retrysafe/retrysafe/operator"
	"github.com/retrysafe/retrysafe/outbox"
)

// What a session offers to commands is what the admin API of a gateway offers, too; see
// [Admin].

// Person is empty: the command line names the author, and what it may do is the
// database's to say.
func (s *Session) Person() adminwire.Person { return adminwire.Person{} }

// Again returns the flags, each after a space, with which another command finds the same
// store.
func (s *Session) Again() string { return s.Repeat }

// List returns a page of records.
func (s *Session) List(ctx context.Context, f operator.Filter) (adminwire.ViewPage, error) {
	page, err := s.Service.List(ctx, f)
	return adminwire.ViewPage{Records: adminwire.Views(page.Records), Next: page.Next, More: page.More}, err
}

// Show returns a record as it is stored now. If it cannot be read, it returns the readable
// part of it and [retrysafe.ErrUnreadable].
func (s *Session) Show(ctx context.Context, ref retrysafe.Ref) (adminwire.View, error) {
	r, err := s.Service.Show(ctx, ref)
	return adminwire.View{Record: r}, err
}

// Contents is Show: the records of a store are whole.
func (s *Session) Contents(ctx context.Context, ref retrysafe.Ref, _ string) (adminwire.View, error) {
	return s.Show(ctx, ref)
}

// Groups returns what needs a person.
func (s *Session) Groups(ctx context.Context, f operator.Filter) ([]operator.Group, error) {
	return s.Service.Groups(ctx, f)
}

// Audit returns the actions of operators.
func (s *Session) Audit(ctx context.Context, f operator.AuditFilter) ([]operator.Entry, error) {
	return s.Service.Audit(ctx, f)
}

// Act applies a verb to one record. Answer is for resolve and decline.
func (s *Session) Act(ctx context.Context, verb string, a operator.Action, answer *retrysafe.Result) (operator.Entry, error) {
	switch answer = cmp.Or(answer, new(retrysafe.Result)); verb {
	case "resolve":
		return s.Service.Resolve(ctx, a, *answer)
	case "decline":
		return s.Service.Decline(ctx, a, *answer)
	case "release":
		return s.Service.Release(ctx, a)
	case "redrive":
		return s.Service.Redrive(ctx, a)
	case "forget":
		return s.Service.Forget(ctx, a)
	case "erase":
		return s.Service.Erase(ctx, a)
	default:
		return operator.Entry{}, fmt.Errorf("%w: there is no verb %q", operator.ErrInvalid, verb)
	}
}

// Select counts what a batch would change.
func (s *Session) Select(ctx context.Context, b operator.Batch) (*adminwire.Counted, error) {
	sel, err := s.Service.Select(ctx, b)
	if err != nil {
		return nil, err
	}
	return &adminwire.Counted{Count: sel.Count, Disputed: sel.Disputed, Unreadable: sel.Unreadable, Sample: adminwire.Views(sel.Sample), Of: sel}, nil
}

// Apply changes the records of a selection.
func (s *Session) Apply(ctx context.Context, b operator.Batch, of *adminwire.Counted) (operator.Entry, error) {
	sel, _ := of.Of.(*operator.Selection) // Apply refuses nil
	return s.Service.Apply(ctx, b, sel)
}

// Survey counts what a quarantine would set aside.
func (s *Session) Survey(ctx context.Context, q operator.Suspects) (operator.Report, error) {
	return s.Service.Survey(ctx, q)
}

// Quarantine sets aside what is not final.
func (s *Session) Quarantine(ctx context.Context, q operator.Suspects) (operator.Entry, error) {
	return s.Service.Quarantine(ctx, q)
}

// Facts describes the store.
func (s *Session) Facts(ctx context.Context) (adminwire.Status, error) {
	return s.Location.Facts(ctx, s.Opened)
}

// Facts describes a store that is open.
func (l *Location) Facts(ctx context.Context, opened *storeurl.Opened) (f adminwire.Status, err error) {
	f.Store.Kind, f.Store.Encrypted, f.Store.Outbox = opened.Kind, l.KeysFile != "", opened.Outbox != nil
	if l.Address.Kind != storeurl.Memory {
		status, err := l.Status(ctx)
		if err != nil {
			return f, err
		}
		f.Store.Schema, f.Store.Newest = status.Version, status.Newest
	}
	if feed, ok := opened.Store.(retrysafe.ChangeFeed); ok {
		_, _, err := feed.Changes(ctx, "")
		f.Store.Announces = err == nil
	}
	if noted, err := opened.Store.Load(ctx, deployment.Ref()); err == nil && noted.Result != nil {
		sum := sha256.Sum256(noted.Result.Body)
		f.Identity = hex.EncodeToString(sum[:])
	}
	return f, nil
}

// A Box is the messages of a store's outbox.
type Box struct {
	*Session
	letters *operator.DeadLetters
}

// Box returns the messages. Window is how long their receiver remembers a key.
func (s *Session) Box(window time.Duration) *Box {
	return &Box{s, s.DeadLetters(s.Opened.Outbox, window)}
}

// Messages returns dead letters with ids above after, or messages that fail.
func (b *Box) Messages(ctx context.Context, failing bool, after int64, limit int) ([]adminwire.MessageView, error) {
	list := b.letters.List
	if failing {
		list = b.letters.Failing
	}
	found, err := list(ctx, after, limit)
	return adminwire.MessageViews(found), err
}

// Message returns a message that is a dead letter, or one that fails and is still tried. If
// it is neither, the error is [retrysafe.ErrNotFound].
func (b *Box) Message(ctx context.Context, id int64) (m adminwire.MessageView, dead bool, err error) {
	m.DeadLetter, err = b.letters.Show(ctx, id)
	if !errors.Is(err, retrysafe.ErrNotFound) {
		return m, true, err
	}
	failing, err := b.letters.Failing(ctx, id-1, 1)
	switch {
	case errors.Is(err, errors.ErrUnsupported), err == nil && (len(failing) == 0 || failing[0].ID != id):
		return m, false, retrysafe.ErrNotFound
	case err != nil:
		return m, false, err
	}
	return adminwire.MessageView{DeadLetter: failing[0]}, false, nil
}

// Payload returns the message: those of a store are whole.
func (b *Box) Payload(_ context.Context, m adminwire.MessageView, _ string) (adminwire.MessageView, error) {
	return m, nil
}

// ActOnMessage applies a verb to one message.
func (b *Box) ActOnMessage(ctx context.Context, verb string, a operator.DeadLetterAction) (operator.Entry, error) {
	switch verb {
	case "redrive letter":
		return b.letters.Redrive(ctx, a)
	case "drop letter":
		return b.letters.Drop(ctx, a)
	case "skip message":
		return b.letters.Skip(ctx, a)
	default:
		return operator.Entry{}, fmt.Errorf("%w: there is no verb %q", operator.ErrInvalid, verb)
	}
}

// Depth counts the messages.
func (b *Box) Depth(ctx context.Context) (d adminwire.Depth, err error) {
	reporter, ok := b.Opened.Outbox.(outbox.DepthReporter)
	if !ok {
		return d, fmt.Errorf("this store cannot count its messages: %w", errors.ErrUnsupported)
	}
	depth, err := reporter.Depth(ctx)
	if err != nil {
		return d, err
	}
	d = adminwire.Depth{Waiting: depth.Waiting, Dead: depth.Dead, Oldest: depth.Oldest.Seconds(), OldestDead: depth.OldestDead.Seconds()}
	const page = 1000
	for after := int64(0); ; {
		some, err := b.letters.Failing(ctx, after, page)
		if errors.Is(err, errors.ErrUnsupported) {
			d.Failing = -1
			return d, nil
		}
		if err != nil {
			return d, err
		}
		if d.Failing += len(some); len(some) < page {
			return d, nil
		}
		after = some[len(some)-1].ID
	}
}

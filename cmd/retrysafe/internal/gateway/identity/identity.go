// Package identity is the identity of a deployment: the settings that decide which
// record a request meets, noted in the store itself.
//
//	noted, err := identity.Read(ctx, store)
//	noted, err = identity.Join(ctx, store, identity.Claim{Settings: identity.Of(c, keys)})
//
// A gateway with another tenant source, another key header, another scope or another
// encryption finds none of the records that were stored before, and every retry of a
// live key would run again. So a store keeps one record, under
// [deployment.Ref], that says under which settings its keys were stored. A
// gateway whose settings differ is refused, unless its operator adopts them.
//
// The record is written by Create and Swap of the store below any encryption and cache.
// It has the state Completed and a deadline in a hundred years, so no duty of the
// janitor touches it. It holds no secret: of the encryption's index secret it has a
// derived value that reveals nothing of the secret.
//
// # The store's own identity
//
// The record holds a random ID, drawn when it was created. The same ID is the same
// store, whatever its URL is: another password, another name of the host, and also the
// store that "retrysafe keys copy" has moved the records to.
//
// # Format
//
// A setting that has its default is not noted, so a later release can add a setting
// whose default is what releases before it do, and stores that were noted by those stay
// as they are. A program that finds a setting that it does not know treats it as a
// difference.
package identity

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/deployment"
)

var (
	// ErrNone says that a store has no identity.
	ErrNone = errors.New("identity: the store has no identity")
	// ErrOther says that a store belongs to another deployment.
	ErrOther = errors.New("identity: the store belongs to another deployment")
	// ErrNewer says that a newer program has noted the identity.
	ErrNewer = errors.New("identity: a newer program has noted the identity of the store; upgrade this one")
)

// format is the layout of the record. It grows only if a program that does not know the
// new layout must not work on the store.
const format = 1

// An Identity is what a store says of its deployment.
type Identity struct {
	Format int `json:"format"`
	// ID names the deployment.
	ID string `json:"id"`
	// Settings are those that its keys are stored under.
	Settings Settings `json:"settings"`
	// Fields are the choices of what counts in a fingerprint that were ever in force,
	// the latest last. A record names the choice that it was stored under.
	Fields []Fields `json:"fields,omitempty"`
}

// A Claim is what a gateway says when it joins a deployment.
type Claim struct {
	Settings Settings
	// Fields are the choices of its routes.
	Fields []Fields
	// Of are IDs of the deployment that the gateway already works for: a store of another
	// one, or of none, is refused. If it is empty, the gateway starts: it joins whatever
	// deployment the store belongs to, and a store of none gets an identity.
	Of []string
	// Adopt replaces settings that differ, and By is then the author of the note.
	Adopt bool
	By    string
}

// Read returns the identity that a store has, or [ErrNone].
func Read(ctx context.Context, s retrysafe.Store) (Identity, error) {
	id, _, err := read(ctx, s)
	return id, err
}

func read(ctx context.Context, s retrysafe.Store) (id Identity, r retrysafe.Record, err error) {
	r, err = s.Load(ctx, deployment.Ref())
	switch {
	case errors.Is(err, retrysafe.ErrNotFound):
		return Identity{}, r, ErrNone
	case err != nil:
		return Identity{}, r, fmt.Errorf("identity: read: %w", err)
	}
	id, err = decode(&r)
	return id, r, err
}

// decode returns the identity that a record holds.
func decode(r *retrysafe.Record) (id Identity, err error) {
	if !r.Readable() || r.Result == nil {
		return Identity{}, ErrNewer
	}
	err = json.Unmarshal(r.Result.Body, &id)
	switch {
	case id.Format > format:
		return Identity{}, ErrNewer
	case err != nil || id.ID == "":
		return Identity{}, fmt.Errorf("identity: read: %w: it is no identity of a deployment", retrysafe.ErrUnreadable)
	}
	return id, nil
}

// tries is how often Join tries if other gateways join at the same time.
const tries = 8

// Join makes a gateway part of the deployment that a store belongs to. It returns the
// identity that the store has from then on, and what it has adopted. The error is a
// [*DifferentError] if settings differ and are not to be adopted. Any number of gateways
// may join at once.
func Join(ctx context.Context, s retrysafe.Store, c Claim) (id Identity, adopted []Difference, err error) {
	for range tries {
		id, adopted, err = c.join(ctx, s)
		raced := errors.Is(err, retrysafe.ErrExists) || errors.Is(err, retrysafe.ErrConflict) || errors.Is(err, retrysafe.ErrNotFound)
		if !raced {
			return id, adopted, err
		}
	}
	return Identity{}, nil, err
}

// join is one try of [Join]. It compares and swaps: ErrExists, ErrConflict and
// ErrNotFound say that another gateway was first.
func (c *Claim) join(ctx context.Context, s retrysafe.Store) (Identity, []Difference, error) {
	noted, r, err := read(ctx, s)
	switch {
	case errors.Is(err, ErrNone) && len(c.Of) == 0:
		id := Identity{Format: format, ID: rand.Text(), Settings: c.Settings, Fields: c.Fields}
		return id, nil, id.note(ctx, s.Create, retrysafe.Write{Record: retrysafe.Record{Ref: deployment.Ref()}})
	case err != nil:
		return Identity{}, nil, err
	case len(c.Of) > 0 && !slices.Contains(c.Of, noted.ID):
		return noted, nil, ErrOther
	}
	different := c.Settings.Differences(noted.Settings)
	if len(different) > 0 && !c.Adopt {
		return noted, nil, &DifferentError{different}
	}
	all, added := merge(noted.Fields, c.Fields)
	if len(different) == 0 && !added {
		return noted, nil, nil
	}
	id, w := Identity{Format: format, ID: noted.ID, Settings: c.Settings, Fields: all}, r.Update()
	if len(different) > 0 {
		w.AddNote(retrysafe.Note{By: c.By, Text: "adopted: " + Describe(different)})
	}
	return id, different, id.note(ctx, s.Swap, w)
}

// forever is the term of the record.
const forever = 100 * 365 * 24 * time.Hour

// note stores the identity by a write of the record. Each begins a generation of its own,
// because a Completed record never changes within one.
func (id *Identity) note(ctx context.Context, put func(context.Context, retrysafe.Write) (retrysafe.Record, error), w retrysafe.Write) error {
	body, err := json.Marshal(id)
	if err != nil {
		return fmt.Errorf("identity: encode: %w", err)
	}
	_, _ = rand.Read(w.Owner[:]) // it never fails
	w.Operation, w.State, w.Version = "note the identity of a deployment", retrysafe.StateCompleted, retrysafe.RecordVersion
	w.Attempt, w.Overwrite, w.Term, w.Retain = 1, true, forever, forever
	w.Result = &retrysafe.Result{Status: 200, Header: map[string][]string{"Content-Type": {"application/json"}}, Body: body}
	if _, err := put(ctx, w); err != nil {
		return fmt.Errorf("identity: note: %w", err)
	}
	return nil
}

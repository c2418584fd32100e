package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/operator"
	"github.com/retrysafe/retrysafe/outbox"
)

// letterJSON is a message for scripts.
type letterJSON struct {
	ID           int64             `json:"id"`
	Dead         bool              `json:"dead"`
	Topic        string            `json:"topic"`
	Group        string            `json:"group,omitempty"`
	Key          string            `json:"key"`
	Tries        int               `json:"tries"`
	EnqueuedAt   time.Time         `json:"enqueued_at"`
	DiedAt       time.Time         `json:"died_at,omitzero"`
	Why          string            `json:"why,omitempty"`
	ProviderRef  string            `json:"provider_ref,omitempty"`
	Revision     int64             `json:"revision"`
	Settles      *refJSON          `json:"settles,omitempty"`
	Header       map[string]string `json:"header,omitempty"`
	PayloadSize  int               `json:"payload_bytes"`
	Payload      string            `json:"payload,omitempty"`
	PayloadBytes []byte            `json:"payload_base64,omitempty"`
	Unreadable   string            `json:"unreadable,omitempty"`
}

func newLetterJSON(l *outbox.Letter, dead, payload bool) letterJSON {
	j := letterJSON{
		ID: l.ID, Dead: dead, Topic: l.Topic, Group: l.Group, Key: l.Key, Tries: l.Tries, EnqueuedAt: l.Enqueued, DiedAt: l.Died,
		Why: l.Why, ProviderRef: l.ProviderRef, Revision: l.Revision, Header: maps.Clone(l.Header), PayloadSize: len(l.Payload),
	}
	if l.Settles != nil {
		ref := newRefJSON(l.Settles.Ref, false)
		j.Settles = &ref
	}
	if l.Err != nil {
		j.Unreadable = l.Err.Error()
	}
	switch {
	case !payload:
	case utf8.Valid(l.Payload):
		j.Payload = string(l.Payload)
	default:
		j.PayloadBytes = l.Payload
	}
	return j
}

// find returns a message that is dead, or that fails.
func find(ctx context.Context, d *desk, letters *operator.Letters, id int64) (l outbox.Letter, dead bool, err error) {
	l, err = letters.Show(ctx, id)
	if !errors.Is(err, retrysafe.ErrNotFound) {
		return l, true, d.letterTrouble(id, err)
	}
	failing, err := letters.Failing(ctx, id-1, 1)
	switch {
	case errors.Is(err, errors.ErrUnsupported), err == nil && (len(failing) == 0 || failing[0].ID != id):
		return l, false, d.letterTrouble(id, retrysafe.ErrNotFound)
	case err != nil:
		return l, false, d.trouble(err)
	}
	return failing[0], false, nil
}

func (d *desk) letterTrouble(id int64, err error) error {
	if errors.Is(err, retrysafe.ErrNotFound) {
		return failed(exitNo, "message %d is neither dead nor failing: it was delivered or dropped, or never was", id).
			hinted("see what is there: retrysafe outbox list%s", d.again)
	}
	return d.trouble(err)
}

// letterID returns the ID that an argument is.
func letterID(arg string) (int64, error) {
	id, err := strconv.ParseInt(arg, 10, 64)
	if err != nil || id <= 0 {
		return 0, misused("%q is not the ID of a message", arg).hinted("retrysafe outbox list shows them")
	}
	return id, nil
}

// letterVerb is what somebody does to a message.
type letterVerb struct {
	name, will string
	// dead says whether it is for dead letters, or for messages that fail.
	dead bool
	do   func(*operator.Letters, context.Context, operator.LetterAction) (operator.Entry, error)
}

// handling is a command that does something to a message.
func (p *program) handling(f *boxFlags, v letterVerb, force *bool, cmd *cobra.Command) *cobra.Command {
	cmd.Args = exactly("ID")
	flags := acts(cmd, v.will != "")
	cmd.RunE = runs(func(cmd *cobra.Command, args []string) error { return p.handle(cmd, f, flags, args[0], v, *force) })
	return cmd
}

func (p *program) handle(cmd *cobra.Command, f *boxFlags, flags *actFlags, arg string, v letterVerb, force bool) error {
	ctx := cmd.Context()
	id, err := letterID(arg)
	if err != nil {
		return err
	}
	if err := flags.check(p); err != nil {
		return err
	}
	d, err := f.open(ctx, p)
	if err != nil {
		return err
	}
	defer d.close(ctx)
	letters := d.Letters(d.opened.Outbox, f.window)
	l, dead, err := find(ctx, d, letters, id)
	if err == nil && dead != v.dead {
		err = failed(exitNo, "message %d is %s", id, map[bool]string{true: "a dead letter already", false: "no dead letter: it fails, and is still sent"}[dead]).
			hinted("see: retrysafe outbox show%s %d", d.again, id)
	}
	if err != nil && flags.revision == 0 { // with a revision it may be a repetition
		return err
	}
	if flags.revision == 0 {
		flags.revision = l.Revision
	}
	if flags.asks && !flags.yes {
		about := fmt.Sprintf("message %d, %s\n  sent %s, last: %s\n  revision %d\n%s", id, visible(l.Topic), many(int64(l.Tries), "time", "times"), visible(l.Why), flags.revision, v.will)
		if err := p.confirm(ctx, about); err != nil {
			return err
		}
	}
	a := operator.LetterAction{ID: flags.id, By: flags.by, Why: flags.why, Letter: id, Revision: flags.revision, Force: force}
	if a.ID == "" {
		a.ID = actionID(v.name, a.By, a.Why, arg, strconv.FormatInt(a.Revision, 10), strconv.FormatBool(force))
	}
	e, err := v.do(letters, ctx, a)
	return p.report(flags, acted{what: fmt.Sprintf("message %d", id), id: a.ID, look: fmt.Sprintf("retrysafe outbox show%s %d", d.again, id)}, e, err)
}

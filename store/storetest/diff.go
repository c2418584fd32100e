package storetest

import (
	"bytes"
	"fmt"
	"strings"
	"time"

	"github.com/retrysafe/retrysafe"
)

// diff describes the stored fields in which two records differ; it is empty if there
// are none. A nil and an empty slice are equal, and so are two times of one instant.
// ReadAt is not stored, so it does not count.
func diff(got, want retrysafe.Record) string {
	var d differ
	d.value("Scope", got.Scope, want.Scope)
	d.value("Key", got.Key, want.Key)
	d.bytes("KeyText", got.KeyText, want.KeyText)
	d.value("Operation", got.Operation, want.Operation)
	d.value("Fingerprint", got.Fingerprint, want.Fingerprint)
	d.value("State", got.State, want.State)
	d.value("Lapse", got.Lapse, want.Lapse)
	d.value("Effects", got.Effects, want.Effects)
	d.value("Version", got.Version, want.Version)
	d.value("Owner", got.Owner, want.Owner)
	d.value("Attempt", got.Attempt, want.Attempt)
	d.bytes("Request", got.Request, want.Request)
	d.value("Checkpoint.Phase", got.Checkpoint.Phase, want.Checkpoint.Phase)
	d.bytes("Checkpoint.Data", got.Checkpoint.Data, want.Checkpoint.Data)
	d.result(got.Result, want.Result)
	d.value("ProviderRef", got.ProviderRef, want.ProviderRef)
	d.value("Reason", got.Reason, want.Reason)
	d.inquiry(&got.Inquiry, &want.Inquiry)
	d.value("Retain", got.Retain, want.Retain)
	d.value("Revision", got.Revision, want.Revision)
	d.time("Deadline", got.Deadline, want.Deadline)
	d.time("CreatedAt", got.CreatedAt, want.CreatedAt)
	d.time("UpdatedAt", got.UpdatedAt, want.UpdatedAt)
	return strings.Join(d, "; ")
}

type differ []string

func (d *differ) addf(format string, args ...any) { *d = append(*d, fmt.Sprintf(format, args...)) }

func (d *differ) value(field string, got, want any) {
	if got != want {
		d.addf("%s: got %s, want %s", field, short(got), short(want))
	}
}

func (d *differ) bytes(field string, got, want []byte) {
	if !bytes.Equal(got, want) {
		d.addf("%s: got %s, want %s", field, short(got), short(want))
	}
}

func (d *differ) time(field string, got, want time.Time) {
	if !got.Equal(want) {
		d.addf("%s: got %v, want %v", field, got, want)
	}
}

func (d *differ) result(got, want *retrysafe.Result) {
	if got.Equal(want) {
		return
	}
	if got == nil || want == nil {
		d.addf("Result: got nil %t, want nil %t", got == nil, want == nil)
		return
	}
	d.value("Result.Status", got.Status, want.Status)
	d.value("Result.Omitted", got.Omitted, want.Omitted)
	d.bytes("Result.Body", got.Body, want.Body)
	if g, w := fmt.Sprintf("%q", got.Header), fmt.Sprintf("%q", want.Header); g != w {
		d.addf("Result.Header: got %s, want %s", g, w)
	}
}

func (d *differ) inquiry(got, want *retrysafe.Inquiry) {
	d.value("Inquiry.Tries", got.Tries, want.Tries)
	d.value("Inquiry.Dead", got.Dead, want.Dead)
	d.value("Inquiry.Disputed", got.Disputed, want.Disputed)
	if len(got.Notes) != len(want.Notes) {
		d.addf("Inquiry has %d notes, want %d", len(got.Notes), len(want.Notes))
		return
	}
	for i, w := range want.Notes {
		g, field := got.Notes[i], fmt.Sprintf("Inquiry.Notes[%d]", i)
		d.time(field+".At", g.At, w.At)
		d.value(field+".By", g.By, w.By)
		d.value(field+".State", g.State, w.State)
		d.value(field+".Text", g.Text, w.Text)
		d.value(field+".ID", g.ID, w.ID)
	}
}

// short prints a value, cut to a readable length.
func short(v any) string {
	s := fmt.Sprintf("%v", v)
	switch v.(type) {
	case string, []byte:
		s = fmt.Sprintf("%q", v)
	}
	if len(s) > 200 {
		s = fmt.Sprintf("%s… (%d bytes in all)", s[:200], len(s))
	}
	return s
}

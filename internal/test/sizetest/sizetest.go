// Package sizetest tests what stores in memory count as the size of a record.
package sizetest

import (
	"strings"
	"testing"

	"github.com/retrysafe/retrysafe"
)

// EveryTextCounts fails the test if size leaves out a text of a record: a client or a
// handler may make any of them long.
func EveryTextCounts(t *testing.T, size func(*retrysafe.Record) int64) {
	t.Helper()
	long := strings.Repeat("x", 10_000)
	empty := func() retrysafe.Record { return retrysafe.Record{Result: &retrysafe.Result{}} }
	before := empty()
	for name, set := range map[string]func(r *retrysafe.Record){
		"scope":             func(r *retrysafe.Record) { r.Scope = long },
		"key":               func(r *retrysafe.Record) { r.Key = long },
		"key text":          func(r *retrysafe.Record) { r.KeyText = []byte(long) },
		"operation":         func(r *retrysafe.Record) { r.Operation = long },
		"request":           func(r *retrysafe.Record) { r.Request = []byte(long) },
		"phase":             func(r *retrysafe.Record) { r.Checkpoint.Phase = long },
		"checkpoint":        func(r *retrysafe.Record) { r.Checkpoint.Data = []byte(long) },
		"provider's ref":    func(r *retrysafe.Record) { r.ProviderRef = long },
		"reason":            func(r *retrysafe.Record) { r.Reason = long },
		"body":              func(r *retrysafe.Record) { r.Result.Body = []byte(long) },
		"name of a header":  func(r *retrysafe.Record) { r.Result.Header = map[string][]string{long: nil} },
		"value of a header": func(r *retrysafe.Record) { r.Result.Header = map[string][]string{"A": {"", long}} },
		"many headers":      func(r *retrysafe.Record) { r.Result.Header = map[string][]string{"A": make([]string, 1000)} },
		"author of a note":  func(r *retrysafe.Record) { r.Inquiry.Notes = []retrysafe.Note{{By: long}} },
		"text of a note":    func(r *retrysafe.Record) { r.Inquiry.Notes = []retrysafe.Note{{Text: long}} },
		"id of a note":      func(r *retrysafe.Record) { r.Inquiry.Notes = []retrysafe.Note{{ID: long}} },
		"many notes":        func(r *retrysafe.Record) { r.Inquiry.Notes = make([]retrysafe.Note, 1000) },
	} {
		r := empty()
		set(&r)
		if got := size(&r) - size(&before); got < 10_000 || got > 100_000 {
			t.Errorf("%s: a long one is charged with %d bytes", name, got)
		}
	}
}

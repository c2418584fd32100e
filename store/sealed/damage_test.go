package sealed_test

import (
	"encoding/base64"
	"fmt"
	"slices"
	"testing"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/store/memstore"
)

// sealedFields are the fields of a record below that hold an envelope, and how
// to get and set it.
var sealedFields = []struct {
	name string
	get  func(*retrysafe.Record) []byte
	set  func(*retrysafe.Record, []byte)
}{
	{"key text", func(r *retrysafe.Record) []byte { return r.KeyText }, func(r *retrysafe.Record, b []byte) { r.KeyText = b }},
	{"request", func(r *retrysafe.Record) []byte { return r.Request }, func(r *retrysafe.Record, b []byte) { r.Request = b }},
	{"checkpoint", func(r *retrysafe.Record) []byte { return r.Checkpoint.Data }, func(r *retrysafe.Record, b []byte) { r.Checkpoint.Data = b }},
	{"result", func(r *retrysafe.Record) []byte { return r.Result.Body }, func(r *retrysafe.Record, b []byte) {
		res := *r.Result
		res.Body = b
		r.Result = &res
	}},
	{"reason", func(r *retrysafe.Record) []byte {
		b, _ := base64.RawURLEncoding.DecodeString(r.Reason)
		return b
	}, func(r *retrysafe.Record, b []byte) { r.Reason = base64.RawURLEncoding.EncodeToString(b) }},
	{"inquiry", func(r *retrysafe.Record) []byte {
		b, _ := base64.RawURLEncoding.DecodeString(r.Inquiry.Notes[0].Text)
		return b
	}, func(r *retrysafe.Record, b []byte) {
		r.Inquiry.Notes = []retrysafe.Note{{Text: base64.RawURLEncoding.EncodeToString(b)}}
	}},
}

// unreadableEverywhere checks that a record is refused by each method that would
// hand it out or act upon it, and that none takes it for absent.
func unreadableEverywhere(t *testing.T, s retrysafe.Store, r retrysafe.Record) {
	t.Helper()
	_, err := s.Load(t.Context(), r.Ref)
	refused(t, "load", err)

	again := retrysafe.Write{Record: r}
	again.Owner = owner(99)
	got, err := s.Create(t.Context(), again)
	refused(t, "create", err)
	if got.Version != 0 || got.Request != nil || !got.Checkpoint.IsZero() {
		t.Errorf("create returns %+v of a record that cannot be read", got)
	}

	again.Owner, again.Expect = r.Owner, retrysafe.Fence{Revision: 1, Owner: r.Owner}
	_, err = s.Swap(t.Context(), again)
	refused(t, "swap", err)
}

// A bit that rots, a tail that is cut off, a field that was never sealed: the
// record is refused, never taken for absent, never half read.
func TestW41DamageIsUnreadable(t *testing.T) {
	t.Parallel()
	damages := []struct {
		name string
		do   func([]byte) []byte
	}{
		{"first bit", func(b []byte) []byte { b[0] ^= 1; return b }},
		{"key number", func(b []byte) []byte { b[4] ^= 2; return b }},
		{"nonce", func(b []byte) []byte { b[5] ^= 1; return b }},
		{"ciphertext", func(b []byte) []byte { b[17] ^= 0x80; return b }},
		{"tag", func(b []byte) []byte { b[len(b)-1] ^= 1; return b }},
		{"cut by one", func(b []byte) []byte { return b[:len(b)-1] }},
		{"cut to the header", func(b []byte) []byte { return b[:5] }},
		{"cut to one byte", func(b []byte) []byte { return b[:1] }},
		{"extended", func(b []byte) []byte { return append(b, 0) }},
		{"plaintext", func([]byte) []byte { return []byte("a plaintext that is as long as an envelope, or longer") }},
	}
	for _, field := range sealedFields {
		for _, damage := range damages {
			t.Run(field.name+"/"+damage.name, func(t *testing.T) {
				t.Parallel()
				s, below := pair(t)
				r := create(t, s, full("tenant-a", "order-1"))
				raw := only(t, below)
				field.set(&raw, damage.do(slices.Clone(field.get(&raw))))
				overwrite(t, below, raw)
				unreadableEverywhere(t, s, r)
			})
		}
	}
}

// An envelope opens only as the field of the record that it was sealed for.
func TestW82EnvelopeIsBoundToItsPlace(t *testing.T) {
	t.Parallel()
	others := []struct{ name, scope, key string }{
		{"another key", "tenant-a", "order-2"},
		{"another tenant", "tenant-b", "order-1"},
	}
	for _, from := range sealedFields {
		for _, to := range sealedFields {
			if from.name == to.name {
				continue
			}
			t.Run(from.name+" as "+to.name, func(t *testing.T) {
				t.Parallel()
				s, below := pair(t)
				r := create(t, s, full("tenant-a", "order-1"))
				raw := only(t, below)
				to.set(&raw, from.get(&raw))
				overwrite(t, below, raw)
				unreadableEverywhere(t, s, r)
			})
		}
		for _, other := range others {
			t.Run(from.name+" of "+other.name, func(t *testing.T) {
				t.Parallel()
				s, below := pair(t)
				r := create(t, s, full("tenant-a", "order-1"))
				theirs := full(other.scope, sharesCipher(t, r.Ref, other.scope, other.key))
				theirs.Owner = owner(2)
				create(t, s, theirs)
				raw, foreign := lowered(t, below, owner(1)), lowered(t, below, owner(2))
				from.set(&raw, from.get(&foreign))
				overwrite(t, below, raw)
				unreadableEverywhere(t, s, r)
				same(t, load(t, s, theirs.Ref), theirs.Record)
			})
		}
	}
}

// sharesCipher returns a key, beginning like key, whose record in scope is sealed
// with the same cipher as that of ref, so that nothing but the binding keeps them
// apart.
func sharesCipher(t *testing.T, ref retrysafe.Ref, scope, key string) string {
	t.Helper()
	s, below := pair(t)
	hash := func(ref retrysafe.Ref, n byte) string {
		r := full(ref.Scope, ref.Key)
		r.Owner = owner(n)
		create(t, s, r)
		return lowered(t, below, owner(n)).Key
	}
	first := hash(ref, 0)[0]
	for i := range 2000 {
		candidate := fmt.Sprint(key, "-", i)
		s, below = pair(t)
		if hash(retrysafe.Ref{Scope: scope, Key: candidate}, 1)[0] == first {
			return candidate
		}
	}
	t.Fatal("no key shares a cipher")
	return ""
}

// A row whose scope was changed below, so that it would show in the list of
// another tenant, does not open there.
func TestRowInAnotherScope(t *testing.T) {
	t.Parallel()
	s, below := pair(t)
	create(t, s, full("tenant-a", "order-1"))
	theirs := full("tenant-b", "order-2")
	theirs.Owner = owner(2)
	create(t, s, theirs)
	moved, foreign := lowered(t, below, owner(1)), lowered(t, below, owner(2))
	moved.Scope, moved.Owner = foreign.Scope, owner(3)
	create(t, below, retrysafe.Write{Record: moved, Term: 1})
	for _, r := range list(t, s, retrysafe.Query{Scope: "tenant-b"}) {
		if r.Owner == owner(3) && (r.Version != 0 || r.Request != nil) {
			t.Errorf("a tenant is shown the record of another: %+v", r)
		}
	}
}

// A step that the store below answers with another Version than it was sent is
// not taken for read back.
func TestStoreBelowKeepsAnotherVersion(t *testing.T) {
	t.Parallel()
	s := over(t, &tap{Store: memstore.New(nil), bend: func(r *retrysafe.Record) { r.Version = 9 }}, ring(t, 1, 1))
	r := full("tenant-a", "order-1")
	r.Reason = ""
	_, err := s.Create(t.Context(), r)
	refused(t, "create", err)
}

// A whole row under another row's name does not open either, not even within one
// tenant and with that row's owner and revision.
func TestRowUnderAnotherName(t *testing.T) {
	t.Parallel()
	s, below := pair(t)
	r := create(t, s, full("tenant-a", "order-1"))
	theirs := full("tenant-a", "order-2")
	theirs.Owner = owner(2)
	create(t, s, theirs)
	raw, foreign := lowered(t, below, owner(1)), lowered(t, below, owner(2))
	foreign.Ref, foreign.Owner, foreign.Revision = raw.Ref, raw.Owner, raw.Revision
	overwrite(t, below, foreign)
	unreadableEverywhere(t, s, r)
}

// The plain fields that explain a sealed one cannot be changed under it, and no
// plaintext is taken in beside it.
func TestPlainFieldsAreBound(t *testing.T) {
	t.Parallel()
	changes := map[string]func(*retrysafe.Record){
		"status": func(r *retrysafe.Record) { r.Result = &retrysafe.Result{Status: 402, Body: r.Result.Body} },
		"omitted": func(r *retrysafe.Record) {
			r.Result = &retrysafe.Result{Status: 201, Body: r.Result.Body, Omitted: true}
		},
		"plain header": func(r *retrysafe.Record) {
			r.Result = &retrysafe.Result{Status: 201, Body: r.Result.Body, Header: map[string][]string{"X": {"y"}}}
		},
		"phase":        func(r *retrysafe.Record) { r.Checkpoint.Phase = "begun" },
		"version":      func(r *retrysafe.Record) { r.Version++ },
		"no body":      func(r *retrysafe.Record) { r.Result = &retrysafe.Result{Status: 201} },
		"no key text":  func(r *retrysafe.Record) { r.KeyText = nil },
		"plain reason": func(r *retrysafe.Record) { r.Reason = "written by hand!" },
		"tries":        func(r *retrysafe.Record) { r.Inquiry.Tries++ },
		"dead":         func(r *retrysafe.Record) { r.Inquiry.Dead = false },
		"no notes":     func(r *retrysafe.Record) { r.Inquiry.Notes = nil },
		"plain note":   func(r *retrysafe.Record) { r.Inquiry.Notes = []retrysafe.Note{{Text: "written by hand!"}} },
		"second note":  func(r *retrysafe.Record) { r.Inquiry.Notes = append(slices.Clip(r.Inquiry.Notes), retrysafe.Note{}) },
		"note's ID": func(r *retrysafe.Record) {
			r.Inquiry.Notes = []retrysafe.Note{{ID: "a-1", Text: r.Inquiry.Notes[0].Text}}
		},
		"note's author": func(r *retrysafe.Record) {
			r.Inquiry.Notes = []retrysafe.Note{{By: "anna", Text: r.Inquiry.Notes[0].Text}}
		},
	}
	for name, change := range changes {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, below := pair(t)
			r := create(t, s, full("tenant-a", "order-1"))
			raw := only(t, below)
			change(&raw)
			overwrite(t, below, raw)
			unreadableEverywhere(t, s, r)
		})
	}
}

// A plaintext that another version of this code lays out differently is refused
// rather than guessed at.
func TestW59AnotherLayoutIsUnreadable(t *testing.T) {
	t.Parallel()
	layouts := map[string][]string{
		"key text":   {"", "\x05abc", "\x01a", "\x01a\x09b", "\x01a\x01b", "\x01a\x01b\x02", "\x01a\x01b\x00x", "\x80"},
		"checkpoint": {"", "\x00x", "\x02"},
		"result":     {"", "\x00", "\x92\x03\x00\x01", "\x92\x03\x00\x00\x00 and more"},
		"inquiry":    {"", "\x05", "\x05\x01", "\x05\x00 and more"},
	}
	for field, plains := range layouts {
		for _, plain := range plains {
			t.Run(fmt.Sprintf("%s/%q", field, plain), func(t *testing.T) {
				t.Parallel()
				below, keys := memstore.New(nil), ring(t, 1, 1)
				s := over(t, below, keys)
				r := create(t, s, full("tenant-a", "order-1"))
				raw := only(t, below)
				keys.Misseal(&raw, field, []byte(plain))
				overwrite(t, below, raw)
				unreadableEverywhere(t, s, r)
			})
		}
	}
}

// The text of a key is that of the record that was asked for, whatever the store
// below returns.
func TestStoreBelowReturnsAnotherRecord(t *testing.T) {
	t.Parallel()
	below, keys := memstore.New(nil), ring(t, 1, 1)
	s := over(t, below, keys)
	r := create(t, s, full("tenant-a", "order-1"))
	raw := only(t, below)
	keys.Misseal(&raw, "key text", []byte("\x08tenant-b\x07order-1\x00"))
	overwrite(t, below, raw)
	got, err := s.Load(t.Context(), r.Ref)
	refused(t, "load", err)
	if got.Scope == "tenant-b" {
		t.Error("one tenant is shown the name of another")
	}
}

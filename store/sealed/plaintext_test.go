package sealed_test

import (
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/store/memstore"
)

// secrets are what the store below must never see of a record.
func secretsOf(r *retrysafe.Record) map[string]string {
	return map[string]string{
		"scope":             r.Scope,
		"key":               r.Key,
		"request":           string(r.Request),
		"checkpoint":        string(r.Checkpoint.Data),
		"body":              string(r.Result.Body),
		"header name":       "Content-Type",
		"header value":      r.Result.Header["Content-Type"][0],
		"second value":      r.Result.Header["Link"][1],
		"reason":            r.Reason,
		"caller's key text": string(r.KeyText),
		"note's author":     r.Inquiry.Notes[0].By,
		"note's evidence":   r.Inquiry.Notes[0].Text,
		"note's ID":         r.Inquiry.Notes[0].ID,
	}
}

// The store below is handed no text of key, scope, header, body, request,
// checkpoint, reason or note, in any field and by any kind of write: not even what it
// would not keep, for a database may log what it is sent.
func TestW82NoPlaintextBelow(t *testing.T) {
	t.Parallel()
	r := full("tenant-alpha", "order-4711")
	r.KeyText = []byte("key text of a caller")
	secrets := secretsOf(&r.Record)
	writes := 0
	look := func(below retrysafe.Write) {
		writes++
		seen := 0
		walkText(reflect.ValueOf(below), "Write", func(field, text string) {
			seen++
			for what, secret := range secrets {
				for _, form := range forms(secret) {
					if strings.Contains(text, form) {
						t.Errorf("write %d hands the %s to the store below in %s", writes, what, field)
					}
				}
			}
		})
		if seen < 10 {
			t.Errorf("only %d texts were looked at; the walk misses fields", seen)
		}
	}
	below := memstore.New(nil)
	s := over(t, &tap{Store: below, see: look}, ring(t, 1, 1))

	got := create(t, s, r)
	for _, set := range []bool{true, false} {
		r.Expect, r.SetCheckpoint = got.Fence(), set
		var err error
		if got, err = s.Swap(t.Context(), r); err != nil {
			t.Fatal(err)
		}
	}
	r.Expect, r.Overwrite, r.Owner = got.Fence(), true, owner(2)
	if _, err := s.Swap(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	if writes != 4 {
		t.Errorf("%d writes were looked at, want 4", writes)
	}
	look(retrysafe.Write{Record: only(t, below)})

	// The walk finds what it is there to find: operators need these plain.
	plain := map[string]bool{"POST /payments": false, "charged": false, "ch_1": false}
	walkText(reflect.ValueOf(only(t, below)), "Record", func(_, text string) {
		if _, ok := plain[text]; ok {
			plain[text] = true
		}
	})
	for text, found := range plain {
		if !found {
			t.Errorf("%q is not plain below", text)
		}
	}
	if got := only(t, below).Result.Status; got != 201 {
		t.Errorf("the status below is %d, want 201: operators need it", got)
	}
	if got := only(t, below).Inquiry; got.Tries != 2 || !got.Dead {
		t.Errorf("the inquiry below has %d tries and is dead: %t, want 2 and true: operators look for it", got.Tries, got.Dead)
	}
}

// forms are the ways in which a text could stand somewhere.
func forms(text string) []string {
	return []string{
		text, strings.ToUpper(text), hex.EncodeToString([]byte(text)),
		base64.RawStdEncoding.EncodeToString([]byte(text)), base64.RawURLEncoding.EncodeToString([]byte(text)),
	}
}

// walkText visits every string and byte slice in v.
func walkText(v reflect.Value, field string, visit func(field, text string)) {
	switch v.Kind() {
	case reflect.String:
		visit(field, v.String())
	case reflect.Slice, reflect.Array:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			b := make([]byte, v.Len())
			reflect.Copy(reflect.ValueOf(b), v)
			visit(field, string(b))
			return
		}
		for i := range v.Len() {
			walkText(v.Index(i), fmt.Sprintf("%s[%d]", field, i), visit)
		}
	case reflect.Map:
		for it := v.MapRange(); it.Next(); {
			walkText(it.Key(), field+" key", visit)
			walkText(it.Value(), field+" value", visit)
		}
	case reflect.Pointer:
		if !v.IsNil() {
			walkText(v.Elem(), field, visit)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			walkText(v.Field(i), field+"."+v.Type().Field(i).Name, visit)
		}
	default: // numbers tell no text
	}
}

// Sealing the same thing twice gives different bytes, so that the store below
// cannot tell that two answers are equal.
func TestEqualTextsAreSealedDifferently(t *testing.T) {
	t.Parallel()
	s, below := pair(t)
	r := create(t, s, full("tenant-a", "order-1"))
	first := only(t, below)
	w := r.Update()
	w.Term = r.Retain
	if _, err := s.Swap(t.Context(), w); err != nil {
		t.Fatal(err)
	}
	second := only(t, below)
	if string(first.Result.Body) == string(second.Result.Body) || first.Reason == second.Reason || first.Inquiry.Notes[0] == second.Inquiry.Notes[0] {
		t.Error("two seals of one text are the same bytes")
	}
}

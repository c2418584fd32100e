package canonjson_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"regexp"
	"strconv"
	"testing"

	"github.com/retrysafe/retrysafe/internal/canonjson"
	"github.com/retrysafe/retrysafe/internal/test/hammer"
)

var seeds = []string{
	``, `null`, ` [ true , false ] `, `"\ud83d\ude00\u00e9\n\/"`, `"é中😀"`, `"\ud800"`, "\"\xff\"", "\"\xed\xa0\x80\"", "\ufeff1",
	`{"b":1,"a":2}`, `{"a":1,"\u0061":2}`, `{"customer_id":1,"customer":2,"currency":"EUR","amount":12.50}`,
	`{"\ue000":1,"𐀀":2,"é":3,"\"":4,"!":5,"\n":6}`, `{"i":1,"h":2,"g":3,"f":4,"e":5,"d":6,"c":7,"b":8,"a":9}`,
	`[0,-0,1.0,1e0,10e-1,1e20,1e21,1e-6,1e-7,9007199254740993,1e400,0.00e5,1e999999999999999,1e1000000000000000]`,
	`{"a":{"b":[{"d":[],"c":{}}]},"":""}`, `[[[[[[[[]]]]]]]]`, `{"a":1,}`, `[1,]`, `01`, `1.`, `tru`, `"\u12"`, `{"a":1]`,
}

// Every text has the canonical form or the error that the reference gives it; the form is valid JSON and its own form.
func FuzzAppend(f *testing.F) {
	for _, s := range seeds {
		hammer.Add(f, []byte(s))
	}
	hammer.Fuzz(f, func(t *testing.T, src []byte) {
		var enc canonjson.Encoder
		before := bytes.Clone(src)
		out, err := enc.Append([]byte("kept"), src, nil)
		if !bytes.Equal(src, before) || !bytes.HasPrefix(out, []byte("kept")) {
			t.Fatalf("src is now %q and dst %q", src, out)
		}
		out = out[4:]
		want, wantErr := reference(src)
		if err != nil {
			if wantErr == nil || !isSentinel(err) || len(out) != 0 {
				t.Fatalf("%q: got %q, %v, want %q, %v", src, out, err, want, wantErr)
			}
			return
		}
		if string(out) != want || wantErr != nil || !json.Valid(out) {
			t.Fatalf("%q: got %q, want %q, %v", src, out, want, wantErr)
		}
		if again, err := enc.Append(nil, out, nil); !bytes.Equal(again, out) || err != nil {
			t.Fatalf("%q: the form %q has the form %q, %v", src, out, again, err)
		}
	})
}

// A document written in another way, with members in another order, has the same form.
func FuzzOrderFree(f *testing.F) {
	for k, s := range seeds {
		hammer.Add(f, []byte(s), uint64(k))
	}
	hammer.Fuzz(f, func(t *testing.T, src []byte, seed uint64) {
		doc, err := parse(src)
		if err != nil {
			return
		}
		want, wantErr := canon(string(src), nil)
		g := &generator{rand.New(rand.NewPCG(seed, 0)), nil}
		other := g.render(doc)
		if got, err := canon(other, nil); got != want || !errors.Is(err, wantErr) {
			t.Fatalf("%s: got %s, %v\n%s: got %s, %v", src, want, wantErr, other, got, err)
		}
	})
}

var number = regexp.MustCompile(`^-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE]([+-]?[0-9]+))?$`)

// Numbers are accepted if they follow the grammar, and have the same form if and only if they have the same value.
func FuzzNumbers(f *testing.F) {
	for _, s := range [][2]string{
		{"1", "1.0"}, {"0", "-0"}, {"9007199254740993", "9007199254740992"}, {"1e400", "10e399"}, {"1e21", "1000000000000000000000"},
		{"0.000001", "1e-6"}, {"1e-7", "0.0000001"}, {"12345678", "1234567.8e1"}, {"12.50", "1.25e1"}, {"01", "1."}, {"-1.5", "1.5"},
		{"1e999999999999999", "1e1000000000000000"}, {"0e99999999999999999999", "0.00"},
	} {
		hammer.Add(f, s[0], s[1])
	}
	hammer.Fuzz(f, func(t *testing.T, a, b string) {
		small := true // enough for big.Rat
		for _, n := range []string{a, b} {
			m := number.FindStringSubmatch(n)
			_, err := canon(n, nil)
			// White space around a number is no part of it, and other texts have a form as well.
			if valid := m != nil; valid != (err == nil) && !errors.Is(err, canonjson.ErrNumber) && (valid || !json.Valid([]byte(n))) {
				t.Fatalf("%q: got %v, but valid is %v", n, err, valid)
			}
			if m == nil || err != nil {
				return
			}
			if m[4] != "" {
				e, err := strconv.Atoi(m[4])
				small = small && err == nil && -1000 < e && e < 1000
			}
		}
		if small {
			if err := checkNumbers(a, b); err != nil {
				t.Fatal(err)
			}
			return
		}
		x, _ := canon(a, nil)
		y, _ := canon(b, nil)
		signX, dsX, eX := scientific(a)
		signY, dsY, eY := scientific(b)
		if equal := dsX == dsY && (dsX == "" || signX == signY && eX.Cmp(eY) == 0); equal != (x == y) {
			t.Fatalf("%s is %s and %s is %s, but equal is %v", a, x, b, y, equal)
		}
	})
}

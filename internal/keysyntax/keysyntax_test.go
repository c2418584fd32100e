package keysyntax_test

import (
	"strings"
	"testing"

	"github.com/retrysafe/retrysafe/internal/keysyntax"
	"github.com/retrysafe/retrysafe/internal/test/hammer"
)

// quote writes a key as a structured-field string.
func quote(key string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(key) + `"`
}

func FuzzKey(f *testing.F) {
	for _, line := range []string{
		"", " ", "k", `"k"`, `"k`, `k"`, `""`, `"`, `"\"`, `"\\"`, `"\""`, `"\n"`, `"a" "b"`, `"a","b"`, "a,b", "a b", `"a b"`, "\"\\\xff\"",
		"\x00", "\xff", "\t k \t", `"k";a=1`, strings.Repeat("k", 255), strings.Repeat("k", 256), `"` + strings.Repeat(`\\`, 255) + `"`, "8e03978e-40d5-43dd-bc93-6894a57f9324",
	} {
		hammer.Add(f, line)
	}
	hammer.Fuzz(f, func(t *testing.T, line string) {
		key, err := keysyntax.Parse(line, false, false)
		strict, strictErr := keysyntax.Parse(line, false, true)
		opaque, opaqueErr := keysyntax.Parse(line, true, false)

		if (err != nil && key != "") || (strictErr != nil && strict != "") || (opaqueErr != nil && opaque != "") {
			t.Fatalf("%q: a refused line has a key", line)
		}
		for _, k := range []struct {
			key    string
			err    error
			spaces bool
		}{{key, err, true}, {strict, strictErr, true}, {opaque, opaqueErr, false}} {
			if k.err != nil {
				continue
			}
			if len(k.key) < 1 || len(k.key) > 255 {
				t.Fatalf("%q: a key of %d characters", line, len(k.key))
			}
			for i := range len(k.key) {
				if c := k.key[i]; c < ' ' || c > '~' || c == ' ' && !k.spaces {
					t.Fatalf("%q: the key %q has a character that is not visible", line, k.key)
				}
			}
		}
		if strictErr == nil && (err != nil || strict != key) {
			t.Fatalf("%q: %q when strict, %q, %v otherwise", line, strict, key, err)
		}
		if opaqueErr == nil && opaque != strings.Trim(line, " \t") {
			t.Fatalf("%q: opaque, but read as %q", line, opaque)
		}
		if err != nil {
			return
		}
		for _, strict := range []bool{false, true} {
			if again, err := keysyntax.Parse(quote(key), false, strict); err != nil || again != key {
				t.Fatalf("%q: quoted again it reads %q, %v, want %q", line, again, err, key)
			}
		}
		if !strings.ContainsAny(key, ` ,"`) {
			if bare, err := keysyntax.Parse(key, false, false); err != nil || bare != key {
				t.Fatalf("%q: without quotes it reads %q, %v, want %q", line, bare, err, key)
			}
		}
	})
}

package canonjson_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/retrysafe/retrysafe/internal/canonjson"
)

// The reference is the canonical form once more, slow and simple, on top of encoding/json. A document is a tree of
// object, []any, string, json.Number, bool and nil.
type (
	object []member
	member struct {
		name  string
		value any
	}
)

// reference returns the canonical form of src, or an error if it has none.
func reference(src []byte) (string, error) {
	doc, err := parse(src)
	if err != nil {
		return "", err
	}
	return write(doc)
}

func parse(src []byte) (any, error) {
	if !json.Valid(src) || !utf8.Valid(src) || loneSurrogate(src) {
		return nil, canonjson.ErrInvalid
	}
	dec := json.NewDecoder(bytes.NewReader(src))
	dec.UseNumber()
	return parseValue(dec, 0)
}

func parseValue(dec *json.Decoder, depth int) (any, error) {
	tok, err := dec.Token()
	delim, ok := tok.(json.Delim)
	if err != nil || !ok {
		return tok, err
	}
	if depth == canonjson.MaxDepth {
		return nil, canonjson.ErrDepth
	}
	var o object
	var a []any
	for dec.More() {
		var name any
		if delim == '{' {
			if name, err = dec.Token(); err != nil {
				return nil, err
			}
		}
		v, err := parseValue(dec, depth+1)
		if err != nil {
			return nil, err
		}
		if delim == '[' {
			a = append(a, v)
			continue
		}
		if slices.ContainsFunc(o, func(m member) bool { return m.name == name }) {
			return nil, canonjson.ErrDuplicateName
		}
		o = append(o, member{name.(string), v})
	}
	if _, err = dec.Token(); delim == '{' {
		return o, err
	}
	return a, err
}

var escape = regexp.MustCompile(`\\(u([0-9a-fA-F]{4})|[^u])`)

// loneSurrogate reports whether a valid JSON text escapes half a surrogate pair, which encoding/json replaces.
func loneSurrogate(src []byte) bool {
	end, high := -1, false // of the last escape; whether it was the first half of a pair
	for _, m := range escape.FindAllSubmatchIndex(src, -1) {
		unit := uint64(0)
		if m[4] >= 0 {
			unit, _ = strconv.ParseUint(string(src[m[4]:m[5]]), 16, 16)
		}
		low := 0xdc00 <= unit && unit < 0xe000
		if paired := high && end == m[0]; low != paired || high && !paired {
			return true
		}
		end, high = m[1], 0xd800 <= unit && unit < 0xdc00
	}
	return high
}

func write(v any) (string, error) {
	switch v := v.(type) {
	case *object: // as selectTree returns it
		return write(*v)
	case *[]any:
		return write(*v)
	case object:
		v = slices.Clone(v)
		slices.SortFunc(v, func(a, b member) int {
			return slices.Compare(utf16.Encode([]rune(a.name)), utf16.Encode([]rune(b.name)))
		})
		var parts []string
		for _, m := range v {
			s, err := write(m.value)
			if err != nil {
				return "", err
			}
			parts = append(parts, quote(m.name)+":"+s)
		}
		return "{" + strings.Join(parts, ",") + "}", nil
	case []any:
		var parts []string
		for _, e := range v {
			s, err := write(e)
			if err != nil {
				return "", err
			}
			parts = append(parts, s)
		}
		return "[" + strings.Join(parts, ",") + "]", nil
	case string:
		return quote(v), nil
	case json.Number:
		return decimal(string(v))
	case nil:
		return "null", nil
	default:
		return fmt.Sprint(v), nil
	}
}

func quote(s string) string {
	short := map[rune]string{'"': `\"`, '\\': `\\`, '\b': `\b`, '\t': `\t`, '\n': `\n`, '\f': `\f`, '\r': `\r`}
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range s {
		switch e, ok := short[r]; {
		case ok:
			b.WriteString(e)
		case r < ' ':
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			b.WriteRune(r)
		}
	}
	b.WriteByte('"')
	return b.String()
}

// scientific splits a JSON number into its sign, its digits without zeros at either end, and the exponent that it has with
// one digit before the point. Zero has no digits.
func scientific(n string) (sign, ds string, exponent *big.Int) {
	if n, ok := strings.CutPrefix(n, "-"); ok {
		_, ds, exponent = scientific(n)
		return "-", ds, exponent
	}
	mantissa, e, _ := strings.Cut(strings.ToLower(n), "e")
	exponent, _ = new(big.Int).SetString("0"+e, 10)
	if exponent == nil {
		exponent, _ = new(big.Int).SetString(e, 10)
	}
	whole, fraction, _ := strings.Cut(mantissa, ".")
	ds = strings.TrimLeft(whole+fraction, "0")
	zeros := len(whole+fraction) - len(ds)
	exponent.Add(exponent, big.NewInt(int64(len(whole)-1-zeros)))
	return "", strings.TrimRight(ds, "0"), exponent
}

func decimal(n string) (string, error) {
	sign, ds, exponent := scientific(n)
	if ds == "" {
		return "0", nil
	}
	if new(big.Int).Abs(exponent).Cmp(big.NewInt(999_999_999_999_999)) > 0 {
		return "", canonjson.ErrNumber
	}
	e := exponent.Int64()
	zeros := func(n int) string { return strings.Repeat("0", max(n, 0)) }
	switch {
	case e < -6 || e > 20:
		if len(ds) > 1 {
			ds = ds[:1] + "." + ds[1:]
		}
		return fmt.Sprintf("%s%se%+d", sign, ds, e), nil
	case e < 0:
		return sign + "0." + zeros(int(-e)-1) + ds, nil
	default:
		ds += zeros(int(e) + 1 - len(ds))
		if fraction := ds[e+1:]; fraction != "" {
			return sign + ds[:e+1] + "." + fraction, nil
		}
		return sign + ds, nil
	}
}

// canon is the package under test.
func canon(src string, f *canonjson.Filter) (string, error) {
	out, err := new(canonjson.Encoder).Append(nil, []byte(src), f)
	return string(out), err
}

// sentinels are all errors that Append returns.
var sentinels = []error{canonjson.ErrInvalid, canonjson.ErrDuplicateName, canonjson.ErrDepth, canonjson.ErrNumber}

func isSentinel(err error) bool {
	return slices.ContainsFunc(sentinels, func(s error) bool { return errors.Is(err, s) })
}

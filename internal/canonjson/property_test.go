package canonjson_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf16"

	"github.com/retrysafe/retrysafe/internal/canonjson"
)

// some is how many inputs a test draws of n: all, or with the race detector, which watches
// each of them for a multiple of the time, a tenth. These tests have one goroutine each. The
// plain run of make test, scripts/cover, has all.
func some(n int) int {
	if raceEnabled {
		return n / 10
	}
	return n
}

// A generator draws documents, and writes each of them in one of its many forms.
type generator struct {
	*rand.Rand
	names []string // of members, if there is a choice
}

var alphabet = []rune("abcxyz_09 \"\\/\n\t\x00\x1f\x7f\u0080éß\u07ff\u0800中\ud7ff\ue000\uffff𐀀😀\U0010ffff")

func (g *generator) text() string {
	if g.names != nil {
		return g.names[g.IntN(len(g.names))]
	}
	if g.IntN(3) == 0 {
		return "customer_" + strconv.Itoa(g.IntN(30))
	}
	runes := make([]rune, g.IntN(4)*g.IntN(6))
	for k := range runes {
		runes[k] = alphabet[g.IntN(len(alphabet))]
		if g.IntN(2) == 0 {
			runes[k] = 'x'
		}
	}
	return string(runes)
}

func (g *generator) number() json.Number {
	digits := func() string { return strconv.FormatUint(g.Uint64()>>g.IntN(64), 10) }
	n := []string{"", "-"}[g.IntN(2)] + digits()
	if g.IntN(2) == 0 {
		n += "." + strings.Repeat("0", g.IntN(8)) + digits()
	}
	if g.IntN(3) == 0 {
		n += []string{"e", "E", "e+", "E-"}[g.IntN(4)] + strings.Repeat("0", g.IntN(2)) + strconv.Itoa(g.IntN(40))
	}
	return json.Number(n)
}

func (g *generator) value(depth int) any {
	kind := g.IntN(10)
	if depth > 4 {
		kind = 4 + g.IntN(6)
	}
	switch kind {
	case 0, 1, 2:
		var o object
		for range g.IntN(4) * g.IntN(8) {
			if name := g.text(); !slices.ContainsFunc(o, func(m member) bool { return m.name == name }) {
				o = append(o, member{name, g.value(depth + 1)})
			}
		}
		return o
	case 3:
		var a []any
		for range g.IntN(5) {
			a = append(a, g.value(depth+1))
		}
		return a
	case 4, 5, 6:
		return g.number()
	case 7:
		return []any{true, false, nil}[g.IntN(3)]
	default:
		return g.text()
	}
}

// render writes v with members shuffled, white space strewn in, and strings and numbers written differently.
func (g *generator) render(v any) string {
	space := func() string { return []string{"", "", "", " ", "\n", "\r\n\t", "          "}[g.IntN(7)] }
	list := func(open string, parts []string, end string) string {
		return open + space() + strings.Join(parts, space()+","+space()) + space() + end
	}
	var parts []string
	switch v := v.(type) {
	case object:
		for _, m := range v {
			parts = append(parts, g.quote(m.name)+space()+":"+space()+g.render(m.value))
		}
		g.Shuffle(len(parts), func(i, j int) { parts[i], parts[j] = parts[j], parts[i] })
		return list("{", parts, "}")
	case []any:
		for _, e := range v {
			parts = append(parts, g.render(e))
		}
		return list("[", parts, "]")
	case string:
		return g.quote(v)
	case json.Number:
		return g.rewrite(string(v))
	default:
		s, _ := write(v)
		return s
	}
}

func (g *generator) quote(s string) string {
	var b strings.Builder
	for _, r := range s {
		switch plain := quote(string(r)); {
		case g.IntN(4) == 0:
			for _, u := range utf16.Encode([]rune{r}) {
				fmt.Fprintf(&b, []string{`\u%04x`, `\u%04X`}[g.IntN(2)], u)
			}
		case r == '/' && g.IntN(2) == 0:
			b.WriteString(`\/`)
		default:
			b.WriteString(plain[1 : len(plain)-1])
		}
	}
	return `"` + b.String() + `"`
}

// rewrite writes a number with other digits and exponents but the same value.
func (g *generator) rewrite(n string) string {
	sign, ds, exponent := scientific(n)
	if ds == "" {
		return []string{"0", "-0", "0.0", "0e7", "-0.00E-7"}[g.IntN(5)]
	}
	if g.IntN(2) == 0 || !exponent.IsInt64() {
		return n
	}
	ds += strings.Repeat("0", g.IntN(4))
	point := g.IntN(len(ds) + 1) // digits before it
	e := exponent.Int64() + 1 - int64(point)
	whole, fraction := ds[:point], ds[point:]
	if whole == "" {
		whole = "0"
	}
	if fraction != "" {
		whole += "." + fraction
	}
	if e != 0 || g.IntN(2) == 0 {
		whole += fmt.Sprintf([]string{"e%d", "E%d", "e%+d", "e%+04d"}[g.IntN(4)], e)
	}
	return sign + whole
}

// Every form of a document has the canonical form that the reference gives it, and that one is its own canonical form.
func TestProperty(t *testing.T) {
	t.Parallel()
	g := &generator{rand.New(rand.NewPCG(1, 2)), nil}
	var enc canonjson.Encoder
	var out []byte
	for range some(3_000) {
		doc := g.value(0)
		want, err := write(doc)
		if err != nil {
			t.Fatal(err)
		}
		for _, src := range []string{g.render(doc), g.render(doc), want} {
			if out, err = enc.Append(out[:0], []byte(src), nil); string(out) != want || err != nil {
				t.Fatalf("%s\n got %s, %v\nwant %s", src, out, err, want)
			}
		}
	}
}

// Two numbers have the same form if and only if they have the same value.
func TestNumbersProperty(t *testing.T) {
	t.Parallel()
	g := &generator{rand.New(rand.NewPCG(5, 6)), nil}
	for range some(20_000) {
		a := string(g.number())
		b := string(g.number())
		switch g.IntN(3) {
		case 0:
			b = g.rewrite(a)
		case 1: // one digit off
			k := g.IntN(len(a))
			if c := a[k]; '0' <= c && c < '9' && k > 0 && a[k-1] != '-' {
				b = a[:k] + string(c+1) + a[k+1:]
			}
		}
		if err := checkNumbers(a, b); err != nil {
			t.Fatal(err)
		}
	}
}

// checkNumbers compares the forms of two valid numbers.
func checkNumbers(a, b string) error {
	x, errX := canon(a, nil)
	y, errY := canon(b, nil)
	if errX != nil || errY != nil {
		return errors.Join(errX, errY)
	}
	p, _ := new(big.Rat).SetString(a)
	q, _ := new(big.Rat).SetString(b)
	if equal := p.Cmp(q) == 0; equal != (x == y) {
		return fmt.Errorf("%s is %s and %s is %s, but equal is %v", a, x, b, y, equal)
	}
	return nil
}

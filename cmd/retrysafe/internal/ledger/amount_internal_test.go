package ledger

import (
	"math/big"
	"strings"
	"testing"

	"github.com/retrysafe/retrysafe/internal/test/hammer"
)

func TestAmountsAreDecimals(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		rule string
		a, b string
		want bool
	}{
		{"zeros at the end of a fraction do not count", "1.0", "1.00", true},
		{"nor does a point", "1", "1.000", true},
		{"a point may end an amount", "1.", "1", true},
		{"a point may begin one", ".50", "0.5", true},
		{"zeros in front do not count", "0012.5", "12.50", true},
		{"zeros at the end of a whole number do", "10", "100", false},
		{"so do those behind the point", "0.1", "0.01", false},
		{"a sign counts", "-1", "1", false},
		{"but for plus", "+1", "1", true},
		{"and zero has none", "-0.00", "0", true},
		{"zero is zero with any exponent", "0e5", "0", true},
		{"exponents are exact", "1.25e2", "125", true},
		{"negative ones too", "125E-2", "1.25", true},
		{"and large ones", "1e999999999", "10e999999998", true},
		{"a cent counts among many digits", "123456789012345678901234567890.01", "123456789012345678901234567890.02", false},
		{"no float is in between", "0.1", "0.1000000000000000055511151231257827", false},
		{"an exponent that is too long makes it a text", "1e1000000000", "10e999999999", false},
		{"so do separators", "1,000", "1000", false},
		{"and spaces", " 1", "1", false},
		{"and currencies", "1 EUR", "1", false},
		{"and hexadecimal", "0x10", "16", false},
		{"and underscores in exponents", "1e1_0", "1e10", false},
		{"and two signs", "+-1", "-1", false},
		{"and words", "NaN", "nan", false},
		{"nothing is no amount", "", "0", false},
		{"nor is a point", ".", "0", false},
		{"nor is an exponent", "e1", "0", false},
		{"nor a sign", "-", "0", false},
	} {
		if got := sameAmount(c.a, c.b); got != c.want {
			t.Errorf("%s: %q and %q are the same: %v", c.rule, c.a, c.b, got)
		}
		if got := sameAmount(c.b, c.a); got != c.want {
			t.Errorf("%s: %q and %q are the same: %v", c.rule, c.b, c.a, got)
		}
	}
}

func FuzzAmounts(f *testing.F) {
	for _, s := range []string{"1.0", "10e-1", "-0", "+1.", ".5", "00.100", "1e-9", "x", "1e1_0"} {
		hammer.Add(f, s, "1")
	}
	hammer.Fuzz(f, func(t *testing.T, a, b string) {
		x, aok := rational(a)
		y, bok := rational(b)
		if _, ok := parseDecimal(a); ok && len(a) < 8 && !aok {
			t.Errorf("%q is a decimal for us only", a)
		}
		if aok && bok {
			if got, want := sameAmount(a, b), x.Cmp(y) == 0; got != want {
				t.Errorf("%q and %q are the same: %v", a, b, got)
			}
		}
		// The form in which rows are compared says the same as the rule for one field.
		o := &Options{Amounts: []string{"x"}}
		form := func(s string) string { return string(o.appendCompared(nil, []string{"x"}, map[string]string{"x": s})) }
		if got, want := form(a) == form(b), o.agree("x", a, b); got != want {
			t.Errorf("%q and %q have the same form: %v, and agree: %v", a, b, got, want)
		}
		if sameAmount(a, b) != sameAmount(b, a) {
			t.Errorf("%q and %q depend on their order", a, b)
		}
	})
}

// rational reads a decimal by other means, if it is short enough for them.
func rational(s string) (*big.Rat, bool) {
	if _, ok := parseDecimal(s); !ok || len(s) > 7 && strings.ContainsAny(s, "eE") {
		return nil, false
	}
	return new(big.Rat).SetString(s)
}

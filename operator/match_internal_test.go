package operator

import "testing"

func TestMatches(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		pattern, text string
		want          bool
	}{
		{"POST /pay", "POST /pay", true},
		{"POST /pay", "POST /pays", false},
		{"POST /pay*", "POST /pay", true},
		{"POST /pay*", "POST /payments", true},
		{"POST /pay*", "PUT /pay", false},
		{"*/pay", "POST /pay", true},
		{"*/pay", "POST /pays", false},
		{"*", "", true},
		{"*", "POST /pay", true},
		{"POST /pay*pay", "POST /pay", false},
		{"POST /pay*pay", "POST /paypay", true},
		{"POST*/a*/b*", "POST /a/b/c", true},
		{"POST*/b*/a*", "POST /a/b/c", false},
		{"a*b*b", "ab", false},
		{"a*b*b", "abb", true},
		{"*ab*ab*", "ab", false},
		{"*ab*ab*", "abab", true},
	} {
		if got := matches(c.pattern, c.text); got != c.want {
			t.Errorf("matches(%q, %q) = %t", c.pattern, c.text, got)
		}
	}
}

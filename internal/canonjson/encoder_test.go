package canonjson_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/retrysafe/retrysafe/internal/canonjson"
)

func ExampleEncoder_Append() {
	var enc canonjson.Encoder
	for _, body := range []string{
		`{"currency": "EUR", "amount": 10.50}`,
		`{"amount":105e-1,"c\u0075rrency":"EUR"}`,
	} {
		out, err := enc.Append(nil, []byte(body), nil)
		fmt.Printf("%s %v\n", out, err)
	}
	// Output:
	// {"amount":10.5,"currency":"EUR"} <nil>
	// {"amount":10.5,"currency":"EUR"} <nil>
}

func TestCanonicalForm(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ rule, src, want string }{
		{"white space goes", " \t\r\n{ \"a\" : [ 1 ,\n\n\t2 ] , \"b\" : { } } \n", `{"a":[1,2],"b":{}}`},
		{"much white space goes", "[" + strings.Repeat(" ", 100) + "1" + strings.Repeat("\n", 100) + "]", "[1]"},
		{"literals stay", `[true,false,null]`, `[true,false,null]`},
		{"a scalar is a document", ` "x" `, `"x"`},
		{"empty containers stay", `[{},[],"",{"":""}]`, `[{},[],"",{"":""}]`},
		{"members are sorted", `{"b":1,"a":2,"c":3}`, `{"a":2,"b":1,"c":3}`},
		{"two members are sorted", `{"b":{"d":1,"c":2},"a":[]}`, `{"a":[],"b":{"c":2,"d":1}}`},
		{"a shorter name comes first", `{"abcdefghi":1,"abcdefgh":2,"abcdefg":3,"":4}`, `{"":4,"abcdefg":3,"abcdefgh":2,"abcdefghi":1}`},
		{"names that start alike are sorted", `{"customer_name":1,"customer_id":2,"customer":3}`, `{"customer":3,"customer_id":2,"customer_name":1}`},
		{"names differ in case", `{"a":1,"A":2}`, `{"A":2,"a":1}`},
		{"elements are not sorted", `[3,1,2]`, `[3,1,2]`},
		{"the order is that of RFC 8785",
			`{"\u20ac":"Euro Sign","\r":"Carriage Return","\ufb33":"Hebrew Letter Dalet With Dagesh","1":"One",` +
				`"\ud83d\ude00":"Emoji: Grinning Face","\u0080":"Control","\u00f6":"Latin Small Letter O With Diaeresis"}`,
			`{"\r":"Carriage Return","1":"One","` + "\u0080" + `":"Control","ö":"Latin Small Letter O With Diaeresis",` +
				`"€":"Euro Sign","😀":"Emoji: Grinning Face","` + "\ufb33" + `":"Hebrew Letter Dalet With Dagesh"}`},
		{"U+E000 comes after U+10000, far into a name too", `{"prefix_prefix_\ue000":1,"prefix_prefix_\ud800\udc00":2}`,
			`{"prefix_prefix_𐀀":2,"prefix_prefix_` + "\ue000" + `":1}`},
		{"escaped names sort as what they stand for", `{"\\":1,"a":2,"\"":3,"!":4,"\u0000":5,"\t":6,"\u001f":7,"\b":8,"\f":9,"\n":10,"\r":11}`,
			`{"\u0000":5,"\b":8,"\t":6,"\n":10,"\f":9,"\r":11,"\u001f":7,"!":4,"\"":3,"\\":1,"a":2}`},
		{"escapes far into a name too", `{"prefix_prefix_\"":1,"prefix_prefix_\n":2,"prefix_prefix_\nb":4,"prefix_prefix_!":3,"prefix_prefix_":5}`,
			`{"prefix_prefix_":5,"prefix_prefix_\n":2,"prefix_prefix_\nb":4,"prefix_prefix_!":3,"prefix_prefix_\"":1}`},
		{"so do hexadecimal escapes", `{"prefix_prefix_\u0010":1,"prefix_prefix_\u000e":2,"prefix_prefix_\u0001":3,"prefix_prefix_\u001f":4,"prefix_prefix_\\\u0001":5,"prefix_prefix_\t":6}`,
			`{"prefix_prefix_\u0001":3,"prefix_prefix_\t":6,"prefix_prefix_\u000e":2,"prefix_prefix_\u0010":1,"prefix_prefix_\u001f":4,"prefix_prefix_\\\u0001":5}`},
		{"a zero in a name counts", `{"a\u0000":1,"a":2,"a\u0000\u0000":3}`, `{"a":2,"a\u0000":1,"a\u0000\u0000":3}`},
		{"the example of RFC 8785, with exact numbers",
			`{"numbers": [333333333.33333329, 1E30, 4.50, 2e-3, 0.000000000000000000000000001],
			  "string": "\u20ac$\u000F\u000aA'\u0042\u0022\u005c\\\"\/", "literals": [null, true, false]}`,
			`{"literals":[null,true,false],"numbers":[333333333.33333329,1e+30,4.5,0.002,1e-27],"string":"€$\u000f\nA'B\"\\\\\"/"}`},
		{"control characters have short escapes or lower-case hex", `"\u0008\u0009\u000A\u000B\u000C\u000D\u001F\u0000\u007f"`,
			`"\b\t\n\u000b\f\r\u001f\u0000` + "\x7f" + `"`},
		{"nothing else is escaped", `"\u00e9\u4E2D\u65e5\ud83d\uDE00\/<>&\u2028"`, `"é中日😀/<>&` + "\u2028" + `"`},
		{"characters are not normalised", `["\u00e9","e\u0301"]`, "[\"é\",\"e\u0301\"]"},
		{"the last and the first characters of each length", `"\u007f\u0080\u07ff\u0800\ud7ff\ue000\uffff\ud800\udc00\udbff\udfff"`,
			"\"\u007f\u0080\u07ff\u0800\ud7ff\ue000\uffff\U00010000\U0010ffff\""},
	} {
		if got, err := canon(c.src, nil); got != c.want || err != nil {
			t.Errorf("%s: %s\n got %s, %v\nwant %s", c.rule, c.src, got, err, c.want)
		}
		if want, err := reference([]byte(c.src)); want != c.want || err != nil {
			t.Errorf("%s: %s\nreference %s, %v\n     want %s", c.rule, c.src, want, err, c.want)
		}
	}
}

func TestRejected(t *testing.T) {
	t.Parallel()
	deep := func(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }
	for _, c := range []struct {
		rule string
		want error
		srcs []string
	}{
		{"there must be a value", canonjson.ErrInvalid, []string{"", " ", "\n\n"}},
		{"nothing may follow", canonjson.ErrInvalid, []string{"1 2", "{}{}", "[]]", "{}}", "1,", "null null", `"a" "b"`, "1\x00", "[]\x00", "1 x"}},
		{"a byte order mark is not white space", canonjson.ErrInvalid, []string{"\ufeff1", "\ufeff{}"}},
		{"only four characters are white space", canonjson.ErrInvalid, []string{"\v1", "\f1", "\u00a01", "[1\x00]", "\x1f1", "/**/1"}},
		{"brackets must match", canonjson.ErrInvalid, []string{"[", "{", "]", "}", "[}", "{]", "[1}", `{"a":1]`, "[[]", `{"a":{}`, `{"a":[}`}},
		{"commas stand between values", canonjson.ErrInvalid, []string{"[,]", "[1,]", "[,1]", "[1,,2]", "{,}", `{"a":1,}`, `{,"a":1}`, "[1 2]", `{"a":1 "b":2}`, `["a""b"]`}},
		{"members have a name and a value", canonjson.ErrInvalid, []string{`{"a"}`, `{"a":}`, `{"a"1}`, `{1:2}`, `{a:1}`, `{null:1}`, `{"a"::1}`, `{"a":1:2}`, `{'a':1}`, `["a":1]`}},
		{"literals are these three", canonjson.ErrInvalid, []string{"tru", "True", "TRUE", "truex", "fals", "falsy", "nul", "nulL", "undefined", "NaN", "Infinity", "-Infinity", "t", "f", "n"}},
		{"numbers follow the grammar", canonjson.ErrInvalid, []string{"-", "+1", ".5", "1.", "-.5", "01", "-01", "00", "012345678", "0123456789012345678", "1e", "1e+", "1E-", "1.e1", "1.5e", "0x10", "1_000", "1..2", "1e1.5", "--1", "-a", "1-", "12345678901234567890.", "0.00.", "1.123456789.", "01.5", "1ee5", "1e5e5", "0.00e"}},
		{"strings are closed", canonjson.ErrInvalid, []string{`"`, `"abc`, `"abcdefghijk`, `"\"`, `{"a`, `{"abcdefghijk`, `{"a\"`}},
		{"control characters are escaped", canonjson.ErrInvalid, []string{"\"\x00\"", "\"\n\"", "\"a\tb\"", "\"\x1f\"", "\"abcdefgh\x01\"", "{\"a\x02\":1}", "\"\\n\n\"", "{\"\\n\n\":1}"}},
		{"escapes are known", canonjson.ErrInvalid, []string{`"\x"`, `"\a"`, `"\'"`, `"\U0041"`, `"\`, `"\0"`, `{"\x":1}`}},
		{"hexadecimal escapes have four digits", canonjson.ErrInvalid, []string{`"\u"`, `"\u1"`, `"\u12"`, `"\u123"`, `"\u123g"`, `"\ug123"`, `"\u12 4"`, `"\u-123"`, `"\u`, `"\u00`}},
		{"surrogates come in pairs", canonjson.ErrInvalid, []string{`"\ud800"`, `"\udc00"`, `"\ud800x"`, `"\ud800\n"`, `"\ud800\u0041"`, `"\ud800\ud800"`, `"\udc00\ud800"`, `"\ud800\udc0"`, `"\udbff\ue000"`, `{"\ud800":1}`, `"\ud83d\ude00\ude00"`}},
		{"raw surrogates are not UTF-8", canonjson.ErrInvalid, []string{"\"\xed\xa0\x80\"", "\"\xed\xa0\xbd\xed\xb8\x80\"", "{\"\xed\xbf\xbf\":1}"}},
		{"names differ", canonjson.ErrDuplicateName, []string{`{"a":1,"a":1}`, `{"a":1,"\u0061":2}`, `{"b":1,"a":2,"b":3}`, `{"":1,"":2}`, `{"\n":1,"\u000a":2}`,
			`{"customer_id":1,"b":2,"customer_id":3}`, `{"customer_id":1,"customer_id":3}`, `[{"x":{"y":1,"y":2}}]`, `{"é":1,"\u00e9":2}`, `{"\/":1,"/":2}`, `{"a":{"b":1,"c":2,"b":3}}`}},
		{"nesting has an end", canonjson.ErrDepth, []string{deep(canonjson.MaxDepth + 1), strings.Repeat(`{"a":`, canonjson.MaxDepth+1) + "1", strings.Repeat("[", 1e6)}},
		{"exponents have an end", canonjson.ErrNumber, []string{"1e1000000000000000", "1e-1000000000000000", "10e999999999999999", "0.1e-999999999999999", "1e99999999999999999999999", "-1e-99999999999999999999999", "[1e1000000000000000]"}},
	} {
		for _, src := range c.srcs {
			dst := []byte("kept")
			got, err := new(canonjson.Encoder).Append(dst, []byte(src), nil)
			if !errors.Is(err, c.want) || string(got) != "kept" {
				t.Errorf("%s: %.100q: got %q, %v, want %v", c.rule, src, got, err, c.want)
			}
			if _, err := reference([]byte(src)); !errors.Is(err, c.want) && !errors.Is(err, canonjson.ErrInvalid) {
				t.Errorf("%s: %.100q: reference says %v, want %v", c.rule, src, err, c.want)
			}
		}
	}
	if _, err := canon(deep(canonjson.MaxDepth), nil); err != nil {
		t.Errorf("MaxDepth arrays may be open at once: %v", err)
	}
}

func TestNumbers(t *testing.T) {
	t.Parallel()
	for want, srcs := range map[string][]string{
		"0":                              {"0", "-0", "0.0", "-0.000", "0e5", "-0E-5", "0.00e99999999999999999999", "0e0", "0.00000000000"},
		"1":                              {"1", "1.0", "1e0", "10e-1", "100E-2", "0.1e1", "0.0001e+4", "1.00000000000000", "1e-0", "1e00000000000000000000000"},
		"-1":                             {"-1", "-1.0", "-10e-1"},
		"10":                             {"10", "1e1", "1E+1", "10.0", "1000e-2"},
		"12.5":                           {"12.5", "12.50", "1.25e1", "125e-1", "0.125E2", "12.500000000000000000"},
		"-0.5":                           {"-0.5", "-5e-1", "-0.50"},
		"0.05":                           {"0.05", "5e-2", "0.050"},
		"0.005":                          {"0.005", "5e-3", "0.00500"},
		"123456789012345":                {"123456789012345", "123456789012345.0", "1.23456789012345e14"},
		"1234567890123456":               {"1234567890123456"},
		"12345678":                       {"12345678", "12345678.0", "1234567800e-2"},
		"1234567.12345678":               {"1234567.12345678"},
		"1.1234567":                      {"1.1234567", "1.12345670"},
		"9007199254740992":               {"9007199254740992", "9007199254740992.0"},
		"9007199254740993":               {"9007199254740993", "9.007199254740993e15"},
		"0.1":                            {"0.1", "1e-1"},
		"0.1000000000000000055511151231": {"0.1000000000000000055511151231"},
		"100000000000000000000":          {"1e20", "100000000000000000000", "0.1e21"},
		"123456789012345678901":          {"123456789012345678901"},
		"999999999999999999999.5":        {"999999999999999999999.5", "9999999999999999999995e-1"},
		"1e+21":                          {"1e21", "1000000000000000000000", "10E20", "0.001e+24"},
		"1.234567890123456789012e+21":    {"1234567890123456789012"},
		"-1.5e+300":                      {"-1.5e300", "-15E+299"},
		"1e+400":                         {"1e400", "0.1e401", "1" + strings.Repeat("0", 400)},
		"0.000001":                       {"1e-6", "0.000001", "0.0000010"},
		"0.0000015":                      {"1.5e-6", "0.0000015"},
		"1e-7":                           {"1e-7", "0.0000001", "0.00000010"},
		"1.5e-7":                         {"1.5e-7", "0.00000015"},
		"1e-400":                         {"1e-400", "10e-401", "0." + strings.Repeat("0", 399) + "1"},
		"1e+999999999999999":             {"1e999999999999999", "0.1e1000000000000000", "0.000001e1000000000000005"},
		"1e-999999999999999":             {"1e-999999999999999", "10e-1000000000000000"},
	} {
		for _, src := range srcs {
			if got, err := canon(src, nil); got != want || err != nil {
				t.Errorf("%.100s: got %.100s, %v, want %.100s", src, got, err, want)
			}
			if got, err := canon("[ "+src+" , "+src+"]", nil); got != "["+want+","+want+"]" || err != nil {
				t.Errorf("%.100s in an array: got %.100s, %v, want %.100s", src, got, err, want)
			}
			if got, err := decimal(src); got != want || err != nil {
				t.Errorf("%.100s: reference says %.100s, %v, want %.100s", src, got, err, want)
			}
		}
	}
}

// RFC 8785, appendix B, gives the text of some float64; so does encoding/json, which follows the same rules.
func TestNumbersOfRFC8785(t *testing.T) {
	t.Parallel()
	texts := strings.Fields(`0 5e-324 -5e-324 1.7976931348623157e+308 -1.7976931348623157e+308 9007199254740992 -9007199254740992
		295147905179352830000 9.999999999999997e+22 1e+23 1.0000000000000001e+23 999999999999999700000 999999999999999900000
		1e+21 9.999999999999997e-7 0.000001 333333333.3333332 333333333.33333325 333333333.3333333 333333333.3333334
		333333333.33333343 -0.0000033333333333333333 1424953923781206.2`)
	rng := rand.New(rand.NewPCG(1, 2))
	for range some(20_000) {
		if f := math.Float64frombits(rng.Uint64()); !math.IsNaN(f) && !math.IsInf(f, 0) {
			b, err := json.Marshal(f)
			if err != nil {
				t.Fatal(err)
			}
			texts = append(texts, string(b))
		}
		texts = append(texts, strconv.FormatFloat(float64(rng.IntN(1e6))/100, 'f', -1, 64))
	}
	for _, text := range texts {
		if got, err := canon(text, nil); got != text || err != nil {
			t.Errorf("got %s, %v, want %s", got, err, text)
		}
	}
}

// What makes a number long must not make it slow: a million digits, zeros or exponent digits.
func TestLongNumbers(t *testing.T) {
	t.Parallel()
	const n = 1_000_000
	ones, zeros := strings.Repeat("1", n), strings.Repeat("0", n)
	for _, c := range []struct{ src, want string }{
		{ones, "1." + ones[1:] + "e+999999"},
		{"0." + ones, "0." + ones},
		{"0." + zeros + ones, "1." + ones[1:] + "e-1000001"},
		{"1" + zeros, "1e+1000000"},
		{"1." + zeros, "1"},
		{"1e" + zeros + "1", "10"},
		{"1" + zeros + "e-1000000", "1"},
	} {
		if got, err := canon(c.src, nil); got != c.want || err != nil {
			t.Errorf("%.20s…: got %.20s…, %v, want %.20s…", c.src, got, err, c.want)
		}
	}
}

// A short exponent can make a number five times as long; there must be room for any number of them.
func TestGrowingNumbers(t *testing.T) {
	t.Parallel()
	for n := range 100 {
		for _, c := range [][2]string{{"1e20", "100000000000000000000"}, {"-1e20", "-100000000000000000000"}, {"1e-6", "0.000001"}, {"-0", "0"}, {"1e21", "1e+21"}} {
			src := "[" + strings.Repeat(c[0]+",", n) + c[0] + "]"
			want := "[" + strings.Repeat(c[1]+",", n) + c[1] + "]"
			if got, err := canon(src, nil); got != want || err != nil {
				t.Fatalf("%d × %s: got %s, %v", n+1, c[0], got, err)
			}
		}
	}
}

// Validity of UTF-8 is decided for eight bytes at once, so what is tried here is every position in a word, for all
// sequences of two bytes and those of up to five that mix the bytes at which the rules change.
func TestUTF8(t *testing.T) {
	t.Parallel()
	var enc canonjson.Encoder
	var out []byte
	check := func(s []byte) {
		src := append(append([]byte{'"'}, s...), '"')
		var err error
		if out, err = enc.Append(out[:0], src, nil); (err == nil) != utf8.Valid(s) {
			t.Fatalf("% x: got %v, but valid is %v", s, err, utf8.Valid(s))
		}
	}
	for a := 0x80; a < 0x100; a++ {
		for b := 0x80; b < 0x100; b++ {
			for pad := range 8 {
				s := append([]byte("aaaaaaaa")[:pad], byte(a), byte(b))
				check(s)
				check(append(s, "aaaaaaaa"...))
			}
		}
	}
	edges := []byte{'a', 0x80, 0x8f, 0x90, 0x9f, 0xa0, 0xbf, 0xc1, 0xc2, 0xdf, 0xe0, 0xe1, 0xec, 0xed, 0xee, 0xef, 0xf0, 0xf1, 0xf3, 0xf4, 0xf5, 0xff}
	rng := rand.New(rand.NewPCG(1, 2))
	for range some(200_000) {
		s := []byte("aaaaaaaa")[:rng.IntN(9)]
		for range 1 + rng.IntN(5) {
			s = append(s, edges[rng.IntN(len(edges))])
		}
		if rng.IntN(2) == 0 {
			s = append(s, "é中😀"[:[]int{2, 5, 9}[rng.IntN(3)]]...)
		}
		check(s)
	}
}

func TestAppendKeepsWhatIsThere(t *testing.T) {
	t.Parallel()
	var enc canonjson.Encoder
	src := []byte(`{"b":1,"a":[1.50,"\u0041"]}`)
	text := string(src)
	dst, err := enc.Append([]byte("kept"), src, nil)
	if want := `kept{"a":[1.5,"A"],"b":1}`; string(dst) != want || err != nil {
		t.Errorf("got %s, %v, want %s", dst, err, want)
	}
	if string(src) != text {
		t.Errorf("src was changed to %s", src)
	}
	again, err := enc.Append(dst[:4], []byte(`[1,2`), nil)
	if string(again) != "kept" || !errors.Is(err, canonjson.ErrInvalid) {
		t.Errorf("on error: got %s, %v, want what was there", again, err)
	}
}

// Names are compared by their first bytes, sorted in blocks of eight and moved differently if the object is large. So the
// sizes tried here go across all of these borders.
func TestManyMembers(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(1, 2))
	for _, prefix := range []string{"", "a", "customer_", strings.Repeat("x", 50), "\\n", "é\\\"", strings.Repeat("\ue000", 3)} {
		for _, pad := range []int{0, 100, 2000} {
			for _, n := range []int{0, 1, 2, 3, 4, 7, 8, 9, 12, 13, 14, 16, 17, 24, 25, 32, 33, 65} {
				var members []string
				for k := range n {
					value := strings.Repeat("v", rng.IntN(pad+1))
					members = append(members, fmt.Sprintf(`"%s%d":"%s"`, prefix, k, value))
				}
				want, err := reference([]byte("{" + strings.Join(members, ",") + "}"))
				if err != nil {
					t.Fatal(err)
				}
				rng.Shuffle(n, func(i, j int) { members[i], members[j] = members[j], members[i] })
				src := "{" + strings.Join(members, ",") + "}"
				if got, err := canon(src, nil); got != want || err != nil {
					t.Fatalf("%d members %.20s…, %d bytes each: got %.200s, %v\nwant %.200s", n, prefix, pad, got, err, want)
				}
				if n > 1 {
					src = "{" + strings.Join(append(members, members[rng.IntN(n)]), ",") + "}"
					if _, err := canon(src, nil); !errors.Is(err, canonjson.ErrDuplicateName) {
						t.Fatalf("%d members %.20s… and one of them again: got %v", n, prefix, err)
					}
				}
			}
		}
	}
}

// Hostile texts: many members, alike for long, in the worst order, and nesting that would move nearly everything at every
// level. If anything were quadratic this test would take minutes, not a second.
func TestW79_Hostile(t *testing.T) {
	t.Parallel()
	build := func(n int, name func(k int) string) string {
		var b strings.Builder
		for k := range n {
			fmt.Fprintf(&b, `,"%s":%d`, name(k), k)
		}
		return "{" + b.String()[1:] + "}"
	}
	n, many := some(20_000), some(100_000)
	long := strings.Repeat("x", 50)
	for what, src := range map[string]string{
		"in order":              build(many, func(k int) string { return fmt.Sprintf("%08d", k) }),
		"backwards":             build(many, func(k int) string { return fmt.Sprintf("%08d", many-k) }),
		"alike":                 build(n, func(k int) string { return fmt.Sprintf("%s%08d", long, n-k) }),
		"alike and scattered":   build(many, func(k int) string { return fmt.Sprintf("%s%08d", long, k*7919%many) }),
		"alike and escaped":     build(n, func(k int) string { return fmt.Sprintf("\\n%s\\\\%08d", long, k*7919%n) }),
		"all escapes":           build(n, func(k int) string { return strings.Repeat("\\\\", k%100) + fmt.Sprint(k) }),
		"alike in eight bytes":  build(n, func(k int) string { return fmt.Sprintf("xxxxxxxx%d", k) }),
		"alike but for the end": build(n, func(k int) string { return strings.Repeat("x", k%100) + fmt.Sprint(k) }),
	} {
		out, err := canon(src, nil)
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		if again, err := canon(out, nil); again != out || err != nil {
			t.Errorf("%s: the result is not in order: %v", what, err)
		}
		if got, want := strings.Count(out, ":"), strings.Count(src, ":"); got != want {
			t.Errorf("%s: %d members are left, want %d", what, got, want)
		}
		if _, err := canon(src[:len(src)-1]+","+src[1:strings.Index(src, ",")]+"}", nil); !errors.Is(err, canonjson.ErrDuplicateName) {
			t.Errorf("%s, one twice: got %v", what, err)
		}
	}
	const depth = canonjson.MaxDepth - 1
	nested := strings.Repeat(`{"b":`, depth) + `"` + strings.Repeat("x", 1<<20) + `"` + strings.Repeat(`,"c":0,"a":0}`, depth)
	want := strings.Repeat(`{"a":0,"b":`, depth) + `"` + strings.Repeat("x", 1<<20) + `"` + strings.Repeat(`,"c":0}`, depth)
	if got, err := canon(nested, nil); got != want || err != nil {
		t.Errorf("nested: got %.50s…, %v", got, err)
	}
}

// Not parallel: other tests would allocate.
func TestNoAllocations(t *testing.T) {
	filter, err := canonjson.NewFilter([]string{"/a", "/items/*/b", "/list/0"}, []string{"/a/x", "/items/*/c"})
	if err != nil {
		t.Fatal(err)
	}
	var members []string
	for k := range 100 {
		members = append(members, fmt.Sprintf(`"customer_%d":"%s"`, k*37%100, strings.Repeat("v", 2*k)))
	}
	large := "{" + strings.Join(members, ",") + "}"
	for what, src := range map[string]string{
		"flat":         `{"currency":"EUR","amount":1250,"capture":true,"note":null,"rate":0.50}`,
		"nested":       ` { "b" : { "d" : [ 1 , { "y" : 1 , "x" : 2 , "z" : 3 } ] , "c" : { } } , "a" : "x" } `,
		"escapes":      `{"b\u0061\n":"\ud83d\ude00\/\n\u4e2d","a\"":"\\","\u00e9":1}`,
		"unicode":      `{"größe":"😀","价格":"中文 текст","\ue000":1,"𐀀":2}`,
		"numbers":      `[1e20,1e20,1e20,1e20,1e20,1e20,1e20,1e20,1e20,1e20,1.5e-300,123456789012345678901234567890,-0.0,12.50]`,
		"many members": large,
		"invalid":      `{"b":1,"a":[1,2}`,
		"duplicate":    `{"b":1,"a":1,"b":2}`,
		"deep":         strings.Repeat("[", 300),
		"exponent":     `1e9999999999999999`,
		"filtered":     `{"items":[{"c":1,"b":2},{"b":3}],"a":{"y":1,"x":2},"list":[1,2,3]}`,
		"large nested": `{"b":` + large + `,"a":` + large + `}`,
	} {
		var enc canonjson.Encoder
		var out []byte
		body := []byte(src)
		if n := testing.AllocsPerRun(20, func() {
			out, _ = enc.Append(out[:0], body, nil)
			out, _ = enc.Append(out[:0], body, filter)
		}); n != 0 {
			t.Errorf("%s: %v allocations, want none once the memory has grown", what, n)
		}
	}
}

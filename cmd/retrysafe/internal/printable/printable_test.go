package printable_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/printable"
	"github.com/retrysafe/retrysafe/internal/test/hammer"
)

// What is shown of a name is that name's alone, and leads back to it.
func FuzzNamed(f *testing.F) {
	for _, text := range []string{"", "tenant-a", " ", `"`, `"a"`, `\`, "\x00", "\xff", "\ufffd", "ü", "\u202e", "-x", "'", "a b"} {
		hammer.Add(f, text)
	}
	hammer.Fuzz(f, func(t *testing.T, text string) {
		shown := printable.Name(text)
		if got := printable.ParseName(shown); got != text {
			t.Errorf("%q is shown as %s, which is %q", text, shown, got)
		}
		for _, c := range shown + printable.Text(text) + printable.Value(text) + printable.Quoted(text) + printable.Cell(printable.Text(text)) {
			if !printable.Is(c) {
				t.Errorf("%q is shown with %U", text, c)
			}
		}
		var b bytes.Buffer
		if err := json.NewEncoder(&b).Encode(text); err != nil {
			t.Fatal(err)
		}
		encoded := printable.JSON(b.Bytes())
		for _, c := range strings.TrimSuffix(string(encoded), "\n") {
			if !printable.Is(c) {
				t.Errorf("%q has %U in JSON", text, c)
			}
		}
		var back string
		if err := json.Unmarshal(encoded, &back); err != nil || utf8.ValidString(text) && back != text {
			t.Errorf("%q becomes %q in JSON, %v", text, back, err)
		}
	})
}

func TestText(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ text, shown, value, quoted, name string }{
		{"", "", "", "", `""`},
		{"tenant-a", "tenant-a", "tenant-a", "tenant-a", "tenant-a"},
		{"a b", "a b", "a b", "a b", `"a b"`},
		{"-a", "-a", "-a", "-a", `"-a"`},
		{"日本é", "日本é", "日本é", "日本é", "日本é"},
		{`a\n"b"`, `a\n"b"`, `a\\n"b"`, `"a\\n\"b\""`, `"a\\n\"b\""`},
		{"a\nb", `a\nb`, `a\nb`, `"a\nb"`, `"a\nb"`},
		{"\x1b[2J\x00\x7f", `\x1b[2J\x00\x7f`, `\x1b[2J\x00\x7f`, `"\x1b[2J\x00\x7f"`, `"\x1b[2J\x00\x7f"`},
		{"\u009b\u202e\u200b\u2028", `\u009b\u202e\u200b\u2028`, `\u009b\u202e\u200b\u2028`, `"\u009b\u202e\u200b\u2028"`, `"\u009b\u202e\u200b\u2028"`},
		{"\xff\ufffd\U000e0001", `\xff\ufffd\U000e0001`, `\xff\ufffd\U000e0001`, `"\xff\ufffd\U000e0001"`, `"\xff\ufffd\U000e0001"`},
	} {
		for i, got := range []string{printable.Text(c.text), printable.Value(c.text), printable.Quoted(c.text), printable.Name(c.text)} {
			if want := []string{c.shown, c.value, c.quoted, c.name}[i]; got != want {
				t.Errorf("%s of %q is %s, want %s", []string{"Text", "Value", "Quoted", "Name"}[i], c.text, got, want)
			}
		}
	}
	if got := printable.Lines("a\r\nb\x07\nc"); got != "a\nb\\a\nc" {
		t.Errorf("Lines = %q", got)
	}
}

func TestCellsAreNoFormulas(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"": "", "-": "-", "a": "a", "=1": "'=1", "+1": "'+1", "-1": "'-1", "@a": "'@a", "\t=1": "'\t=1", "\r=1": "'\r=1", "＝1": "'＝1", "＋1": "'＋1", "－1": "'－1", "＠a": "'＠a",
	} {
		if got := printable.Cell(text); got != want {
			t.Errorf("Cell(%q) = %q, want %q", text, got, want)
		}
	}
}

func TestCut(t *testing.T) {
	t.Parallel()
	for most, want := range map[int]string{0: "…", 1: "…", 2: "ä…", 3: "ä…", 4: "äö", 5: "äö"} {
		if got := printable.Cut("äö", most); got != want {
			t.Errorf("Cut to %d bytes = %q, want %q", most, got, want)
		}
	}
}

func BenchmarkValue(b *testing.B) {
	for b.Loop() {
		printable.Value("/v1/payments/8e03978e-40d5-43dd-bc93-6894a57f9324")
	}
}

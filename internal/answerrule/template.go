package answerrule

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/retrysafe/retrysafe/internal/jsonrule"
)

// A Vocabulary has the places that a template may have.
type Vocabulary struct {
	Names    []string // written {name}
	Pointed  []string // written {name:/pointer}
	Document bool     // {/pointer}: the value of the provider's document
}

// A Place is a place in a template that a value is put into.
type Place struct {
	Text string           // as it is written
	Name string           // empty: the provider's document
	At   jsonrule.Pointer // of {/pointer} and {name:/pointer}
}

// A Template is text with places: Texts[0] Places[0] Texts[1] …
type Template struct {
	Texts  []string
	Places []Place
}

// placePattern matches what looks like a place. Other braces are text, such as those of a
// JSON object.
var placePattern = regexp.MustCompile(`\{([a-z_]*)(:?/[^{}]*|:[^{}]*)?\}`)

// Parse reads a template.
func (v *Vocabulary) Parse(text string) (t Template, err error) {
	at := 0
	for _, m := range placePattern.FindAllStringSubmatchIndex(text, -1) {
		p := Place{Text: text[m[0]:m[1]], Name: text[m[2]:m[3]]}
		pointer, pointed := "", m[4] >= 0
		if pointed {
			pointer = text[m[4]:m[5]]
		}
		if p.Text == "{}" {
			continue // an empty object
		}
		if p.At, err = v.check(&p, pointer, pointed); err != nil {
			return t, err
		}
		t.Texts, t.Places = append(t.Texts, text[at:m[0]]), append(t.Places, p)
		at = m[1]
	}
	t.Texts = append(t.Texts, text[at:])
	for _, rest := range t.Texts {
		if i := strings.Index(rest, "{/"); i >= 0 && v.Document {
			return t, fmt.Errorf("the place %q has no closing brace", rest[i:])
		}
	}
	return t, nil
}

// check returns the pointer of a place, or why there is no such place.
func (v *Vocabulary) check(p *Place, pointer string, pointed bool) (at jsonrule.Pointer, err error) {
	document := p.Name == "" && strings.HasPrefix(pointer, "/")
	switch {
	case document && v.Document:
		return jsonrule.ParsePointer(pointer)
	case slices.Contains(v.Names, p.Name) && pointed:
		return at, fmt.Errorf("%s takes no pointer: write {%s}", p.Text, p.Name)
	case slices.Contains(v.Names, p.Name):
		return at, nil
	case slices.Contains(v.Pointed, p.Name) && !strings.HasPrefix(pointer, ":"):
		return at, fmt.Errorf("%s needs a JSON pointer, as in {%s:/id}", p.Text, p.Name)
	case slices.Contains(v.Pointed, p.Name):
		return jsonrule.ParsePointer(pointer[1:])
	}
	meant := Nearest(p.Name, slices.Concat(v.Names, v.Pointed))
	if meant == "" {
		meant = "; there are " + v.String()
	}
	return at, fmt.Errorf("there is no placeholder %s%s", p.Text, meant)
}

// String lists the places as they are written.
func (v *Vocabulary) String() string {
	var all []string
	for _, name := range v.Names {
		all = append(all, "{"+name+"}")
	}
	for _, name := range v.Pointed {
		all = append(all, "{"+name+":/pointer}")
	}
	if v.Document {
		all = append(all, "{/pointer}")
	}
	return strings.Join(all, " ")
}

// Fill returns the template with values. Escape returns how the value of a place, by its
// number, is made safe. If a value is missing, or cannot stand in its place, lacks is that
// place.
func (t *Template) Fill(value func(*Place) (string, bool), escape func(i int) Escape) (text, lacks string) {
	var b strings.Builder
	b.WriteString(t.Texts[0])
	for i := range t.Places {
		v, ok := value(&t.Places[i])
		if ok {
			v, ok = escape(i)(v)
		}
		if !ok {
			return "", t.Places[i].Text
		}
		b.WriteString(v)
		b.WriteString(t.Texts[i+1])
	}
	return b.String(), ""
}

// An Escape makes a value safe for the place that it stands in. It is false for a value
// that cannot stand there.
type Escape func(value string) (string, bool)

// Always is for a template whose places are all alike.
func Always(e Escape) func(int) Escape { return func(int) Escape { return e } }

// InJSON is for a place between the quotes of a JSON string, or for a number.
func InJSON(v string) (string, bool) {
	if !utf8.ValidString(v) {
		return "", false
	}
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return "", false
	}
	text := strings.TrimSuffix(b.String(), "\n")
	return text[1 : len(text)-1], true
}

// InText is for plain text and for the value of a header.
func InText(v string) (string, bool) {
	if !utf8.ValidString(v) || strings.ContainsFunc(v, func(r rune) bool { return r < ' ' || r == 0x7f }) {
		return "", false
	}
	return v, true
}

// Nearest returns "; did you mean {x}?" for the name that differs little from what was
// written, or nothing.
func Nearest(written string, known []string) string {
	best, least := "", 3
	for _, name := range known {
		if d := distance(written, name); d < least {
			best, least = name, d
		}
	}
	if best == "" {
		return ""
	}
	return "; did you mean {" + best + "}?"
}

// distance counts the letters to insert, remove or replace to get from a to b.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		before := row[0]
		row[0] = i + 1
		for j := range len(b) {
			differs := 1
			if a[i] == b[j] {
				differs = 0
			}
			before, row[j+1] = row[j+1], min(row[j+1]+1, row[j]+1, before+differs)
		}
	}
	return row[len(b)]
}

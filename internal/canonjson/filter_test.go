package canonjson_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/retrysafe/retrysafe/internal/canonjson"
)

func ExampleNewFilter() {
	filter, err := canonjson.NewFilter(nil, []string{"/sent_at", "/items/*/trace"})
	if err != nil {
		fmt.Println(err)
		return
	}
	var enc canonjson.Encoder
	out, err := enc.Append(nil, []byte(`{"sent_at":"10:00","items":[{"trace":7,"sku":"A"}],"amount":5}`), filter)
	fmt.Printf("%s %v\n", out, err)
	// Output: {"amount":5,"items":[{"sku":"A"}]} <nil>
}

func TestFilter(t *testing.T) {
	t.Parallel()
	list := strings.Fields
	for _, c := range []struct{ rule, include, exclude, src, want string }{
		{"without pointers everything is kept", "", "", `{"b":1,"a":[2]}`, `{"a":[2],"b":1}`},
		{"what is included is kept", "/a /c", "", `{"c":3,"b":2,"a":1}`, `{"a":1,"c":3}`},
		{"it is kept whole", "/a", "", `{"b":2,"a":{"y":[1,{"z":1}],"x":"}"}}`, `{"a":{"x":"}","y":[1,{"z":1}]}}`},
		{"so are the containers on the way", "/a/b", "", `{"a":{"b":1,"c":2},"d":3}`, `{"a":{"b":1}}`},
		{"even empty ones", "/a/b", "", `{"a":{"c":2},"d":3}`, `{"a":{}}`},
		{"but not scalars on the way", "/a/b", "", `{"a":5}`, `{}`},
		{"what is excluded goes", "", "/b", `{"c":3,"b":{"x":1},"a":1}`, `{"a":1,"c":3}`},
		{"the first, the last and the only member may go", "", "/a /c /d/x", `{"a":1,"b":2,"c":3,"d":{"x":1}}`, `{"b":2,"d":{}}`},
		{"exclusion wins", "/a /b", "/a/x /b", `{"a":{"x":1,"y":2},"b":1}`, `{"a":{"y":2}}`},
		{"exclusion wins above inclusion", "/a/b", "/a", `{"a":{"b":1}}`, `{}`},
		{"inclusion of everything", "/a/b /", "", `{"":1,"a":{"b":2,"c":3}}`, `{"":1,"a":{"b":2}}`},
		{"a pointer to nothing does no harm", "", "/x /a/x /a/0/y", `{"a":1}`, `{"a":1}`},
		{"* stands for every member", "", "/*/x", `{"a":{"x":1,"y":2},"b":{"x":3},"x":4}`, `{"a":{"y":2},"b":{},"x":4}`},
		{"* stands for every element", "/items/*/sku", "", `{"items":[{"sku":1,"q":2},{"q":3},{"sku":4}]}`, `{"items":[{"sku":1},{},{"sku":4}]}`},
		{"a name and * may both lead on", "/a/x /*/y", "", `{"a":{"x":1,"y":2,"z":3},"b":{"x":1,"y":2}}`, `{"a":{"x":1,"y":2},"b":{"y":2}}`},
		{"excluding all elements leaves an empty array", "", "/items/*", `{"items":[1,[2],{"a":3}],"n":3}`, `{"items":[],"n":3}`},
		{"an excluded element leaves null", "", "/a/0", `{"a":[1,2,3]}`, `{"a":[null,2,3]}`},
		{"so does one that is not included", "/a/1", "", `{"a":[1,2,3]}`, `{"a":[null,2]}`},
		{"behind the last element kept nothing is left", "", "/a/1 /a/2", `{"a":[1,2,3]}`, `{"a":[1]}`},
		{"a scalar where a container is on the way leaves null", "/a/*/x", "", `{"a":[1,{"x":2},3]}`, `{"a":[null,{"x":2}]}`},
		{"indexes have no zeros in front", "", "/a/00 /a/- /a/1x", `{"a":[1,2,3]}`, `{"a":[1,2,3]}`},
		{"an index is also a name", "", "/0", `{"0":1,"1":2}`, `{"1":2}`},
		{"large indexes count", "", "/10", `[0,1,2,3,4,5,6,7,8,9,10,11]`, `[0,1,2,3,4,5,6,7,8,9,null,11]`},
		{"~1 is a slash and ~0 a tilde", "", "/a~1b /m~0n /~01", `{"a/b":1,"m~n":2,"~1":3,"k":4}`, `{"k":4}`},
		{"names are compared as characters", "", "/é /q\"u /t\tb /b\\s", `{"\u00e9":1,"q\"u":2,"t\tb":3,"b\\s":4,"k":5}`, `{"k":5}`},
		{"a scalar document is kept", "/a", "/b", ` "x" `, `"x"`},
		{"an array without what is included is empty", "/a", "", `[1,{"a":1}]`, `[]`},
		{"arrays in arrays", "", "/*/1", `[[1,2,3],[4,5],6]`, `[[1,null,3],[4],6]`},
	} {
		fields := list
		if strings.Contains(c.exclude, "\t") {
			fields = func(s string) []string { return strings.FieldsFunc(s, func(r rune) bool { return r == ' ' }) }
		}
		f, err := canonjson.NewFilter(fields(c.include), fields(c.exclude))
		if err != nil {
			t.Errorf("%s: %v", c.rule, err)
			continue
		}
		if got, err := canon(c.src, f); got != c.want || err != nil {
			t.Errorf("%s: include %s, exclude %s: %s\n got %s, %v\nwant %s", c.rule, c.include, c.exclude, c.src, got, err, c.want)
		}
	}
	if f, err := canonjson.NewFilter([]string{""}, nil); err != nil {
		t.Error(err)
	} else if got, err := canon(`{"a":[1]}`, f); got != `{"a":[1]}` || err != nil {
		t.Errorf("the empty pointer includes everything: got %s, %v", got, err)
	}
	if got, err := canon(`{"a":1}`, new(canonjson.Filter)); got != `{"a":1}` || err != nil {
		t.Errorf("the zero Filter keeps everything: got %s, %v", got, err)
	}
}

func TestFilterStillValidates(t *testing.T) {
	t.Parallel()
	f, err := canonjson.NewFilter(nil, []string{"/x"})
	if err != nil {
		t.Fatal(err)
	}
	for src, want := range map[string]error{
		`{"x":{"a":1,"a":2}}`:      canonjson.ErrDuplicateName,
		`{"x":1,"x":2}`:            canonjson.ErrDuplicateName,
		`{"x":01}`:                 canonjson.ErrInvalid,
		"{\"x\":\"\xff\"}":         canonjson.ErrInvalid,
		`{"x":1e9999999999999999}`: canonjson.ErrNumber,
		`{"x":` + strings.Repeat("[", canonjson.MaxDepth) + strings.Repeat("]", canonjson.MaxDepth) + `}`: canonjson.ErrDepth,
	} {
		if got, err := canon(src, f); !errors.Is(err, want) || got != "" {
			t.Errorf("%.50q: got %s, %v, want %v", src, got, err, want)
		}
	}
}

func TestInvalidPointers(t *testing.T) {
	t.Parallel()
	for _, p := range []string{"a", "a/b", " /a", "#/a", "/a~", "/~2", "/~~0", "/a/~", "/\xff", strings.Repeat("/a", canonjson.MaxDepth+1)} {
		if _, err := canonjson.NewFilter([]string{p}, nil); err == nil {
			t.Errorf("include %.20q: got no error", p)
		}
		if _, err := canonjson.NewFilter(nil, []string{"/ok", p}); err == nil {
			t.Errorf("exclude %.20q: got no error", p)
		}
	}
	if _, err := canonjson.NewFilter(nil, []string{""}); err == nil {
		t.Error("excluding the whole document: got no error")
	}
}

func TestFilterIsShared(t *testing.T) {
	t.Parallel()
	f, err := canonjson.NewFilter([]string{"/a/*/b", "/c"}, []string{"/a/0"})
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 100 {
				if got, err := canon(`{"a":[{"b":0},{"b":1,"x":2}],"c":3,"d":4}`, f); got != `{"a":[null,{"b":1}],"c":3}` || err != nil {
					t.Errorf("got %s, %v", got, err)
				}
			}
		})
	}
	wg.Wait()
}

// Any filter on any document does what the rules say, written down below once more without regard to speed.
func TestFilterProperty(t *testing.T) {
	t.Parallel()
	g := &generator{rand.New(rand.NewPCG(3, 4)), []string{"a", "b", "0", "1", "*", "a\nb"}}
	for range some(10_000) {
		doc := g.value(0)
		include, exclude := g.pointers(), g.pointers()
		f, err := canonjson.NewFilter(include, exclude)
		if err != nil {
			t.Fatal(err)
		}
		want, err := write(selectTree(doc, nil, include, exclude))
		if err != nil {
			t.Fatal(err)
		}
		src := g.render(doc)
		if got, err := canon(src, f); got != want || err != nil {
			t.Fatalf("include %q, exclude %q: %s\n got %s, %v\nwant %s", include, exclude, src, got, err, want)
		}
	}
}

func (g *generator) pointers() []string {
	var list []string
	for range g.IntN(4) {
		p := ""
		for range 1 + g.IntN(3) {
			p += "/" + g.names[g.IntN(len(g.names))]
		}
		list = append(list, p)
	}
	return list
}

type removed struct{}

func selectTree(v any, path, include, exclude []string) any {
	matches := func(pointer string, prefix bool) bool {
		tokens := strings.Split(pointer, "/")[1:]
		if len(tokens) < len(path) || len(tokens) > len(path) && !prefix {
			return false
		}
		for k, name := range path {
			if tokens[k] != "*" && tokens[k] != name {
				return false
			}
		}
		return true
	}
	named := func(pointers []string) bool {
		return slices.ContainsFunc(pointers, func(p string) bool { return matches(p, false) })
	}
	root := len(path) == 0
	if named(exclude) && !root {
		return removed{}
	}
	if named(include) {
		include = nil
	}
	all := len(include) == 0
	onWay := slices.ContainsFunc(include, func(p string) bool { return matches(p, true) })
	step := func(name string) []string { return append(slices.Clone(path), name) }
	switch v := v.(type) {
	case object:
		if !all && !onWay && !root {
			return removed{}
		}
		kept := object{}
		for _, m := range v {
			if r := selectTree(m.value, step(m.name), include, exclude); r != any(removed{}) {
				kept = append(kept, member{m.name, r})
			}
		}
		return &kept
	case []any:
		if !all && !onWay && !root {
			return removed{}
		}
		kept, last := []any{}, 0
		for k, e := range v {
			r := selectTree(e, step(strconv.Itoa(k)), include, exclude)
			if r == any(removed{}) {
				r = nil
			} else {
				last = k + 1
			}
			kept = append(kept, r)
		}
		kept = kept[:last]
		return &kept
	case json.Number, string, bool, nil:
		if !all && !root {
			return removed{}
		}
	}
	return v
}

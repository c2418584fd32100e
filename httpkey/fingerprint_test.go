package httpkey_test

import (
	"bytes"
	"fmt"
	"mime/multipart"
	"net/http"
	"net/textproto"
	"strings"
	"testing"
)

// form is a request in a table: what a retry is compared by.
type form struct {
	method, target, contentType, body string
	header                            map[string]string
}

func (f form) apply(r *http.Request) {
	if f.method != "" {
		r.Method = f.method
	}
	if f.target != "" {
		to(f.target)(r)
	}
	if f.contentType != "" {
		r.Header.Set("Content-Type", f.contentType)
	}
	for name, value := range f.header {
		r.Header.Set(name, value)
	}
}

// isSame sends both under one key: the second is either a replay or a mismatch.
func isSame(t *testing.T, a, z form, change ...func(*config)) bool {
	t.Helper()
	b := setup(t, change...)
	b.post(t, key, a.body, a.apply).ran(t, 1, false)
	got := b.post(t, key, z.body, z.apply)
	if got.status == 422 {
		got.refused(t, 422, "key-reused")
		b.ranTimes(t, 1)
		return false
	}
	got.ran(t, 1, true)
	return true
}

func asJSON(body string) form { return form{body: body} }

func TestW10_QueryPathMethodAndTypeCount(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		a, z form
		same bool
	}{
		"query order":              {form{target: "/p?a=1&b=2"}, form{target: "/p?b=2&a=1"}, true},
		"query escapes":            {form{target: "/p?a=x%20y"}, form{target: "/p?a=x+y"}, true},
		"order of one name":        {form{target: "/p?a=1&a=2"}, form{target: "/p?a=2&a=1"}, false},
		"query value":              {form{target: "/p?a=1"}, form{target: "/p?a=2"}, false},
		"query there or not":       {form{target: "/p?a=1"}, form{target: "/p"}, false},
		"empty query":              {form{target: "/p?"}, form{target: "/p"}, true},
		"name without a value":     {form{target: "/p?a"}, form{target: "/p?a="}, true},
		"query that cannot parse":  {form{target: "/p?a=1;b=2"}, form{target: "/p?a=1;b=2"}, true},
		"different, cannot parse":  {form{target: "/p?a=1;b=2"}, form{target: "/p?b=2;a=1"}, false},
		"border of name and value": {form{target: "/p?ab=c"}, form{target: "/p?a=bc"}, false},
		"path":                     {form{target: "/p/1"}, form{target: "/p/2"}, false},
		"slash in a segment":       {form{target: "/p/a%2Fb"}, form{target: "/p/a/b"}, false},
		"border of path and query": {form{target: "/p%3Fa=1"}, form{target: "/p?a=1"}, false},
		"method":                   {form{method: "POST"}, form{method: "PATCH"}, false},
		"type's parameter":         {form{contentType: "application/json"}, form{contentType: "application/json; charset=utf-8"}, true},
		"type's case":              {form{contentType: "application/json"}, form{contentType: "Application/JSON"}, true},
		"type":                     {form{contentType: "application/json"}, form{contentType: "text/plain"}, false},
		"unlisted header":          {form{header: map[string]string{"Prefer": "a"}}, form{header: map[string]string{"Prefer": "b"}}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c.a.body, c.z.body = `{"n":1}`, `{"n":1}`
			if got := isSame(t, c.a, c.z); got != c.same {
				t.Errorf("same is %v, want %v", got, c.same)
			}
		})
	}
}

func TestW10_ListedHeadersCount(t *testing.T) {
	t.Parallel()
	listed := func(c *config) { c.FingerprintHeaders = []string{"prefer", "API-Version"} }
	v := func(version, prefer string) form {
		return form{body: "{}", header: map[string]string{"Api-Version": version, "Prefer": prefer}}
	}
	if !isSame(t, v("1", "x"), v("1", "x"), listed) {
		t.Error("equal headers are a mismatch")
	}
	if isSame(t, v("1", "x"), v("2", "x"), listed) || isSame(t, v("1", "x"), v("1", "y"), listed) ||
		isSame(t, v("1", "x"), asJSON("{}"), listed) || isSame(t, v("x", "1"), v("1", "x"), listed) {
		t.Error("different headers are the same request")
	}
}

// What is equal is listed here; everything else is different, also where some
// parser would read the same.
func TestW11_JSONIsComparedByWhatItSays(t *testing.T) {
	t.Parallel()
	deep := strings.Repeat("[", 100_000) + strings.Repeat("]", 100_000)
	for name, c := range map[string]struct {
		a, z string
		same bool
	}{
		"member order":           {`{"b":1,"a":2}`, `{ "a":2.0, "b":1 }`, true},
		"nested order":           {`{"x":[{"b":1,"a":2}]}`, `{"x":[{"a":2,"b":1}]}`, true},
		"array order":            {`[1,2]`, `[2,1]`, false},
		"beyond 2^53":            {`{"id":9007199254740993}`, `{"id":9007199254740992}`, false},
		"long fractions":         {`0.1000000000000000055511151231257827`, `0.1`, false},
		"trailing zero":          {`{"n":1.10}`, `{"n":1.1}`, true},
		"exponent":               {`1e2`, `100`, true},
		"capital exponent":       {`1E+2`, `1e2`, true},
		"huge exponents":         {`1e400`, `1e401`, false},
		"huge exponent":          {`1e400`, `10e399`, true},
		"exponent out of range":  {`1e99999999999999999999`, `1e99999999999999999999`, true},
		"exponents out of range": {`1e99999999999999999999`, `1e99999999999999999998`, false},
		"minus zero":             {`-0`, `0`, true},
		"number and text":        {`{"n":1}`, `{"n":"1"}`, false},
		"null and absent":        {`{"a":null}`, `{}`, false},
		"escapes":                {`"\u0041\/"`, `"A/"`, true},
		"surrogate pair":         {`"\ud83d\ude00"`, `"😀"`, true},
		"lone surrogates":        {`"\ud800"`, `"\ud801"`, false},
		"lone surrogate":         {`"\ud800"`, `"\ud800"`, true},
		"NFC and NFD":            {`"é"`, "\"e\u0301\"", false},
		"case of names":          {`{"amount":1}`, `{"AMOUNT":1}`, false},
		"duplicate names":        {`{"a":1,"a":2}`, `{"a":2,"a":1}`, false},
		"equal duplicates":       {`{"a":1,"a":2}`, `{"a":1,"a":2}`, true},
		"duplicate or single":    {`{"a":1,"a":1}`, `{"a":1}`, false},
		"escaped duplicate":      {`{"a":1,"\u0061":2}`, `{"a":2}`, false},
		"byte order mark":        {"\ufeff{}", `{}`, false},
		"trailing data":          {`{} {}`, `{}`, false},
		"invalid UTF-8":          {"\"\xff\"", "\"\xfe\"", false},
		"not JSON at all":        {`a=1`, `a=1`, true},
		"too deep":               {deep, deep, true},
		"too deep, different":    {deep, deep + " ", false},
		"empty":                  {``, ``, true},
		"empty and blank":        {``, ` `, false},
		"tag is no content":      {`{}`, "j{}", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := isSame(t, asJSON(c.a), asJSON(c.z)); got != c.same {
				t.Errorf("same is %v, want %v", got, c.same)
			}
		})
	}
}

func TestStructuredSuffixIsJSON(t *testing.T) {
	t.Parallel()
	for _, contentType := range []string{"application/merge-patch+json", "application/vnd.api+JSON"} {
		if !isSame(t, form{contentType: contentType, body: `{"b":1,"a":2}`}, form{contentType: contentType, body: `{"a":2,"b":1}`}) {
			t.Errorf("%s is not read as JSON", contentType)
		}
	}
	for _, contentType := range []string{"+json", "text/plain", "application/jsonl", ""} {
		if isSame(t, form{contentType: contentType, body: `[1,  2]`, header: map[string]string{"Content-Type": contentType}},
			form{contentType: contentType, body: `[1,2]`, header: map[string]string{"Content-Type": contentType}}) {
			t.Errorf("%q is read as JSON", contentType)
		}
	}
}

func TestFormsAreComparedByField(t *testing.T) {
	t.Parallel()
	const urlencoded = "application/x-www-form-urlencoded"
	same := func(a, z string, change ...func(*config)) bool {
		return isSame(t, form{contentType: urlencoded, body: a}, form{contentType: urlencoded + "; charset=utf-8", body: z}, change...)
	}
	if !same("a=1&b=2", "b=2&a=1") || !same("a=x+y", "a=x%20y") || !same("", "") {
		t.Error("equal forms are a mismatch")
	}
	if same("a=1&a=2", "a=2&a=1") || same("a=1", "a=2") || same("a=1", "a=1&b=") || same("a=%zz", "a=%zy") || same("a;b", "b;a") {
		t.Error("different forms are the same request")
	}
	exclude := func(c *config) { c.Exclude = []string{"/trace", "/a~1b", "/deep/er"} }
	if !same("a=1&trace=x", "trace=y&a=1", exclude) || !same("a/b=1", "a/b=2", exclude) || same("deep=1", "deep=2", exclude) {
		t.Error("Exclude does not choose fields of forms")
	}
	include := func(c *config) { c.Include = []string{"/amount"} }
	if !same("amount=1&x=1", "x=2&amount=1", include) || same("amount=1", "amount=2", include) {
		t.Error("Include does not choose fields of forms")
	}
	// A choice that names no field of a form is none: otherwise all would be equal.
	for _, pointers := range [][]string{{}, {""}, {"/items/*/sku"}} {
		if same("amount=1", "amount=2", func(c *config) { c.Include = pointers }) {
			t.Errorf("with Include %q different forms are the same request", pointers)
		}
	}
}

func TestIncludeAndExcludeChooseJSONFields(t *testing.T) {
	t.Parallel()
	exclude := func(c *config) { c.Exclude = []string{"/sent_at", "/items/*/note"} }
	if !isSame(t, asJSON(`{"n":1,"sent_at":1}`), asJSON(`{"sent_at":2,"n":1}`), exclude) ||
		!isSame(t, asJSON(`{"items":[{"sku":1,"note":"a"}]}`), asJSON(`{"items":[{"sku":1,"note":"b"}]}`), exclude) {
		t.Error("an excluded field counts")
	}
	if isSame(t, asJSON(`{"n":1,"sent_at":1}`), asJSON(`{"n":2,"sent_at":1}`), exclude) ||
		isSame(t, asJSON(`{"items":[{"sku":1,"note":"a"}]}`), asJSON(`{"items":[{"sku":2,"note":"a"}]}`), exclude) {
		t.Error("a field that is not excluded does not count")
	}
	include := func(c *config) { c.Include = []string{"/amount", "/items/*/sku"} }
	if !isSame(t, asJSON(`{"amount":1,"x":1}`), asJSON(`{"amount":1.0,"x":2}`), include) {
		t.Error("a field that is not included counts")
	}
	if isSame(t, asJSON(`{"amount":1}`), asJSON(`{"amount":2}`), include) ||
		isSame(t, asJSON(`{"items":[{"sku":1}]}`), asJSON(`{"items":[{"sku":2}]}`), include) {
		t.Error("an included field does not count")
	}
	if isSame(t, asJSON(`not JSON 1`), asJSON(`not JSON 2`), include) {
		t.Error("a body that cannot be filtered does not count whole")
	}
}

// parts is a multipart body under a boundary.
func parts(t *testing.T, boundary string, fields ...string) form {
	t.Helper()
	var b bytes.Buffer
	w := multipart.NewWriter(&b)
	must(t, w.SetBoundary(boundary))
	for _, f := range fields {
		name, value, _ := strings.Cut(f, "=")
		p, err := w.CreatePart(textproto.MIMEHeader{"Content-Disposition": {fmt.Sprintf("form-data; name=%q", name)}})
		must(t, err)
		fmt.Fprint(p, value)
	}
	must(t, w.Close())
	return form{contentType: w.FormDataContentType(), body: b.String()}
}

func TestMultipartIsComparedByPart(t *testing.T) {
	t.Parallel()
	if !isSame(t, parts(t, "one", "a=1", "b=2"), parts(t, "two", "a=1", "b=2")) {
		t.Error("the boundary counts")
	}
	for name, z := range map[string]form{
		"value": parts(t, "two", "a=1", "b=3"), "name": parts(t, "two", "a=1", "c=2"), "order": parts(t, "two", "b=2", "a=1"),
		"fewer": parts(t, "two", "a=1"), "more": parts(t, "two", "a=1", "b=2", "c=3"), "joined": parts(t, "two", "a=1b=2"),
	} {
		if isSame(t, parts(t, "one", "a=1", "b=2"), z) {
			t.Errorf("a different %s is the same request", name)
		}
	}
}

// A body that is not what its type says counts byte by byte: whatever reads it
// more kindly than we do may find something else in it.
func TestBrokenMultipartCountsAsItIs(t *testing.T) {
	t.Parallel()
	const contentType = "multipart/form-data; boundary=x"
	whole := "--x\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\n1\r\n--x--\r\n"
	for name, pair := range map[string][2]string{
		"no boundary in it":    {"amount=1", "amount=2"},
		"cut in a header":      {"--x\r\nA: 1", "--x\r\nA: 2"},
		"cut in a part":        {"--x\r\nA: 1\r\n\r\n1", "--x\r\nA: 1\r\n\r\n2"},
		"cut after a part":     {"--x\r\nA: 1\r\n\r\n1\r\n--x\r\n", "--x\r\nA: 1\r\n\r\n1\r\n--x\r\nB"},
		"before the parts":     {"amount=1\r\n" + whole, "amount=2\r\n" + whole},
		"before no parts":      {"amount=1\r\n--x--", "amount=2\r\n--x--"},
		"end inside a header":  {"--x\r\nA: 1--x--", "--x\r\nA: 2--x--"},
		"behind the parts":     {whole + "amount=1", whole + "amount=2"},
		"no boundary declared": {"amount=1", "amount=2"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			typ := contentType
			if name == "no boundary declared" {
				typ = "multipart/form-data"
			}
			if isSame(t, form{contentType: typ, body: pair[0]}, form{contentType: typ, body: pair[1]}) {
				t.Error("different bodies are the same request")
			}
			if !isSame(t, form{contentType: typ, body: pair[0]}, form{contentType: typ, body: pair[0]}) {
				t.Error("the same bytes are a mismatch")
			}
		})
	}
	if !isSame(t, form{contentType: contentType, body: "--x--"}, form{contentType: "multipart/form-data; boundary=y", body: "--y--"}) {
		t.Error("a form without parts is another one under another boundary")
	}
	if !isSame(t, form{contentType: contentType, body: whole}, form{contentType: contentType, body: strings.TrimRight(whole, "\r\n")}) {
		t.Error("the last line end counts")
	}
}

func TestOtherBodiesCountByteByByte(t *testing.T) {
	t.Parallel()
	binary := "\x00\xff\x01"
	if !isSame(t, form{contentType: "application/octet-stream", body: binary}, form{contentType: "application/octet-stream", body: binary}) {
		t.Error("the same bytes are a mismatch")
	}
	if isSame(t, form{contentType: "application/octet-stream", body: binary}, form{contentType: "application/octet-stream", body: binary + "\x00"}) {
		t.Error("different bytes are the same request")
	}
}

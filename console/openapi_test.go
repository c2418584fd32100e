package console_test

import (
	"encoding/json"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
)

var specified = sync.OnceValues(func() (*openapi3.T, error) {
	return openapi3.NewLoader().LoadFromFile("../docs/openapi/admin.yaml")
})

// The document is one of OpenAPI. Every answer in the tests of this package is compared
// with it.
func TestOpenAPIIsValid(t *testing.T) {
	t.Parallel()
	d, err := specified()
	must(t, err)
	must(t, d.Validate(t.Context()))
	if err := d.Components.Schemas["Person"].Value.VisitJSON(map[string]any{"name": "anna"}); err == nil {
		t.Error("a person without a role is what the document says: answers are not compared")
	}
}

// checkAnswer fails the test unless an answer is one that the document has for the request.
func checkAnswer(t *testing.T, method, path string, a *answer) {
	t.Helper()
	d, err := specified()
	must(t, err)
	path, _, _ = strings.Cut(path, "?")
	var operation *openapi3.Operation
	for template, item := range d.Paths.Map() {
		if matches(template, path) && item.GetOperation(method) != nil {
			operation = item.GetOperation(method)
		}
	}
	if operation == nil { // a path or method that there is not
		if a.status != 404 && a.status != 405 && a.status != 401 {
			t.Errorf("%s %s is not documented and got %d", method, path, a.status)
		}
		return
	}
	response := operation.Responses.Value(strconv.Itoa(a.status))
	if response == nil {
		t.Errorf("%s %s got %d, which is not documented: %s", method, path, a.status, a.text)
		return
	}
	kind, _, _ := strings.Cut(a.header.Get("Content-Type"), ";")
	media := response.Value.Content[kind]
	if media == nil {
		t.Errorf("%s %s: %d has the type %q, which is not documented", method, path, a.status, kind)
		return
	}
	var body any
	must(t, json.Unmarshal([]byte(a.text), &body))
	if err := media.Schema.Value.VisitJSON(body); err != nil {
		t.Errorf("%s %s: %d is not what the document says: %v\n%s", method, path, a.status, err, a.text)
	}
}

func matches(template, path string) bool {
	want, got := strings.Split(template, "/"), strings.Split(path, "/")
	if len(want) != len(got) {
		return false
	}
	for i := range want {
		if want[i] != got[i] && !strings.HasPrefix(want[i], "{") {
			return false
		}
	}
	return true
}

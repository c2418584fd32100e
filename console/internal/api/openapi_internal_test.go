package api

import (
	"encoding/json"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/retrysafe/retrysafe/console/internal/access"
	"github.com/retrysafe/retrysafe/internal/adminwire"
	"github.com/retrysafe/retrysafe/operator"
)

// A document is what the test reads of docs/openapi/admin.yaml.
type document struct {
	Paths      map[string]map[string]yaml.Node `yaml:"paths"`
	Components struct {
		Schemas    map[string]schemaNode `yaml:"schemas"`
		Parameters map[string]struct {
			Name, In string
		} `yaml:"parameters"`
		Responses map[string]yaml.Node `yaml:"responses"`
	} `yaml:"components"`
}

type schemaNode struct {
	Type       string                `yaml:"type"`
	Ref        string                `yaml:"$ref"`
	Required   []string              `yaml:"required"`
	Properties map[string]schemaNode `yaml:"properties"`
	Items      *schemaNode           `yaml:"items"`
}

type operation struct {
	Role       string              `yaml:"x-role"`
	Parameters []map[string]string `yaml:"parameters"`
	Body       *content            `yaml:"requestBody"`
	Responses  map[string]content  `yaml:"responses"`
}

type content struct {
	Ref     string `yaml:"$ref"`
	Content map[string]struct {
		Schema schemaNode `yaml:"schema"`
	} `yaml:"content"`
}

func readDocument(t *testing.T) *document {
	t.Helper()
	text, err := os.ReadFile("../../../docs/openapi/admin.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var d document
	if err := yaml.Unmarshal(text, &d); err != nil {
		t.Fatal(err)
	}
	return &d
}

// Each route of the handler is in the document with its role, and nothing else is.
func TestOpenAPIHasTheRoutes(t *testing.T) {
	t.Parallel()
	d := readDocument(t)
	left := map[string]operation{}
	for path, methods := range d.Paths {
		for method, node := range methods {
			if method == "parameters" {
				continue
			}
			var o operation
			if err := node.Decode(&o); err != nil {
				t.Fatalf("%s %s: %v", method, path, err)
			}
			left[strings.ToUpper(method)+" "+path] = o
		}
	}
	for _, rt := range routes {
		name, role := rt.method+" "+rt.path, "read"
		if rt.role == access.RoleAct {
			role = "act"
		}
		o, ok := left[name]
		delete(left, name)
		switch {
		case !ok:
			t.Errorf("%s is not in the document", name)
		case o.Role != role:
			t.Errorf("%s: the document has the role %q, and the handler %q", name, o.Role, role)
		case rt.method == "POST" != (o.Body != nil):
			t.Errorf("%s: a body is documented: %t", name, o.Body != nil)
		}
		for _, status := range []string{"401", "403", "429", "503"} {
			if o.Responses[status].Ref == "" {
				t.Errorf("%s: the answer %s is not documented", name, status)
			}
		}
	}
	for name := range left {
		t.Errorf("%s is in the document only", name)
	}
}

// Every reference in the document leads somewhere.
func TestOpenAPIReferences(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../../docs/openapi/admin.yaml")
	if err != nil {
		t.Fatal(err)
	}
	d := readDocument(t)
	used := map[string]bool{}
	for _, part := range strings.Split(string(text), `"#/components/`)[1:] {
		name, _, _ := strings.Cut(part, `"`)
		used[name] = true
		kind, name, _ := strings.Cut(name, "/")
		_, schema := d.Components.Schemas[name]
		_, parameter := d.Components.Parameters[name]
		_, response := d.Components.Responses[name]
		if kind == "schemas" && !schema || kind == "parameters" && !parameter || kind == "responses" && !response {
			t.Errorf("there is no %s/%s", kind, name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(d.Components.Schemas)) {
		if !used["schemas/"+name] {
			t.Errorf("the schema %s is not used", name)
		}
	}
}

// The schemas have the fields of the Go types that the handler writes and reads.
func TestOpenAPIHasTheFields(t *testing.T) {
	t.Parallel()
	d := readDocument(t)
	var status adminwire.Status
	for name, v := range map[string]any{
		"Key": adminwire.Key{}, "Record": adminwire.Record{}, "Answer": adminwire.Answer{}, "Progress": adminwire.Progress{}, "Step": adminwire.Step{}, "Note": adminwire.Note{},
		"Person": adminwire.Person{}, "Page": adminwire.Page{}, "Group": adminwire.Group{}, "Groups": adminwire.Groups{}, "Audit": adminwire.Audit{}, "Entry": operator.Entry{},
		"Action": adminwire.Action{}, "GivenAnswer": adminwire.GivenAnswer{}, "Outcome": adminwire.Outcome{}, "Filter": adminwire.Filter{}, "BatchRequest": adminwire.BatchRequest{},
		"Selection": adminwire.Selection{}, "QuarantineRequest": adminwire.QuarantineRequest{}, "Job": adminwire.Job{}, "BatchReport": operator.BatchReport{}, "Duties": adminwire.Duties{},
		"Pass": adminwire.Pass{}, "Status": status, "StoreStatus": status.Store, "Message": adminwire.Message{}, "Messages": adminwire.Messages{}, "Receipt": adminwire.Receipt{},
		"Receipts": adminwire.Receipts{}, "Depth": adminwire.Depth{}, "Problem": adminwire.Problem{},
	} {
		got := d.Components.Schemas[name].Properties
		want := map[string]reflect.Type{}
		fieldsOf(reflect.TypeOf(v), want)
		for field, kind := range want {
			s, ok := got[field]
			switch {
			case !ok:
				t.Errorf("%s: the schema has no %s", name, field)
			case s.Ref == "" && s.Type != jsonType(kind):
				t.Errorf("%s.%s: the schema says %q, and the type is %v", name, field, s.Type, kind)
			}
		}
		for field := range got {
			if want[field] == nil {
				t.Errorf("%s: the type has no %s", name, field)
			}
		}
	}
	for name, v := range map[string]any{ // they write their own JSON
		"Snapshot": operator.Snapshot{}, "Report": operator.Report{},
	} {
		text, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		var got map[string]any
		if err := json.Unmarshal(text, &got); err != nil {
			t.Fatal(err)
		}
		for field := range got {
			if _, ok := d.Components.Schemas[name].Properties[field]; !ok {
				t.Errorf("%s: the schema has no %s", name, field)
			}
		}
	}
}

// fieldsOf collects the members of a type's JSON.
func fieldsOf(of reflect.Type, all map[string]reflect.Type) {
	for i := range of.NumField() {
		f := of.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case f.Anonymous:
			fieldsOf(f.Type, all)
		case f.IsExported() && name != "-" && name != "":
			all[name] = f.Type
		}
	}
}

func jsonType(of reflect.Type) string {
	if of.Kind() == reflect.Pointer {
		of = of.Elem()
	}
	switch {
	case of == reflect.TypeFor[time.Time](), of == reflect.TypeFor[[]byte](), of.Kind() == reflect.String:
		return "string"
	case of.Kind() == reflect.Bool:
		return "boolean"
	case of.Kind() == reflect.Float64:
		return "number"
	case of.Kind() == reflect.Slice:
		return "array"
	case of.Kind() == reflect.Map, of.Kind() == reflect.Struct:
		return "object"
	default:
		return "integer"
	}
}

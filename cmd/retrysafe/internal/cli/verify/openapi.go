package verify

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/getkin/kin-openapi/openapi3"
	"go.yaml.in/yaml/v3"

	"github.com/retrysafe/retrysafe/conform"
)

// readOpenAPI takes the state-changing operations of an OpenAPI file. If no operation was
// named, the first one whose path has no parameters is the one that is verified in full.
func (o *options) readOpenAPI() error {
	data, err := readFile(nil, o.openapi)
	if err != nil {
		return err
	}
	var anything yaml.Node
	if err := yaml.Unmarshal(data, &anything); err != nil { // JSON is YAML too
		return fmt.Errorf("it is neither YAML nor JSON: %s", firstLine(err))
	}
	doc, err := openapi3.NewLoader().LoadFromData(data) // refers to no other file
	if err != nil {
		return errors.New(firstLine(err))
	}
	if err := doc.Validate(context.Background(), openapi3.DisableExamplesValidation()); err != nil {
		return errors.New(firstLine(err))
	}
	o.Operations = operations(doc)
	if len(o.Operations) == 0 {
		return errors.New("it has no operation that changes something")
	}
	if o.request != "" {
		return nil
	}
	for _, op := range o.Operations {
		if op.Request.Method == http.MethodPost && op.Missing == "" && !strings.Contains(op.Request.Path, "{") {
			o.Request = conform.Request{Method: op.Request.Method, Path: op.Request.Path, Body: op.Request.Body, Header: op.Request.Header.Clone()}
			return nil
		}
	}
	for _, op := range o.Operations {
		if op.Missing != "" {
			return fmt.Errorf("%s: %s; or name another operation to begin with by --request", op.Name, op.Missing)
		}
	}
	return errors.New("no POST can be sent without an identity in its path; name an operation to begin with by --request")
}

func firstLine(err error) string {
	line, _, _ := strings.Cut(err.Error(), "\n")
	return line
}

// operations returns the operations that change something, in an order in which the
// identities that one needs come from those before it: fewer parameters first, and
// operations whose bodies refer to the results of others after these.
func operations(doc *openapi3.T) []conform.Operation {
	type ordered struct {
		conform.Operation
		rank int
	}
	var all []ordered
	made := map[string]bool{} // what operations without parameters create
	for _, path := range doc.Paths.Keys() {
		if !strings.Contains(path, "{") && doc.Paths.Value(path).Post != nil {
			made[resource(path)] = true
		}
	}
	for _, path := range doc.Paths.Keys() {
		item := doc.Paths.Value(path)
		for method, op := range item.Operations() {
			if !slices.Contains([]string{http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete}, method) {
				continue
			}
			r, err := request(method, path, item, op)
			missing := ""
			if err != nil {
				r, missing = &conform.Request{Method: method, Path: path}, err.Error()
			}
			rank := 10 * strings.Count(path, "{")
			var members map[string]any
			if json.Unmarshal(r.Body, &members) == nil {
				for name := range members {
					if thing, ok := strings.CutSuffix(plainName(name), "id"); ok && made[thing] && thing != resource(path) {
						rank++
					}
				}
			}
			if method == http.MethodDelete {
				rank += 1000 // what is deleted cannot be used any more
			}
			all = append(all, ordered{conform.Operation{Name: method + " " + path, Request: *r, Missing: missing}, rank})
		}
	}
	slices.SortStableFunc(all, func(a, b ordered) int {
		return cmp.Or(a.rank-b.rank, strings.Compare(a.Name, b.Name))
	})
	flat := make([]conform.Operation, 0, len(all))
	for _, op := range all {
		flat = append(flat, op.Operation)
	}
	return flat
}

// resource returns what the last segment of a path names one of.
func resource(path string) string {
	name := plainName(path[strings.LastIndex(path, "/")+1:])
	if one, ok := strings.CutSuffix(name, "ies"); ok {
		return one + "y"
	}
	return strings.TrimSuffix(name, "s")
}

func plainName(name string) string {
	return strings.Map(func(c rune) rune {
		if c == '_' || c == '-' {
			return -1
		}
		return c
	}, strings.ToLower(name))
}

// request builds a request from examples and schemas.
func request(method, path string, item *openapi3.PathItem, op *openapi3.Operation) (*conform.Request, error) {
	r := &conform.Request{Method: method, Path: path, Header: http.Header{}}
	query := url.Values{}
	for _, ref := range slices.Concat(item.Parameters, op.Parameters) {
		p := ref.Value
		if p == nil || !p.Required {
			continue
		}
		switch value := parameter(p); p.In {
		case openapi3.ParameterInQuery:
			query.Set(p.Name, value)
		case openapi3.ParameterInHeader:
			if !strings.EqualFold(p.Name, "Idempotency-Key") {
				r.Header.Set(p.Name, value)
			}
		case openapi3.ParameterInPath: // an example beats a guess, and an earlier answer beats both
			if example := exampleOf(p.Example, p.Examples); example != nil && p.Schema != nil && !strings.HasSuffix(plainName(p.Name), "id") {
				r.Path = strings.ReplaceAll(r.Path, "{"+p.Name+"}", url.PathEscape(fmt.Sprint(example)))
			}
		}
	}
	if len(query) > 0 {
		r.Path += "?" + query.Encode()
	}
	if op.RequestBody == nil || op.RequestBody.Value == nil {
		return r, nil
	}
	content := op.RequestBody.Value.Content
	const form = "application/x-www-form-urlencoded"
	switch {
	case content["application/json"] != nil:
		value, err := bodyOf(content["application/json"])
		if err != nil {
			return nil, err
		}
		r.Body, err = json.Marshal(value)
		return r, err
	case content[form] != nil:
		value, err := bodyOf(content[form])
		if err != nil {
			return nil, err
		}
		fields := url.Values{}
		flatten(fields, "", value)
		r.Body = []byte(fields.Encode())
		r.Header.Set("Content-Type", form)
		return r, nil
	case op.RequestBody.Value.Required:
		return nil, errors.New("its body is neither JSON nor a form")
	default:
		return r, nil
	}
}

func bodyOf(media *openapi3.MediaType) (any, error) {
	value := exampleOf(media.Example, media.Examples)
	if value == nil && media.Schema != nil {
		return sample(media.Schema, 0)
	}
	return value, nil
}

// flatten writes a value as fields of a form: items[0][sku]=…
func flatten(into url.Values, name string, value any) {
	inner := func(key string) string {
		if name == "" {
			return key
		}
		return name + "[" + key + "]"
	}
	switch v := value.(type) {
	case map[string]any:
		for key, member := range v {
			flatten(into, inner(key), member)
		}
	case []any:
		for i, item := range v {
			flatten(into, inner(strconv.Itoa(i)), item)
		}
	default:
		into.Set(name, fmt.Sprint(v))
	}
}

func parameter(p *openapi3.Parameter) string {
	if example := exampleOf(p.Example, p.Examples); example != nil {
		return fmt.Sprint(example)
	}
	if p.Schema != nil {
		if v, err := sample(p.Schema, 0); err == nil {
			return fmt.Sprint(v)
		}
	}
	return "x"
}

func exampleOf(one any, many openapi3.Examples) any {
	if one != nil {
		return one
	}
	names := make([]string, 0, len(many))
	for name := range many {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		if e := many[name].Value; e != nil && e.Value != nil {
			return e.Value
		}
	}
	return nil
}

// sample returns a value that a schema allows, as small as it may be.
func sample(ref *openapi3.SchemaRef, depth int) (any, error) {
	s := ref.Value
	switch {
	case s == nil || depth > 20:
		return nil, errors.New("its schema refers to itself without an end; give an example")
	case s.Example != nil:
		return s.Example, nil
	case len(s.Examples) > 0:
		return s.Examples[0], nil
	case s.Default != nil:
		return s.Default, nil
	case s.Const != nil:
		return s.Const, nil
	case len(s.Enum) > 0:
		return s.Enum[0], nil
	case len(s.OneOf) > 0:
		return sample(s.OneOf[0], depth+1)
	case len(s.AnyOf) > 0:
		return sample(s.AnyOf[0], depth+1)
	}
	switch {
	case s.Type.Includes(openapi3.TypeObject) || len(s.Properties) > 0 || len(s.AllOf) > 0:
		return sampleObject(s, depth)
	case s.Type.Includes(openapi3.TypeArray):
		list := []any{}
		for range max(s.MinItems, 1) {
			v, err := sample(s.Items, depth+1)
			if err != nil {
				return nil, err
			}
			list = append(list, v)
		}
		return list, nil
	case s.Type.Includes(openapi3.TypeInteger), s.Type.Includes(openapi3.TypeNumber):
		return sampleNumber(s), nil
	case s.Type.Includes(openapi3.TypeBoolean):
		return true, nil
	default:
		return sampleString(s)
	}
}

// sampleObject returns an object with what it must have, and what has an example.
func sampleObject(s *openapi3.Schema, depth int) (any, error) {
	object := map[string]any{}
	for _, part := range s.AllOf {
		v, err := sample(part, depth+1)
		if err != nil {
			return nil, err
		}
		if members, ok := v.(map[string]any); ok {
			for name, member := range members {
				object[name] = member
			}
		}
	}
	for name, p := range s.Properties {
		if p.Value == nil || p.Value.ReadOnly || !slices.Contains(s.Required, name) && p.Value.Example == nil {
			continue
		}
		v, err := sample(p, depth+1)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		object[name] = v
	}
	return object, nil
}

func sampleNumber(s *openapi3.Schema) any {
	n := 1.0
	if s.Min != nil {
		n = *s.Min
		if s.ExclusiveMin.IsTrue() {
			n++
		}
	}
	if v := s.ExclusiveMin.Value; v != nil {
		n = math.Floor(*v) + 1
	}
	if s.Max != nil {
		n = min(n, *s.Max)
	}
	if m := s.MultipleOf; m != nil && *m > 0 {
		n = math.Ceil(n / *m) * *m
	}
	if s.Type.Includes(openapi3.TypeInteger) {
		return int64(math.Ceil(n))
	}
	return n
}

func sampleString(s *openapi3.Schema) (any, error) {
	switch s.Format {
	case "date":
		return "2030-01-02", nil
	case "date-time":
		return "2030-01-02T03:04:05Z", nil
	case "uuid":
		return "c0f0c0f0-0000-4000-8000-000000000000", nil
	case "email":
		return "conform@example.com", nil
	case "uri", "url":
		return "https://example.com/", nil
	}
	if s.Pattern != "" {
		return nil, fmt.Errorf("a text that matches %s cannot be made up; give an example", s.Pattern)
	}
	text := "conform"
	if n := int(min(s.MinLength, 1<<16)); len(text) < n {
		text += strings.Repeat("x", n-len(text))
	}
	if s.MaxLength != nil && uint64(len(text)) > *s.MaxLength {
		text = text[:*s.MaxLength]
	}
	return text, nil
}

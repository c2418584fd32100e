package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// document returns the one document of a file, or nil if there is nothing in it.
func document(name string, text []byte) (*yaml.Node, error) {
	wrong := func(line, column int, format string, args ...any) error {
		return join([]*FieldError{{File: name, Line: line, Column: column, Err: fmt.Errorf(format, args...)}})
	}
	if len(text) > maxFile {
		return nil, wrong(1, 1, "the file is larger than %s", printSize(maxFile))
	}
	d := yaml.NewDecoder(bytes.NewReader(text))
	var first, second yaml.Node
	err := d.Decode(&first)
	switch {
	case errors.Is(err, io.EOF):
		return nil, nil
	case err == nil:
		err = d.Decode(&second)
	}
	switch {
	case errors.Is(err, io.EOF):
		return first.Content[0], nil
	case err == nil:
		return nil, wrong(second.Line, second.Column, "a second document begins here; a configuration is one")
	}
	line, column := breaks(text, err)
	return nil, wrong(line, column, "this is not YAML: %s", explain(text, line, err))
}

// complaint is what the parser says of a text that is not YAML.
var complaint = regexp.MustCompile(`^yaml: (?:line (\d+): )?`)

// breaks returns where a text stops being YAML. The parser itself names the
// beginning of what it was in the middle of, give or take a line; the text up to
// the line in question can be read.
func breaks(text []byte, err error) (line, column int) {
	const tries = 500
	lines := bytes.SplitAfter(text, []byte("\n"))
	line = 1
	if m := complaint.FindStringSubmatch(err.Error()); m[1] != "" {
		line, _ = strconv.Atoi(m[1])
	}
	for n := len(lines) - 1; n >= 0 && len(lines)-n <= tries; n-- {
		if readable(bytes.Join(lines[:n], nil)) {
			line = n + 1
			break
		}
	}
	line = min(line, len(lines))
	at := lines[line-1]
	return line, 1 + len(at) - len(bytes.TrimLeft(at, " \t"))
}

// readable reports whether a text is YAML.
func readable(text []byte) bool {
	d := yaml.NewDecoder(bytes.NewReader(text))
	for {
		if err := d.Decode(new(yaml.Node)); err != nil {
			return errors.Is(err, io.EOF)
		}
	}
}

// explain says what is wrong with a line that is not YAML.
func explain(text []byte, line int, err error) string {
	at := bytes.SplitN(text, []byte("\n"), line+1)[line-1]
	if indent := at[:len(at)-len(bytes.TrimLeft(at, " \t"))]; bytes.ContainsRune(indent, '\t') {
		return "the line is indented by a tab; use spaces"
	}
	what := complaint.ReplaceAllString(err.Error(), "")
	if strings.Contains(what, "expected ',' or") && bytes.Contains(at, []byte("{")) {
		what += "; between braces or brackets, a value that has some itself needs quotes: \"${NAME}\", \"POST /a/{id}\""
	}
	if bytes.HasSuffix(bytes.TrimRight(at, " \t\r"), []byte(":")) && strings.Contains(what, "mapping values") {
		what = "a value that ends with a colon needs quotes: \"memory:\""
	}
	return what
}

package config

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// A Flag says one field on the command line. It overrides the file.
type Flag struct {
	// Name is for messages: "--on-5xx".
	Name string
	// Field is the path of the field: "defaults.on_5xx". Routes have it from there,
	// unless the file says otherwise for them.
	Field string
	// Value is what the file would say. Nothing is filled in from the environment.
	Value string
}

// maxFile bounds what is read of a configuration.
const maxFile = 1 << 20

// Load reads, completes and checks the file at path, with flags over it. Env is
// where ${NAME} is looked up, usually [os.LookupEnv].
//
// Its errors are [FieldError]s, all of them at once.
func Load(path string, env func(string) (string, bool), flags ...Flag) (*Config, error) {
	return load(path, env, nil, flags...)
}

// LoadStore is [Load] for a program that needs only the store and its keys file. Variables
// of the environment that other fields name need not be set; those fields have no meaning.
func LoadStore(path string, env func(string) (string, bool)) (*Config, error) {
	return load(path, env, func(e *FieldError) bool {
		section, _, _ := strings.Cut(e.Field, ".")
		return errors.Is(e, errUnset) && section != "store" && section != "store_file" && section != "encryption"
	})
}

func load(path string, env func(string) (string, bool), ignore func(*FieldError) bool, flags ...Flag) (*Config, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read configuration: %w", err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return nil, fmt.Errorf("read configuration: %w", err)
	}
	c, err := parse(path, text, env, ignore, flags...)
	if err != nil {
		return nil, err
	}
	if info, err := f.Stat(); err == nil && public(info) {
		c.noteLiteralSecrets()
	}
	return c, nil
}

// Parse is [Load] for a text that was read already. Name stands for the file in
// messages. With no text and no name the flags are all there is.
func Parse(name string, text []byte, env func(string) (string, bool), flags ...Flag) (*Config, error) {
	return parse(name, text, env, nil, flags...)
}

// parse is [Parse]. It ignores the errors for which ignore, which may be nil, says so.
func parse(name string, text []byte, env func(string) (string, bool), ignore func(*FieldError) bool, flags ...Flag) (*Config, error) {
	c := Default()
	c.src = newSource(name)
	r := &reader{src: c.src, env: env}
	n, err := document(name, text)
	if err != nil {
		return nil, err
	}
	if n != nil {
		c.fields().read(r, "", n)
	}
	for _, f := range flags {
		r.override(&c, f)
	}
	r.readRoutes(&c)
	r.readSecrets(&c)
	r.readWebhookSecrets(&c)
	c.complete()
	errs := append(r.errs, c.problems(r.broken)...)
	if ignore != nil {
		errs = slices.DeleteFunc(errs, ignore)
	}
	if len(errs) > 0 {
		return nil, join(errs)
	}
	return &c, nil
}

// override sets one field.
func (r *reader) override(c *Config, f Flag) {
	r.flag = f.Name
	defer func() { r.flag = "" }()
	n := &yaml.Node{Kind: yaml.ScalarNode, Tag: strTag, Value: f.Value}
	v := c.fields().at(f.Field)
	if v == nil {
		r.refuse(f.Field, n, "there is no such field")
		return
	}
	for _, s := range secretFiles {
		switch f.Field {
		case s.field:
			delete(r.src.marks, s.file)
		case s.file:
			delete(r.src.marks, s.field)
		}
	}
	r.mark(f.Field, n)
	v.read(r, f.Field, n)
}

// at returns the value of the field at path, or nil.
func (s section) at(path string) value {
	name, rest, below := strings.Cut(path, ".")
	f := s.find(name)
	switch {
	case f == nil:
		return nil
	case !below:
		return f.value
	}
	if inner, ok := f.value.(section); ok {
		return inner.at(rest)
	}
	return nil
}

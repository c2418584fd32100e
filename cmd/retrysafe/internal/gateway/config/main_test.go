package config_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/gateway/config"
	"github.com/retrysafe/retrysafe/internal/test/leftover"
)

// What watches files must be gone when it was told to.
func TestMain(m *testing.M) { leftover.Main(m) }

// least is the shortest file that can be read.
const least = "upstream: http://127.0.0.1:9000\ntenant: bearer\n"

// vars is an environment.
type vars map[string]string

func (v vars) lookup(name string) (string, bool) {
	value, ok := v[name]
	return value, ok
}

// parse parses a file that is right.
func parse(t *testing.T, text string, flags ...config.Flag) *config.Config {
	t.Helper()
	return parseIn(t, nil, text, flags...)
}

func parseIn(t *testing.T, env vars, text string, flags ...config.Flag) *config.Config {
	t.Helper()
	c, err := config.Parse("gw.yaml", []byte(text), env.lookup, flags...)
	if err != nil {
		t.Fatalf("the file is refused:\n%v\n%s", err, text)
	}
	return c
}

// refused parses a file that is wrong, and returns what is said of it.
func refused(t *testing.T, text string, flags ...config.Flag) string {
	t.Helper()
	c, err := config.Parse("gw.yaml", []byte(text), nil, flags...)
	if err == nil {
		t.Fatalf("the file is accepted:\n%s\n%+v", text, c)
	}
	if e := (*config.FieldError)(nil); !errors.As(err, &e) {
		t.Errorf("%v is not a FieldError", err)
	}
	return err.Error()
}

// write writes a file that is its owner's alone, and returns its path.
func write(t *testing.T, name, text string) string {
	t.Helper()
	path := name
	if !filepath.IsAbs(name) {
		path = filepath.Join(t.TempDir(), name)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// contains checks that a text has a part, and says what it has instead.
func contains(t *testing.T, text, part string) {
	t.Helper()
	if !strings.Contains(text, part) {
		t.Errorf("got\n\t%s\nwant in it\n\t%s", strings.ReplaceAll(text, "\n", "\n\t"), part)
	}
}

package config_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/gateway/config"
)

const token = "correct-horse-battery-staple"

func TestSecretsDoNotShow(t *testing.T) {
	t.Parallel()
	s := config.Secret(token)
	var log bytes.Buffer
	slog.New(slog.NewTextHandler(&log, nil)).Info("x", "token", s, "admin", config.Admin{Token: s})
	asJSON, err := json.Marshal(map[string]any{"token": s, "admin": config.Admin{Token: s}})
	if err != nil {
		t.Fatal(err)
	}
	for _, shown := range []string{
		fmt.Sprint(s), fmt.Sprintf("%s %q %x %d %v %+v %#v", s, s, s, s, s, s, s), fmt.Sprintf("%+v %#v", config.Admin{Token: s}, config.Admin{Token: s}),
		log.String(), string(asJSON),
	} {
		if strings.Contains(shown, "horse") || strings.Contains(shown, fmt.Sprintf("%x", "horse")) {
			t.Errorf("it shows in %s", shown)
		}
	}
	if config.Secret("").String() != "" {
		t.Error("no secret looks like one")
	}
}

func TestSecretsInFiles(t *testing.T) {
	t.Parallel()
	file := write(t, "token", token+"\r\n")
	store := write(t, "store", "postgres://u:secret@h/db\n")
	text := least + "store_file: " + store + "\nadmin: {listen: '127.0.0.1:0', token_file: " + file + "}"
	c := parse(t, text)
	if string(c.Admin.Token) != token || c.Admin.TokenFile != file || c.Store != "postgres://u:secret@h/db" || c.StoreFile != store {
		t.Errorf("got %+v and %s", c.Admin, c.Store)
	}
	if w := c.Warnings(); len(w) != 0 {
		t.Errorf("files that are their owner's alone are warned of: %q", w)
	}
	if err := os.Chmod(file, 0o644); err != nil {
		t.Fatal(err)
	}
	if w := parse(t, text).Warnings(); len(w) != 1 || !strings.Contains(w[0], "gw.yaml:4:44: admin.token_file: ") || !strings.Contains(w[0], "chmod 600") {
		t.Errorf("a file that everybody reads: %q", w)
	}
	if got := strings.Join(c.Files(), " "); got != store+" "+file {
		t.Errorf("a reload reads %s", got)
	}
}

func TestSecretFilesThatAreWrong(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"short": "abc", "empty": "\n", "lines": "0123456789abcdef\nsecond", "huge": strings.Repeat("x", 1<<17), "bytes": "0123456789abcdef\xff",
	} {
		write(t, filepath.Join(dir, name), text)
	}
	for file, want := range map[string]string{
		"none":  "cannot be read: no such file or directory",
		"":      "is not a plain file",
		"short": "the token has 3 characters; it takes at least 16",
		"empty": "is empty",
		"lines": "has a line break or another control character in it",
		"huge":  "is larger than 64KiB",
		"bytes": "is not valid UTF-8",
	} {
		got := refused(t, least+"admin: {listen: '127.0.0.1:0', token_file: "+filepath.Join(dir, file)+"}")
		contains(t, got, "gw.yaml:3:44: admin.token_file: ")
		contains(t, got, want)
		if strings.Contains(got, "\n") || strings.Contains(got, "abc") {
			t.Errorf("%s: it is said more than once, or with the secret: %s", file, got)
		}
	}
	got := refused(t, least+"admin: {listen: '127.0.0.1:0', token: "+token+", token_file: x}")
	if want := "gw.yaml:3:81: admin.token_file: admin.token is there too; keep one of them"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	contains(t, refused(t, least+"store_file: "+write(t, "store", "oracle://u:secret@h")), `store: there is no store of the kind "oracle"`)
	contains(t, refused(t, least+"store_file: [a]"), "gw.yaml:3:13: store_file: a list is where a single value belongs")
}

func TestMessagesTellNoSecret(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"store: postgres://u:horse@h:port/db", "store: postgres://u:ho rse@h/db", "store: oracle://u:horse@h/db", `store: "horse\n"`, "store: [horse]",
		"admin: {listen: ':1', token: horse}", "admin: {listen: ':1', token: \"horse\\n\"}", "upstream: http://u:horse@h", "upstream: 'http://u:ho rse@h'",
	} {
		_, err := config.Parse("gw.yaml", []byte("tenant: none\n"+text), nil)
		if err == nil || strings.Contains(err.Error(), "rse") && !strings.Contains(err.Error(), "retrysafe") {
			t.Errorf("%s: %v", text, err)
		}
	}
}

func TestSecretsInAFileForEverybody(t *testing.T) {
	t.Parallel()
	path := write(t, "gw.yaml", least+"store: postgres://u:secret@h/db\nadmin: {listen: '127.0.0.1:0', token: "+token+"}")
	warnings := func(text string) string {
		t.Helper()
		write(t, path, text)
		c, err := config.Load(path, vars{"T": token, "S": "postgres://u:secret@h/db"}.lookup)
		if err != nil {
			t.Fatal(err)
		}
		return strings.Join(c.Warnings(), "\n")
	}
	literal := least + "store: postgres://u:secret@h/db\nadmin: {listen: '127.0.0.1:0', token: " + token + "}"
	if got := warnings(literal); got != "" {
		t.Errorf("a file that is its owner's alone: %s", got)
	}
	if err := os.Chmod(path, 0o644); err != nil {
		t.Fatal(err)
	}
	got := warnings(literal)
	contains(t, got, path+":3:8: store: this file can be read by every user")
	contains(t, got, path+":4:39: admin.token: this file can be read by every user")
	if got := warnings(least + "store: ${S}\nadmin: {listen: '127.0.0.1:0', token: '${T}'}"); got != "" {
		t.Errorf("there is no secret in the file: %s", got)
	}
}

package config

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"unicode"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/storeurl"
)

// A secretFile is a secret that may be in a file of its own instead.
type secretFile struct {
	field, file string
	of          func(*Config) (set func(string), file *string)
}

var secretFiles = []secretFile{
	{"store", "store_file", func(c *Config) (func(string), *string) {
		return func(s string) { c.Store = s }, &c.StoreFile
	}},
	{"admin.token", "admin.token_file", func(c *Config) (func(string), *string) {
		return func(s string) { c.Admin.Token = Secret(s) }, &c.Admin.TokenFile
	}},
	{"admin.metrics_token", "admin.metrics_token_file", func(c *Config) (func(string), *string) {
		return func(s string) { c.Admin.MetricsToken = Secret(s) }, &c.Admin.MetricsTokenFile
	}},
}

// secretFiles returns all secrets that may be in files of their own.
func (c *Config) secretFiles() []secretFile {
	return slices.Concat(secretFiles, c.adminSecrets(), c.reconcileSecrets(), c.ledgerSecrets(), c.tracingSecrets())
}

// maxSecret bounds what is read of a secret.
const maxSecret = 64 << 10

// readSecrets reads the secrets that are in files of their own.
func (r *reader) readSecrets(c *Config) {
	for _, s := range c.secretFiles() {
		set, file := s.of(c)
		refuse := func(format string, args ...any) {
			m := r.src.find(s.file)
			r.errs = append(r.errs, &FieldError{m.file, m.line, m.column, s.file, fmt.Errorf(format, args...)})
			r.bad = append(r.bad, s.field, s.file)
		}
		switch {
		case !r.src.said(s.file):
			*file = ""
			continue
		case r.broken(s.file) || *file == "":
			r.bad = append(r.bad, s.field)
			continue
		case r.src.said(s.field):
			refuse("%s is there too; keep one of them", s.field)
			continue
		}
		text, info, err := readSecret(*file)
		if err != nil {
			refuse("%w", err)
			continue
		}
		set(text)
		if public(info) {
			r.src.notes = append(r.src.notes, Note{s.file, quote(*file) + " can be read by every user of this machine: chmod 600"})
		}
	}
}

// readSecret returns what a file says, without the line break at its end.
func readSecret(name string) (string, fs.FileInfo, error) {
	info, err := os.Stat(name)
	if err == nil && !info.Mode().IsRegular() {
		return "", nil, fmt.Errorf("%s is not a plain file", quote(name))
	}
	if err == nil && info.Size() > maxSecret {
		return "", nil, fmt.Errorf("%s is larger than %s, which no secret is", quote(name), printSize(maxSecret))
	}
	var data []byte
	if err == nil {
		data, err = os.ReadFile(name)
	}
	if err != nil {
		if p := (*fs.PathError)(nil); errors.As(err, &p) {
			err = p.Err
		}
		return "", nil, fmt.Errorf("%s cannot be read: %w", quote(name), err)
	}
	text := strings.TrimRight(string(data), "\r\n")
	switch {
	case strings.TrimFunc(text, unicode.IsSpace) == "":
		return "", nil, fmt.Errorf("%s is empty", quote(name))
	case wrongText(text) != "":
		return "", nil, fmt.Errorf("what %s says %s", quote(name), wrongText(text))
	}
	return text, info, nil
}

// public reports whether every user of this machine may read the file.
func public(info fs.FileInfo) bool { return info.Mode().Perm()&0o004 != 0 }

// noteLiteralSecrets notes the secrets that the file itself holds.
func (c *Config) noteLiteralSecrets() {
	literal := map[string]bool{
		"admin.token":         c.Admin.Token != "" && c.Admin.TokenFile == "",
		"admin.metrics_token": c.Admin.MetricsToken != "" && c.Admin.MetricsTokenFile == "",
		"store":               c.StoreFile == "" && redactStore(c.Store) != c.Store,
		"cache.shared":        c.Cache.Shared != "" && redactStore(c.Cache.Shared) != c.Cache.Shared,
	}
	for i := range c.Ledger {
		literal[element("ledger", i)+".theirs.token"] = c.Ledger[i].Theirs.Token != "" && c.Ledger[i].Theirs.TokenFile == ""
	}
	for _, path := range slices.Concat(c.adminLiterals(), c.reconcileLiterals(), c.literalWebhookSecrets(), c.tracingLiterals()) {
		literal[path] = true
	}
	for path, secret := range literal {
		if _, ref := c.src.refs[path]; secret && !ref && c.src.find(path).line > 0 {
			field := path[strings.LastIndexByte(path, '.')+1:] + "_file"
			if strings.HasPrefix(path, "webhooks") {
				field = "secret_files"
			}
			remedy := "chmod 600, or use ${NAME} or " + field
			if path == "cache.shared" {
				remedy = "chmod 600, or use ${NAME}"
			}
			c.src.notes = append(c.src.notes, Note{path, "this file can be read by every user of this machine, and there is a secret in it: " + remedy})
		}
	}
}

// redactStore returns a store's URL without its password.
func redactStore(address string) string {
	if strings.HasPrefix(address, "sqlite:") || strings.HasPrefix(address, "memory:") {
		return address
	}
	shown := storeurl.Redact(address)
	if strings.Contains(shown, "xxxxx") || strings.HasPrefix(shown, "(") {
		return shown
	}
	return address // as it is written, not as it is put together again
}

func redactAll(string) string { return "xxxxx" }

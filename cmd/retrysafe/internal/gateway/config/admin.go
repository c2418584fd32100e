package config

import (
	"path/filepath"
	"slices"
)

// An AdminToken is an operator's token.
type AdminToken struct {
	// Name is what the audit shows as the author of actions.
	Name string
	// Role is read or act.
	Role      string
	Token     Secret
	TokenFile string
}

func (t *AdminToken) fields() section {
	return section{
		{"name", text(&t.Name)},
		{"role", words(&t.Role, "read", "act")},
		{"token", secretText(&t.Token, redactAll)},
		{"token_file", text(&t.TokenFile)},
	}
}

func (a *Admin) tokenFields() value {
	return sections[AdminToken]{&a.Tokens, func() AdminToken { return AdminToken{} }, (*AdminToken).fields}
}

// People returns the tokens of all operators: [Admin.Token], whose name is admin and which
// has the role act, and the others.
func (a *Admin) People() []AdminToken {
	var all []AdminToken
	if a.Token != "" {
		all = append(all, AdminToken{Name: "admin", Role: "act", Token: a.Token, TokenFile: a.TokenFile})
	}
	return append(all, a.Tokens...)
}

// adminSecrets are the tokens of operators, each of which may be in a file of its own.
func (c *Config) adminSecrets() (all []secretFile) {
	for i := range c.Admin.Tokens {
		path := element("admin.tokens", i)
		all = append(all, secretFile{child(path, "token"), child(path, "token_file"), func(c *Config) (func(string), *string) {
			t := &c.Admin.Tokens[i]
			return func(s string) { t.Token = Secret(s) }, &t.TokenFile
		}})
	}
	return all
}

// adminLiterals are the paths of operators' tokens that stand in the file itself.
func (c *Config) adminLiterals() (paths []string) {
	for i := range c.Admin.Tokens {
		if t := &c.Admin.Tokens[i]; t.Token != "" && t.TokenFile == "" {
			paths = append(paths, child(element("admin.tokens", i), "token"))
		}
	}
	return paths
}

// adminFiles are the files with operators' tokens.
func (c *Config) adminFiles() (files []string) {
	for i := range c.Admin.Tokens {
		if f := c.Admin.Tokens[i].TokenFile; f != "" {
			files = append(files, f)
		}
	}
	return files
}

// maxSocket is how long the path of a unix socket may be: the system's bound of 104 bytes,
// less what its temporary place takes.
const maxSocket = 80

// operators refuses tokens that cannot be told apart, and a socket that cannot be.
func (k *checker) operators() {
	a := &k.Admin
	if a.Socket != "" && (!filepath.IsAbs(a.Socket) || len(a.Socket) > maxSocket) {
		k.refuse("admin.socket", "%s must be an absolute path of up to %d bytes, such as /run/retrysafe/admin.sock", quote(a.Socket), maxSocket)
	}
	people := a.People()
	seen := people[: len(people)-len(a.Tokens) : len(people)-len(a.Tokens)]
	for i := range a.Tokens {
		t, path := &a.Tokens[i], element("admin.tokens", i)
		at := child(path, "token")
		if t.TokenFile != "" {
			at = child(path, "token_file")
		}
		switch {
		case !plainName(t.Name):
			k.refuse(child(path, "name"), "%s is not a name; it takes up to 100 printable ASCII characters, and the audit shows it as the author", quote(t.Name))
		case slices.ContainsFunc(seen, func(o AdminToken) bool { return o.Name == t.Name }):
			k.refuse(child(path, "name"), "another token has the name %s; admin is that of admin.token", quote(t.Name))
		case t.Role == "":
			k.refuse(child(path, "role"), "it is missing; it is read or act")
		case len(t.Token) < minToken:
			k.refuse(at, "the token has %d characters; it takes at least %d: openssl rand -hex 32", len(t.Token), minToken)
		case slices.ContainsFunc(seen, func(o AdminToken) bool { return o.Token == t.Token }):
			k.refuse(at, "another operator has the same token")
		case t.Token == a.MetricsToken:
			k.refuse(at, "it is the token for metrics; an operator needs another one")
		}
		seen = append(seen, *t)
	}
}

func plainName(name string) bool {
	return name != "" && len(name) <= 100 && name[0] != ' ' && name[len(name)-1] != ' ' &&
		!slices.ContainsFunc([]byte(name), func(b byte) bool { return b < ' ' || b > '~' })
}

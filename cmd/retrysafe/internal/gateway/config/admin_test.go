package config_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Tokens of operators are told apart by names and have roles; those in files are read, and
// none is printed.
func TestAdminTokens(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte("a-token-in-a-file\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	c := parse(t, least+"admin: { listen: ':81', token: a-token-of-all-of-us, tokens: [{ name: anna, role: act, token: a-token-of-anna-only }, { name: reader, role: read, token_file: "+file+" }] }")
	people := c.Admin.People()
	if len(people) != 3 || people[0].Name != "admin" || people[0].Role != "act" || people[2].Token != "a-token-in-a-file" {
		t.Errorf("got %d people", len(people))
	}
	if !strings.Contains(strings.Join(c.Files(), " "), file) {
		t.Errorf("the file is not watched: %v", c.Files())
	}
	printed, err := c.Print()
	if err != nil || strings.Contains(string(printed), "a-token") {
		t.Errorf("printed is %s, %v", printed, err)
	}
	if c = parse(t, least+"admin: { socket: /run/a.sock, tokens: [{ name: anna, role: act, token: a-token-of-anna-only }] }"); len(c.Admin.People()) != 1 {
		t.Errorf("a socket alone: %d people", len(c.Admin.People()))
	}
}

func TestAdminTokensAreRefused(t *testing.T) {
	t.Parallel()
	const anna = "{ name: anna, role: act, token: a-token-of-anna-only }"
	for text, want := range map[string]string{
		"socket: /run/a.sock": "admin.token: it is missing",
		"listen: ':81', tokens: [{ role: act, token: a-token-of-anna-only }]":                                       "admin.tokens[0].name",
		"listen: ':81', tokens: [{ name: anna, token: a-token-of-anna-only }]":                                      "admin.tokens[0].role: it is missing",
		"listen: ':81', tokens: [{ name: anna, role: root, token: a-token-of-anna-only }]":                          "admin.tokens[0].role",
		"listen: ':81', tokens: [{ name: anna, role: act, token: short }]":                                          "it takes at least 16",
		"listen: ':81', tokens: [{ name: anna, role: act }]":                                                        "it takes at least 16",
		"listen: ':81', tokens: [" + anna + ", { name: anna, role: read, token: another-token-of-anna }]":           "another token has the name",
		"listen: ':81', tokens: [" + anna + ", { name: bert, role: read, token: a-token-of-anna-only }]":            "the same token",
		"listen: ':81', token: a-token-of-anna-only, tokens: [" + anna + "]":                                        "the same token",
		"listen: ':81', token: a-token-of-all-of-us, tokens: [{ name: admin, role: act, token: x234567890123456 }]": "another token has the name",
		"listen: ':81', metrics_token: a-token-of-anna-only, tokens: [" + anna + "]":                                "the token for metrics",
		"socket: run/a.sock, tokens: [" + anna + "]":                                                                "absolute path",
		"socket: /" + strings.Repeat("x", 100) + ", tokens: [" + anna + "]":                                         "absolute path",
	} {
		err := refused(t, least+"admin: { "+text+" }")
		if !strings.Contains(err, want) || strings.Contains(err, "a-token-of-anna-only") {
			t.Errorf("%s: got %s, want %s", text, err, want)
		}
	}
}

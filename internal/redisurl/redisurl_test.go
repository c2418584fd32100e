package redisurl_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/retrysafe/retrysafe/internal/redisurl"
)

func TestParse(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"redis://h":                                 "[h:6379] false ",
		"rediss://user:p%40ss@h:7000/3":             "[h:7000] false ",
		"redis://[::1]:6380":                        "[[::1]:6380] false ",
		"redis+cluster://u:p@a:1,b:2,c":             "[a:1 b:2 c:6379] true ",
		"rediss+sentinel://a,b:2/payments":          "[a:26379 b:2] false payments",
		"redis+sentinel://:secret@a:26379/payments": "[a:26379] false payments",
		"redis+sentinel://a/payments/0":             "[a:26379] false payments",
	} {
		s, err := redisurl.Parse(text)
		if err != nil {
			t.Errorf("Parse(%q): %v", text, err)
			continue
		}
		if got := fmt.Sprintf("%v %t %s", s.Addrs, s.Cluster, s.Master); got != want {
			t.Errorf("Parse(%q) = %q, want %q", text, got, want)
		}
	}
}

func TestBadURLsTeach(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"":                                   "a Redis URL is",
		"http://h":                           "another scheme",
		"redis://":                           "a host is missing",
		"redis://a,b":                        "takes one host",
		"redis://h/x":                        "number of a database",
		"redis://h?x=1":                      "parameter",
		"redis+cluster://a,b/1":              "one database",
		"redis://h/-1":                       "number of a database",
		"redis":                              "another scheme",
		"redis://h?":                         "",
		"redis+cluster://a,b/0":              "",
		"redis://h/1?x=1":                    "parameter",
		"redis://:7000":                      "cannot be read",
		"redis://@h":                         "",
		"redis+cluster://a,,b":               "a host is missing",
		"redis+sentinel://a,b":               "name of the primary is missing",
		"redis://u:se cret%zz@h":             "%40",
		"redis://u:secret@h:notaport":        "cannot be read",
		"redis+sentinel://u:secret@a/":       "name of the primary",
		"redis+cluster://u:secret@a:1,b/":    "",
		"redis://h?sentinel_password=secret": "for sentinels",
		"redis+cluster://h?sentinel_username=secret":          "for sentinels",
		"redis+sentinel://a/pay?sentinel_password=se%zzcret":  "cannot be read",
		"redis+sentinel://a/pay?sentinel_password=secret&x=1": "not known",
		"redis+sentinel://a/pay?sentinel_password=secret":     "",
	} {
		_, err := redisurl.Parse(text)
		if want == "" {
			if err != nil {
				t.Errorf("Parse(%q): %v", text, err)
			}
			continue
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Parse(%q) = %v, want %q in it", text, err, want)
		}
		if err != nil && (strings.Contains(err.Error(), "secret") || strings.Contains(err.Error(), "cret%zz")) {
			t.Errorf("the error of %q tells the password: %v", text, err)
		}
	}
}

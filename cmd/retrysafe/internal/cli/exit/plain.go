package exit

import (
	"regexp"
	"slices"
	"strings"
)

// packages matches the name of a package of ours at the beginning of an error.
var packages = regexp.MustCompile(`(^|: |\()(?:retrysafe|httpkey|operator|outbox|pgstore|sqlitestore|mysqlstore|redisstore|redistier|redisurl|dynamostore|inbox|sealed|storeurl|move|gateway|listener|config|identity|client|journal): `)

// Plain returns the text of an error for people: in one line, without names of
// packages, and without the repetitions that chains of errors have.
func Plain(err error) string {
	text := oneLine(err.Error())
	for packages.MatchString(text) {
		text = packages.ReplaceAllString(text, "$1")
	}
	text = strings.Join(slices.Compact(strings.Split(text, ": ")), ": ")
	return strings.Join(unrepeated(strings.Fields(text)), " ")
}

// unrepeated returns words without any sequence of more than two that directly follows
// the same sequence.
func unrepeated(words []string) []string {
	for n := len(words) / 2; n > 2; n-- {
		for i := 0; i+2*n <= len(words); i++ {
			if slices.Equal(words[i:i+n], words[i+n:i+2*n]) {
				return unrepeated(slices.Delete(slices.Clone(words), i, i+n))
			}
		}
	}
	return words
}

// oneLine returns text with line breaks replaced by spaces.
func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }

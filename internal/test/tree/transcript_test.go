package tree_test

import (
	"fmt"
	"io"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/retrysafe/retrysafe/internal/test/pages"
)

// A transcript is what a page says happens at a terminal: commands, and what each
// prints.
type transcript []transcribed

type transcribed struct {
	command []string // its words
	printed string
}

// transcriptOf returns what the console blocks of a page say, in their order.
func transcriptOf(page string) (all transcript) {
	for _, block := range pages.Blocks(page, "console") {
		for _, step := range strings.Split("\n"+block, "\n$ ")[1:] {
			command, printed := splitStep(step)
			all = append(all, transcribed{command, printed})
		}
	}
	return all
}

// replay runs the commands of a transcript, which are all curl, and compares what they
// print. Servers has, for each address in the page, where that program listens in this
// test. Replay returns how many commands went to each of them.
func (all transcript) replay(t *testing.T, servers map[string]string) map[string]int {
	t.Helper()
	counts := map[string]int{}
	shown, said := ids{}, ids{}
	for _, step := range all {
		if step.command[0] != "curl" {
			t.Errorf("%q: only curl can be replayed here", step.command)
			continue
		}
		printed, server := curl(t, step.command[1:], servers)
		counts[server]++
		if got, want := shown.normalise(printed), said.normalise(step.printed); !slices.Equal(got, want) {
			t.Errorf("%s\nprinted\n\t%s\nREADME.md says\n\t%s", strings.Join(step.command, " "),
				strings.Join(got, "\n\t"), strings.Join(want, "\n\t"))
		}
	}
	return counts
}

// splitStep returns the words of a command, which may go on behind a backslash,
// and what it prints.
func splitStep(step string) (words []string, output string) {
	word, quote, open := "", byte(0), false
	flush := func() {
		if open {
			words = append(words, word)
		}
		word, open = "", false
	}
	for i := 0; i < len(step); i++ {
		switch c := step[i]; {
		case quote != 0 && c == quote:
			quote = 0
		case quote == 0 && (c == '\'' || c == '"'):
			quote, open = c, true
		case quote == 0 && c == '\\' && step[i+1] == '\n':
			i++
		case quote == 0 && c == '\n':
			flush()
			return words, step[i+1:]
		case quote == 0 && c == ' ':
			flush()
		default:
			word, open = word+string(c), true
		}
	}
	flush()
	return words, ""
}

// curl does what curl would, and returns what it would print and which of the servers
// it called, by its address in the page.
func curl(t *testing.T, args []string, servers map[string]string) (printed, server string) {
	t.Helper()
	method, address, body, media, head := http.MethodGet, "", "", "", false
	header := http.Header{}
	for i := 0; i < len(args); i++ {
		switch args[i] {
		case "-i":
			head = true
		case "-H":
			i++
			name, value, _ := strings.Cut(args[i], ":")
			header.Add(name, strings.TrimSpace(value))
		case "-d", "--json":
			method, body, media = http.MethodPost, args[i+1], "application/x-www-form-urlencoded"
			if args[i] == "--json" {
				media = "application/json"
				header.Set("Accept", media)
			}
			i++
		default:
			for published, here := range servers {
				if rest, ok := strings.CutPrefix(args[i], published); ok {
					address, server = here+rest, published
				}
			}
			if address == "" {
				t.Fatalf("curl %q: this test does not know the option, or no program of README.md listens there", args[i])
			}
		}
	}
	if media != "" && header.Get("Content-Type") == "" {
		header.Set("Content-Type", media)
	}
	r, err := http.NewRequestWithContext(t.Context(), method, address, strings.NewReader(body))
	must(t, err)
	r.Header = header
	client := http.Client{Transport: &http.Transport{DisableCompression: true}}
	defer client.CloseIdleConnections()
	res, err := client.Do(r)
	must(t, err)
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	must(t, err)
	printed = string(text)
	if head {
		printed = dump(res) + printed
	}
	return printed, server
}

// dump returns the head of a response, its headers in order of their names.
func dump(res *http.Response) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s\n", res.Proto, res.Status)
	for _, name := range slices.Sorted(maps.Keys(res.Header)) {
		for _, value := range res.Header[name] {
			fmt.Fprintf(&b, "%s: %s\n", name, value)
		}
	}
	return b.String() + "\n"
}

// ids gives the random ids of a run the numbers in which they first appear, so that
// two runs compare: the same id in two answers stays the same.
type ids map[string]string

var paymentID = regexp.MustCompile(`pay_[A-Z2-7]{26}`)

// normalise returns what a command printed as lines that compare: headers in order,
// without the values that each run has of its own.
func (known ids) normalise(printed string) []string {
	printed = paymentID.ReplaceAllStringFunc(strings.ReplaceAll(printed, "\r", ""), func(id string) string {
		if known[id] == "" {
			known[id] = fmt.Sprint("pay_", len(known)+1)
		}
		return known[id]
	})
	lines := strings.Split(strings.TrimRight(printed, "\n"), "\n")
	if end := slices.Index(lines, ""); strings.HasPrefix(lines[0], "HTTP/") && end > 0 {
		for i, line := range lines[:end] {
			for _, own := range []string{"Date: ", "Idempotency-Expires: "} {
				if strings.HasPrefix(line, own) {
					lines[i] = own + "..."
				}
			}
		}
		slices.Sort(lines[1:end])
	}
	return lines
}

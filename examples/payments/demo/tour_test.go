package demo_test

import (
	"fmt"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/retrysafe/retrysafe/internal/test/testservers"
)

// TestEveryLineThatItPrints also holds the numbers in the comments.
func TestEveryLineThatItPrints(t *testing.T) {
	t.Parallel()
	start(t, "", 1).tour()
}

func TestPostgresHoldsItAll(t *testing.T) {
	t.Parallel()
	p := start(t, testservers.Shared(t), 2)
	p.tour()
	p.fault(`{"mode": "drop_after", "times": 2}`)
	p.until("/transfers", "postgres-transfer-1", http.StatusCreated)
	p.once("postgres-transfer-1")
	p.fault(`{"mode": "drop_after", "times": 1}`)
	if got := p.post("/charges", a, "postgres-charge-1", euro); got.status != http.StatusBadGateway {
		t.Errorf("got %+v, want 502", got)
	}
	p.until("/charges", "postgres-charge-1", http.StatusCreated)
	p.once("postgres-charge-1")
}

// tour does what the program says one should try.
func (p *program) tour() {
	p.t.Helper()
	keys := p.keys()
	says, ran := "", 0
	for _, line := range p.welcome {
		switch {
		case strings.HasPrefix(line, "# "):
			says = strings.TrimPrefix(line, "# ")
		case strings.HasPrefix(line, "curl "):
			got, err := send(p.curl(line))
			must(p.t, err)
			quick := strings.HasPrefix(says, "202") && got.status == http.StatusCreated // the worker was
			if (fmt.Sprint(got.status) != says[:3] && !quick) || strings.Contains(says, "Idempotent-Replayed") != got.replayed {
				p.t.Errorf("%s\n%s\ngot %+v", says, line, got)
			}
			if strings.HasPrefix(says, "202") { // or a fault of a later line would be this transfer's
				p.until("/transfers", keys[1], http.StatusCreated)
			}
			ran++
		}
	}
	if ran != 13 {
		p.t.Errorf("%d lines were printed", ran)
	}
	p.until("/transfers", keys[1], http.StatusCreated)
	p.once(keys[1])
	p.once(keys[2])
	if rows := p.rows(p.nodes[0], a, keys[0]); len(rows) != 1 {
		p.t.Errorf("three requests made %+v, want one payment", rows)
	}
}

// keys returns the keys of a payment, a transfer and a charge that the program has
// drawn for its user.
func (p *program) keys() []string {
	p.t.Helper()
	var keys []string
	for _, m := range regexp.MustCompile(`Idempotency-Key: "([0-9a-f-]{36})"`).FindAllStringSubmatch(strings.Join(p.welcome, "\n"), -1) {
		if !slices.Contains(keys, m[1]) {
			keys = append(keys, m[1])
		}
	}
	if len(keys) != 3 {
		p.t.Fatalf("the lines have the keys %q, want three", keys)
	}
	return keys
}

func TestKeysAreFreshEachTime(t *testing.T) {
	t.Parallel()
	first, second := start(t, "", 1).keys(), start(t, "", 1).keys()
	for _, key := range first {
		if slices.Contains(second, key) {
			t.Errorf("two programs have drawn the key %s", key)
		}
	}
}

// curl returns the request that a line sends.
func (p *program) curl(line string) *http.Request {
	p.t.Helper()
	method, url, body := http.MethodGet, "", ""
	header := http.Header{}
	words := shellWords(line)
	for i := 1; i < len(words); i++ {
		switch word := words[i]; word {
		case "-i":
		case "-X", "-H", "-d":
			i++
			switch word {
			case "-X":
				method = words[i]
			case "-H":
				name, value, _ := strings.Cut(words[i], ": ")
				header.Add(name, value)
			default:
				body = words[i]
				if method == http.MethodGet {
					method = http.MethodPost
				}
			}
		default:
			url = word
		}
	}
	r, err := http.NewRequestWithContext(p.t.Context(), method, url, strings.NewReader(body))
	must(p.t, err)
	r.Header = header
	return r
}

// shellWords splits a line as a shell does that knows only single quotes.
func shellWords(line string) (words []string) {
	for i, part := range strings.Split(line, "'") {
		if i%2 == 1 {
			words = append(words, part)
		} else {
			words = append(words, strings.Fields(part)...)
		}
	}
	return words
}

func TestReadmeHasEveryLine(t *testing.T) {
	t.Parallel()
	p := start(t, "", 1)
	readme, err := os.ReadFile("../README.md")
	must(t, err)
	keys := p.keys()
	here := strings.NewReplacer(p.nodes[0], "http://127.0.0.1:8080", p.provider, "http://127.0.0.1:8090",
		keys[0], "8e03978e-40d5-43dd-bc93-6894a57f9324", keys[1], "2f1c0c5e-6b7a-4c0e-9d53-0a4f5b7c8d91", keys[2], "b7d7ad0e-51d9-4f0b-8a41-3c2f8e6d9a10")
	for _, line := range p.welcome {
		if line = here.Replace(line); !strings.Contains(string(readme), line) {
			t.Errorf("the README does not have the line\n%s", line)
		}
	}
}

package retrysafe_test

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"testing/iotest"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/httpkey"
	"github.com/retrysafe/retrysafe/internal/faultstore"
	"github.com/retrysafe/retrysafe/store/memstore"
)

// The documents are tested like code: links lead somewhere, tests that are named
// exist, transcripts and examples are what really happens.

var updateDocs = flag.Bool("docs.update", false, "write the responses of docs/problems anew")

// markdown returns every document of the tree by its path.
func markdown(t *testing.T) map[string]string {
	t.Helper()
	docs := map[string]string{}
	walk(t, func(file string) {
		if strings.HasSuffix(file, ".md") {
			docs[file] = readDoc(t, file)
		}
	})
	return docs
}

func readDoc(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.FromSlash(file))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// A fence is a block of code in a document.
var fence = regexp.MustCompile("(?ms)^```(\\w*)\n(.*?)^```$")

// blocks returns the blocks of code in one language.
func blocks(doc, language string) []string {
	var found []string
	for _, m := range fence.FindAllStringSubmatch(doc, -1) {
		if m[1] == language {
			found = append(found, m[2])
		}
	}
	return found
}

func TestDocsLinksLeadSomewhere(t *testing.T) {
	t.Parallel()
	link := regexp.MustCompile(`\]\(([^)\s]+)\)`)
	docs := markdown(t)
	for file, doc := range docs {
		for _, m := range link.FindAllStringSubmatch(fence.ReplaceAllString(doc, ""), -1) {
			if strings.Contains(m[1], "://") || strings.HasPrefix(m[1], "mailto:") {
				continue
			}
			target, anchor, _ := strings.Cut(m[1], "#")
			to := file
			if target != "" {
				to = path.Join(path.Dir(file), target)
			}
			if _, err := os.Stat(filepath.FromSlash(to)); err != nil {
				t.Errorf("%s: the link to %s leads nowhere", file, m[1])
			} else if anchor != "" && !slices.Contains(anchors(docs[to]), anchor) {
				t.Errorf("%s: %s has no heading #%s", file, to, anchor)
			}
		}
	}
}

// anchors returns the names by which the headings of a document are linked to.
func anchors(doc string) []string {
	var found []string
	heading := regexp.MustCompile(`(?m)^#+ (.+)$`)
	drop := regexp.MustCompile(`[^\p{L}\p{N} _-]`)
	for _, m := range heading.FindAllStringSubmatch(fence.ReplaceAllString(doc, ""), -1) {
		found = append(found, strings.ReplaceAll(drop.ReplaceAllString(strings.ToLower(m[1]), ""), " ", "-"))
	}
	return found
}

// A promise that names its test is worth as much as the test, so it must exist.
// A name that ends in an underscore stands for all that begin with it.
func TestDocsNameTestsThatExist(t *testing.T) {
	t.Parallel()
	declared := regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)[A-Z]\w*)\(`)
	rule := regexp.MustCompile(`(?m)^\tname: +"([^"]+)",\n\treason:`)
	tests, rules := map[string]bool{}, map[string]bool{}
	walk(t, func(file string) {
		switch {
		case strings.HasSuffix(file, "_test.go"):
			for _, m := range declared.FindAllStringSubmatch(readDoc(t, file), -1) {
				tests[m[1]] = true
			}
		case path.Dir(file) == "store/storetest":
			for _, m := range rule.FindAllStringSubmatch(readDoc(t, file), -1) {
				rules[m[1]] = true
			}
		}
	})
	if len(tests) < 10 || len(rules) < 10 {
		t.Fatalf("found %d tests and %d rules of storetest; this test looks in the wrong place", len(tests), len(rules))
	}
	named := regexp.MustCompile(`\b(?:Test|Fuzz)[A-Z]\w*`)
	ruled := regexp.MustCompile("`storetest:\\s+([^`]+)`")
	for file, doc := range markdown(t) {
		for _, name := range named.FindAllString(doc, -1) {
			begins := strings.HasSuffix(name, "_") && slices.ContainsFunc(slices.Collect(maps.Keys(tests)),
				func(n string) bool { return strings.HasPrefix(n, name) })
			if !tests[name] && !begins {
				t.Errorf("%s: there is no %s in the tree", file, name)
			}
		}
		for _, m := range ruled.FindAllStringSubmatch(doc, -1) {
			if rule := strings.Join(strings.Fields(m[1]), " "); !rules[rule] {
				t.Errorf("%s: storetest has no rule %q", file, rule)
			}
		}
	}
}

// The Go programs of the README are compiled as a package of this module that
// exists only for this test.
func TestDocsProgramsCompile(t *testing.T) {
	t.Parallel()
	programs := blocks(readDoc(t, "README.md"), "go")
	if len(programs) == 0 {
		t.Fatal("README.md has no Go program")
	}
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for i, program := range programs {
		dir := t.TempDir()
		source, overlay := filepath.Join(dir, "main.go"), filepath.Join(dir, "overlay.json")
		place := filepath.Join(here, "examples", fmt.Sprintf("readme%d", i), "main.go")
		replace, err := json.Marshal(map[string]map[string]string{"Replace": {place: source}})
		must(t, err)
		must(t, os.WriteFile(source, []byte(program), 0o600))
		must(t, os.WriteFile(overlay, replace, 0o600))
		cmd := exec.CommandContext(t.Context(), "go", "build", "-overlay", overlay, "-o", filepath.Join(dir, "program"), filepath.Dir(place))
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("Go program %d of README.md: %v\n%s", i+1, err, out)
		}
		if out, err := exec.CommandContext(t.Context(), "gofmt", "-l", source).CombinedOutput(); err != nil || len(out) > 0 {
			t.Errorf("Go program %d of README.md is not as gofmt has it: %v %s", i+1, err, out)
		}
	}
}

// The README's curl commands run against the quickstart, in their order, and
// print what the README says they do.
func TestDocsTranscriptIsTrue(t *testing.T) {
	t.Parallel()
	program := filepath.Join(t.TempDir(), "quickstart")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", program, "./examples/quickstart").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	server := exec.CommandContext(t.Context(), program, "-listen", "127.0.0.1:0")
	server.Stderr = t.Output()
	stdout, err := server.StdoutPipe()
	must(t, err)
	must(t, server.Start())
	t.Cleanup(func() { // when the test has failed half-way
		_ = server.Process.Kill()
		_ = server.Wait()
	})
	out := bufio.NewReader(stdout)
	line, err := out.ReadString('\n')
	must(t, err)
	base := strings.Fields(line)[3]
	go io.Copy(io.Discard, out)

	commands := 0
	for _, block := range blocks(readDoc(t, "README.md"), "console") {
		for _, step := range strings.Split("\n"+block, "\n$ ")[1:] {
			command, want := splitStep(step)
			if command[0] != "curl" {
				t.Errorf("%q: only curl can be held to its word here", command)
				continue
			}
			commands++
			if got := curl(t, command[1:], base); !slices.Equal(got, normalise(want)) {
				t.Errorf("%s\nprinted\n\t%s\nREADME.md says\n\t%s", strings.Join(command, " "),
					strings.Join(got, "\n\t"), strings.Join(normalise(want), "\n\t"))
			}
		}
	}
	if commands < 3 {
		t.Errorf("README.md shows %d curl commands; at least the run, the replay and the mismatch belong there", commands)
	}
	must(t, server.Process.Signal(syscall.SIGTERM))
	if err := server.Wait(); err != nil {
		t.Errorf("the quickstart ended with %v after SIGTERM, want exit code 0", err)
	}
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

// curl does what curl would, and returns what it would print, normalised.
func curl(t *testing.T, args []string, base string) []string {
	t.Helper()
	method, address, body, head := http.MethodGet, "", "", false
	header := http.Header{}
	for i := 0; i < len(args); i++ {
		switch args[i] {
		case "-i":
			head = true
		case "-H":
			i++
			name, value, _ := strings.Cut(args[i], ":")
			header.Add(name, strings.TrimSpace(value))
		case "-d":
			i++
			method, body = http.MethodPost, args[i]
		default:
			rest, ok := strings.CutPrefix(args[i], "http://127.0.0.1:8080")
			if !ok {
				t.Fatalf("curl %q: this test does not know the option, or the address is not the quickstart's", args[i])
			}
			address = base + rest
		}
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
	printed := string(text)
	if head {
		printed = dump(res) + printed
	}
	return normalise(printed)
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

// normalise returns what a command printed as lines that compare: headers in
// order, without the values that each run has of its own.
func normalise(printed string) []string {
	lines := strings.Split(strings.TrimRight(strings.ReplaceAll(printed, "\r", ""), "\n"), "\n")
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

// Every problem has a page, and its page shows the very response that a client
// gets.
func TestDocsProblemPages(t *testing.T) {
	t.Parallel()
	const notStored = "response-not-stored" // an answer rather than a refusal, so it is not published as one
	known := map[string]bool{notStored: true}
	for code := range publishedProblems(t) {
		known[code] = true
	}
	pages, err := fs.Glob(os.DirFS("docs/problems"), "*.md")
	must(t, err)
	for _, page := range pages {
		if code := strings.TrimSuffix(page, ".md"); code != "README" && !known[code] {
			t.Errorf("docs/problems/%s: there is no such problem", page)
		}
	}
	for code := range known {
		p, ok := provocations[code]
		if !ok {
			t.Errorf("%s: this test does not know how to bring it about", code)
			continue
		}
		t.Run(code, func(t *testing.T) {
			rec := p.act(provoke(t, p))
			response := dump(rec.Result()) + rec.Body.String()
			var body struct {
				Code       string
				Status     int
				Retryable  bool
				SafeNewKey bool `json:"safe_new_key"`
			}
			_, text, _ := strings.Cut(response, "\n\n")
			if err := json.Unmarshal([]byte(text), &body); err != nil || body.Code != code {
				t.Fatalf("this test brought about %q instead (%v)", response, err)
			}
			yes := map[bool]string{true: "yes", false: "no"}
			status := strconv.Itoa(body.Status)
			if code == notStored {
				status = "of the first answer"
			}
			facts := fmt.Sprintf("`%s` · Status %s · retry with the same key: %s · a new key is safe: %s\n", code, status, yes[body.Retryable], yes[body.SafeNewKey])
			row := fmt.Sprintf("| [%s](%[1]s.md) | %s | %s | %s |", code, status, yes[body.Retryable], yes[body.SafeNewKey])
			hold(t, "docs/problems/"+code+".md", "`"+code+"` · Status [^\n]*\n", facts)
			hold(t, "docs/problems/"+code+".md", "(?s)```http\n.*?\n```", "```http\n"+response+"```")
			hold(t, "docs/problems/README.md", `\| \[`+code+`\]\(\S+ \| [^|]* \| [^|]* \| [^|]* \|`, row)
		})
	}
}

// The Stripe profile says the same in Stripe's envelope.
func TestDocsStripeEnvelope(t *testing.T) {
	t.Parallel()
	w := provoke(t, &provocation{options: httpkey.Options{Profile: httpkey.Stripe}})
	rec := sending(1, "Content-Type", "text/plain")(w)
	hold(t, "docs/semantics.md", "(?s)```json\n.*?\n```", "```json\n"+rec.Body.String()+"```")
}

// hold holds the part of a document that the pattern finds to what it should
// say, or writes it there.
func hold(t *testing.T, file, pattern, want string) {
	t.Helper()
	doc := readDoc(t, file)
	part := regexp.MustCompile(pattern).FindString(doc)
	switch {
	case part == want:
	case *updateDocs && part != "":
		must(t, os.WriteFile(filepath.FromSlash(file), []byte(strings.Replace(doc, part, want, 1)), 0o600))
	default:
		t.Errorf("%s says\n%s\nbut it is\n%s\ngo test -run=TestDocs -docs.update . writes it", file, part, want)
	}
}

// The examples of docs/semantics.md are the same request, or different ones, as
// the page says.
func TestDocsFingerprintExamples(t *testing.T) {
	t.Parallel()
	example := regexp.MustCompile("(?m)^\\| `([^`]+)` \\| `([^`]+)` \\| (same|different) \\|")
	rows := example.FindAllStringSubmatch(readDoc(t, "docs/semantics.md"), -1)
	if len(rows) < 10 {
		t.Fatalf("docs/semantics.md shows %d examples; this test looks in the wrong place", len(rows))
	}
	for _, row := range rows {
		w := provoke(t, &provocation{options: httpkey.Options{Methods: []string{http.MethodPost, http.MethodPatch}}})
		ask := func(text string) *httptest.ResponseRecorder {
			method, target, body := http.MethodPost, "/payments", text
			if !strings.HasPrefix(text, "{") {
				method, target, _ = strings.Cut(text, " ")
				body = ""
			}
			return w.do(good(t, method, target, strings.NewReader(body)))
		}
		first, second := ask(row[1]), ask(row[2])
		want := map[string]int{"same": http.StatusCreated, "different": http.StatusUnprocessableEntity}[row[3]]
		if first.Code != http.StatusCreated || second.Code != want {
			t.Errorf("%s and %s: %d, then %d; docs/semantics.md says %s", row[1], row[2], first.Code, second.Code, row[3])
		}
	}
}

// publishedProblems returns the problems that a guard publishes, by code.
func publishedProblems(t *testing.T) map[string]json.RawMessage {
	t.Helper()
	fragment, err := provoke(t, new(provocation)).guard.OpenAPI()
	must(t, err)
	var api struct {
		Components struct{ Responses map[string]json.RawMessage }
	}
	must(t, json.Unmarshal(fragment, &api))
	return api.Components.Responses
}

// A provocation brings a problem about: what is in force, and what is done.
type provocation struct {
	policy  retrysafe.Policy
	options httpkey.Options
	handler http.HandlerFunc // nil answers 201
	act     func(*provoked) *httptest.ResponseRecorder
}

// provoked is a guarded handler with all that can go wrong around it.
type provoked struct {
	t     *testing.T
	now   time.Time // the store's
	mem   *memstore.Store
	fault *faultstore.Store
	guard *httpkey.Guard
	serve http.Handler
	inner *httptest.ResponseRecorder // the answer to a request that was sent while another ran
}

func provoke(t *testing.T, p *provocation) *provoked {
	t.Helper()
	w := &provoked{t: t, now: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)}
	w.mem = memstore.New(&memstore.Options{Now: func() time.Time { return w.now }})
	w.fault = faultstore.New(w.mem)
	var store retrysafe.Store = w.fault
	if p.options.Limits.ActiveKeys > 0 {
		store = w.mem // it can count
	}
	engine, err := retrysafe.New(store, &retrysafe.Options{Policy: p.policy, SettleTimeout: time.Millisecond})
	must(t, err)
	o := p.options
	o.Logger = slog.New(slog.DiscardHandler)
	w.guard, err = httpkey.New(engine, func(r *http.Request) (string, error) { return r.Header.Get("Tenant"), nil }, &o)
	must(t, err)
	next := p.handler
	if next == nil {
		next = func(rw http.ResponseWriter, _ *http.Request) { rw.WriteHeader(http.StatusCreated) }
	}
	w.serve = w.guard.Handler(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Ask-Again") != "" {
			w.inner = w.send()
		}
		next(rw, r)
	}))
	return w
}

const docsKey = "8e03978e-40d5-43dd-bc93-6894a57f9324"

// good returns a request that nothing is wrong with.
func good(t *testing.T, method, target string, body io.Reader) *http.Request {
	r := httptest.NewRequestWithContext(t.Context(), method, target, body)
	r.Header = http.Header{"Tenant": {"tenant-a"}, "Content-Type": {"application/json"}, "Idempotency-Key": {`"` + docsKey + `"`}}
	return r
}

// send sends a good request, changed by what is given: a header's name and
// value, one after the other; an empty value removes it.
func (w *provoked) send(header ...string) *httptest.ResponseRecorder {
	r := good(w.t, http.MethodPost, "/payments", strings.NewReader(`{"amount": 1200, "currency": "EUR"}`))
	for ; len(header) > 0; header = header[2:] {
		if r.Header.Set(header[0], header[1]); header[1] == "" {
			r.Header.Del(header[0])
		}
	}
	return w.do(r)
}

func (w *provoked) do(r *http.Request) *httptest.ResponseRecorder {
	rec := httptest.NewRecorder()
	w.serve.ServeHTTP(rec, r)
	return rec
}

// sending is send as an act, after the same request was sent some times before.
func sending(before int, header ...string) func(*provoked) *httptest.ResponseRecorder {
	return func(w *provoked) *httptest.ResponseRecorder {
		for range before {
			w.send()
		}
		return w.send(header...)
	}
}

func broken(http.ResponseWriter, *http.Request) { panic("a bug") }

// provocations has one for each problem.
var provocations = map[string]*provocation{
	"key-missing":          {act: sending(0, "Idempotency-Key", "")},
	"key-malformed":        {act: sending(0, "Idempotency-Key", "one, two")},
	"key-too-short":        {options: httpkey.Options{ShortKeys: httpkey.Refuse}, act: sending(0, "Idempotency-Key", "order-17")},
	"key-personal-data":    {options: httpkey.Options{PersonalData: httpkey.Refuse}, act: sending(0, "Idempotency-Key", "jane.doe@example.com")},
	"method-override":      {act: sending(0, "X-HTTP-Method-Override", "PATCH")},
	"first-sent-malformed": {options: httpkey.Options{FirstSent: true}, act: sending(0, "Idempotency-First-Sent", "yesterday")},
	"first-sent-stale":     {options: httpkey.Options{FirstSent: true}, act: sending(0, "Idempotency-First-Sent", "Thu, 01 Jan 2026 00:00:00 GMT")},
	"caller-unidentified":  {act: sending(0, "Tenant", "")},
	"encoding-unsupported": {act: sending(0, "Content-Encoding", "br")},
	"body-too-large":       {options: httpkey.Options{MaxRequest: 16}, act: sending(0)},
	"body-unreadable": {act: func(w *provoked) *httptest.ResponseRecorder {
		return w.do(good(w.t, http.MethodPost, "/payments", iotest.ErrReader(io.ErrUnexpectedEOF)))
	}},
	"key-reused": {act: sending(1, "Content-Type", "text/plain")},
	"in-flight": {act: func(w *provoked) *httptest.ResponseRecorder {
		w.send("Ask-Again", "yes")
		return w.inner
	}},
	"outcome-unknown": {
		handler: func(rw http.ResponseWriter, _ *http.Request) { rw.WriteHeader(http.StatusBadGateway) },
		act:     sending(1),
	},
	"key-expired": {policy: retrysafe.Policy{OnExpired: retrysafe.Gone}, act: func(w *provoked) *httptest.ResponseRecorder {
		w.send()
		w.now = w.now.Add(25 * time.Hour)
		return w.send()
	}},
	"answer-encoded": {
		handler: func(rw http.ResponseWriter, _ *http.Request) { rw.Header().Set("Content-Encoding", "br") },
		act:     sending(1, "Accept-Encoding", "identity"),
	},
	"too-many-new-keys": {options: httpkey.Options{Limits: httpkey.Limits{NewKeys: 0.5, NewKeysBurst: 1}},
		act: sending(1, "Idempotency-Key", "3a5a1c1c-9d7e-4f0e-8a53-57a2e7a5f0b1")},
	"too-many-active-keys": {options: httpkey.Options{Limits: httpkey.Limits{ActiveKeys: 1}},
		act: sending(1, "Idempotency-Key", "3a5a1c1c-9d7e-4f0e-8a53-57a2e7a5f0b1")},
	"too-many-lookups": {options: httpkey.Options{Limits: httpkey.Limits{Lookups: 0.5}}, act: sending(1)},
	"attempt-failed":   {policy: retrysafe.Policy{Effects: retrysafe.Keyed}, handler: broken, act: sending(0)},
	"attempt-unknown":  {handler: broken, act: sending(0)},
	"store-unavailable": {act: func(w *provoked) *httptest.ResponseRecorder {
		w.fault.Plan(faultstore.FailAll(faultstore.LoseRequest))
		return w.send()
	}},
	"record-unreadable": {act: func(w *provoked) *httptest.ResponseRecorder {
		_, err := w.mem.Create(w.t.Context(), retrysafe.Record{
			Ref: retrysafe.Ref{Scope: "tenant-a", Key: docsKey}, State: retrysafe.InProgress,
			Version: retrysafe.RecordVersion + 1, Owner: retrysafe.Owner{1}, Term: time.Hour,
		})
		must(w.t, err)
		return w.send()
	}},
	"outcome-pending": {act: func(w *provoked) *httptest.ResponseRecorder {
		w.fault.Plan(func(s faultstore.Step) faultstore.Fault {
			if s.Op == faultstore.Swap {
				return faultstore.LoseRequest
			}
			return faultstore.None
		})
		defer w.fault.Plan(nil)
		return w.send()
	}},
	"response-not-stored": {
		options: httpkey.Options{MaxResponse: 8},
		handler: func(rw http.ResponseWriter, _ *http.Request) {
			rw.Header().Set("Location", "/payments/pay_1")
			rw.WriteHeader(http.StatusCreated)
			_, _ = io.WriteString(rw, `{"id":"pay_1"}`)
		},
		act: sending(1),
	},
}

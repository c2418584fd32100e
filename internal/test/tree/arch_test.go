package tree_test

import (
	"bytes"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/retrysafe/retrysafe/internal/test/pages"
)

const (
	module  = "github.com/retrysafe/retrysafe"
	root    = "."
	program = "cmd/retrysafe"
	inner   = program + "/internal/"
	cli     = inner + "cli"
)

// An arrowRule lists the packages of ours that a package may import. Paths are
// relative to the module; "dir/..." stands for dir and everything below it.
type arrowRule struct {
	from string
	to   []string
	why  string
}

// everyGroup are the packages that every group of commands may import.
var everyGroup = []string{cli + "/command", cli + "/configfile", cli + "/exit", inner + "printable", inner + "terminal"}

// arrows has one rule for each package. What a package imports from outside this
// module is not its matter, and test files are exempt.
var arrows = []arrowRule{
	{root, []string{"internal/..."}, "the domain stands on the standard library alone"},

	{"httpkey", []string{root, "internal/canonjson", "internal/failreason", "internal/fields", "internal/headerkind", "internal/keysyntax", "internal/pause", "internal/pool", "internal/storemove", "internal/txrun"}, "the wire speaks to the engine and never to a store"},
	{"outbox", []string{root, "store/storekit", "internal/deadline", "internal/fields", "internal/failpoint"}, "messages commit with records, in whatever store; how they travel is a sink's matter"},
	{"outbox/sink/httpsink", []string{root, "outbox", "webhook", "internal/headerkind", "internal/neverresend"}, "a sink carries messages; where they come from it does not know"},
	{"outbox/sink/...", []string{"outbox"}, "a sink carries messages; where they come from it does not know"},
	{"inbox", []string{"internal/fields", "internal/migrate"}, "it stands in the consumer's own database, whatever sent the message"},
	{"janitor", []string{root, "internal/clockskew", "internal/deadline", "internal/pause"}, "background duties over any store"},
	{"janitor/httpresolver", []string{root, "janitor", "internal/answerrule", "internal/headerkind", "internal/jsonrule", "internal/neverresend"}, "it asks over HTTP; that a reconciler wants to know is not its matter"},
	{"webhook", []string{root, "internal/jsonrule"}, "it takes evidence in; what it settles is any store's"},
	{"operator", []string{root, "outbox", "store/storekit", "internal/failreason"}, "what a person may do to a record of any store"},
	{"telemetry", []string{root, "httpkey", "janitor", "outbox", "store/storekit", "store/tiered", "internal/failreason"}, "it counts what others tell it"},
	{"telemetry/otel", []string{root}, "it makes spans of what others tell it"},
	{"console/internal/access", []string{"internal/tokenlimit"}, "it knows people and roles, not what they look at"},
	{"console", []string{"operator", "outbox", "console/internal/..."}, "pages and an API of package operator; what runs beside them it is told"},
	{"console/internal/api", []string{root, "operator", "outbox", "console/internal/access", "internal/adminwire", "internal/headerkind"}, "it shows what package operator does, and decides nothing"},
	{"console/internal/pages", []string{root, "operator", "outbox", "console/internal/access", "internal/adminwire"}, "pages of what package operator shows; it knows no store and no metrics"},
	{"client", nil, "it talks to any API, also to one without retrysafe"},
	{"client/journal", []string{"client"}, "it keeps a client's operations; how they are sent is not its matter"},
	{"conform", nil, "the verifier is a black box: it shares no code with what it judges"},

	{"store/storekit", []string{root, "internal/fields", "internal/groupcommit"}, "what stores are built from; it knows none of them"},
	{"store/memstore", []string{root, "outbox", "store/storekit"}, "a store keeps records; it knows no HTTP"},
	{"store/sqlitestore", []string{root, "outbox", "store/storekit", "internal/deployment", "internal/groupcommit", "internal/migrate", "internal/pool", "internal/sqltx", "internal/storemove", "internal/failpoint"}, "a store keeps records; it knows no HTTP"},
	{"store/pgstore", []string{root, "outbox", "store/storekit", "internal/deployment", "internal/groupcommit", "internal/fields", "internal/migrate", "internal/sqltx", "internal/storemove", "internal/failpoint"}, "a store keeps records; it knows no HTTP"},
	{"store/dynamostore", []string{root, "store/storekit", "internal/deployment", "internal/storemove"}, "a store keeps records; it knows no HTTP"},
	{"store/mysqlstore", []string{root, "outbox", "store/storekit", "internal/deployment", "internal/groupcommit", "internal/migrate", "internal/sqltx", "internal/storemove", "internal/failpoint"}, "a store keeps records; it knows no HTTP"},
	{"store/redisstore", []string{root, "store/storekit", "internal/deployment", "internal/fields", "internal/groupcommit", "internal/redisurl", "internal/storemove"}, "a store keeps records; it knows no HTTP"},
	{"store/redistier", []string{root, "store/storekit", "internal/groupcommit", "internal/redisurl"}, "it stands before any store, so it knows none"},
	{"store/sealed", []string{root, "store/storekit", "internal/deployment", "internal/pool"}, "it wraps any store, so it knows none"},
	{"store/tiered", []string{root}, "it stands before any store, so it knows none"},
	{"store/storetest", []string{root, "outbox", "store/storekit"}, "the contract holds for every store, so it knows none"},

	{"internal/adapter", []string{root, "httpkey"}, "what the adapters of frameworks have in common; it knows no framework"},
	{"internal/adminwire", []string{root, "operator", "outbox", "internal/failreason"}, "what the console writes and the command reads"},
	{"internal/answerrule", []string{root, "internal/headerkind", "internal/jsonrule"}, "it knows answers and JSON, not what a document proves"},
	{"internal/canonjson", nil, "it knows JSON, not keys"},
	{"internal/deployment", []string{root}, "the names of two records"},
	{"internal/clockskew", nil, "when a store's clock is not believed alone"},
	{"internal/deadline", []string{root}, "a time limit by the engine's clock"},
	{"internal/pause", nil, "it knows durations, not what is waited for"},
	{"internal/failpoint", nil, "places where a test may end or fail a program; nothing in a release"},
	{"internal/failreason", nil, "it knows the text of a reason, not what becomes of the attempt"},
	{"internal/fields", nil, "it knows bytes, not keys"},
	{"internal/headerkind", nil, "it knows names of headers, not what is done with them"},
	{"internal/jsonrule", nil, "it knows JSON, not what a document proves"},
	{"internal/keysyntax", nil, "it knows how a key is written, not what it is the key of"},
	{"internal/groupcommit", []string{"internal/pool"}, "it batches steps; what a step does it does not know"},
	{"internal/migrate", nil, "it applies numbered SQL files; what tables these make it does not know"},
	{"internal/txrun", []string{root}, "it runs a function in a transaction of any store; it knows no protocol"},
	{"internal/pool", nil, "it keeps objects for reuse; what they are it does not know"},
	{"internal/neverresend", nil, "it knows HTTP, not keys"},
	{"internal/redisurl", nil, "it knows Redis servers, not what is kept in them"},
	{"internal/sqltx", nil, "it ends transactions of database/sql; what is in them it does not know"},
	{"internal/tokenlimit", nil, "it counts wrong tokens; what the right one opens it does not know"},
	{"internal/storemove", []string{root}, "what a store offers to the command that moves its records"},
	{"internal/test/adaptertest", []string{root, "httpkey", "store/memstore"}, "it holds the adapters of frameworks to the guard's behaviour"},
	{"internal/test/batchtest", []string{root, "store/storekit"}, "it counts the batches of any store that batches"},
	{"internal/test/crashtest", []string{root}, "it crashes the clients of any store"},
	{"internal/test/faultstore", []string{root, "internal/storemove"}, "it lets any store fail"},
	{"internal/test/misusetest", []string{root, "httpkey", "outbox"}, "it misuses guards and transactions over any store"},
	{"internal/test/movetest", []string{root, "internal/deployment", "internal/storemove", "outbox"}, "it holds any store to the contract of a move"},
	{"internal/test/poison", []string{"internal/pool"}, "it spoils what goes back to any pool"},
	{"internal/test/recoverytest", []string{root}, "it lets recovery race over any store"},
	{"internal/test/sinktest", []string{"outbox", "store/memstore", "internal/test/netfault"}, "it holds the sinks of brokers to their contract"},
	{"internal/test/changetest", []string{root}, "it changes the tables of any SQL store behind its back"},
	{"internal/test/leasetest", []string{root, "outbox"}, "it changes the clock of any SQL store behind its back"},
	{"internal/test/sizetest", []string{root}, "it holds any store in memory to what it counts"},
	{"internal/test/viewtest", []string{root, "internal/test/seed"}, "it holds the view of any store to the records in it"},
	{"internal/test/testservers", []string{"internal/test/porthold"}, "it runs servers, for the tests of any package"},
	{"internal/test/netfault", []string{"internal/test/porthold"}, "it knows bytes, not keys"},
	{"internal/test/...", nil, "a test kit knows nothing of what it is used for"},

	{program, []string{cli}, "a process around the command line"},
	{cli, []string{cli + "/bench", cli + "/build", cli + "/command", cli + "/config", cli + "/demo", cli + "/exit", cli + "/gateway", cli + "/journal", cli + "/keys", cli + "/migrate", cli + "/outbox", cli + "/prove", cli + "/reconcile", cli + "/verify", inner + "terminal"}, "the place where all groups of commands meet"},
	{cli + "/bench", slices.Concat(everyGroup, []string{cli + "/build", cli + "/stores", inner + "bench", inner + "sandbox", inner + "storeurl"}), "a group of commands; it knows no other group"},
	{cli + "/config", slices.Concat(everyGroup, []string{"store/sealed", cli + "/stores", inner + "gateway", inner + "gateway/config", inner + "gateway/identity", inner + "gateway/routing", inner + "storeurl"}), "a group of commands; it knows no other group"},
	{cli + "/demo", slices.Concat(everyGroup, []string{inner + "storeurl", "examples/payments/demo"}), "a group of commands; it knows no other group"},
	{cli + "/gateway", slices.Concat(everyGroup, []string{"internal/neverresend", root, "httpkey", "janitor", "telemetry", "store/redistier", "store/sealed", "store/storekit", "internal/redisurl", cli + "/build", cli + "/stores", inner + "gateway", inner + "gateway/admission", inner + "gateway/config", inner + "gateway/identity", inner + "gateway/listener", inner + "storeurl", inner + "ledger/daily", "telemetry/otel", "console", "operator", "outbox", inner + "duties"}), "a group of commands; it knows no other group"},
	{cli + "/journal", slices.Concat(everyGroup, []string{"client", "client/journal"}), "a group of commands; it knows no other group"},
	{cli + "/keys", slices.Concat(everyGroup, []string{root, "operator", "outbox", "store/storekit", "internal/adminwire", "internal/failreason", "internal/headerkind", "internal/storemove", cli + "/build", cli + "/action", cli + "/keyref", cli + "/stores", inner + "gateway/config", inner + "move", inner + "storeurl"}), "a group of commands; it knows no other group"},
	{cli + "/migrate", slices.Concat(everyGroup, []string{"store/mysqlstore", "store/pgstore", "store/sqlitestore", cli + "/stores", inner + "storeurl"}), "a group of commands; it knows no other group"},
	{cli + "/outbox", slices.Concat(everyGroup, []string{root, "operator", "outbox", "internal/adminwire", cli + "/action", cli + "/keyref", cli + "/stores"}), "a group of commands; it knows no other group"},
	{cli + "/prove", slices.Concat(everyGroup, []string{"store/dynamostore", "store/mysqlstore", "store/pgstore", "store/redisstore", "internal/test/testservers", cli + "/build", cli + "/stores", inner + "prove/...", inner + "storeurl"}), "a group of commands; it knows no other group"},
	{cli + "/reconcile", slices.Concat(everyGroup, []string{root, inner + "duties", "janitor", "janitor/httpresolver", inner + "gateway", "telemetry", cli + "/build", cli + "/stores", inner + "gateway/config", inner + "ledger", inner + "ledger/daily", inner + "ledger/export", inner + "ledger/feed"}), "a group of commands; it knows no other group"},
	{cli + "/verify", slices.Concat(everyGroup, []string{"conform"}), "a group of commands; it knows no other group"},
	{cli + "/action", []string{root, "operator", "internal/adminwire", cli + "/command", cli + "/exit", inner + "printable", inner + "terminal"}, "what commands have in common that change something"},
	{cli + "/build", nil, "it knows what the program was built from"},
	{cli + "/clitest", []string{root, "outbox", "store/sealed", cli, cli + "/command", inner + "storeurl", inner + "terminal"}, "it runs command lines, for the tests of every group"},
	{cli + "/command", []string{cli + "/exit", inner + "terminal"}, "what a command is made of; what it does is not its matter"},
	{cli + "/configfile", []string{cli + "/command", cli + "/exit", inner + "gateway/config"}, "it loads a configuration for any group"},
	{cli + "/exit", []string{inner + "printable"}, "how a command ends; which one is not its matter"},
	{cli + "/keyref", []string{root, inner + "printable", inner + "terminal"}, "the name of a record on a command line"},
	{cli + "/stores", []string{root, "operator", "outbox", "internal/adminwire", "internal/deployment", inner + "adminclient", "store/dynamostore", "store/mysqlstore", "store/pgstore", "store/redisstore", "store/sealed", "store/sqlitestore", cli + "/command", cli + "/configfile", cli + "/exit", inner + "printable", inner + "storeurl", inner + "terminal"}, "it opens the store of any group"},
	{inner + "adminclient", []string{root, "operator", "outbox", "internal/adminwire", "internal/neverresend"}, "package operator, over the API of a gateway"},
	{inner + "duties", []string{"janitor"}, "background duties of one run; what starts them it does not know"},
	{inner + "terminal", []string{inner + "printable"}, "what a terminal shows; of what, it does not know"},
	{inner + "printable", nil, "it knows text, not what it says"},
	{inner + "gateway/config", []string{root, "janitor/httpresolver", inner + "storeurl", inner + "printable", "internal/headerkind", "internal/redisurl", "webhook", "internal/answerrule", "internal/jsonrule", inner + "ledger", inner + "ledger/export", inner + "ledger/feed"}, "what a file says; what acts on it is not its matter"},
	{inner + "gateway/identity", []string{root, "internal/deployment", "httpkey", "store/sealed", inner + "gateway/config"}, "which settings a store belongs to; what a gateway does with them is not its matter"},
	{inner + "gateway/tenant", []string{inner + "printable"}, "it tells callers apart; what they may do is not its matter"},
	{inner + "gateway/admission", nil, "it divides numbers among names; what they stand for it does not know"},
	{inner + "gateway/listener", []string{"internal/tokenlimit", inner + "gateway/admission", inner + "gateway/config", inner + "gateway/rawhead", inner + "gateway/certfile", inner + "printable"}, "connections, and which configuration serves them; it knows no keys"},
	{inner + "gateway/certfile", nil, "it knows files, not what they secure"},
	{inner + "gateway/rawhead", nil, "it knows bytes, not keys"},
	{inner + "gateway/http1", []string{"internal/neverresend", "internal/pool"}, "one request on one connection; what it proves is not its matter"},
	{inner + "gateway/routing", nil, "it knows paths, not what becomes of a request"},
	{inner + "gateway", []string{root, "httpkey", "janitor", "telemetry/otel", inner + "gateway/admission", inner + "gateway/config", inner + "gateway/routing", inner + "gateway/tenant", inner + "gateway/certfile", "store/sealed", "store/tiered", "internal/deployment", "internal/failreason", "internal/headerkind", "internal/neverresend", "internal/pool", "internal/storemove", inner + "gateway/http1", "webhook", "internal/answerrule", "internal/jsonrule", inner + "printable", inner + "ledger/daily"}, "one configuration at work, over a store that it is given"},
	{inner + "ledger", []string{inner + "printable"}, "it compares two lists, wherever they come from"},
	{inner + "ledger/export", []string{root, "httpkey", "internal/jsonrule", inner + "ledger", inner + "printable", inner + "terminal"}, "it reads our list from any store; what it is compared with it does not know"},
	{inner + "ledger/feed", []string{inner + "ledger"}, "it reads the other side's list; what it is compared with it does not know"},
	{inner + "ledger/daily", []string{root, inner + "gateway/config", inner + "ledger", inner + "ledger/export", inner + "ledger/feed", inner + "printable"}, "a day is compared once, whichever node does it; what runs it is not its matter"},
	{inner + "move", []string{root, "internal/deployment", "internal/storemove", inner + "printable"}, "records move between any two stores"},
	{inner + "storeurl", []string{root, "outbox", "store/...", "internal/redisurl"}, "it opens any store by its URL"},
	{inner + "sandbox", []string{"store/redisstore", inner + "storeurl"}, "a store of its own for one run, of any kind"},
	{inner + "bench", []string{root, "store/...", "internal/redisurl", inner + "printable", inner + "sandbox", inner + "storeurl", inner + "terminal"}, "it measures any store, beside a bare loop on the same database"},
	{inner + "prove", []string{inner + "printable"}, "what a check is and what it has shown; what is checked it does not know"},
	{inner + "prove/child", nil, "it starts this program again; as what, it does not know"},
	{inner + "prove/spec", nil, "a model, not code"},
	{inner + "prove/effect", []string{root}, "what operations of checks do, and how it is counted; it knows no store"},
	{inner + "prove/sandbox", []string{root, "outbox", "store/...", inner + "sandbox", inner + "storeurl", inner + "prove/effect"}, "a store of its own for one check, of any kind"},
	{inner + "prove/model", []string{inner + "prove", inner + "prove/spec"}, "the model stands beside the code and shares none of it"},
	{inner + "prove/sim", []string{root, "janitor", "outbox/...", "store/memstore", "store/storekit", inner + "prove"}, "the engine and its helpers in a simulated world"},
	{inner + "prove/...", []string{root, "httpkey", "janitor", "outbox/...", "operator", "store/...", inner + "gateway/...", inner + "storeurl", inner + "prove", inner + "prove/child", inner + "prove/effect", inner + "prove/sandbox", "internal/failpoint", "internal/test/..."}, "a check uses what a user would, and what breaks it"},

	{"scripts/dist", nil, "it builds a release, and is no part of one"},
	{"examples/...", []string{"..."}, "an example may show anything that users can import"},
}

// An arrowBan is an arrow that no rule may allow, whatever the table says.
type arrowBan struct {
	from, to, why string
	but           []string // packages that it does not hold for
}

var never = []arrowBan{
	{"...", "cmd/...", "a command is where arrows start", nil},
	{"...", cli + "/clitest", "test kits are for tests", nil},
	{"...", "internal/test/...", "test kits are for tests, and for the checks of retrysafe prove", []string{cli + "/prove", inner + "prove/..."}},
	{"...", "examples/...", "examples are for reading; retrysafe demo runs one of them", []string{cli + "/demo"}},
	{"store/...", "httpkey", "a store keeps records; it knows no HTTP", nil},
	{"examples/...", "internal/...", "users cannot import it either", nil},
}

func TestArchRootIsStandardLibraryOnly(t *testing.T) {
	t.Parallel()
	cmd := exec.CommandContext(t.Context(), "go", "list", "-deps",
		"-f", `{{if not .Standard}}{{.ImportPath}} {{join .Imports " "}}{{end}}`, ".")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, stderr.String())
	}

	importers := map[string][]string{}
	for line := range strings.Lines(string(out)) {
		fields := strings.Fields(line)
		for _, dep := range fields[1:] {
			importers[dep] = append(importers[dep], fields[0])
		}
	}
	for line := range strings.Lines(string(out)) {
		dep := strings.Fields(line)[0]
		if dep == module || strings.HasPrefix(dep, module+"/internal/") {
			continue // internal packages are listed here too, so what they import is held as well
		}
		t.Errorf("the root package stands on the standard library only, but it reaches %s, imported by %s",
			dep, strings.Join(importers[dep], ", "))
	}
}

// A user sees what the library brings into a program before trying it, so the README
// says it: how many modules, and which.
func TestArchLinkedModules(t *testing.T) {
	t.Parallel()
	sentence := regexp.MustCompile("A\\s+program\\s+with\\s+`httpkey`\\s+and\\s+`store/pgstore`\\s+links\\s+(\\d+)\\s+modules:([^.]+)\\.").
		FindStringSubmatch(pages.Read(t, "README.md"))
	if sentence == nil {
		t.Fatal("README.md does not say how many modules a program with `httpkey` and `store/pgstore` links")
	}
	cmd := exec.CommandContext(t.Context(), "go", "list", "-deps", "-f", `{{with .Module}}{{if not .Main}}{{.Path}}{{end}}{{end}}`, "./httpkey", "./store/pgstore")
	cmd.Stderr = t.Output()
	out, err := cmd.Output()
	must(t, err)
	version := regexp.MustCompile(`/v\d+$`)
	var linked []string
	for path := range strings.FieldsSeq(string(out)) {
		linked = append(linked, version.ReplaceAllString(path, ""))
	}
	slices.Sort(linked)
	linked = slices.Compact(linked)
	if len(linked) == 0 {
		t.Fatal("no module is linked; this test looks in the wrong place")
	}
	if got := strconv.Itoa(len(linked)); sentence[1] != got {
		t.Errorf("README.md says that %s modules are linked, but it is %s: %s", sentence[1], got, strings.Join(linked, ", "))
	}
	var named []string // by the end of its path, as pgx or x/time
	for _, m := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(sentence[2], -1) {
		named = append(named, m[1])
		if !slices.ContainsFunc(linked, func(path string) bool { return strings.HasSuffix(path, "/"+m[1]) }) {
			t.Errorf("README.md says that %s is linked, but it is not", m[1])
		}
	}
	for _, path := range linked {
		if !slices.ContainsFunc(named, func(name string) bool { return strings.HasSuffix(path, "/"+name) }) {
			t.Errorf("README.md does not say that %s is linked", path)
		}
	}
}

func TestArchArrows(t *testing.T) {
	t.Parallel()
	for from, imports := range ourImports(t) {
		row := slices.IndexFunc(arrows, func(r arrowRule) bool { return covers(r.from, from) })
		if row < 0 {
			t.Errorf("package %s is in the tree but not in the table: add it to the table in internal/test/tree/arch_test.go with its arrows", from)
			continue
		}
		rule := arrows[row]
		for to, file := range imports {
			switch n := slices.IndexFunc(never, func(n arrowBan) bool {
				return covers(n.from, from) && covers(n.to, to) && !covers(n.to, from) && !slices.ContainsFunc(n.but, func(p string) bool { return covers(p, from) })
			}); {
			case n >= 0:
				t.Errorf("%s: the arrow %s → %s is never allowed (%s)", file, name(from), name(to), never[n].why)
			case !slices.ContainsFunc(rule.to, func(p string) bool { return covers(p, to) }):
				t.Errorf("%s: the arrow %s → %s turned: %s may import %s of ours (%s)",
					file, name(from), name(to), name(from), names(rule.to), rule.why)
			}
		}
	}
}

// A path of one machine, or a registry that one machine happens to use, works
// for its owner only.
func TestArchNoMachineInTheTree(t *testing.T) {
	t.Parallel()
	marks := []string{"/work/", "/root/", "proxy.golang.org", "sum.golang.org", "registry.npmjs.org", "registry.yarnpkg.com",
		"deb.debian.org", "security.debian.org", "files.pythonhosted.org"}
	inAName := regexp.MustCompile(`[\w.-]$`) // as in https://example.com/work/
	walk(t, func(file string) {
		if file == "internal/test/tree/arch_test.go" {
			return
		}
		data, err := os.ReadFile(filepath.FromSlash(file))
		if err != nil {
			t.Fatal(err)
		}
		for _, mark := range marks {
			before, _, found := bytes.Cut(data, []byte(mark))
			for rest := data; found; before, _, found = bytes.Cut(rest, []byte(mark)) {
				if mark[0] != '/' || !inAName.Match(before) {
					line := 1 + bytes.Count(data[:len(data)-len(rest)+len(before)], []byte("\n"))
					t.Errorf("%s:%d: %q is true on one machine only", file, line, mark)
					break
				}
				rest = rest[len(before)+len(mark):]
			}
		}
	})
}

// ourImports reads the import clauses of every file of the module that is not a
// test: package → imported package of ours → a file that does it. It reads files
// rather than asking the go command, so that all build tags and systems count and
// the test cache notices every edit.
func ourImports(t *testing.T) map[string]map[string]string {
	t.Helper()
	unbuilt := regexp.MustCompile(`(^|/)([._]|testdata/)`) // the go command does not look there
	found := map[string]map[string]string{}
	walk(t, func(file string) {
		if !strings.HasSuffix(file, ".go") || strings.HasSuffix(file, "_test.go") || unbuilt.MatchString(file) {
			return
		}
		dir := path.Dir(file)
		if inNestedModule(dir) {
			return
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), filepath.FromSlash(file), nil, parser.ImportsOnly)
		if err != nil {
			t.Errorf("parse imports: %v", err)
			return
		}
		if found[dir] == nil {
			found[dir] = map[string]string{}
		}
		for _, spec := range parsed.Imports {
			imported, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				t.Errorf("%s: import %s: %v", file, spec.Path.Value, err)
				continue
			}
			if imported == module {
				found[dir][root] = file
			} else if ours, ok := strings.CutPrefix(imported, module+"/"); ok {
				found[dir][ours] = file
			}
		}
	})
	return found
}

// walk visits every file that belongs to the repository, by its slash-separated path.
func walk(t *testing.T, visit func(file string)) {
	t.Helper()
	skip := []string{".git", "out", ".idea", ".vscode"}
	err := fs.WalkDir(os.DirFS("."), ".", func(file string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && slices.Contains(skip, file):
			return fs.SkipDir
		case file == ".git": // a file in a worktree
		case d.Type().IsRegular():
			visit(file)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// inNestedModule reports whether dir belongs to a module below this one.
func inNestedModule(dir string) bool {
	for ; dir != root; dir = path.Dir(dir) {
		if _, err := os.Stat(filepath.Join(filepath.FromSlash(dir), "go.mod")); err == nil {
			return true
		}
	}
	return false
}

// covers reports whether pattern names pkg, itself or with "...".
func covers(pattern, pkg string) bool {
	if pattern == "..." {
		return true
	}
	if dir, ok := strings.CutSuffix(pattern, "/..."); ok {
		return pkg == dir || strings.HasPrefix(pkg, dir+"/")
	}
	return pattern == pkg
}

// name is how a package is called in messages.
func name(pkg string) string {
	if pkg == root {
		return "retrysafe"
	}
	return pkg
}

func names(pkgs []string) string {
	if len(pkgs) == 0 {
		return "nothing"
	}
	var all []string
	for _, p := range pkgs {
		all = append(all, name(p))
	}
	return "only " + strings.Join(all, ", ")
}

package pgstore

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write testdata/statements.sql anew")

// testdata/statements.sql shows every statement as the server gets it, with the reason
// for its atomicity. A change of a template shows there what it does to each of its
// variants. After a change that is meant: go test ./store/pgstore -run Statements -update
func TestStatementsAreWrittenDown(t *testing.T) {
	t.Parallel()
	const steps = 1 // the object id of the type retrysafe_step[]; it differs in each database
	keys, box, move := newStatements("", steps), newOutboxStatements(""), newMoveStatements("")
	var b strings.Builder
	b.WriteString("-- Every statement of package pgstore, as it is sent: generated from the templates in queries*.go,\n" +
		"-- outbox_queries.go and move_queries.go by \"go test ./store/pgstore -run Statements -update\".\n")
	names := map[string]bool{}
	for _, group := range []struct {
		title string
		of    []*statement
	}{
		{"keys: steps of the store's own", fieldsOf(&keys)},
		{"keys: in a transaction of the caller's", fieldsOf(&keys.tx)},
		{"outbox: steps of workers and operators", fieldsOf(&box)},
		{"outbox: in a transaction of the caller's", fieldsOf(&box.tx)},
		{"move: steps of \"retrysafe keys copy\"", fieldsOf(&move)},
	} {
		fmt.Fprintf(&b, "\n\n-- == %s ==\n", group.title)
		for _, st := range group.of {
			if st.sql == "" || st.why == "" && !strings.HasPrefix(st.sql, "BEGIN") && st.sql != "COMMIT" && st.sql != "ROLLBACK" {
				t.Errorf("%s has no text, or does not say why it is atomic", st.name)
			}
			if names[st.name] {
				t.Errorf("two statements are called %s", st.name)
			}
			names[st.name] = true
			fmt.Fprintf(&b, "\n-- %s%s\n%s%s;\n", st.name, typesOf(st.oids, steps), st.why, st.sql)
			if st != &move.follow && strings.Contains(strings.ReplaceAll(st.sql, "'{3,4,6}'", ""), "{") {
				t.Errorf("%s has a placeholder that was not filled in", st.name)
			}
		}
	}
	golden := filepath.Join("testdata", "statements.sql")
	if *update {
		if err := os.WriteFile(golden, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Split(b.String(), "\n"); b.String() != string(want) {
		for i, line := range strings.Split(string(want), "\n") {
			if i >= len(got) || got[i] != line {
				t.Fatalf("%s:%d differs: run with -update and look at the change", golden, i+1)
			}
		}
		t.Fatalf("%s is shorter than the statements: run with -update and look at the change", golden)
	}
}

// typesOf is the types of parameters, for people.
func typesOf(oids []uint32, steps uint32) string {
	names := map[uint32]string{
		oidUUIDs: "uuid[]", oidInt8s: "bigint[]", oidInt4s: "int[]", oidInt2s: "smallint[]", oidByteas: "bytea[]",
		oidUUID: "uuid", oidInt8: "bigint", oidInt4: "int", oidInt2: "smallint", oidBytea: "bytea", oidBool: "boolean", steps: "retrysafe_step[]",
	}
	if len(oids) == 0 {
		return ""
	}
	list := make([]string, len(oids))
	for i, oid := range oids {
		list[i] = names[oid]
	}
	return " (" + strings.Join(list, ", ") + ")"
}

package ledger

import (
	"bufio"
	"encoding/json"
	"io"
	"time"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/printable"
)

// JSONLReport returns a report that writes a JSON object for each difference, in a line of its own:
//
//	{"kind":"different","id":"pay_2","fields":["amount"],"ours":{"line":3,"fields":{"amount":"12.00"}},"theirs":{…}}
//
// The last line has the kind "summary" and the fields of [Summary]; "error" is in it if the comparison failed. A file
// without that line is incomplete. Whatever is not printable is escaped; bytes that are no UTF-8 become U+FFFD. The report is
// not safe for concurrent use.
func JSONLReport(w io.Writer) Report { return &jsonlReport{bufio.NewWriter(w)} }

type jsonlReport struct{ w *bufio.Writer }

type jsonDifference struct {
	Kind   string     `json:"kind"`
	ID     string     `json:"id"`
	Fields []string   `json:"fields,omitempty"`
	Ours   *jsonEntry `json:"ours,omitempty"`
	Theirs *jsonEntry `json:"theirs,omitempty"`
}

type jsonEntry struct {
	Line   int               `json:"line,omitempty"`
	Time   string            `json:"time,omitempty"`
	Record string            `json:"record,omitempty"`
	State  string            `json:"state,omitempty"`
	Fields map[string]string `json:"fields,omitempty"`
}

func (j *jsonlReport) Add(d Difference) error {
	return j.line(jsonDifference{d.Kind.String(), d.ID, d.Fields, asJSON(&d.Ours), asJSON(&d.Theirs)})
}

func (j *jsonlReport) End(s Summary, err error) error {
	last := struct {
		Kind string `json:"kind"`
		Summary
		Error string `json:"error,omitempty"`
	}{Kind: "summary", Summary: s}
	if err != nil {
		last.Error = err.Error()
	}
	if err := j.line(last); err != nil {
		return err
	}
	return j.w.Flush()
}

func asJSON(e *Entry) *jsonEntry {
	if e.ID == "" {
		return nil
	}
	out := &jsonEntry{Line: e.Line, Fields: e.Fields, Record: e.Record, State: e.Unknown}
	if !e.Time.IsZero() {
		out.Time = e.Time.UTC().Format(time.RFC3339Nano)
	}
	return out
}

// line writes v as JSON, and escapes every character that a terminal would not print. Such characters occur only inside
// strings.
func (j *jsonlReport) line(v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	_, _ = j.w.Write(printable.JSON(text)) // the newline's write returns the first error
	return j.w.WriteByte('\n')
}

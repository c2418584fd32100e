package ledger

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"
)

// Unix is the [Columns.TimeLayout] of times in whole seconds since 1970.
const Unix = "unix"

// Columns say where in a file the parts of an entry are: in which columns of a CSV file, by the names in its header,
// or in which members of the objects of a JSONL file. Names must match exactly.
type Columns struct {
	// ID is the column of the id. It is required, and empty in no row.
	ID string
	// Time is the column of the time, if there is one. An empty text is no time.
	Time string
	// TimeLayout is how times are written, as for [time.Parse], or [Unix]; empty means RFC 3339. A time without a
	// zone is UTC.
	TimeLayout string
	// Fields has a name for each field that is to be compared, and the column it is in. A field of ours is
	// compared with the field of theirs that has the same name.
	Fields map[string]string
	// Comma separates the fields of a CSV file. Zero means a comma.
	Comma rune
	// MaxRow is how many bytes a row may have. Zero means 1 MiB.
	MaxRow int
}

const defaultMaxRow = 1 << 20

// A rowLayout is Columns as the readers use them: each column is read once, even if several parts of an entry need it.
type rowLayout struct {
	columns    []string // the texts that are read of each row
	id         int      // index in columns, like time
	time       int      // -1 if there is none
	timeLayout string
	fields     []fieldColumn
	maxRow     int
}

type fieldColumn struct {
	name string
	from int // index in columns
}

func (c *Columns) layout() (*rowLayout, error) {
	if c.ID == "" {
		return nil, errors.New("columns: the id's is missing")
	}
	l := &rowLayout{time: -1, timeLayout: c.TimeLayout, maxRow: c.MaxRow}
	if l.timeLayout == "" {
		l.timeLayout = time.RFC3339
	}
	if l.maxRow <= 0 {
		l.maxRow = defaultMaxRow
	}
	l.id = l.index(c.ID)
	if c.Time != "" {
		l.time = l.index(c.Time)
	}
	for _, name := range slices.Sorted(maps.Keys(c.Fields)) {
		l.fields = append(l.fields, fieldColumn{name, l.index(c.Fields[name])})
	}
	return l, nil
}

// index returns the index of a column in l.columns. It adds the column if it is missing.
func (l *rowLayout) index(column string) int {
	if i := slices.Index(l.columns, column); i >= 0 {
		return i
	}
	l.columns = append(l.columns, column)
	return len(l.columns) - 1
}

// entry makes an entry of the texts of l.columns.
func (l *rowLayout) entry(line int, texts []string) (Entry, error) {
	e := Entry{ID: texts[l.id], Line: line}
	if e.ID == "" {
		return Entry{}, malformed(line, "the id %q is empty", l.columns[l.id])
	}
	if l.time >= 0 && texts[l.time] != "" {
		t, err := parseTime(l.timeLayout, texts[l.time])
		if err != nil {
			return Entry{}, malformed(line, "the time %q: %w", l.columns[l.time], err)
		}
		e.Time = t
	}
	if len(l.fields) > 0 {
		e.Fields = make(map[string]string, len(l.fields))
	}
	for _, f := range l.fields {
		e.Fields[f.name] = texts[f.from]
	}
	return e, nil
}

func parseTime(layout, s string) (time.Time, error) {
	if layout != Unix {
		t, err := time.Parse(layout, s)
		if err != nil {
			return time.Time{}, fmt.Errorf("%s is not written as %q", quoted(s), layout)
		}
		return t.UTC(), nil
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		return time.Time{}, fmt.Errorf("%s is not a number of seconds", quoted(s))
	}
	return time.Unix(n, 0).UTC(), nil
}

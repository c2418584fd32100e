package ledger

import (
	"bufio"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"slices"
)

// CSV returns a source of the rows of a CSV file (RFC 4180) whose first row names the columns. It reads r once, and so
// can be ranged over once.
//
// It is strict: a column that is missing or there twice, a row with more or fewer fields than the header, a stray
// quote, an empty id or a time that is none is an error, [ErrMalformed] with its line, and so is a file without a
// header. Columns that are not in c are skipped. A byte order mark is skipped too.
func CSV(r io.Reader, c Columns) Source {
	return sourceOf(func(each func(Entry) bool) error { return readCSV(r, &c, each) })
}

// csvBuffer is how many bytes are read from a file at once.
const csvBuffer = 64 << 10

func readCSV(r io.Reader, c *Columns, each func(Entry) bool) error {
	l, err := c.layout()
	if err != nil {
		return err
	}
	metered := &meter{r: r, left: l.maxRow + csvBuffer}
	buffered := bufio.NewReaderSize(metered, csvBuffer)
	if mark, _ := buffered.Peek(len(byteOrderMark)); string(mark) == byteOrderMark {
		_, _ = buffered.Discard(len(mark))
	}
	rows := csvRows{Reader: csv.NewReader(buffered), meter: metered, maxRow: l.maxRow}
	rows.ReuseRecord = true
	if c.Comma != 0 {
		rows.Comma = c.Comma
	}

	header, err := rows.next()
	if errors.Is(err, io.EOF) {
		return malformed(1, "there is no header")
	} else if err != nil {
		return err
	}
	at, err := places(l.columns, header)
	if err != nil {
		return err
	}
	texts := make([]string, len(at))
	for {
		row, err := rows.next()
		if errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		for i, from := range at {
			texts[i] = row[from]
		}
		e, err := l.entry(rows.line, texts)
		if err != nil {
			return err
		}
		if !each(e) {
			return nil
		}
	}
}

const byteOrderMark = "\ufeff"

// places returns the index in the header of each wanted column.
func places(wanted, header []string) ([]int, error) {
	at := make([]int, len(wanted))
	for i, column := range wanted {
		at[i] = slices.Index(header, column)
		if at[i] < 0 {
			return nil, malformed(1, "the header has no column %q", column)
		}
		if slices.Contains(header[at[i]+1:], column) {
			return nil, malformed(1, "the header has the column %q twice", column)
		}
	}
	return at, nil
}

// csvRows reads rows of bounded length.
type csvRows struct {
	*csv.Reader
	meter  *meter
	maxRow int
	line   int // of the row read last
}

// next returns the next row, or io.EOF itself at the end.
func (c *csvRows) next() ([]string, error) {
	c.meter.left = c.maxRow + csvBuffer // the reader fills its buffer beyond the end of the row
	start := c.InputOffset()
	row, err := c.Read()
	var syntax *csv.ParseError
	switch {
	case err == nil && c.InputOffset()-start > int64(c.maxRow):
		err = errLongRow
	case err == nil:
		c.line, _ = c.FieldPos(0)
		return row, nil
	case errors.Is(err, io.EOF):
		return nil, io.EOF
	case errors.As(err, &syntax):
		return nil, malformed(syntax.Line, "%w", syntax.Err)
	}
	if errors.Is(err, errLongRow) {
		err = fmt.Errorf("%w: a row of more than %d bytes; or a quote is not closed", ErrTooLarge, c.maxRow)
	}
	return nil, fmt.Errorf("after the row in line %d: %w", c.line, err)
}

var errLongRow = errors.New("the row is too long")

// A meter is a reader that fails after a number of bytes. Without it, a quote that is not closed would make the CSV
// reader hold the rest of the file in memory.
type meter struct {
	r    io.Reader
	left int
}

func (m *meter) Read(p []byte) (int, error) {
	if m.left <= 0 {
		return 0, errLongRow
	}
	n, err := m.r.Read(p[:min(len(p), m.left)])
	m.left -= n
	return n, err
}

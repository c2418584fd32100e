package mysqlstore

import (
	"context"
	"database/sql/driver"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/retrysafe/retrysafe/internal/failpoint"
)

// A script is the text of several statements that go in one round trip. Values are in the
// text as decimal numbers and as hexadecimal literals, never quoted: so it is the same
// under every character set and sql_mode, and no value can end its literal.
type script struct{ strings.Builder }

// then begins the next statement with the texts.
func (s *script) then(texts ...string) {
	if s.Len() > 0 {
		s.WriteByte(';')
	}
	for _, text := range texts {
		s.WriteString(text)
	}
}

// begin begins a transaction, and keeps the time for the statements of the script.
func (s *script) begin(c conn) {
	s.then(begin)
	if c.mariaDB {
		s.then(takeFreshNow)
	} else {
		s.then(setNow)
		s.then(selectSetNow)
	}
}

// row adds a row of values, each a text of our own, an int64 or bytes.
func (s *script) row(first bool, values ...any) {
	if !first {
		s.WriteByte(',')
	}
	s.WriteByte('(')
	for i, v := range values {
		if i > 0 {
			s.WriteByte(',')
		}
		switch v := v.(type) {
		case string:
			s.WriteString(v)
		case int64:
			var space [20]byte
			s.Write(strconv.AppendInt(space[:0], v, 10))
		case []byte:
			s.literal(v)
		}
	}
	s.WriteByte(')')
}

// literal adds bytes.
func (s *script) literal(b []byte) {
	s.WriteString("x'")
	var space [256]byte
	for len(b) > 0 {
		n := min(len(b), len(space)/2)
		s.Write(hex.AppendEncode(space[:0], b[:n]))
		b = b[n:]
	}
	s.WriteByte('\'')
}

// list adds ids in parentheses.
func (s *script) list(n int, key func(int) *id) {
	s.WriteByte('(')
	for i := range n {
		if i > 0 {
			s.WriteByte(',')
		}
		s.literal(key(i)[:])
	}
	s.WriteByte(')')
}

// send runs a script on a connection that takes several statements in one round trip. The
// server runs none behind one that it refuses. Send returns the first value of the first
// row, a number.
func (c conn) send(ctx context.Context, s *script) (number int64, err error) {
	failpoint.Hit("mysql.sending")
	err = c.Raw(func(link any) error {
		rows, err := link.(driver.QueryerContext).QueryContext(ctx, s.String(), nil) //nolint:forcetypeassert // probe has looked
		if err != nil {
			return err
		}
		number, err = firstNumber(rows)
		return errors.Join(err, rows.Close())
	})
	if err != nil {
		return 0, err
	}
	failpoint.Hit("mysql.answered")
	return number, nil
}

// firstNumber reads all results of a script.
func firstNumber(rows driver.Rows) (number int64, err error) {
	for first := true; ; {
		values := make([]driver.Value, len(rows.Columns()))
		for len(values) > 0 {
			if err := rows.Next(values); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				return 0, err
			}
			if first {
				if number, err = numberOf(values[0]); err != nil {
					return 0, err
				}
				first = false
			}
		}
		more, ok := rows.(driver.RowsNextResultSet)
		if !ok || !more.HasNextResultSet() {
			return number, nil
		}
		if err := more.NextResultSet(); errors.Is(err, io.EOF) {
			return number, nil
		} else if err != nil { // a statement of the script was refused
			return 0, err
		}
	}
}

func numberOf(v driver.Value) (int64, error) {
	switch v := v.(type) {
	case int64:
		return v, nil
	case uint64:
		return int64(v), nil
	case []byte:
		return strconv.ParseInt(string(v), 10, 64)
	default:
		return 0, fmt.Errorf("mysqlstore: the server returned %T where a number was asked for", v)
	}
}

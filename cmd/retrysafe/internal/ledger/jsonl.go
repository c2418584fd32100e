package ledger

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"unicode/utf8"
)

// JSONL returns a source of the rows of a file with a JSON object in each line. It reads r once, and so can be ranged
// over once.
//
// Strings stand for their text, numbers for their digits just as they are written, true and false for these words, and
// null for nothing. It is strict: a line that is no object, a member that is missing, there twice, or an array or
// object, invalid UTF-8, an empty id or a time that is none is an error, [ErrMalformed] with its line. Members that
// are not in c are skipped, and so are blank lines.
func JSONL(r io.Reader, c Columns) Source {
	return sourceOf(func(each func(Entry) bool) error { return readJSONL(r, &c, each) })
}

func readJSONL(r io.Reader, c *Columns, each func(Entry) bool) error {
	l, err := c.layout()
	if err != nil {
		return err
	}
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, l.maxRow+len("\r\n"))
	texts, seen := make([]string, len(l.columns)), make([]bool, len(l.columns))
	line := 0
	for lines.Scan() && lines.Err() == nil { // the last text before a read error is no whole line
		line++
		if len(lines.Bytes()) > l.maxRow {
			return tooLong(line, l.maxRow)
		}
		row := bytes.Trim(lines.Bytes(), " \t\r")
		if len(row) == 0 {
			continue
		}
		if err := l.members(row, texts, seen); err != nil {
			return malformed(line, "%w", err)
		}
		e, err := l.entry(line, texts)
		if err != nil {
			return err
		}
		if !each(e) {
			return nil
		}
	}
	if err := lines.Err(); errors.Is(err, bufio.ErrTooLong) {
		return tooLong(line+1, l.maxRow)
	} else if err != nil {
		return fmt.Errorf("after line %d: %w", line, err)
	}
	return nil
}

func tooLong(line, maxRow int) error {
	return &LineError{line, fmt.Errorf("%w: a row of more than %d bytes", ErrTooLarge, maxRow)}
}

// members sets texts to the members of an object that l.columns names. seen is scratch space of the same length.
func (l *rowLayout) members(row []byte, texts []string, seen []bool) error {
	if !utf8.Valid(row) {
		return errors.New("invalid UTF-8")
	}
	if row[0] != '{' || !json.Valid(row) {
		return errors.New("not a JSON object")
	}
	clear(seen)
	for rest := skipSpace(row[1:]); rest[0] != '}'; {
		name, value := splitValue(rest)
		value = skipSpace(skipSpace(value)[1:]) // after the colon
		text, after := splitValue(value)
		if rest = skipSpace(after); rest[0] == ',' {
			rest = skipSpace(rest[1:])
		}
		column, err := unquote(name)
		if err != nil {
			return err
		}
		i := slices.IndexFunc(l.columns, func(c string) bool { return c == string(column) })
		if i < 0 {
			continue
		}
		if seen[i] {
			return fmt.Errorf("the member %q is there twice", column)
		}
		seen[i] = true
		if texts[i], err = scalar(text); err != nil {
			return fmt.Errorf("the member %q: %w", column, err)
		}
	}
	if i := slices.Index(seen, false); i >= 0 {
		return fmt.Errorf("the member %q is missing", l.columns[i])
	}
	return nil
}

// The functions below require valid JSON and check nothing.

func skipSpace(b []byte) []byte {
	for b[0] <= ' ' {
		b = b[1:]
	}
	return b
}

// splitValue splits b after the value that it begins with.
func splitValue(b []byte) (value, rest []byte) {
	depth := 0
	for i := 0; ; {
		switch b[i] {
		case '"':
			for i++; b[i] != '"'; i++ {
				if b[i] == '\\' {
					i++
				}
			}
			i++
		case '{', '[':
			depth++
			i++
		case '}', ']':
			depth--
			i++
		default:
			if depth > 0 {
				i++
				continue
			}
			n := bytes.IndexAny(b, ",:}] \t\r\n")
			return b[:n], b[n:]
		}
		if depth == 0 {
			return b[:i], b[i:]
		}
	}
}

// scalar returns the text that a value stands for.
func scalar(value []byte) (string, error) {
	switch value[0] {
	case '"':
		text, err := unquote(value)
		return string(text), err
	case '{', '[':
		return "", errors.New("an array or object is no text")
	case 'n':
		return "", nil
	default:
		return string(value), nil
	}
}

// unquote returns the text of a string, which may share the string's memory. An escape that stands for half a surrogate
// pair is an error: decoding would turn every such half into the same replacement character.
func unquote(quoted []byte) ([]byte, error) {
	if bytes.IndexByte(quoted, '\\') < 0 {
		return quoted[1 : len(quoted)-1], nil
	}
	for rest := quoted; ; {
		i := bytes.IndexByte(rest, '\\')
		if i < 0 {
			break
		}
		rest = rest[i:]
		switch first := surrogate(rest); {
		case first == 0:
			rest = rest[len(`\n`):]
		case first == high && surrogate(rest[len(`\ud800`):]) == low:
			rest = rest[len(`\ud800\udc00`):]
		default:
			return nil, errors.New("half a character")
		}
	}
	var s string
	err := json.Unmarshal(quoted, &s)
	return []byte(s), err
}

const (
	high = 1 + iota
	low
)

// surrogate returns which half of a surrogate pair the escape at the start of b is; 0 if it is none.
func surrogate(b []byte) int {
	if len(b) < len(`\ud800`) || b[0] != '\\' || b[1] != 'u' {
		return 0
	}
	switch n, _ := strconv.ParseUint(string(b[2:6]), 16, 16); {
	case n >= 0xd800 && n < 0xdc00:
		return high
	case n >= 0xdc00 && n < 0xe000:
		return low
	}
	return 0
}

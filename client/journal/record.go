package journal

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"strconv"
	"time"

	"github.com/retrysafe/retrysafe/client"
)

// heading is the first line of a journal. Its number changes when older versions could not
// read the records any more.
const heading = "retrysafe journal 1\n"

// A record is one change of the journal.
type record struct {
	Begin  *client.Operation `json:"begin,omitempty"`
	End    *ending           `json:"end,omitempty"`
	Forget string            `json:"forget,omitempty"`
}

// An ending is the outcome of an operation.
type ending struct {
	ID        string         `json:"id"`
	Answer    *client.Answer `json:"answer,omitempty"`
	Abandoned string         `json:"abandoned,omitempty"`
	Ended     time.Time      `json:"ended"`
	Expires   time.Time      `json:"expires,omitzero"`
}

var table = crc32.MakeTable(crc32.Castagnoli)

// A line has all records of one write: a checksum and a JSON array. The write is durable
// before any of its operations is sent, and the next write begins only then. So a torn line is
// the last one, and nothing in it was sent.
func encodeLine(records []record) ([]byte, error) {
	text, err := json.Marshal(records)
	if err != nil {
		return nil, err
	}
	return fmt.Appendf(nil, "%08x %s\n", crc32.Checksum(text, table), text), nil
}

// errTorn says that a line is not what was written.
var errTorn = errors.New("the checksum of a line is wrong")

// decodeLine reads a line without its end.
func decodeLine(line []byte) (records []record, err error) {
	sum, text, ok := bytes.Cut(line, []byte(" "))
	if !ok || string(sum) != fmt.Sprintf("%08x", crc32.Checksum(text, table)) {
		return nil, errTorn
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields() // what this version does not know, it cannot act on
	if err := decoder.Decode(&records); err != nil {
		return nil, fmt.Errorf("read a line: %w; is the journal of a newer version?", err)
	}
	return records, nil
}

// wholePart returns the length of the part of a damaged line that is a whole line, or 0.
func wholePart(line []byte) int {
	sum, text, _ := bytes.Cut(line, []byte(" "))
	want, err := strconv.ParseUint(string(sum), 16, 32)
	if err != nil || len(sum) != 8 {
		return 0
	}
	for n, running := 1, uint32(0); n <= len(text); n++ {
		if running = crc32.Update(running, table, text[n-1:n]); running == uint32(want) {
			return len(sum) + 1 + n
		}
	}
	return 0
}

package journal_test

import (
	"fmt"
	"hash/crc32"
)

// line returns a line of a journal with a valid checksum.
func line(text string) string {
	return fmt.Sprintf("%08x %s\n", crc32.Checksum([]byte(text), crc32.MakeTable(crc32.Castagnoli)), text)
}

package memstore

import (
	"fmt"
	"strings"
	"testing"

	"github.com/retrysafe/retrysafe"
)

// Keys as clients choose them, which often differ in a few characters only, are spread over the shards.
func TestKeysAreSpreadOverTheShards(t *testing.T) {
	t.Parallel()
	s := New(nil)
	for name, key := range map[string]func(i int) string{
		"numbers":            func(i int) string { return fmt.Sprint(i) },
		"numbers in a text":  func(i int) string { return fmt.Sprintf("order-%07d-create", i) },
		"like UUIDs":         func(i int) string { return fmt.Sprintf("%08x-0000-4000-8000-000000000000", i) },
		"the last byte":      func(i int) string { return fmt.Sprintf("pay-%08x", i) },
		"the length":         func(i int) string { return strings.Repeat("k", 1+i%255) + fmt.Sprint(i/255) },
		"the middle of many": func(i int) string { return strings.Repeat("a", 100) + fmt.Sprint(i) + strings.Repeat("b", 100) },
	} {
		const keys = shardCount * 256
		var counts [shardCount]int
		for i := range keys {
			counts[s.index(retrysafe.Ref{Key: key(i)})]++
		}
		for shard, n := range counts {
			if n < 128 || n > 512 { // 256 are expected, and chance gives 16 more or less
				t.Errorf("%s: shard %d has %d of %d keys", name, shard, n, keys)
			}
		}
	}
}

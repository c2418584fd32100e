package redisstore

import (
	"cmp"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"strings"

	"github.com/retrysafe/retrysafe"
)

// The data has a number of parts, the buckets. All keys of one bucket are in one slot of a
// cluster, and one script works on one bucket. A cluster has many, so that its slots can
// be at many servers. A single server has few, so that steps which come together share
// scripts; but not one alone, because a list reads what is due of a bucket at once. The
// number is written with the data, and stays when the data goes to another server.
const (
	maxBuckets     = 256
	clusterBuckets = 256
	serverBuckets  = 4
)

// id identifies a record: the hash of its scope (12 characters) and the hash of scope and
// key (20). If two refs had the same id the second would be refused: the record holds the
// texts.
type id string

const (
	scopeDigits = 12
	idDigits    = 32
)

func idOf(ref retrysafe.Ref) id {
	var space [256]byte
	b := binary.BigEndian.AppendUint32(space[:0], uint32(len(ref.Scope)))
	b = append(b, ref.Scope...)
	scope := sha256.Sum256(b)
	whole := sha256.Sum256(append(b, ref.Key...))
	var sum [24]byte
	copy(sum[:9], scope[:])
	copy(sum[9:], whole[:])
	return id(base64.RawURLEncoding.EncodeToString(sum[:]))
}

// scopeOf returns the digits that all ids of a scope begin with.
func scopeOf(scope string) id { return idOf(retrysafe.Ref{Scope: scope})[:scopeDigits] }

// bucket returns the bucket of the record, of so many, a power of two. It depends on the
// hash of the key, so that a scope is spread over all buckets.
func (i id) bucket(of int) int {
	var b [3]byte
	if _, err := base64.RawURLEncoding.Decode(b[:], []byte(i[scopeDigits:scopeDigits+4])); err != nil {
		return 0
	}
	return int(b[0]) & (of - 1)
}

// place returns the place of the id in the index of ids: 32 bits of the hash of the scope
// and 21 of the hash of the key, which the server compares as a number. Ids with the same
// place are ordered by their text.
func (i id) place() uint64 {
	var b [idDigits * 3 / 4]byte
	if _, err := base64.RawURLEncoding.Decode(b[:], []byte(i)); err != nil {
		return 0
	}
	return uint64(binary.BigEndian.Uint32(b[:]))<<21 | uint64(binary.BigEndian.Uint32(b[10:])>>11)
}

// compareIDs compares ids in the order of their index.
func compareIDs(a, b id) int { return cmp.Or(cmp.Compare(a.place(), b.place()), cmp.Compare(a, b)) }

// places returns the first and the last place of the ids of a scope. Another scope may have
// some of them.
func places(scope string) (first, last uint64) {
	first = (scopeOf(scope) + id(strings.Repeat("A", idDigits-scopeDigits))).place()
	return first, first | (1<<21 - 1)
}

// valid reports whether i can be the id of a record.
func (i id) valid() bool {
	if len(i) != idDigits {
		return false
	}
	_, err := base64.RawURLEncoding.DecodeString(string(i))
	return err == nil
}

// unreadableScope marks the Ref of a record that cannot be read. Its key is the id, so
// that a list can continue behind it.
const unreadableScope = "\x00retrysafe: unreadable"

func unreadable(i id) retrysafe.Ref { return retrysafe.Ref{Scope: unreadableScope, Key: string(i)} }

// afterOf returns the id behind which a list continues.
func afterOf(ref retrysafe.Ref) id {
	if ref.Scope == unreadableScope && id(ref.Key).valid() {
		return id(ref.Key)
	}
	return idOf(ref)
}

// keys are the names of the keys of one bucket.
type keys struct {
	mark string // the epoch, the highest revision and the number of writes
	ids  string // all ids, by their order
	due  string // all ids, by deadline: the forgettable ones before all others; see lua/begin.lua
	over string // which servers have taken the bucket over; see lua/takeover.lua
	tag  string
	slot int
}

func keysOf(prefix string, bucket int) keys {
	name := fmt.Sprintf("%s:%02x", prefix, bucket)
	tag := "{" + name + "}:"
	return keys{mark: tag + "mark", ids: tag + "ids", due: tag + "due", over: tag + "over", tag: tag, slot: slotOf(name)}
}

// record returns the name of the key of a record.
func (k *keys) record(i id) string { return k.tag + string(i) }

// slotOf returns the slot of a cluster that a tag is in: CRC-16 of XMODEM.
func slotOf(tag string) int {
	var crc uint16
	for _, c := range []byte(tag) {
		crc ^= uint16(c) << 8
		for range 8 {
			if crc&0x8000 != 0 {
				crc = crc<<1 ^ 0x1021
			} else {
				crc <<= 1
			}
		}
	}
	return int(crc) % 16384
}

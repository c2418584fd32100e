// Package poison finds state that objects of a pool carry from one user to the next.
package poison

import (
	"fmt"
	"reflect"
	"slices"

	"github.com/retrysafe/retrysafe/internal/pool"
)

// Byte is what poisoned buffers are full of.
const Byte = 0xDB

// Clean panics if the struct that x points to has a field that is not zero. A slice, a
// map and a channel may be kept if they are empty, and the fields that are named may be
// anything.
func Clean(x any, but ...string) {
	v := reflect.ValueOf(x).Elem()
	for i := range v.NumField() {
		f, name := v.Field(i), v.Type().Field(i).Name
		if slices.Contains(but, name) || f.IsZero() {
			continue
		}
		switch f.Kind() {
		case reflect.Slice, reflect.Map, reflect.Chan:
			if f.Len() == 0 {
				continue
			}
		default:
		}
		panic(fmt.Sprintf("an object of type %T goes back to its pool with %s = %v", x, name, f)) //nolint:forbidigo // the test that did it fails, and no other goes on with the object
	}
}

// Bytes returns a buffer that is full of [Byte], in the same memory.
func Bytes(b []byte) []byte {
	b = b[:cap(b)]
	for i := range b {
		b[i] = Byte
	}
	return b
}

// Pools makes do see every object that goes back to a pool, in the whole program. It is
// called before tests run.
func Pools(do func(x any)) { pool.OnPut(do) }

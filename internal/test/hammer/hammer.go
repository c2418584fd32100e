// Package hammer runs a fuzz target with many mutated inputs, without the fuzzing
// engine. It has no coverage feedback, and so needs a microsecond for an input where
// the engine needs a hundred. Test a change with both.
//
//	func FuzzKey(f *testing.F) {
//		hammer.Add(f, `"8e03978e"`)
//		hammer.Fuzz(f, func(t *testing.T, line string) { ... })
//	}
//
//	go test -run '^Fuzz' -hammer 80000 ./httpkey
package hammer

import (
	"flag"
	"math/rand/v2"
	"reflect"
	"slices"
	"sync"
	"testing"
)

var (
	times = flag.Int("hammer", 0, "how many mutated inputs each fuzz target gets")
	begin = flag.Uint64("hammer.seed", 1, "the seed of the mutations")
)

// seeds are the arguments of Add, for each target until its Fuzz.
var seeds struct {
	mu sync.Mutex
	of map[*testing.F][][]any
}

// Add adds a seed to the target, like [testing.F.Add].
func Add(f *testing.F, args ...any) {
	f.Helper()
	f.Add(args...)
	seeds.mu.Lock()
	defer seeds.mu.Unlock()
	if seeds.of == nil {
		seeds.of = make(map[*testing.F][][]any)
	}
	seeds.of[f] = append(seeds.of[f], args)
}

// Fuzz is [testing.F.Fuzz], with as many additional inputs as the command line asks
// for. A target that fails reports the input. The inputs of one seed share one T,
// because a test for each takes longer than most targets do. So a target must return
// from an input that it does not care for, and never skip.
func Fuzz(f *testing.F, target any) {
	f.Helper()
	seeds.mu.Lock()
	all := seeds.of[f]
	delete(seeds.of, f)
	seeds.mu.Unlock()
	if *times == 0 || len(all) == 0 {
		f.Fuzz(target)
		return
	}
	m := mutator{rand.New(rand.NewPCG(*begin, 0))}
	share, left := (*times+len(all)-1)/len(all), *times
	fn := reflect.ValueOf(target)
	f.Fuzz(reflect.MakeFunc(fn.Type(), func(args []reflect.Value) []reflect.Value {
		t := args[0].Interface().(*testing.T)
		returned := true
		defer func() {
			if returned && !t.Failed() {
				return
			}
			for _, a := range args[1:] {
				t.Logf("given %#v", a.Interface())
			}
			if t.Skipped() {
				t.Error("a target that skips an input skips those behind it: return instead")
			}
		}()
		for n := min(share, left); ; n-- {
			returned = false
			fn.Call(args)
			returned = true
			if n == 0 || t.Failed() {
				return nil
			}
			left--
			for i, v := range m.vary(all[m.IntN(len(all))], all) {
				args[i+1] = reflect.ValueOf(v)
			}
		}
	}).Interface())
}

// A mutator makes inputs from seeds.
type mutator struct{ *rand.Rand }

// vary returns a copy of a seed's arguments with one or more of them changed.
func (m mutator) vary(seed []any, all [][]any) []any {
	out := slices.Clone(seed)
	for i, v := range out {
		if b, is := v.([]byte); is {
			out[i] = slices.Clone(b)
		}
	}
	for n := 1 + m.IntN(2); n > 0; n-- {
		i := m.IntN(len(out))
		out[i] = m.value(out[i], all[m.IntN(len(all))][i])
	}
	return out
}

// value returns something like v, perhaps with a part of other.
func (m mutator) value(v, other any) any {
	switch v := v.(type) {
	case []byte:
		return m.bytes(v, other.([]byte))
	case string:
		return string(m.bytes([]byte(v), []byte(other.(string))))
	case bool:
		return !v
	case byte:
		return byte(m.number(uint64(v)))
	case int:
		return int(m.number(uint64(v)))
	case uint64:
		return m.number(v)
	default:
		return v
	}
}

// edges are numbers at which ranges often end.
var edges = [...]uint64{0, 1, 2, 7, 8, 15, 16, 127, 128, 255, 256, 1<<15 - 1, 1 << 15, 1<<16 - 1, 1<<31 - 1, 1 << 31, 1<<32 - 1, 1<<63 - 1, 1 << 63, 1<<64 - 1}

func (m mutator) number(v uint64) uint64 {
	switch m.IntN(4) {
	case 0:
		return edges[m.IntN(len(edges))]
	case 1:
		return v + uint64(m.IntN(5)) - 2
	case 2:
		return v ^ 1<<m.IntN(64)
	default:
		return m.Uint64()
	}
}

// telling are bytes with a meaning in some format.
const telling = "\x00\t\n\r \"'\\/{}[](),:;=%&?#<>+-.0123456789eEaAzZ\x7f\x80\xbf\xc0\xe2\xf0\xff"

// bytes returns b with up to a few changes.
func (m mutator) bytes(b, other []byte) []byte {
	b = slices.Clone(b)
	for n := 1 + m.IntN(4); n > 0; n-- {
		b = m.change(b, other)
	}
	return b
}

func (m mutator) change(b, other []byte) []byte {
	at := m.IntN(len(b) + 1)
	to := at + m.IntN(min(len(b)-at, 16)+1)
	switch m.IntN(8) {
	case 0: // a bit
		if at < len(b) {
			b[at] ^= 1 << m.IntN(8)
		}
	case 1: // a byte that means something
		if at < len(b) {
			b[at] = telling[m.IntN(len(telling))]
		}
	case 2: // one more
		b = insert(b, at, telling[m.IntN(len(telling))])
	case 3: // some less
		b = append(b[:at], b[to:]...)
	case 4: // cut off
		b = b[:at]
	case 5: // some of it again
		b = insert(b, to, b[at:to]...)
	case 6: // some of another
		if len(other) > 0 {
			from := m.IntN(len(other))
			b = insert(b, at, other[from:from+m.IntN(min(len(other)-from, 32)+1)]...)
		}
	default: // any
		b = insert(b, at, byte(m.Uint32()))
	}
	return b
}

func insert(b []byte, at int, more ...byte) []byte {
	return append(b[:at:at], append(append([]byte(nil), more...), b[at:]...)...)
}

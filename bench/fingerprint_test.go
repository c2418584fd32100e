package bench_test

import (
	"bytes"
	"crypto/sha256"
	"flag"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/retrysafe/retrysafe/internal/canonjson"
)

var ratios = flag.Bool("ratios", false, "measure BenchmarkFingerprint interleaved and print its ratios as a table")

// A contender computes the fingerprint of a body. Its scratch memory lives as long as the contender, as it would in a pool.
type contender struct {
	name string
	make func() func(body []byte) ([sha256.Size]byte, error)
}

var contenders = []contender{
	{"ours", func() func([]byte) ([sha256.Size]byte, error) {
		var enc canonjson.Encoder
		var buf []byte
		return func(body []byte) (sum [sha256.Size]byte, err error) {
			if buf, err = enc.Append(buf[:0], body, nil); err == nil {
				sum = sha256.Sum256(buf)
			}
			return sum, err
		}
	}},
	{"jsontext", func() func([]byte) ([sha256.Size]byte, error) {
		var buf jsontext.Value
		return func(body []byte) (sum [sha256.Size]byte, err error) {
			buf = append(buf[:0], body...) // Canonicalize works in place, and the handler still needs the body
			if err = buf.Canonicalize(); err == nil {
				sum = sha256.Sum256(buf)
			}
			return sum, err
		}
	}},
	{"sha256", func() func([]byte) ([sha256.Size]byte, error) {
		return func(body []byte) ([sha256.Size]byte, error) { return sha256.Sum256(body), nil }
	}},
}

func (c contender) bench(body []byte) func(b *testing.B) {
	return func(b *testing.B) {
		fingerprint := c.make()
		b.SetBytes(int64(len(body)))
		b.ReportAllocs()
		for b.Loop() {
			if _, err := fingerprint(body); err != nil {
				b.Fatal(err)
			}
		}
	}
}

// BenchmarkFingerprint compares canonical JSON + SHA-256, ours and jsontext's; sha256 alone on the raw body is the floor.
func BenchmarkFingerprint(b *testing.B) {
	for _, corpus := range corpora {
		for _, size := range sizes {
			body := corpus.make(size.bytes)
			for _, c := range contenders {
				b.Run(corpus.name+"/"+size.name+"/impl="+c.name, c.bench(body))
			}
		}
	}
}

// The comparison is fair only if both sides compute the same thing. The corpora hold no number that float64 cannot
// keep, so jsontext's RFC 8785 form and ours are the same bytes.
func TestFingerprintSameBytes(t *testing.T) {
	t.Parallel()
	for _, corpus := range corpora {
		for _, size := range sizes {
			body := corpus.make(size.bytes)
			want := jsontext.Value(bytes.Clone(body))
			if err := want.Canonicalize(); err != nil {
				t.Fatalf("%s/%s: jsontext: %v", corpus.name, size.name, err)
			}
			got, err := new(canonjson.Encoder).Append(nil, body, nil)
			if err != nil || !bytes.Equal(got, want) {
				t.Errorf("%s/%s: got %.300s, %v\nwant %.300s", corpus.name, size.name, got, err, want)
			}
		}
	}
}

// TestFingerprintRatios prints a Markdown table: go test -run FingerprintRatios -ratios -v. It asserts nothing.
//
// The contenders take turns of a few milliseconds, so that what else the machine does hits all of them alike. A figure is
// the median of its turns, and a ratio the median of the ratios of turns next to each other.
func TestFingerprintRatios(t *testing.T) {
	if !*ratios {
		t.Skip("needs -ratios")
	}
	const rounds, turn = 201, 4 * time.Millisecond
	fmt.Println("| corpus | body | sha256 | ours | jsontext | jsontext/ours |\n|---|---|---|---|---|---|")
	for _, corpus := range corpora {
		for _, size := range sizes {
			body := corpus.make(size.bytes)
			turns := map[string]func() float64{}
			for _, c := range contenders {
				fingerprint := c.make()
				turns[c.name] = func() float64 {
					n, start := 0, time.Now()
					for time.Since(start) < turn {
						for range 1 + 4096/len(body) { // the clock is not free
							if _, err := fingerprint(body); err != nil {
								t.Fatal(err)
							}
							n++
						}
					}
					return float64(time.Since(start).Nanoseconds()) / float64(n)
				}
			}
			var sha, ours, theirs, ratio []float64
			for range rounds {
				s, o, j := turns["sha256"](), turns["ours"](), turns["jsontext"]()
				sha, ours, theirs, ratio = append(sha, s), append(ours, o), append(theirs, j), append(ratio, j/o)
			}
			fmt.Printf("| %s | %s (%d B) | %.0f ns | %.0f ns | %.0f ns | %.1f× |\n", corpus.name, size.name, len(body),
				median(sha), median(ours), median(theirs), median(ratio))
		}
	}
}

func median(v []float64) float64 {
	slices.Sort(v)
	return v[len(v)/2]
}

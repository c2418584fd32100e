package ledger

import (
	"bytes"
	"errors"
	"reflect"
	"testing"
	"time"
)

func TestDamagedRowsAreRefused(t *testing.T) {
	t.Parallel()
	e := Entry{ID: "pay_1", Line: 7, Time: time.Unix(1, 2).UTC(), Fields: map[string]string{"amount": "1.00"}}
	good := appendEntry(nil, &e)
	if got, err := decodeEntry(good); err != nil || !reflect.DeepEqual(got, e) {
		t.Fatalf("%+v, %v", got, err)
	}
	for i := range good {
		if _, err := decodeEntry(good[:i]); !errors.Is(err, errDamaged) {
			t.Errorf("cut at %d: %v", i, err)
		}
		damaged := bytes.Clone(good)
		damaged[i] = 0xff
		_, _ = decodeEntry(damaged) // a text may be another, but nothing breaks
		_ = idOf(damaged[:i+1])
	}
	if _, err := decodeEntry(append(good, 0)); !errors.Is(err, errDamaged) {
		t.Errorf("one byte more: %v", err)
	}
}

// What comes back from the disk is checked before it is believed.
func TestDamagedSpillsAreRefused(t *testing.T) {
	t.Parallel()
	for name, damage := range map[string]func(s *spill) error{
		"a length that cannot be": func(s *spill) error {
			_, err := s.file.WriteAt([]byte{0xff, 0xff, 0xff, 0xff, 0x7f}, 0)
			return err
		},
		"a file that was cut": func(s *spill) error { return s.file.Truncate(s.size - 1) },
		"a row that is none":  func(s *spill) error { _, err := s.file.WriteAt([]byte{0xff, 0xff}, 1); return err },
	} {
		s, err := newSpill(&SortOptions{Dir: t.TempDir(), Memory: leastMemory, Disk: defaultDisk})
		if err != nil {
			t.Fatal(err)
		}
		b := newBatch(leastMemory)
		for _, id := range []string{"b", "a", "c"} {
			b.add(appendEntry(nil, &Entry{ID: id}))
		}
		if err := s.write(b.sorted()); err != nil {
			t.Fatal(err)
		}
		if err := damage(s); err != nil {
			t.Fatal(err)
		}
		if err := handOver(s.merge(t.Context(), s.runs), func(Entry) bool { return true }); err == nil {
			t.Errorf("%s: read back as if nothing were wrong", name)
		}
		s.close()
	}
}

func TestSpillsReturnWhatFails(t *testing.T) {
	t.Parallel()
	o := &SortOptions{Dir: t.TempDir(), Memory: leastMemory, Disk: defaultDisk}
	s, err := newSpill(o)
	if err != nil {
		t.Fatal(err)
	}
	s.close()
	b := newBatch(leastMemory)
	b.add(appendEntry(nil, &Entry{ID: "a"}))
	if err := s.write(b.sorted()); err == nil {
		t.Error("written to a closed file")
	}
	s.runs = []span{{0, 5}}
	if next, err := s.merged(t.Context()); err == nil {
		t.Error("merged from a closed file")
	} else {
		next.close()
	}
	o.Dir = "/dev/null/missing"
	if _, err := s.merged(t.Context()); err == nil {
		t.Error("merged into a directory that is none")
	}
}

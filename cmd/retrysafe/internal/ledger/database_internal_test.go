package ledger

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"
)

func TestDamagedRowsAreRefused(t *testing.T) {
	t.Parallel()
	e := Entry{ID: "pay_1", Line: 7, Time: time.Unix(1, 2).UTC(), Fields: map[string]string{"amount": "1.00"}}
	good := appendDetails(nil, &e)
	if got, err := decodeEntry(e.ID, good); err != nil || !reflect.DeepEqual(got, e) {
		t.Fatalf("%+v, %v", got, err)
	}
	for i := range good {
		if _, err := decodeEntry(e.ID, good[:i]); !errors.Is(err, errDamaged) {
			t.Errorf("cut at %d: %v", i, err)
		}
		damaged := bytes.Clone(good)
		damaged[i] = 0xff
		_, _ = decodeEntry(e.ID, damaged) // a text may be another, but nothing breaks
	}
	if _, err := decodeEntry(e.ID, append(good, 0)); !errors.Is(err, errDamaged) {
		t.Errorf("one byte more: %v", err)
	}
}

// loaded returns a database with so many rows of ours that most of them are on disk, and the file that has them.
func loaded(t *testing.T, o *Options) (d *database, file string) {
	t.Helper()
	d, err := createDatabase(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.close)
	c := comparison{options: o}
	_, err = c.load(t.Context(), d, sideOurs, func(yield func(Entry, error) bool) {
		for i := range 30_000 {
			if !yield(Entry{ID: fmt.Sprintf("pay_%06d", i), Line: i}, nil) {
				return
			}
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	files, err := os.ReadDir(d.dir)
	if err != nil || len(files) != 1 {
		t.Fatal(files, err)
	}
	return d, filepath.Join(d.dir, files[0].Name())
}

// What comes back from the disk is checked before it is believed.
func TestDamagedSpillsAreRefused(t *testing.T) {
	t.Parallel()
	for name, damage := range map[string]func(f *os.File, size int64) error{
		"a length that cannot be": func(f *os.File, size int64) error {
			_, err := f.WriteAt([]byte{0xff, 0xff, 0xff, 0xff, 0x7f}, size/2/pageSize*pageSize)
			return err
		},
		"a file that was cut": func(f *os.File, size int64) error { return f.Truncate(size / 2) },
		"a row that is none": func(f *os.File, size int64) error {
			_, err := f.WriteAt([]byte{0xff, 0xff}, size/2/pageSize*pageSize-2)
			return err
		},
	} {
		d, file := loaded(t, &Options{Dir: t.TempDir(), Memory: leastMemory})
		f, err := os.OpenFile(file, os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		info, err := f.Stat()
		if err != nil || info.Size() < 10*pageSize {
			t.Fatalf("%d bytes are on disk, which shows nothing: %v", info.Size(), err)
		}
		if err := errors.Join(damage(f, info.Size()), f.Close()); err != nil {
			t.Fatal(err)
		}
		err = nil
		for _, e := range d.disagreements(t.Context()) {
			err = e
		}
		if err == nil {
			t.Errorf("%s: read back as if nothing were wrong", name)
		}
	}
}

func TestSpillsReturnWhatFails(t *testing.T) {
	t.Parallel()
	o := &Options{Dir: t.TempDir()}
	d, _ := loaded(t, o)
	in := inserter{database: d, side: sideTheirs}
	if err := in.add(&Entry{ID: "a"}, o); err != nil {
		t.Fatal(err)
	}
	d.close()
	if err := in.flush(); err == nil {
		t.Error("written to a closed database")
	}
	for _, err := range d.disagreements(t.Context()) {
		if err == nil {
			t.Error("read from a closed database")
		}
	}
	o.Dir = "/dev/null/missing"
	if _, err := createDatabase(t.Context(), o); err == nil {
		t.Error("made in a directory that is none")
	}
}

// Rows wait to be inserted together only as long as they are small together.
func TestLargeRowsDoNotWait(t *testing.T) {
	t.Parallel()
	o := &Options{Dir: t.TempDir()}
	d, err := createDatabase(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.close)
	in := inserter{database: d}
	for n, size := range []int{insertBytes / 4, insertBytes / 4, 2 * insertBytes} { // the fields are kept twice
		if err := in.add(&Entry{ID: "a", Fields: map[string]string{"x": strings.Repeat("x", size)}}, o); err != nil {
			t.Fatal(err)
		}
		if waits := len(in.args) > 0; waits != (n == 0) || (in.waiting > 0) != waits {
			t.Errorf("after row %d, %d bytes wait in %d arguments", n, in.waiting, len(in.args))
		}
	}
	if cap(in.buffer) > 2*insertBytes {
		t.Errorf("%d bytes are kept", cap(in.buffer))
	}
}

func TestDatabaseIsReadableByItsOwnerOnly(t *testing.T) {
	t.Parallel()
	d, file := loaded(t, &Options{Dir: t.TempDir(), Memory: leastMemory})
	for path, want := range map[string]fs.FileMode{d.dir: 0o700, file: 0o600} {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s has the mode %v, want %v: %v", path, info.Mode(), want, err)
		}
	}
}

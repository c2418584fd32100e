package feed_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/ledger"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/ledger/feed"
)

func write(t *testing.T, path, text string, age time.Duration) string {
	t.Helper()
	at := time.Now().Add(-age)
	if err := errors.Join(os.WriteFile(path, []byte(text), 0o600), os.Chtimes(path, at, at)); err != nil {
		t.Fatal(err)
	}
	return path
}

// ids returns the ids of the rows of a period's lists.
func ids(ctx context.Context, f *feed.Feed, p feed.Period, before bool) (string, error) {
	lists, err := f.Find(ctx, &p, before)
	if err != nil {
		return "", err
	}
	var all []string
	for e, err := range lists.Source() {
		if err != nil {
			return "", err
		}
		all = append(all, e.ID)
	}
	return strings.Join(all, " "), nil
}

var columns = ledger.Columns{ID: "id"}

func TestDirectoryYieldsItsNewestWholeFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	in := func(name string) string { return filepath.Join(dir, name) }
	f := &feed.Feed{Directory: dir, Columns: columns, Settle: 10 * time.Millisecond}
	until := time.Now().Add(-time.Hour)
	expect := func(want string) {
		t.Helper()
		if got, err := ids(t.Context(), f, feed.Period{Until: until}, false); got != want || err != nil {
			t.Errorf("got %q, %v, want %q", got, err, want)
		}
	}
	notYet := func(why string) {
		t.Helper()
		if _, err := ids(t.Context(), f, feed.Period{Until: until}, false); !errors.Is(err, feed.ErrNotYet) || !strings.Contains(err.Error(), why) {
			t.Errorf("got %v, want %q", err, why)
		}
	}
	notYet("there is no file")
	write(t, in("old.csv"), "id\nold\n", 2*time.Hour)
	notYet("before the period ended")
	write(t, in("new.csv"), "id\nnew\n", 50*time.Minute)
	expect("new")
	write(t, in(".hidden.csv"), "id\nhidden\n", time.Minute)
	for _, end := range []string{".tmp", ".part", ".partial", ".crdownload", ".filepart", "~"} {
		write(t, in("later.csv"+end), "id\nunfinished\n", time.Minute)
	}
	expect("new")
	elsewhere := write(t, filepath.Join(t.TempDir(), "x"), "id\nlinked\n", 40*time.Minute)
	if err := os.Symlink(elsewhere, in("link.csv")); err != nil {
		t.Fatal(err)
	}
	expect("linked")
	if err := os.Remove(in("link.csv")); err != nil {
		t.Fatal(err)
	}
	write(t, in("z.jsonl"), `{"id": "json"}`+"\n", time.Minute)
	expect("json")
	f.Pattern = "*.csv"
	expect("new")
	f.Pattern = "none-*"
	notYet("is called none-*")
}

func TestAFileThatIsBeingWrittenIsNotRead(t *testing.T) {
	t.Parallel()
	path := write(t, filepath.Join(t.TempDir(), "list.csv"), "id\na\n", 0)
	f := &feed.Feed{File: path, Columns: columns, Settle: 50 * time.Millisecond}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	written := make(chan struct{})
	go func() {
		defer close(written)
		for n := 0; ctx.Err() == nil; n++ {
			file, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
			if err != nil {
				t.Error(err)
				return
			}
			fmt.Fprintf(file, "row-%d\n", n)
			_ = file.Close()
			time.Sleep(time.Millisecond)
		}
	}()
	// A writer that pauses for longer than Settle cannot be told from one that is done, so the test ends at the first
	// refusal, which a busy machine may delay.
	for end := time.Now().Add(time.Minute); ; {
		_, err := ids(t.Context(), f, feed.Period{}, false)
		if errors.Is(err, feed.ErrNotYet) {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("a file that grows was read: %v", err)
		}
	}
	cancel()
	<-written
	for end := time.Now().Add(time.Minute); ; {
		got, err := ids(t.Context(), f, feed.Period{}, false)
		if err == nil && strings.HasPrefix(got, "a row-0") {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("the file is not read when it is done: %v", err)
		}
	}
}

func TestAFileThatChangesWhileItIsReadIsNoList(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(path string, at time.Time) error{
		"it grows": func(path string, at time.Time) error {
			return errors.Join(os.WriteFile(path, []byte("id\na\nb\nc\n"), 0o600), os.Chtimes(path, at, at))
		},
		"it is written again": func(path string, at time.Time) error {
			return os.Chtimes(path, at.Add(time.Second), at.Add(time.Second))
		},
		"another takes its place": func(path string, at time.Time) error {
			return errors.Join(os.WriteFile(path+"2", []byte("id\nc\nd\n"), 0o600), os.Chtimes(path+"2", at, at), os.Rename(path+"2", path))
		},
		"it is removed": func(path string, _ time.Time) error { return os.Remove(path) },
	} {
		path := write(t, filepath.Join(t.TempDir(), "list.csv"), "id\na\nb\n", time.Hour)
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		f := &feed.Feed{File: path, Columns: columns}
		lists, err := f.Find(t.Context(), &feed.Period{}, false)
		if err != nil {
			t.Fatal(err)
		}
		rows := 0
		for _, e := range lists.Source() {
			if rows++; rows == 1 {
				if err := change(path, info.ModTime()); err != nil {
					t.Fatal(err)
				}
			}
			err = e
		}
		if !errors.Is(err, feed.ErrNotYet) {
			t.Errorf("%s: got %v after %d rows", name, err, rows)
		}
	}
}

// A list that was written before the period ended cannot have all of it.
func TestAFileOfBeforeIsNotTheList(t *testing.T) {
	t.Parallel()
	path := write(t, filepath.Join(t.TempDir(), "list.csv"), "id\na\n", time.Hour)
	f := &feed.Feed{File: path, Columns: columns}
	if _, err := ids(t.Context(), f, feed.Period{Until: time.Now().Add(-time.Minute)}, false); !errors.Is(err, feed.ErrNotYet) {
		t.Errorf("got %v", err)
	}
	if got, err := ids(t.Context(), f, feed.Period{Until: time.Now().Add(-2 * time.Hour)}, false); got != "a" || err != nil {
		t.Errorf("got %q, %v", got, err)
	}
}

func TestListsOfSingleDays(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	f := &feed.Feed{File: filepath.Join(dir, "{day}.csv"), Columns: columns}
	p := feed.Period{Day: "2026-03-02", Before: "2026-03-01"}
	write(t, filepath.Join(dir, "2026-03-02.csv"), "id\nb\n", time.Hour)
	lists, err := f.Find(t.Context(), &p, true)
	if err != nil || lists.Missing != "2026-03-01" || len(lists.All) != 1 {
		t.Errorf("got %+v, %v", lists, err)
	}
	write(t, filepath.Join(dir, "2026-03-01.csv"), "id\na\n", time.Hour)
	if got, err := ids(t.Context(), f, p, true); got != "a b" || err != nil {
		t.Errorf("got %q, %v", got, err)
	}
	for _, in := range []feed.Feed{{Directory: dir, Pattern: "*{day}.csv"}, {Directory: filepath.Join(dir, "{day}")}} {
		in.Columns = columns
		for day, id := range map[string]string{p.Before: "a", p.Day: "b"} {
			if err := os.MkdirAll(filepath.Join(dir, day), 0o700); err != nil {
				t.Fatal(err)
			}
			write(t, filepath.Join(dir, day, "list.csv"), "id\n"+id+"\n", time.Hour)
		}
		if got, err := ids(t.Context(), &in, p, true); got != "a b" || err != nil || !in.Daily() {
			t.Errorf("%s, %s: got %q, %v", in.Directory, in.Pattern, got, err)
		}
	}
	for _, other := range []struct {
		feed.Feed
		daily bool
	}{{feed.Feed{File: "list.csv"}, false}, {feed.Feed{Directory: dir, Pattern: "*.csv"}, false}, {feed.Feed{URL: "https://bank.example/list"}, true}} {
		if other.Daily() != other.daily {
			t.Errorf("%+v has a list for each day: %v", other.Feed, other.Daily())
		}
	}
	f.MaxBytes = 5
	if got, err := ids(t.Context(), f, p, false); got != "b" || err != nil {
		t.Errorf("a list of 5 bytes where 5 are allowed: %q, %v", got, err)
	}
	f.MaxBytes = 4
	if _, err := ids(t.Context(), f, p, false); !errors.Is(err, ledger.ErrTooLarge) {
		t.Errorf("a list of 5 bytes where 4 are allowed: %v", err)
	}
}

func TestURL(t *testing.T) {
	t.Parallel()
	var asked http.Request
	reply := func(w http.ResponseWriter) { w.Header().Set("Content-Type", "text/csv"); fmt.Fprint(w, "id\na\nb\n") }
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { asked = *r; reply(w) }))
	defer s.Close()
	f := &feed.Feed{URL: s.URL + "/list?day={day}&from={since}&to={until}", Token: "a-token", Columns: columns}
	p := feed.Period{Day: "2026-03-01", From: time.Date(2026, 2, 28, 22, 0, 0, 0, time.UTC), To: time.Date(2026, 3, 2, 0, 30, 0, 0, time.UTC)}
	if got, err := ids(t.Context(), f, p, true); got != "a b" || err != nil {
		t.Errorf("got %q, %v", got, err)
	}
	if q := asked.URL.Query(); q.Get("day") != "2026-03-01" || q.Get("from") != "2026-02-28T22:00:00Z" || q.Get("to") != "2026-03-02T00:30:00Z" || asked.Header.Get("Authorization") != "Bearer a-token" {
		t.Errorf("asked %s with %v", asked.URL, asked.Header)
	}
	for _, c := range []struct {
		why   string
		reply func(http.ResponseWriter)
		is    error
		says  string
	}{
		{"lines of JSON", func(w http.ResponseWriter) {
			w.Header().Set("Content-Type", "application/x-ndjson; charset=utf-8")
			fmt.Fprint(w, `{"id":"j"}`)
		}, nil, "j"},
		{"not there", func(w http.ResponseWriter) { w.WriteHeader(404) }, feed.ErrNotYet, "404"},
		{"being made", func(w http.ResponseWriter) { w.WriteHeader(202) }, feed.ErrNotYet, "202"},
		{"too early", func(w http.ResponseWriter) { w.WriteHeader(425) }, feed.ErrNotYet, "425"},
		{"forbidden", func(w http.ResponseWriter) { w.WriteHeader(403) }, nil, s.URL + "/list: the answer is 403"}, // the query is not shown
		{"an error", func(w http.ResponseWriter) { w.WriteHeader(500) }, nil, "500"},
		{"a part", func(w http.ResponseWriter) { w.WriteHeader(206) }, nil, "206"},
		{"elsewhere", func(w http.ResponseWriter) { w.Header().Set("Location", "/x"); w.WriteHeader(302) }, nil, "302"},
		{"a page", func(w http.ResponseWriter) { w.Header().Set("Content-Type", "text/html"); fmt.Fprint(w, "id\na\n") }, nil, "text/html"},
		{"cut off", func(w http.ResponseWriter) {
			w.Header().Set("Content-Type", "text/csv")
			w.Header().Set("Content-Length", "100")
			fmt.Fprint(w, "id\na\n")
		}, nil, "unexpected EOF"},
	} {
		reply = c.reply
		got, err := ids(t.Context(), f, p, false)
		if c.is != nil && !errors.Is(err, c.is) || !strings.Contains(got+fmt.Sprint(err), c.says) {
			t.Errorf("%s: got %q, %v, want %q", c.why, got, err, c.says)
		}
	}
	reply = func(w http.ResponseWriter) {
		w.Header().Set("Content-Type", "text/csv")
		w.WriteHeader(200)
		w.(http.Flusher).Flush() // no length is announced
		fmt.Fprint(w, "id\n"+strings.Repeat("x\n", 1000))
	}
	f.MaxBytes = 100
	if _, err := ids(t.Context(), f, p, false); !errors.Is(err, ledger.ErrTooLarge) {
		t.Errorf("a list that is larger than allowed: %v", err)
	}
}

// The format of the configuration holds whatever the answer says; a list may have as many bytes as are allowed.
func TestFormatAndSizeOfAnAnswer(t *testing.T) {
	t.Parallel()
	const list = `{"id":"a"}` + "\n"
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/csv")
		if r.Header["Authorization"] != nil {
			t.Error("credentials are sent, and there are none")
		}
		if r.URL.Path != "/" {
			w.(http.Flusher).Flush() // no length is announced
		}
		fmt.Fprint(w, list)
	}))
	defer s.Close()
	for _, path := range []string{"/", "/chunked"} {
		f := &feed.Feed{URL: s.URL + path, Format: feed.JSONL, Columns: columns, MaxBytes: int64(len(list))}
		if got, err := ids(t.Context(), f, feed.Period{}, false); got != "a" || err != nil {
			t.Errorf("got %q, %v", got, err)
		}
		f.MaxBytes--
		if got, err := ids(t.Context(), f, feed.Period{}, false); !errors.Is(err, ledger.ErrTooLarge) {
			t.Errorf("got %q, %v", got, err)
		}
	}
	dead, cancel := context.WithCancel(t.Context())
	cancel()
	f := &feed.Feed{URL: s.URL + "/?token=secret", Columns: columns}
	if _, err := ids(dead, f, feed.Period{}, false); !errors.Is(err, context.Canceled) || strings.Contains(err.Error(), "secret") {
		t.Errorf("got %v", err)
	}
	open := &feed.Feed{URL: s.URL + "/", Format: feed.JSONL, Columns: columns}
	if got, err := ids(t.Context(), open, feed.Period{}, false); got != "a" || err != nil {
		t.Errorf("without a token: %q, %v", got, err)
	}
	f.URL = "http://bank.example/"
	if _, err := f.Find(t.Context(), &feed.Period{}, false); !errors.Is(err, feed.ErrPlainHTTP) {
		t.Errorf("got %v", err)
	}
}

// The format is that of the configuration, else what the name of the file or the type of the answer says.
func TestFormatsOfLists(t *testing.T) {
	t.Parallel()
	texts := map[string]string{feed.CSV: "id\na\n", feed.JSONL: `{"id":"a"}` + "\n"}
	for name, format := range map[string]string{"a.csv": feed.CSV, "a": feed.CSV, "a.jsonl": feed.JSONL, "a.ndjson": feed.JSONL, "a.json": feed.JSONL, "A.JSONL": feed.JSONL} {
		f := &feed.Feed{File: write(t, filepath.Join(t.TempDir(), name), texts[format], time.Hour), Columns: columns}
		if got, err := ids(t.Context(), f, feed.Period{}, false); got != "a" || err != nil {
			t.Errorf("%s: %q, %v", name, got, err)
		}
		for set, text := range texts {
			f.Format = set
			write(t, f.File, text, time.Hour)
			if got, err := ids(t.Context(), f, feed.Period{}, false); got != "a" || err != nil {
				t.Errorf("%s that is %s: %q, %v", name, set, got, err)
			}
		}
	}
	kind := ""
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", kind)
		fmt.Fprint(w, texts[r.URL.Path[1:]])
	}))
	defer s.Close()
	for format, kinds := range map[string][]string{
		feed.CSV:   {"text/csv; charset=utf-8", "application/csv"},
		feed.JSONL: {"application/x-ndjson", "application/ndjson", "application/jsonl", "application/x-jsonlines", "application/json-lines"},
	} {
		for _, kind = range kinds {
			f := &feed.Feed{URL: s.URL + "/" + format, Columns: columns}
			if got, err := ids(t.Context(), f, feed.Period{}, false); got != "a" || err != nil {
				t.Errorf("%s: %q, %v", kind, got, err)
			}
		}
	}
}

// A list may have 1 GiB unless the configuration says otherwise.
func TestSizeOfAListIsBounded(t *testing.T) {
	t.Parallel()
	f := &feed.Feed{File: write(t, filepath.Join(t.TempDir(), "list.csv"), "id\n", time.Hour), Columns: columns}
	for size, want := range map[int64]error{1 << 30: nil, 1<<30 + 1: ledger.ErrTooLarge} {
		at := time.Now().Add(-time.Hour)
		if err := errors.Join(os.Truncate(f.File, size), os.Chtimes(f.File, at, at)); err != nil { // it has a hole
			t.Fatal(err)
		}
		if _, err := f.Find(t.Context(), &feed.Period{}, false); !errors.Is(err, want) {
			t.Errorf("%d bytes: %v, want %v", size, err, want)
		}
	}
}

// A file is read when it has stayed as it is; an empty one may be the beginning of a list, however old it is.
func TestAFileHasToSettle(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		for name, c := range map[string]struct {
			text  string
			age   time.Duration
			waits bool
		}{
			"new.csv": {"id\na\n", time.Second, true}, "empty.csv": {"", time.Hour, true}, "old.csv": {"id\na\n", time.Hour, false},
		} {
			path := write(t, filepath.Join(dir, name), c.text, c.age)
			f, began := &feed.Feed{File: path, Columns: columns, Settle: 10 * time.Second}, time.Now()
			if c.waits {
				go func() {
					time.Sleep(9 * time.Second)
					write(t, path, "id\na\nb\n", 0)
				}()
				if _, err := f.Find(t.Context(), &feed.Period{}, false); !errors.Is(err, feed.ErrNotYet) || !strings.Contains(err.Error(), "still being written") {
					t.Errorf("%s: %v", name, err)
				}
			}
			time.Sleep(time.Until(began.Add(time.Minute)))
			before := time.Now()
			if got, err := ids(t.Context(), f, feed.Period{}, false); err != nil || !strings.HasPrefix(got, "a") || time.Since(before) != 0 {
				t.Errorf("%s: %q, %v after %v", name, got, err, time.Since(before))
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		f := &feed.Feed{File: write(t, filepath.Join(dir, "new.csv"), "id\n", 0), Columns: columns}
		if _, err := f.Find(ctx, &feed.Period{}, false); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
	})
}

// What is no list is an error, and only what may come is waited for.
func TestFilesThatAreNoLists(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	in := func(name string) string { return filepath.Join(dir, name) }
	p := feed.Period{Day: "2026-03-02", Before: "2026-03-01", Until: time.Now()}
	for _, c := range []struct {
		feed.Feed
		notYet bool
		says   string
	}{
		{feed.Feed{File: dir}, false, "is not a plain file"},
		{feed.Feed{File: in("nothing.csv")}, true, "there is no"},
		{feed.Feed{Directory: in("nothing")}, false, "no such file"},
		{feed.Feed{Directory: in("{day}")}, true, "there is no"},
	} {
		if _, err := c.Find(t.Context(), &p, false); err == nil || errors.Is(err, feed.ErrNotYet) != c.notYet || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%+v: %v", c.Feed, err)
		}
	}
	// The list of the day before is left out if it is not there, and not if it cannot be read.
	f := &feed.Feed{File: in("{day}.csv"), Columns: columns}
	write(t, in("2026-03-02.csv"), "id\nb\n", time.Hour) // written before the end of the period: its name has the day
	if err := os.Mkdir(in("2026-03-01.csv"), 0o700); err != nil {
		t.Fatal(err)
	}
	if lists, err := f.Find(t.Context(), &p, true); err == nil || errors.Is(err, feed.ErrNotYet) {
		t.Errorf("the list of the day before is a directory: %+v, %v", lists, err)
	}
	if got, err := ids(t.Context(), f, p, false); got != "b" || err != nil {
		t.Errorf("got %q, %v", got, err)
	}
	// A file that is gone or broken when it is read is named.
	write(t, in("2026-03-02.csv"), "id\n\"\n", time.Hour)
	if _, err := ids(t.Context(), f, p, false); !errors.Is(err, ledger.ErrMalformed) || !strings.Contains(err.Error(), in("2026-03-02.csv")) {
		t.Errorf("got %v", err)
	}
	lists, err := f.Find(t.Context(), &p, false)
	if err != nil || os.Remove(in("2026-03-02.csv")) != nil {
		t.Fatal(err)
	}
	for _, e := range lists.Source() {
		err = e
	}
	if err == nil {
		t.Error("a file that is gone is an empty list")
	}
	// Of files of the same time the last by name is the newest; a directory is none.
	f = &feed.Feed{Directory: dir, Columns: columns}
	now := time.Now().Add(-time.Hour)
	for _, name := range []string{"b.csv", "c.csv", "a.csv"} {
		if err := os.Chtimes(write(t, in(name), "id\n"+name+"\n", 0), now, now); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := ids(t.Context(), f, feed.Period{}, false); got != "c.csv" || err != nil {
		t.Errorf("got %q, %v", got, err)
	}
}

func TestWhatIsWrongWithAFeed(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		feed.Feed
		want string
	}{
		{feed.Feed{}, "name one of file, directory and url"},
		{feed.Feed{File: "a", URL: "https://b"}, "keep one of file, directory and url"},
		{feed.Feed{File: "a", Pattern: "*"}, "a pattern needs a directory"},
		{feed.Feed{Directory: "a", Pattern: "["}, "is not a pattern"},
		{feed.Feed{File: "a"}, ""},
		{feed.Feed{Directory: "a", Pattern: "*.csv", Format: "jsonl"}, ""},
		{feed.Feed{File: "a", Directory: "b"}, "keep one of file, directory and url"},
		{feed.Feed{File: "a", MaxBytes: -1}, "the size is negative"},
		{feed.Feed{URL: "https://bank.example/x"}, ""},
		{feed.Feed{URL: "https:///x"}, "it is not a URL such as https://"},
		{feed.Feed{URL: "https://bank.example/%zz"}, "it is not a URL such as https://"},
		{feed.Feed{URL: "http://localhost/x"}, ""},
		{feed.Feed{URL: "http://[::1]:8080/x"}, ""},
		{feed.Feed{URL: "http://[::ffff:127.0.0.1]/x"}, ""},
		{feed.Feed{URL: "http://localhost.bank.example/x"}, "it is not https"},
		{feed.Feed{URL: "http://10.0.0.1/x"}, "it is not https"},
		{feed.Feed{URL: "ftp://h/x"}, "it is not a URL such as https://"},
		{feed.Feed{URL: "http://bank.example/x"}, "it is not https"},
		{feed.Feed{URL: "https://u:p@bank.example/x"}, "give a token instead"},
		{feed.Feed{URL: "http://bank.example/x", PlainHTTP: true}, ""},
		{feed.Feed{URL: "http://127.0.0.1/x?day={day}"}, ""},
		{feed.Feed{Directory: "a", Format: "xml"}, "none of csv, jsonl"},
	} {
		err := c.Check()
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%+v: got %v, want %q", c.Feed, err, c.want)
		}
	}
}

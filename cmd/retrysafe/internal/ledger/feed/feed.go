// Package feed reads the other side of a ledger: a file, the newest file of a directory, or the answer of a URL.
//
// A list that is not there yet, or that is still being written, is [ErrNotYet]: read it later. A list that changes while
// it is read ends the comparison with the same error.
package feed

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"strings"
	"time"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/ledger"
)

// ErrNotYet says that a list is not there, or not whole.
var ErrNotYet = errors.New("the list is not there yet")

// A Feed is where the lists of the other side are. Exactly one of File, Directory and URL is set. In all of them, and in
// Pattern, {day} stands for the day as 2026-03-01; in a URL {since} and {until} stand for the times that the list has to
// reach from and to.
type Feed struct {
	File string
	// Directory is where lists arrive. The newest file that matches Pattern is read. Names that begin with a dot or end
	// as those of unfinished files do (.tmp, .part, .partial, .crdownload, .filepart, ~) are ignored.
	Directory string
	// Pattern is that of [filepath.Match]; empty means every file.
	Pattern string
	URL     string
	// Token is sent to the URL as a bearer.
	Token string
	// PlainHTTP allows a URL of http on another machine.
	PlainHTTP bool
	// Format is "csv" or "jsonl". Empty goes by the name of the file, or by the Content-Type.
	Format string
	// MaxBytes bounds a list. Zero means 1 GiB.
	MaxBytes int64
	Columns  ledger.Columns
	// Settle is how long a file must stay as it is before it is read. Zero means 2 s.
	Settle time.Duration
}

const (
	defaultMaxBytes = 1 << 30
	defaultSettle   = 2 * time.Second
)

// The formats of lists.
const (
	CSV   = "csv"
	JSONL = "jsonl"
)

// A Period is what a list has to reach over.
type Period struct {
	// Day names the period in {day}, and Before the one before it.
	Day, Before string
	// Since and Until are the period itself; From and To what the list has to reach from and to. Zero is no bound.
	Since, Until, From, To time.Time
}

// Daily reports whether a feed has a list for each day of its own.
func (f *Feed) Daily() bool {
	return strings.Contains(f.File+f.Directory+f.Pattern, "{day}") || f.URL != ""
}

// Check says what is wrong with the feed, without opening anything.
func (f *Feed) Check() error {
	places := 0
	for _, place := range []string{f.File, f.Directory, f.URL} {
		if place != "" {
			places++
		}
	}
	switch {
	case places == 0:
		return errors.New("there is no place to read the list from; name one of file, directory and url")
	case places > 1:
		return errors.New("a list is read from one place; keep one of file, directory and url")
	case f.Pattern != "" && f.Directory == "":
		return errors.New("a pattern needs a directory")
	case f.Format != "" && f.Format != CSV && f.Format != JSONL:
		return fmt.Errorf("the format %q is none of csv, jsonl", f.Format)
	case f.MaxBytes < 0:
		return errors.New("the size is negative")
	}
	if _, err := filepath.Match(f.Pattern, ""); err != nil {
		return fmt.Errorf("%q is not a pattern such as payments-*.csv", f.Pattern)
	}
	if f.URL != "" {
		return f.checkURL()
	}
	return nil
}

// ErrPlainHTTP says that the list would cross the network without encryption.
var ErrPlainHTTP = errors.New("it is not https: an attacker on the network could hide a payment, and would see the token")

func (f *Feed) checkURL() error {
	u, err := url.Parse(f.fill(f.URL, &Period{}))
	switch {
	case err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https":
		return errors.New("it is not a URL such as https://provider.example/payments.csv?day={day}") // it is not quoted: there may be a password in it
	case u.User != nil:
		return errors.New("it has a user or a password in it; give a token instead")
	case u.Scheme == "http" && !f.PlainHTTP && !local(u.Hostname()):
		return ErrPlainHTTP
	}
	return nil
}

// A List is one list of the other side that was found.
type List struct {
	// Name is the file, or the URL.
	Name   string
	source ledger.Source
}

// Lists are the lists of a period, in the order in which they are read.
type Lists struct {
	All []List
	// Missing says that the list of the day before is not there, though it was asked for.
	Missing string
}

// Source returns the rows of all lists.
func (l *Lists) Source() ledger.Source {
	return func(yield func(ledger.Entry, error) bool) {
		for _, one := range l.All {
			for e, err := range one.source {
				if err != nil {
					err = fmt.Errorf("%s: %w", one.Name, err)
				}
				if !yield(e, err) || err != nil {
					return
				}
			}
		}
	}
}

// Find returns the lists of a period. If before is true, and lists are of one day each, that of the day before is
// among them.
func (f *Feed) Find(ctx context.Context, p *Period, before bool) (*Lists, error) {
	if f.URL != "" {
		one, err := f.get(ctx, p)
		if err != nil {
			return nil, err
		}
		return &Lists{All: []List{one}}, nil
	}
	found := new(Lists)
	if before && f.Daily() {
		earlier := *p
		earlier.Day = p.Before
		one, err := f.file(ctx, &earlier)
		switch {
		case errors.Is(err, ErrNotYet):
			found.Missing = p.Before
		case err != nil:
			return nil, err
		default:
			found.All = append(found.All, one)
		}
	}
	one, err := f.file(ctx, p)
	if err != nil {
		return nil, err
	}
	found.All = append(found.All, one)
	return found, nil
}

// fill fills in the placeholders.
func (f *Feed) fill(text string, p *Period) string {
	escape := func(s string) string { return s }
	if f.URL != "" {
		escape = url.QueryEscape
	}
	moment := func(t time.Time) string {
		if t.IsZero() {
			return ""
		}
		return escape(t.UTC().Format(time.RFC3339))
	}
	return strings.NewReplacer("{day}", escape(p.Day), "{since}", moment(p.From), "{until}", moment(p.To)).Replace(text)
}

func (f *Feed) maxBytes() int64       { return cmp.Or(f.MaxBytes, defaultMaxBytes) }
func (f *Feed) settle() time.Duration { return cmp.Or(f.Settle, defaultSettle) }

// formatOf returns the format of a list by its name.
func formatOf(name string) string {
	switch strings.ToLower(filepath.Ext(name)) {
	case ".jsonl", ".ndjson", ".json":
		return JSONL
	default:
		return CSV
	}
}

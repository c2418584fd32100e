package config

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"
	_ "time/tzdata" // the image has no time zones of its own

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/ledger"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/ledger/export"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/ledger/feed"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/printable"
)

// A Ledger is a list of payments of a provider that is compared with ours, day by day.
type Ledger struct {
	// Name names it in reports and metrics.
	Name string
	// Operations are those whose answers are compared, as records name them: the route's
	// pattern with its method.
	Operations []string
	// At is when the day before is compared, as 15:04 of TimeZone. Empty leaves it to
	// "retrysafe reconcile ledger".
	At, TimeZone string
	// Tolerance is how far apart the two sides may date a payment.
	Tolerance time.Duration
	Ours      LedgerOurs
	Theirs    LedgerTheirs
	// Amounts are the fields that are decimals.
	Amounts []string
	Report  LedgerReport
}

// LedgerOurs is what is read of our records; values are those of [export.ParseValue].
type LedgerOurs struct {
	ID string
	// Time is "created" or "answered".
	Time   string
	Fields map[string]string
}

// LedgerTheirs is where the provider's lists are, and what is in their columns; see
// [feed.Feed].
type LedgerTheirs struct {
	File, Directory, Pattern, URL string
	Token                         Secret
	TokenFile                     string
	PlainHTTP                     bool
	Format                        string
	MaxSize                       int64
	ID, Time, TimeLayout          string
	Comma                         string
	Fields                        map[string]string
}

// LedgerReport is where reports are written.
type LedgerReport struct {
	Directory string
	Formats   []string
}

// newLedger returns what holds where a ledger says nothing.
func newLedger() Ledger {
	return Ledger{
		TimeZone: "UTC",
		Ours:     LedgerOurs{ID: "key", Time: "created"},
		Theirs:   LedgerTheirs{ID: "id", Comma: ",", MaxSize: 1 << 30},
		Report:   LedgerReport{Formats: []string{"text", "json", "html"}},
	}
}

func (l *Ledger) fields() section {
	return section{
		{"name", text(&l.Name)},
		{"operations", texts(&l.Operations)},
		{"at", text(&l.At)},
		{"time_zone", text(&l.TimeZone)},
		{"tolerance", span(&l.Tolerance)},
		{"ours", section{
			{"id", text(&l.Ours.ID)},
			{"time", words(&l.Ours.Time, "created", "answered")},
			{"fields", textMap{&l.Ours.Fields}},
		}},
		{"theirs", section{
			{"file", text(&l.Theirs.File)},
			{"directory", text(&l.Theirs.Directory)},
			{"pattern", text(&l.Theirs.Pattern)},
			{"url", secretText(&l.Theirs.URL, redactQuery)},
			{"token", secretText(&l.Theirs.Token, redactAll)},
			{"token_file", text(&l.Theirs.TokenFile)},
			{"plain_http", flag(&l.Theirs.PlainHTTP)},
			{"format", words(&l.Theirs.Format, feed.CSV, feed.JSONL)},
			{"max_size", size(&l.Theirs.MaxSize)},
			{"id", text(&l.Theirs.ID)},
			{"time", text(&l.Theirs.Time)},
			{"time_layout", text(&l.Theirs.TimeLayout)},
			{"comma", text(&l.Theirs.Comma)},
			{"fields", textMap{&l.Theirs.Fields}},
		}},
		{"amounts", texts(&l.Amounts)},
		{"report", section{
			{"directory", text(&l.Report.Directory)},
			{"formats", list[string]{&l.Report.Formats, func(to *string) value { return words(to, "text", "json", "html") }}},
		}},
	}
}

// redactQuery returns a URL without the value of its query, which may be a secret, unless
// it has nothing but placeholders and plain words.
func redactQuery(address string) string {
	before, query, ok := strings.Cut(address, "?")
	if !ok || !secretQuery.MatchString(query) {
		return address
	}
	return before + "?xxxxx"
}

// secretQuery matches a query whose parameters look like credentials.
var secretQuery = regexp.MustCompile(`(?i)(key|token|secret|sig|signature|password|auth)[^&=]*=`)

// ledgerSecrets are the tokens of ledgers, each of which may be in a file of its own.
func (c *Config) ledgerSecrets() []secretFile {
	var all []secretFile
	for i := range c.Ledger {
		path := element("ledger", i) + ".theirs."
		all = append(all, secretFile{path + "token", path + "token_file", func(c *Config) (func(string), *string) {
			t := &c.Ledger[i].Theirs
			return func(s string) { t.Token = Secret(s) }, &t.TokenFile
		}})
	}
	return all
}

// Clock returns the time of day at which the ledger is compared; a negative one is never.
func (l *Ledger) Clock() (time.Duration, error) {
	if l.At == "" {
		return -1, nil
	}
	t, err := time.Parse("15:04", l.At)
	if err != nil {
		return -1, fmt.Errorf("%s is not a time of day such as 06:00 or 23:30", quote(l.At))
	}
	return time.Duration(t.Hour())*time.Hour + time.Duration(t.Minute())*time.Minute, nil
}

// Zone returns the ledger's time zone.
func (l *Ledger) Zone() (*time.Location, error) {
	zone, err := time.LoadLocation(l.TimeZone)
	if err != nil || l.TimeZone == "" || l.TimeZone == "Local" {
		return nil, fmt.Errorf("%s is not a time zone such as UTC or Europe/Berlin", quote(l.TimeZone))
	}
	return zone, nil
}

// Export returns what is read of our records, without the period.
func (l *Ledger) Export() (export.Options, error) {
	o := export.Options{Operations: l.Operations, Answered: l.Ours.Time == "answered"}
	var err error
	if o.ID, err = export.ParseValue(l.Ours.ID); err != nil {
		return o, fmt.Errorf("ours.id: %w", err)
	}
	o.Fields = make(map[string]export.Value, len(l.Ours.Fields))
	for name, v := range l.Ours.Fields {
		if o.Fields[name], err = export.ParseValue(v); err != nil {
			return o, fmt.Errorf("ours.fields.%s: %w", name, err)
		}
	}
	return o, nil
}

// Feed returns where the provider's lists are. A field that the provider's side does not
// name has the same name there.
func (l *Ledger) Feed() feed.Feed {
	t := &l.Theirs
	f := feed.Feed{
		File: t.File, Directory: t.Directory, Pattern: t.Pattern, URL: t.URL, Token: string(t.Token), PlainHTTP: t.PlainHTTP,
		Format: t.Format, MaxBytes: t.MaxSize,
		Columns: ledger.Columns{ID: t.ID, Time: t.Time, TimeLayout: t.TimeLayout, Fields: map[string]string{}},
	}
	if runes := []rune(strings.ReplaceAll(t.Comma, `\t`, "\t")); len(runes) == 1 {
		f.Columns.Comma = runes[0]
	}
	for name := range l.Ours.Fields {
		f.Columns.Fields[name] = name
		if column := t.Fields[name]; column != "" {
			f.Columns.Fields[name] = column
		}
	}
	return f
}

// ledgerName is what a ledger may be called: it is part of names of files and of labels.
var ledgerName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]{0,62}$`)

// maxLedgers bounds the series of their metrics.
const maxLedgers = 50

// ledgers refuses ledgers that cannot be compared.
func (k *checker) ledgers() {
	first := map[string]int{}
	for i := range k.Ledger {
		l, path := &k.Ledger[i], element("ledger", i)
		other, twice := first[l.Name]
		switch {
		case i == maxLedgers:
			k.refuse(path, "there are more than %d ledgers", maxLedgers)
			return
		case l.Name == "":
			k.refuse(path+".name", "it is missing; it names the reports and the metrics, such as stripe")
		case !ledgerName.MatchString(l.Name):
			k.refuse(path+".name", "%s is not a name of letters, digits, dots, dashes and underscores, 63 at most", quote(l.Name))
		case twice:
			k.refuse(path+".name", "ledger[%d] is called %s, too; reports of the one would replace those of the other", other, l.Name)
		default:
			first[l.Name] = i
		}
		k.ledgerSchedule(l, path)
		k.ledgerOurs(l, path)
		k.ledgerTheirs(l, path)
		k.ledgerOperations(l, path)
	}
}

func (k *checker) ledgerSchedule(l *Ledger, path string) {
	const mostTolerance = 12 * time.Hour
	if _, err := l.Clock(); err != nil {
		k.refuse(path+".at", "%w", err)
	}
	if _, err := l.Zone(); err != nil {
		k.refuse(path+".time_zone", "%w", err)
	}
	switch {
	case l.Tolerance < 0 || l.Tolerance > mostTolerance:
		k.refuse(path+".tolerance", "it is %v; it must be between 0 and %s", l.Tolerance, printSpan(mostTolerance))
	case l.Tolerance > 0 && l.Theirs.Time == "":
		k.refuse(path+".tolerance", "it needs theirs.time, the column with the time of their rows")
	}
	if l.At != "" && l.Report.Directory == "" {
		k.refuse(path+".report.directory", "it is missing; it is where the report of each day is written")
	}
	if len(l.Report.Formats) == 0 {
		k.refuse(path+".report.formats", "there is none; name some of text, json, html")
	}
}

func (k *checker) ledgerOurs(l *Ledger, path string) {
	value := func(at, text string) {
		if _, err := export.ParseValue(text); errors.Is(err, export.ErrValue) {
			k.refuse(at, "%s is no part of a record: %w%s", quote(text), err, didYouMean(text, export.Words()))
		} else if err != nil {
			k.refuse(at, "%w", err)
		}
	}
	value(path+".ours.id", l.Ours.ID)
	for _, name := range slices.Sorted(maps.Keys(l.Ours.Fields)) {
		value(path+".ours.fields."+printable.Quoted(name), l.Ours.Fields[name])
	}
	names := slices.Sorted(maps.Keys(l.Ours.Fields))
	for i, name := range l.Amounts {
		if _, ok := l.Ours.Fields[name]; !ok {
			k.refuse(element(path+".amounts", i), "%s is none of the fields in ours.fields%s", quote(name), didYouMean(name, names))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(l.Theirs.Fields)) {
		if _, ok := l.Ours.Fields[name]; !ok {
			k.refuse(path+".theirs.fields."+printable.Quoted(name), "ours.fields has no such field to compare it with%s", didYouMean(name, names))
		}
	}
}

func (k *checker) ledgerTheirs(l *Ledger, path string) {
	t, path := &l.Theirs, path+".theirs"
	f := l.Feed()
	place := "file"
	switch {
	case t.URL != "":
		place = "url"
	case t.Directory != "":
		place = "directory"
	case t.File == "" && t.Pattern == "":
		place = ""
	}
	if t.Pattern != "" && t.Directory == "" {
		place = "pattern"
	}
	if err := f.Check(); errors.Is(err, feed.ErrPlainHTTP) {
		k.refuse(child(path, place), "%w; plain_http: true trusts the network", err)
	} else if err != nil {
		k.refuse(child(path, place), "%w", err)
	}
	switch {
	case t.ID == "":
		k.refuse(path+".id", "it is empty; it is the column of the payment's id")
	case f.Columns.Comma == 0:
		k.refuse(path+".comma", "%s is not one character", quote(t.Comma))
	case t.Time == "" && place != "" && !f.Daily():
		k.refuse(path+".time", "it is missing; a list that is not of one day ({day} in its name, or a url) needs the column with the time of its rows")
	}
	if t.Token != "" && t.URL == "" {
		k.refuse(path+".token", "a token is sent to a url, and there is none")
	}
	if t.MaxSize <= 0 {
		k.refuse(path+".max_size", "it is %d; it must be more than 0", t.MaxSize)
	}
}

// ledgerOperations refuses operations that no route has, and answers that are deleted before
// they are compared.
func (k *checker) ledgerOperations(l *Ledger, path string) {
	if len(l.Operations) == 0 {
		k.refuse(path+".operations", "it is missing; it is a list such as [POST /payments]")
	}
	kept := map[string]*Settings{}
	for i := range k.Routes {
		for _, name := range k.Routes[i].operations() {
			kept[name] = &k.Routes[i].Settings
		}
	}
	names := slices.Sorted(maps.Keys(kept))
	clock, _ := l.Clock()
	for i, name := range l.Operations {
		at := element(path+".operations", i)
		method, rest, _ := strings.Cut(name, " ")
		s := kept[name]
		// Below the defaults an operation is named by its path, which may be like that of a route; a long one is misspelt.
		const long = len("POST /12345")
		switch near := nearest(name, names); {
		case s == nil && len(name) >= long && strings.HasPrefix(near, method+" "):
			k.refuse(at, "%s is none of the routes; did you mean %s?", quote(name), near)
			continue
		case !slices.Contains(guardable, method) || !strings.Contains(rest, "/"):
			k.refuse(at, "%s is not the name of an operation such as POST /payments", quote(name))
			continue
		case s == nil:
			s = &k.Defaults
		}
		// A day's first answer is a day old when the day ends, and has an hour more where clocks change.
		if need := day + clock + 2*l.Tolerance + time.Hour; clock >= 0 && s.Policy.Retention < need {
			k.refuse(at, "the answers of %s are kept for %s, so the first of a day are deleted before the day is compared at %s; set its retention to %s or more",
				quote(name), printSpan(s.Policy.Retention), l.At, printSpan(need.Round(time.Minute)))
		}
	}
}

// operations are the names that records of the route have.
func (r *Route) operations() []string {
	method, rest := r.split()
	if method != "" {
		return []string{r.Match}
	}
	return []string{"POST " + rest, "PATCH " + rest}
}

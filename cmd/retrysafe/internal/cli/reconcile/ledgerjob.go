package reconcile

import (
	"cmp"
	"context"
	"os"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli/command"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli/configfile"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli/exit"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/ledger/daily"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/ledger/export"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/ledger/feed"
)

// job returns the ledger that the flags describe, or that the configuration has.
func (c *comparison) job(env *command.Env, flags *pflag.FlagSet, args []string) (*daily.Job, error) {
	if c.ledger != "" {
		return c.configured(env, flags)
	}
	if args[0] == "-" {
		return nil, exit.Usagef("the standard input is compared with a list of ours").Hintf("name a file, a directory or a URL, or OURS as well")
	}
	if c.presorted {
		return nil, exit.Usagef("--presorted is for two files; records have an order of their own")
	}
	j := &daily.Job{Name: "by hand", Amounts: c.amounts, Tolerance: c.tolerance, At: -1}
	var err error
	if j.Zone, err = time.LoadLocation(c.zone); err != nil {
		return nil, exit.Usagef("--time-zone %s is not a time zone such as Europe/Berlin", c.zone)
	}
	if j.Ours, err = c.export(); err != nil {
		return nil, err
	}
	if j.Theirs, err = c.feed(env, args[0]); err != nil {
		return nil, err
	}
	if j.Tolerance > 0 && j.Theirs.Columns.Time == "" {
		return nil, exit.Usagef("--tolerance needs the time of their rows").Hintf("--theirs time=COLUMN")
	}
	return j, nil
}

// configured returns a ledger of the configuration.
func (c *comparison) configured(env *command.Env, flags *pflag.FlagSet) (*daily.Job, error) {
	if c.target.Config == "" {
		return nil, exit.Usagef("--ledger names a ledger of a configuration, and --config is missing")
	}
	for _, name := range []string{"id", "time", "time-layout", "compare", "amounts", "ours", "theirs", "comma", "operation", "time-zone", "tolerance", "token-file", "plain-http", "max-size", "presorted"} {
		if flags.Changed(name) {
			return nil, exit.Usagef("--%s is said by the ledger in the configuration; leave it out", name)
		}
	}
	conf, err := configfile.Load(env, c.target.Config)
	if err != nil {
		return nil, err
	}
	var names []string
	for i := range conf.Ledger {
		if conf.Ledger[i].Name == c.ledger {
			return daily.NewJob(&conf.Ledger[i])
		}
		names = append(names, conf.Ledger[i].Name)
	}
	if names == nil {
		return nil, exit.Usagef("%s has no ledger", c.target.Config)
	}
	return nil, exit.Usagef("%s has no ledger %q", c.target.Config, c.ledger).Hintf("it has %s", strings.Join(names, ", "))
}

// export returns what is read of our records.
func (c *comparison) export() (export.Options, error) {
	o := export.Options{Operations: c.operations, Fields: map[string]export.Value{}, Namespace: c.namespace, Call: c.call}
	if len(c.operations) == 0 {
		return o, exit.Usagef("our list is read from the store, and --operation is missing").Hintf("name the operations to compare: --operation 'POST /payments'")
	}
	from := map[string]string{"id": "key", "time": "created"}
	for _, name := range c.compare {
		from[name] = "/" + name
	}
	for _, r := range c.ours {
		name, value, ok := strings.Cut(r, "=")
		if _, known := from[name]; !ok || !known || value == "" {
			return o, exit.Usagef("--ours %q does not name a part of a record", r).Hintf("it is written as NAME=VALUE, and NAME is id, time or one of --compare")
		}
		from[name] = value
	}
	switch from["time"] {
	case "created":
	case "answered":
		o.Answered = true
	default:
		return o, exit.Usagef("--ours time=%s is none of created, answered", from["time"])
	}
	for _, name := range append([]string{"id"}, c.compare...) {
		v, err := export.ParseValue(from[name])
		if err != nil {
			return o, exit.Usagef("--ours %s=%s: %v", name, from[name], err)
		}
		if name == "id" {
			o.ID = v
		} else {
			o.Fields[name] = v
		}
	}
	return o, nil
}

// feed returns where their list is.
func (c *comparison) feed(env *command.Env, place string) (feed.Feed, error) {
	f := feed.Feed{MaxBytes: c.maxSize, PlainHTTP: c.plainHTTP}
	var err error
	if f.Columns, err = c.columns(c.theirs); err != nil {
		return f, err
	}
	info, found := os.Stat(place)
	switch {
	case strings.Contains(place, "://"):
		f.URL = place
		if f.Token, err = c.token(env); err != nil {
			return f, err
		}
	case found == nil && info.IsDir():
		f.Directory = place
	case found != nil && !strings.Contains(place, "{day}"):
		return f, exit.Usagef("%v", found)
	default:
		f.File = place
	}
	if err := f.Check(); err != nil {
		e := exit.Usagef("THEIRS: %v", err)
		if f.URL != "" && !f.PlainHTTP {
			e = e.Hintf("--plain-http trusts the network")
		}
		return f, e
	}
	return f, nil
}

func (c *comparison) token(env *command.Env) (string, error) {
	token := env.Getenv(ledgerTokenVariable)
	if c.tokenFile != "" {
		text, err := os.ReadFile(c.tokenFile)
		if err != nil {
			return "", exit.Usagef("--token-file: %v", err)
		}
		token = strings.TrimSpace(string(text))
	}
	if strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return "", exit.Usagef("the token contains characters that no token has")
	}
	return token, nil
}

// runJob compares the records of the store with their list.
func (c *comparison) runJob(ctx context.Context, env *command.Env, j *daily.Job) error {
	p := daily.Period{Since: c.since.Time, Until: c.until.Time}
	if c.day == "" && c.ledger != "" && p.Since.IsZero() && p.Until.IsZero() {
		c.day = time.Now().In(cmp.Or(j.Zone, time.UTC)).AddDate(0, 0, -1).Format(time.DateOnly)
	}
	if c.day != "" {
		day, err := daily.ParseDay(c.day)
		switch {
		case err != nil:
			return exit.Usagef("--day: %v", err)
		case !p.Since.IsZero() || !p.Until.IsZero():
			return exit.Usagef("--day is a period of its own; leave out --since and --until")
		}
		p = j.PeriodOf(day)
	}
	work, err := j.Find(ctx, p)
	if err != nil {
		return exit.Errorf(exit.Failed, "the lists were not compared: %v", err)
	}
	s, err := c.target.Open(ctx, env)
	if err != nil {
		return err
	}
	defer s.Close(ctx)
	report, err := work.Report(env.Out, c.format.String())
	if err != nil {
		return err
	}
	result, err := work.Run(ctx, s.Store, report)
	return ended(&result.Summary, err)
}

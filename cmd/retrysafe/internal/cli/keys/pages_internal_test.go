package keys

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli/command"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/cli/stores"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/storeurl"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/terminal"
	"github.com/retrysafe/retrysafe/internal/adminwire"
	"github.com/retrysafe/retrysafe/operator"
)

// smallPages lists two records at a time: a page may be shorter than it was asked for.
type smallPages struct{ records }

func (p smallPages) List(ctx context.Context, f operator.Filter) (adminwire.ViewPage, error) {
	f.Limit = min(f.Limit, 2)
	return p.records.List(ctx, f)
}

// testEnv returns an environment that writes to out and err.
func testEnv(out, err *strings.Builder) *command.Env {
	return &command.Env{
		Streams:   terminal.Streams{Out: out, Err: err, Interactive: func(any) bool { return false }},
		LookupEnv: func(string) (string, bool) { return "", false },
	}
}

// Everything that reads a whole store reads it to its end, however many pages it has.
func TestListsReadEveryPage(t *testing.T) {
	t.Parallel()
	url := "sqlite:" + filepath.Join(t.TempDir(), "keys.db")
	opened, err := storeurl.Open(t.Context(), url, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer opened.Close()
	for i := range 7 {
		if _, err := opened.Store.Create(t.Context(), retrysafe.Write{Term: time.Hour, Record: retrysafe.Record{
			Ref: retrysafe.Ref{Scope: "t", Key: fmt.Sprintf("key-%d", i)}, Operation: "POST /charges", Fingerprint: retrysafe.Fingerprint{Alg: 1},
			Owner: retrysafe.Owner{1}, State: retrysafe.StateInProgress, Version: retrysafe.RecordVersion, Attempt: 1, Retain: time.Hour,
			Effects: retrysafe.EffectsUnprotected, Lapse: retrysafe.LapseQuarantine,
		}}); err != nil {
			t.Fatal(err)
		}
	}
	var out, said strings.Builder
	env := testEnv(&out, &said)
	direct, err := open(t.Context(), env, &stores.Flags{URL: url})
	if err != nil {
		t.Fatal(err)
	}
	defer direct.Close(t.Context())
	s := &session{direct.place, smallPages{direct.records}, direct.actions, direct.surroundings}

	last := retrysafe.Ref{Scope: "t", Key: "key-6"}
	for _, wanted := range []string{last.Key, retrysafe.HashKey(last.Key)} {
		if found, err := search(t.Context(), env, s, retrysafe.Ref{Key: wanted}); err != nil || len(found) != 1 || found[0] != last {
			t.Errorf("%s is found as %q, %v", wanted, found, err)
		}
	}
	f := follower{shown: map[retrysafe.Fence]time.Time{}}
	if changed, err := f.read(t.Context(), s); err != nil || len(changed) != 7 {
		t.Errorf("tail has read %d changes, %v", len(changed), err)
	}
	for _, c := range []struct {
		sort, hash string
		all        bool
		limit      int
		rows       int
		says       string
	}{
		{sort: "none", all: true, limit: 1, rows: 7},
		{sort: "none", limit: 5, rows: 5, says: "there is more"},
		{sort: "none", limit: 7, rows: 7},
		{sort: "none", limit: 100, rows: 7},
		{sort: "none", hash: retrysafe.HashKey(last.Key), limit: 2, rows: 1},
		{sort: "created", limit: 3, rows: 3, says: "3 of 7 keys"},
		{sort: "created", limit: 100, rows: 7},
		{sort: "created", hash: retrysafe.HashKey(last.Key), limit: 2, rows: 1},
	} {
		out.Reset()
		said.Reset()
		l := listing{sort: command.NewChoice(new(cobra.Command), "sort", "", c.sort), format: command.NewFormat(new(cobra.Command), "json"), all: c.all, keyHash: c.hash}
		l.filter.Limit = c.limit
		if err := l.write(t.Context(), env, s); err != nil {
			t.Fatal(err)
		}
		keys := map[string]bool{}
		for line := range strings.Lines(out.String()) {
			keys[line] = true
		}
		if n := strings.Count(out.String(), "\n"); n != c.rows || len(keys) != n || !strings.Contains(said.String(), c.says) || c.says == "" && said.Len() > 0 {
			t.Errorf("%+v: %d rows, %d keys: %s", c, n, len(keys), said.String())
		}
	}
}

// scripted are the lists that a store returns, one after the other.
type scripted struct {
	records
	lists [][]adminwire.View
}

func (s *scripted) List(context.Context, operator.Filter) (adminwire.ViewPage, error) {
	now := s.lists[0]
	s.lists = s.lists[1:]
	return adminwire.ViewPage{Records: now}, nil
}

// A change is shown once, also if its transaction has committed after others that began
// later. What was there before is not shown.
func TestTailShowsLateChanges(t *testing.T) {
	t.Parallel()
	start := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	changed := map[string]time.Duration{ // when each record was last written
		"before": -time.Hour, "first": 5 * time.Second, "late": 3 * time.Second, "slow": 2 * time.Second, "last": 105 * time.Second,
	}
	revisions := map[string]int64{}
	store, f := new(scripted), follower{shown: map[retrysafe.Fence]time.Time{}, begins: true}
	for _, c := range []struct {
		at   time.Duration
		has  []string
		want string
	}{
		{0, []string{"before"}, ""},
		{10 * time.Second, []string{"before", "first"}, "first"},
		{20 * time.Second, []string{"before", "first", "late"}, "late"},
		{29 * time.Second, []string{"before", "first", "late", "slow"}, "slow"},
		{30 * time.Second, []string{"before", "first", "late", "slow"}, ""},
		{110 * time.Second, []string{"before", "first", "last", "late", "slow"}, "last"},
		{140 * time.Second, []string{"before", "first", "last", "late", "slow"}, ""},
	} {
		var list []adminwire.View
		for _, key := range c.has {
			if revisions[key] == 0 {
				revisions[key] = int64(len(revisions) + 1)
			}
			list = append(list, adminwire.View{Record: retrysafe.Record{
				Ref: retrysafe.Ref{Scope: "t", Key: key}, Revision: revisions[key], UpdatedAt: start.Add(changed[key]), ReadAt: start.Add(c.at),
			}})
		}
		store.lists = append(store.lists, list)
		got, err := f.read(t.Context(), &session{records: store})
		var keys []string
		for i := range got {
			keys = append(keys, got[i].Key)
		}
		if err != nil || strings.Join(keys, " ") != c.want {
			t.Errorf("after %v it shows %q, %v, want %q", c.at, keys, err, c.want)
		}
	}
	if len(f.shown) != 0 {
		t.Errorf("it remembers %d changes, of which none can be seen again", len(f.shown))
	}
	store.lists = [][]adminwire.View{{
		{Record: retrysafe.Record{Ref: retrysafe.Ref{Key: "second"}, Revision: 22, UpdatedAt: start.Add(142 * time.Second), ReadAt: start.Add(143 * time.Second)}},
		{Record: retrysafe.Record{Ref: retrysafe.Ref{Key: "first"}, Revision: 21, UpdatedAt: start.Add(141 * time.Second), ReadAt: start.Add(143 * time.Second)}},
	}}
	if got, err := f.read(t.Context(), &session{records: store}); err != nil || len(got) != 2 || got[0].Key != "first" {
		t.Errorf("the oldest change is not the first one: %v, %v", got, err)
	}
}

package identity_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/gateway/identity"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/storeurl"
	"github.com/retrysafe/retrysafe/httpkey"
	"github.com/retrysafe/retrysafe/internal/deployment"
	"github.com/retrysafe/retrysafe/internal/test/faultstore"
	"github.com/retrysafe/retrysafe/internal/test/testservers"
	"github.com/retrysafe/retrysafe/janitor"
	"github.com/retrysafe/retrysafe/store/memstore"
	"github.com/retrysafe/retrysafe/store/sealed"
	"github.com/retrysafe/retrysafe/store/tiered"
)

// everyStore runs a test over each kind of store. Open opens it as one more process does.
func everyStore(t *testing.T, test func(t *testing.T, open func() retrysafe.Store)) {
	t.Helper()
	memory := func(*testing.T) func() retrysafe.Store {
		s := memstore.New(nil)
		return func() retrysafe.Store { return s }
	}
	byURL := func(t *testing.T, url string) func() retrysafe.Store {
		return func() retrysafe.Store {
			o, err := storeurl.Open(context.WithoutCancel(t.Context()), url, nil)
			must(t, err)
			t.Cleanup(func() { must(t, o.Close()) })
			return o.Store
		}
	}
	for name, fresh := range map[string]func(*testing.T) func() retrysafe.Store{
		"memory": memory,
		"sqlite": func(t *testing.T) func() retrysafe.Store {
			return byURL(t, "sqlite:"+filepath.Join(t.TempDir(), "keys.db"))
		},
		"postgres": func(t *testing.T) func() retrysafe.Store { return byURL(t, testservers.Shared(t)) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, fresh(t))
		})
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func join(t *testing.T, s retrysafe.Store, c identity.Claim) identity.Identity {
	t.Helper()
	id, _, err := identity.Join(t.Context(), s, c)
	must(t, err)
	return id
}

// Gateways that start at once on an empty store agree on one identity.
func TestManyStartAtOnce(t *testing.T) {
	t.Parallel()
	everyStore(t, func(t *testing.T, open func() retrysafe.Store) {
		stores := []retrysafe.Store{open(), open()}
		if _, err := identity.Read(t.Context(), stores[0]); !errors.Is(err, identity.ErrNone) {
			t.Fatalf("an empty store: %v", err)
		}
		var wg sync.WaitGroup
		ids := make([]identity.Identity, 16)
		for i := range ids {
			wg.Go(func() {
				var err error
				ids[i], _, err = identity.Join(t.Context(), stores[i%2], identity.Claim{
					Settings: identity.Settings{"tenant": "bearer"}, Fields: []identity.Fields{{Exclude: []string{fmt.Sprint("/", i%3)}}},
				})
				if err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		noted, err := identity.Read(t.Context(), stores[1])
		must(t, err)
		for i := range ids {
			if ids[i].ID != noted.ID || noted.ID == "" {
				t.Errorf("gateway %d joined %q, and the store belongs to %q", i, ids[i].ID, noted.ID)
			}
		}
		if len(noted.Fields) != 3 {
			t.Errorf("it has noted the choices %v, want three", noted.Fields)
		}
	})
}

// Other settings are refused and change nothing; adopted ones are noted, with their
// author, and the deployment stays the same.
func TestAdopt(t *testing.T) {
	t.Parallel()
	everyStore(t, func(t *testing.T, open func() retrysafe.Store) {
		s := open()
		one, two := identity.Settings{"tenant": "bearer"}, identity.Settings{"tenant": "none", "profile": "stripe"}
		first := join(t, s, identity.Claim{Settings: one})
		_, _, err := identity.Join(t.Context(), s, identity.Claim{Settings: two})
		different, ok := errors.AsType[*identity.DifferentError](err)
		if !ok || len(different.Differences) != 2 || !strings.Contains(err.Error(), "tenant is bearer in the store, and none in the configuration") {
			t.Fatalf("got %v", err)
		}
		if again := join(t, s, identity.Claim{Settings: one}); again.ID != first.ID {
			t.Errorf("a refused gateway has changed the identity to %+v", again)
		}
		id, adopted, err := identity.Join(t.Context(), s, identity.Claim{Settings: two, Adopt: true, By: "gateway on host"})
		if err != nil || id.ID != first.ID || len(adopted) != 2 {
			t.Fatalf("got %+v, %v, %v", id, adopted, err)
		}
		if _, adopted, err := identity.Join(t.Context(), s, identity.Claim{Settings: two, Adopt: true}); err != nil || adopted != nil {
			t.Errorf("what is the same is adopted: %v, %v", adopted, err)
		}
		if _, _, err := identity.Join(t.Context(), s, identity.Claim{Settings: one}); err == nil {
			t.Error("the former settings are accepted")
		}
		r, err := s.Load(t.Context(), deployment.Ref())
		must(t, err)
		if n := r.Inquiry.Notes; len(n) != 1 || n[0].By != "gateway on host" || !strings.Contains(n[0].Text, "profile is ietf in the store") || n[0].At.IsZero() {
			t.Errorf("the notes are %+v", n)
		}
	})
}

// In a reload the store has to be that of the deployment: a store of another one is
// refused, and one of none is left as it is.
func TestReloadNeedsTheSameStore(t *testing.T) {
	t.Parallel()
	everyStore(t, func(t *testing.T, open func() retrysafe.Store) {
		s := open()
		c := identity.Claim{Settings: identity.Settings{"tenant": "bearer"}, Of: []string{"another"}, Adopt: true}
		if _, _, err := identity.Join(t.Context(), s, c); !errors.Is(err, identity.ErrNone) {
			t.Errorf("an empty store: %v", err)
		}
		if _, err := s.Load(t.Context(), deployment.Ref()); !errors.Is(err, retrysafe.ErrNotFound) {
			t.Errorf("something was stored: %v", err)
		}
		mine := join(t, s, identity.Claim{Settings: c.Settings})
		if _, _, err := identity.Join(t.Context(), s, c); !errors.Is(err, identity.ErrOther) {
			t.Errorf("a store of another deployment: %v", err)
		}
		c.Of = append(c.Of, mine.ID)
		join(t, s, c)
	})
}

// No duty of the janitor, no purge and no operator's list touches the record, however
// many years pass.
func TestIdentityIsForEver(t *testing.T) {
	t.Parallel()
	now := time.Now()
	s := memstore.New(&memstore.Options{Now: func() time.Time { return now }})
	id := join(t, s, identity.Claim{Settings: identity.Settings{"tenant": "bearer"}})
	if r, err := s.Load(t.Context(), deployment.Ref()); err != nil || r.Retain != 100*365*24*time.Hour || r.Deadline.Sub(r.ReadAt) != r.Retain {
		t.Errorf("it is kept for %v, until %v: %v", r.Retain, r.Deadline, err)
	}
	now = now.Add(50 * 365 * 24 * time.Hour)
	opts := janitor.Options{Clock: laterClock{now: &now}}
	for _, duty := range []janitor.Duty{
		janitor.NewSweeper(s, &opts), janitor.NewReaper(s, &janitor.ReaperOptions{Options: opts}), janitor.NewReaper(s, &janitor.ReaperOptions{Options: opts, Tombstone: time.Hour}),
	} {
		if n, err := duty.RunOnce(t.Context()); err != nil || n != 0 {
			t.Errorf("%T: %d, %v", duty, n, err)
		}
	}
	if got, err := identity.Read(t.Context(), s); err != nil || got.ID != id.ID {
		t.Errorf("after fifty years it is %+v, %v", got, err)
	}
}

// A store whose identity goes while a gateway adopts its settings gets it anew.
func TestIdentityThatGoesMeanwhile(t *testing.T) {
	t.Parallel()
	s := &goneStore{Store: memstore.New(nil)}
	join(t, s, identity.Claim{Settings: identity.Settings{"tenant": "bearer"}})
	s.gone = true
	id, _, err := identity.Join(t.Context(), s, identity.Claim{Settings: identity.Settings{"tenant": "jwt"}, Adopt: true, By: "anna"})
	if err != nil || id.Settings["tenant"] != "jwt" || s.gone {
		t.Errorf("joined %+v, %v", id, err)
	}
}

// A goneStore says once that what is swapped is not there.
type goneStore struct {
	retrysafe.Store
	gone bool
}

func (s *goneStore) Swap(ctx context.Context, w retrysafe.Write) (retrysafe.Record, error) {
	if s.gone {
		s.gone = false
		return retrysafe.Record{}, retrysafe.ErrNotFound
	}
	return s.Store.Swap(ctx, w)
}

// A laterClock is the clock of a machine that has the store's time.
type laterClock struct {
	retrysafe.WallClock
	now *time.Time
}

func (c laterClock) Now() time.Time { return *c.now }

// A later release adds a setting. With its default a gateway joins every store that was
// noted before, and a program that does not know the setting does not pass over it.
func TestSettingOfALaterRelease(t *testing.T) {
	t.Parallel()
	s := memstore.New(nil)
	old := identity.Settings{"tenant": "bearer"}
	join(t, s, identity.Claim{Settings: old})
	join(t, s, identity.Claim{Settings: old}) // by the later release, with the default, which is not noted
	later := identity.Settings{"tenant": "bearer", "defaults.realm": "mine"}
	if _, _, err := identity.Join(t.Context(), s, identity.Claim{Settings: later}); err == nil || !strings.Contains(err.Error(), "defaults.realm is not set in the store, and mine in the configuration") {
		t.Errorf("the later release, with another value: %v", err)
	}
	join(t, s, identity.Claim{Settings: later, Adopt: true})
	if _, _, err := identity.Join(t.Context(), s, identity.Claim{Settings: old}); err == nil || !strings.Contains(err.Error(), "defaults.realm is mine in the store, and not set in the configuration") {
		t.Errorf("the earlier release: %v", err)
	}
}

// What cannot be read is refused, and never replaced, not even by an adoption.
func TestUnreadableIdentity(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]error{
		`{"format":2,"id":"x","settings":[]}`: identity.ErrNewer, `{"format":1}`: retrysafe.ErrUnreadable, `nonsense`: retrysafe.ErrUnreadable,
	} {
		s := memstore.New(nil)
		_, err := s.Create(t.Context(), retrysafe.Write{Term: time.Hour, Record: retrysafe.Record{
			Ref: deployment.Ref(), State: retrysafe.StateCompleted, Version: retrysafe.RecordVersion, Owner: retrysafe.Owner{1}, Attempt: 1,
			Result: &retrysafe.Result{Status: 200, Body: []byte(body)},
		}})
		must(t, err)
		if _, _, err := identity.Join(t.Context(), s, identity.Claim{Settings: identity.Settings{}, Adopt: true}); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", body, err, want)
		}
	}
	s := faultstore.New(memstore.New(nil))
	s.Plan(faultstore.FailAll(faultstore.LoseRequest))
	if _, _, err := identity.Join(t.Context(), s, identity.Claim{}); err == nil || errors.Is(err, identity.ErrNone) {
		t.Errorf("a store that does not answer: %v", err)
	}
}

// The identity is read below encryption and cache, before any secret is known to be the
// right one.
func TestIdentityBelowEncryptionAndCache(t *testing.T) {
	t.Parallel()
	below := memstore.New(nil)
	keys := keyring(t, sealed.GenerateKeys())
	above, err := sealed.New(below, keys)
	must(t, err)
	cached := tiered.New(above, nil)
	id := join(t, below, identity.Claim{Settings: of(t, "", keys)})
	list, err := cached.List(t.Context(), retrysafe.Query{})
	if err != nil || len(list) != 0 {
		t.Errorf("above there is %v, %v", list, err)
	}
	_, err = cached.Create(t.Context(), retrysafe.Write{Term: time.Hour, Record: retrysafe.Record{
		Ref: retrysafe.Ref{Scope: "a", Key: "k"}, State: retrysafe.StateInProgress, Version: retrysafe.RecordVersion, Owner: retrysafe.Owner{1}, Attempt: 1,
	}})
	must(t, err)
	if got, err := identity.Read(t.Context(), below); err != nil || got.ID != id.ID {
		t.Errorf("below it is %+v, %v", got, err)
	}
	text, err := json.Marshal(id)
	if err != nil || strings.Contains(string(text), string(keys.Derive("fingerprints"))) {
		t.Errorf("the record shows a secret: %s, %v", text, err)
	}
}

// Choices of fields are noted once each, in one spelling, and the oldest are dropped when
// there are many; those in force are not.
func TestFieldsAreNoted(t *testing.T) {
	t.Parallel()
	s := memstore.New(nil)
	claim := func(choices ...httpkey.Fields) identity.Identity {
		return join(t, s, identity.Claim{Settings: identity.Settings{}, Fields: identity.FieldsOf(choices)})
	}
	a := httpkey.Fields{Include: []string{"/b", "/a", "/b"}, Headers: []string{"x-b", "X-A"}}
	if got := claim(httpkey.Fields{}, a, a).Choices(); fmt.Sprint(got) != "[{[/a /b] [] [X-A X-B]}]" {
		t.Errorf("noted is %v", got)
	}
	if got := identity.FieldsOf([]httpkey.Fields{{Exclude: []string{"/b", "/a"}}, {Exclude: []string{"/a", "/b", "/a"}}}); len(got) != 1 {
		t.Errorf("one choice in two spellings is %v", got)
	}
	for _, two := range [][]httpkey.Fields{
		{{Include: []string{"/a"}}, {Include: []string{"/b"}}}, {{Exclude: []string{"/a"}}, {Exclude: []string{"/b"}}},
		{{Headers: []string{"X-A"}}, {Headers: []string{"X-B"}}}, {{Include: []string{"/a"}}, {Exclude: []string{"/a"}}},
	} {
		if got := identity.FieldsOf(two); len(got) != 2 {
			t.Errorf("the two choices %v are %v", two, got)
		}
	}
	claim(httpkey.Fields{Include: []string{"/a", "/b"}, Headers: []string{"X-B", "x-a"}})
	if got := claim().Choices(); len(got) != 1 {
		t.Errorf("noted is %v", got)
	}
	for i := range 100 {
		claim(a, httpkey.Fields{Exclude: []string{fmt.Sprintf("/%03d", i)}})
	}
	got := claim().Choices()
	if len(got) != 64 || fmt.Sprint(got[0]) != "{[/a /b] [] [X-A X-B]}" || fmt.Sprint(got[63]) != "{[] [/099] []}" {
		t.Errorf("noted are %d, from %v to %v", len(got), got[0], got[len(got)-1])
	}
}

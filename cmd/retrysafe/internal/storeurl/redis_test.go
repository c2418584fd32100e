package storeurl_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/storeurl"
	"github.com/retrysafe/retrysafe/internal/test/testservers"
	"github.com/retrysafe/retrysafe/store/redisstore"
)

func TestRedisOpensByItsURL(t *testing.T) {
	t.Parallel()
	server := testservers.NewRedis(t)
	address := "redis://" + server.Addr() + "?prefix=keys"
	if _, err := storeurl.Open(t.Context(), address, &storeurl.Options{SkipMigrations: true}); err == nil || !strings.Contains(err.Error(), "migrate up") {
		t.Errorf("a server without data: %v", err)
	}
	o, err := storeurl.Open(t.Context(), address, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer o.Close()
	if o.Kind != storeurl.Redis || !o.Shared || o.Outbox != nil {
		t.Errorf("opened %+v", o)
	}
	ref := retrysafe.Ref{Scope: "s", Key: "k"}
	if _, err := o.Store.Create(t.Context(), retrysafe.Write{Record: retrysafe.Record{Ref: ref, Owner: retrysafe.Owner{1}, State: retrysafe.StateInProgress, Version: retrysafe.RecordVersion, Attempt: 1}}); err != nil {
		t.Fatal(err)
	}
	if r, err := o.Store.Load(t.Context(), ref); err != nil || r.State != retrysafe.StateInProgress {
		t.Errorf("Load = %v, %v", r.State, err)
	}
	if got := storeurl.Caveats(t.Context(), o.Store); len(got) != 1 || !strings.Contains(got[0], "class D") {
		t.Errorf("a server with appendfsync always has the caveats %q", got)
	}
	if _, err := server.Do(t.Context(), "CONFIG", "SET", "appendfsync", "everysec"); err != nil {
		t.Fatal(err)
	}
	if got := storeurl.Caveats(t.Context(), o.Store); len(got) != 2 || !strings.Contains(got[1], "everysec") {
		t.Errorf("a server with appendfsync everysec has the caveats %q", got)
	}
}

// Each parameter of the URL is the store's.
func TestRedisStoreHasTheParametersOfItsURL(t *testing.T) {
	t.Parallel()
	server := testservers.NewRedis(t)
	if _, err := storeurl.Open(t.Context(), "redis://"+server.Addr()+"?prefix=absent&existing=true", nil); err == nil {
		t.Error("a server without data of the store is taken for one that has some")
	}
	o, err := storeurl.Open(t.Context(), "redis://"+server.Addr()+"?prefix=mine&replicas=2", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer o.Close()
	d, err := o.Store.(*redisstore.Store).Durability(t.Context())
	if err != nil || d.MinReplicas != 2 {
		t.Errorf("a step waits for %d replicas, %v, want 2", d.MinReplicas, err)
	}
	names, err := server.Do(t.Context(), "EVAL", "return table.concat(redis.call('KEYS', '*'), ' ')", "0")
	if err != nil || !strings.Contains(names, "mine") || strings.Contains(names, "absent") {
		t.Errorf("the server has %q, %v, want the data of mine and none of absent", names, err)
	}
}

// A server without an append-only file that was restarted may lack writes. Only a store whose
// URL accepts that goes on with it.
func TestRedisStoreAcceptsAFailoverIfItsURLSaysSo(t *testing.T) {
	t.Parallel()
	server := testservers.NewRedisWith(t, map[string]string{"appendonly": "no"})
	open := func(query string) retrysafe.Store {
		o, err := storeurl.Open(t.Context(), "redis://"+server.Addr()+"?"+query, nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = o.Close() })
		return o.Store
	}
	strict, accepting := open("prefix=strict"), open("prefix=accepting&failover=accept")
	if _, err := server.Do(t.Context(), "SAVE"); err != nil {
		t.Fatal(err)
	}
	if err := server.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	look := func(s retrysafe.Store) (err error) {
		for began := time.Now(); time.Since(began) < time.Minute; { // the first steps may meet the connections of before
			_, err = s.Load(t.Context(), retrysafe.Ref{Scope: "s", Key: "k"})
			if errors.Is(err, retrysafe.ErrNotFound) || strings.Contains(fmt.Sprint(err), "failover=accept") {
				break
			}
		}
		return err
	}
	if err := look(accepting); !errors.Is(err, retrysafe.ErrNotFound) {
		t.Errorf("failover=accept: Load = %v", err)
	}
	if err := look(strict); errors.Is(err, retrysafe.ErrNotFound) {
		t.Error("a server that may lack writes is taken for whole, and its URL does not accept that")
	}
}

func TestBadRedisAddressesTeach(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]string{
		"redis://":                   "a host is missing",
		"redis://h?colour=red":       "prefix, replicas, existing and failover",
		"redis://h?replicas=few":     "replicas=1",
		"redis://h?replicas=-1":      "replicas=1",
		"redis://h?existing=perhaps": "true or false",
		"redis://h?failover=yes":     "is accept",
		"redis+cluster://a,b?%zz":    "cannot be read",
		"redis+sentinel://a:se%zz@h": "a Redis URL is",
	} {
		if _, err := storeurl.Parse(address); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Parse(%q) = %v, want %q in it", address, err, want)
		}
	}
	a, err := storeurl.Parse("rediss+cluster://u:p@a:1,b:2?prefix=x&replicas=2&existing=true&failover=accept")
	if want := (storeurl.RedisAddress{Prefix: "x", Replicas: 2, MustExist: true, AcceptFailover: true}); err != nil || a.Redis != want || a.URL != "rediss+cluster://u:p@a:1,b:2" {
		t.Errorf("Parse = %+v, %v", a, err)
	}
}

func TestRedactTellsNoPasswordOfRedis(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]string{
		"redis://u:secret@h:1/0?prefix=x":           "redis://u:xxxxx@h:1/0?prefix=x",
		"rediss+cluster://:secret@a:1,b:2":          "rediss+cluster://:xxxxx@a:1,b:2",
		"redis+sentinel://u:sec%40ret@a,b/payments": "redis+sentinel://u:xxxxx@a,b/payments",
		"redis://u:sec@ret@h":                       "redis://u:xxxxx@h",
		"redis+cluster://a:1,b:2":                   "redis+cluster://a:1,b:2",
	} {
		if got := storeurl.Redact(address); got != want {
			t.Errorf("Redact(%q) = %q, want %q", address, got, want)
		}
	}
}

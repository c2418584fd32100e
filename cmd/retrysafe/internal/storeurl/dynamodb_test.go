package storeurl_test

import (
	"strings"
	"testing"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/storeurl"
	"github.com/retrysafe/retrysafe/internal/test/dynamofake"
)

// newDynamoDB returns the URL of a table that does not exist yet.
func newDynamoDB(t *testing.T) (string, *dynamofake.Server) {
	t.Helper()
	fake := dynamofake.New()
	t.Cleanup(fake.Close)
	return "dynamodb://eu-central-1/keys?endpoint=" + fake.URL, fake
}

func TestDynamoDBOpensByItsURL(t *testing.T) {
	t.Parallel()
	address, fake := newDynamoDB(t)
	if _, err := storeurl.Open(t.Context(), address, &storeurl.Options{SkipMigrations: true}); err == nil || !strings.Contains(err.Error(), "migrate up") {
		t.Errorf("a table that is not there: %v", err)
	}
	o, err := storeurl.Open(t.Context(), address, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer o.Close()
	if o.Kind != storeurl.DynamoDB || !o.Shared || o.Outbox != nil {
		t.Errorf("opened %+v", o)
	}
	ref := retrysafe.Ref{Scope: "s", Key: "k"}
	if _, err := o.Store.Create(t.Context(), retrysafe.Write{Record: retrysafe.Record{Ref: ref, Owner: retrysafe.Owner{1}, State: retrysafe.StateInProgress, Version: retrysafe.RecordVersion, Attempt: 1}}); err != nil {
		t.Fatal(err)
	}
	if r, err := o.Store.Load(t.Context(), ref); err != nil || r.State != retrysafe.StateInProgress {
		t.Errorf("Load = %v, %v", r.State, err)
	}
	if got := storeurl.Caveats(t.Context(), o.Store); len(got) != 0 {
		t.Errorf("a table in one region has caveats: %q", got)
	}
	fake.SetReplicas(false, "us-east-1")
	if got := storeurl.Caveats(t.Context(), o.Store); len(got) != 1 || !strings.Contains(got[0], "us-east-1") {
		t.Errorf("a global table has the caveats %q", got)
	}
}

func TestBadDynamoDBAddressesTeach(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]string{
		"dynamodb://":                                       "is no AWS region",
		"dynamodb://local/keys":                             "is no AWS region",
		"dynamodb://eu-central-1":                           "is no name of a DynamoDB table",
		"dynamodb://eu-central-1/a/b":                       "is no name of a DynamoDB table",
		"dynamodb://id:secret@eu-central-1/keys":            "credentials come from",
		"dynamodb://eu-central-1/keys?table=x":              "takes only endpoint",
		"dynamodb://eu-central-1/keys#x":                    "takes only endpoint",
		"dynamodb://eu-central-1/keys?endpoint=127.0.0.1:1": "is no URL",
	} {
		_, err := storeurl.Parse(address)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("Parse(%q) = %v, want %q in it", address, err, want)
		}
	}
	a, err := storeurl.Parse("dynamodb://eu-central-1/keys")
	if err != nil || a.Region != "eu-central-1" || a.Table != "keys" || a.MaxAnswer() == 0 {
		t.Errorf("Parse = %+v, %v", a, err)
	}
}

package adminwire_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/url"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/adminwire"
	"github.com/retrysafe/retrysafe/operator"
	"github.com/retrysafe/retrysafe/outbox"
)

// What crosses the admin API arrives with every field. A field that a type has gained, and
// that the API does not carry, fails the test too: it is carried, or named here.

// rounds is how many values of each type are sent. Flags are drawn, so two that have
// changed places differ in one of them.
const rounds = 32

func TestFilterInJSONKeepsEveryField(t *testing.T) {
	t.Parallel()
	each(t, func(f *operator.Filter) {
		f.System, f.After, f.Limit = false, retrysafe.Ref{}, 0 // a batch has none of them
	}, func(f *operator.Filter) operator.Filter {
		sent := sent(t, adminwire.NewFilter(f))
		got, err := sent.Operator()
		must(t, err)
		return got
	})
}

func TestFilterInAQueryKeepsEveryField(t *testing.T) {
	t.Parallel()
	each(t, func(f *operator.Filter) { f.Status = 500 + f.Status%99 }, func(f *operator.Filter) operator.Filter {
		values := url.Values{}
		adminwire.EncodeFilter(values, f)
		q := adminwire.ParseQuery(values.Encode())
		got := q.Filter()
		must(t, q.End())
		return got
	})
}

func TestGroupKeepsEveryField(t *testing.T) {
	t.Parallel()
	each(t, func(*operator.Group) {}, func(g *operator.Group) operator.Group {
		sent := sent(t, adminwire.NewGroups([]operator.Group{*g}))
		got, err := sent.Operator()
		must(t, err)
		return got[0]
	})
}

func TestGivenAnswerKeepsEveryField(t *testing.T) {
	t.Parallel()
	each(t, func(r *retrysafe.Result) { r.Omitted = false }, func(r *retrysafe.Result) retrysafe.Result {
		sent := sent(t, adminwire.NewGivenAnswer(r, false))
		return sent.Result()
	})
}

func TestQuarantineKeepsEveryField(t *testing.T) {
	t.Parallel()
	each(t, func(s *operator.Suspects) { s.Progress = nil }, func(s *operator.Suspects) operator.Suspects {
		sent := sent(t, adminwire.NewQuarantineRequest(s))
		return sent.Operator(s.By)
	})
}

func TestRecordKeepsEveryField(t *testing.T) {
	t.Parallel()
	each(t, func(r *retrysafe.Record) {
		// What only programs need is not shown.
		r.KeyText, r.Fingerprint, r.Owner, r.Retain = nil, retrysafe.Fingerprint{}, retrysafe.Owner{}, 0
	}, func(r *retrysafe.Record) retrysafe.Record {
		sent := sent(t, adminwire.NewRecord(r, adminwire.Contents, false))
		got, err := sent.View()
		must(t, err)
		if got.RequestSize() != len(r.Request) || got.BodySize() != len(r.Result.Body) || got.CheckpointSize() != len(r.Checkpoint.Data) {
			t.Errorf("the sizes are %d, %d and %d", got.RequestSize(), got.BodySize(), got.CheckpointSize())
		}
		return got.Record
	})
}

func TestMessageKeepsEveryField(t *testing.T) {
	t.Parallel()
	each(t, func(m *outbox.DeadLetter) {
		m.Wait, m.Shard, m.Err = 0, outbox.Shard{}, nil // of no use to a reader
		m.Settles = &retrysafe.Record{Ref: m.Settles.Ref}
	}, func(m *outbox.DeadLetter) outbox.DeadLetter {
		sent := sent(t, adminwire.NewMessage(m, true, adminwire.Contents))
		got := sent.View()
		if got.PayloadSize() != len(m.Payload) {
			t.Errorf("the size is %d", got.PayloadSize())
		}
		return got.DeadLetter
	})
}

func TestReceiptKeepsEveryField(t *testing.T) {
	t.Parallel()
	each(t, func(*outbox.KeptReceipt) {}, func(r *outbox.KeptReceipt) outbox.KeptReceipt {
		sent := sent(t, adminwire.NewReceipts([]outbox.KeptReceipt{*r}))
		return sent.Kept()[0]
	})
}

// each compares values in which every field is set, but for what clear takes out, with what
// has arrived of them.
func each[T any](t *testing.T, clear func(*T), arrives func(*T) T) {
	t.Helper()
	for seed := range uint64(rounds) {
		var v T
		fill(reflect.ValueOf(&v).Elem(), rand.New(rand.NewPCG(seed, 0)))
		clear(&v)
		if got := arrives(&v); !reflect.DeepEqual(got, v) {
			t.Fatalf("sent    %+v\narrived %+v", v, got)
		}
	}
}

// sent returns v as it arrives in JSON.
func sent[T any](t *testing.T, v T) (arrived T) {
	t.Helper()
	text, err := json.Marshal(v)
	must(t, err)
	must(t, json.Unmarshal(text, &arrived))
	return arrived
}

// fill sets every exported field. Some texts and bytes are not UTF-8.
func fill(v reflect.Value, draw *rand.Rand) {
	switch p := v.Addr().Interface().(type) {
	case *time.Time:
		*p = time.UnixMicro(1 + draw.Int64N(4e15)).UTC()
		return
	case *time.Duration:
		*p = time.Duration(1+draw.Int64N(1e6)) * time.Second
		return
	case *[]byte:
		*p = []byte(text(draw, true))
		return
	case *retrysafe.Ref:
		*p = retrysafe.Ref{Scope: text(draw, true), Key: text(draw, true)}
		return
	}
	switch v.Kind() {
	case reflect.Bool:
		v.SetBool(draw.IntN(2) == 0)
	case reflect.String:
		v.SetString(text(draw, false))
	case reflect.Uint8:
		v.SetUint(1 + draw.Uint64N(2)) // a word of a short list, or a version
	case reflect.Int, reflect.Int64:
		v.SetInt(1 + draw.Int64N(900))
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), draw)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		for i := range 2 {
			fill(v.Index(i), draw)
		}
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		name, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		fill(name, draw)
		fill(value, draw)
		v.SetMapIndex(name, value)
	case reflect.Struct:
		for i := range v.NumField() {
			switch f := v.Type().Field(i); {
			case f.Name == "Scope" || f.Name == "Tenant":
				v.Field(i).SetString(text(draw, true))
			case f.IsExported():
				fill(v.Field(i), draw)
			}
		}
	default: // arrays, functions and interfaces are of no use to a reader
	}
}

func text(draw *rand.Rand, anyBytes bool) string {
	s := fmt.Sprintf("%x é", draw.Uint64())
	if anyBytes && draw.IntN(2) == 0 {
		s += strings.Repeat("\xff", 1+draw.IntN(3))
	}
	return s
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

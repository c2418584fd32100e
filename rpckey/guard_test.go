package rpckey_test

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"os/exec"
	"runtime"
	"strings"
	"testing"

	codepb "google.golang.org/genproto/googleapis/rpc/code"
	"google.golang.org/grpc/codes"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/rpckey"
	"github.com/retrysafe/retrysafe/rpckey/internal/payv1"
	"github.com/retrysafe/retrysafe/store/memstore"
)

const (
	key    = "8e03978e-40d5-43dd-bc93-6894a57f9324"
	charge = "/retrysafe.test.pay.v1.PayService/Charge"
	refund = "/retrysafe.test.pay.v1.PayService/Refund"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func acme(context.Context) (string, error) { return "acme", nil }

func engine(t *testing.T, s retrysafe.Store) *retrysafe.Engine {
	t.Helper()
	e, err := retrysafe.New(s, nil)
	must(t, err)
	return e
}

// What cannot work is refused when the guard is built, with one sentence that says what
// to do.
func TestNewRefusesWhatCannotWork(t *testing.T) {
	t.Parallel()
	e := engine(t, memstore.New(nil))
	on := func(name string, change func(*rpckey.Options)) rpckey.Options {
		return rpckey.Options{Procedures: map[string]func(*rpckey.Options){name: change}}
	}
	for want, o := range map[string]rpckey.Options{
		"MaxResponse is negative":                                {MaxResponse: -1},
		"MaxRequest or MaxResponse is negative":                  {MaxRequest: -1},
		"FormerFields: \"sent-at\" is no path of field names":    {FormerFields: []rpckey.Fields{{Exclude: []string{"amount", "sent-at"}}}},
		"FormerFields: \"device.\" is no path of field names":    {FormerFields: []rpckey.Fields{{Exclude: []string{"device."}}}},
		"Streams holds a value":                                  {Streams: 9},
		"KeyField: \"request-id\" is no name of a field":         {KeyField: "request-id"},
		"KeyMetadata: \"key-bin\" belongs to the protocol":       {KeyMetadata: "Key-Bin"},
		"KeyMetadata: \"grpc-key\" belongs to the protocol":      {KeyMetadata: "grpc-key"},
		"\"Charge\" is no procedure; write /package.Service":     {Unguarded: []string{"Charge"}},
		"\"pay.v1.Pay/Charge\" is no procedure":                  {Unguarded: []string{"pay.v1.Pay/Charge"}},
		"PayService has no method Chrage":                        {Unguarded: []string{"/retrysafe.test.pay.v1.PayService/Chrage"}},
		"has no method Chrage":                                   on("/retrysafe.test.pay.v1.PayService/Chrage", func(*rpckey.Options) {}),
		"the function of " + charge + " is nil":                  on(charge, nil),
		"ChargeRequest has no field request_id of type string":   on(charge, func(o *rpckey.Options) { o.KeyField = "request_id" }),
		"ChargeRequest has no field amount of type string":       on(charge, func(o *rpckey.Options) { o.KeyField = "amount" }),
		"ChargeRequest has no field sent":                        on(charge, func(o *rpckey.Options) { o.Exclude = []string{"sent"} }),
		"labels of retrysafe.test.pay.v1.ChargeRequest is no me": on(charge, func(o *rpckey.Options) { o.Exclude = []string{"labels.a"} }),
		"Codes: OK has no meaning":                               {Codes: map[codepb.Code]rpckey.Meaning{codepb.Code_OK: rpckey.MeaningFailed}},
		"Codes: ABORTED has no meaning invalid(9)":               {Codes: map[codepb.Code]rpckey.Meaning{codepb.Code_ABORTED: 9}},
		"ID 16 is not 1 to 15":                                   {Secrets: []rpckey.Secret{{ID: 16, Key: make([]byte, 32)}}},
		"ID 1 is there twice":                                    {Secrets: []rpckey.Secret{{ID: 1, Key: make([]byte, 32)}, {ID: 1, Key: make([]byte, 32)}}},
		"key 1 is under 16 bytes":                                {Secrets: []rpckey.Secret{{ID: 1, Key: make([]byte, 15)}}},
		"cannot rerun":                                           {Policy: &retrysafe.Policy{Lapse: retrysafe.LapseRerun}},
	} {
		if _, err := rpckey.New(e, acme, &o); err == nil || !strings.HasPrefix(err.Error(), "rpckey: ") || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
	for _, o := range []rpckey.Options{
		{}, {KeyField: "request_id"}, {Unguarded: []string{"/another.Service/", "/another.Service/Method", charge}},
		on(refund, func(o *rpckey.Options) { o.KeyField, o.Exclude = "request_id", []string{"amount"} }),
		on("/retrysafe.test.pay.v1.PayService/", func(o *rpckey.Options) { o.Exclude = []string{"sent_at"} }),
		on("/not.linked.Service/Method", func(o *rpckey.Options) { o.KeyField = "anything" }),
	} {
		if _, err := rpckey.New(e, acme, &o); err != nil {
			t.Error(err)
		}
	}
	if _, err := rpckey.New(nil, acme, nil); err == nil {
		t.Error("a guard without an engine")
	}
	if _, err := rpckey.New(e, nil, nil); err == nil {
		t.Error("a guard without a scope")
	}
}

// ask sends a call through a guard, without a transport.
func ask(t *testing.T, g *rpckey.Guard, message any) rpckey.Answer {
	t.Helper()
	return g.Unary(t.Context(), &rpckey.Call{
		Procedure: charge, Message: message,
		Metadata: func(name string) []string { return map[string][]string{"idempotency-key": {key}}[name] },
	}, func(context.Context, bool) rpckey.Answer {
		return rpckey.Answer{Message: &payv1.ChargeResponse{ChargeId: "ch_1"}}
	})
}

func guard(t *testing.T, s retrysafe.Store, o rpckey.Options) *rpckey.Guard {
	t.Helper()
	o.Logger = slog.New(slog.DiscardHandler)
	g, err := rpckey.New(engine(t, s), acme, &o)
	must(t, err)
	return g
}

// With secrets a fingerprint is an HMAC. A former secret still verifies; what cannot be
// verified is refused, and so is a record of another kind of request.
func TestFingerprintsUnderSecrets(t *testing.T) {
	t.Parallel()
	s := memstore.New(nil)
	one, two := rpckey.Secret{ID: 1, Key: []byte("0123456789abcdef")}, rpckey.Secret{ID: 2, Key: []byte("fedcba9876543210")}
	request := &payv1.ChargeRequest{Amount: 1}
	if a := ask(t, guard(t, s, rpckey.Options{Secrets: []rpckey.Secret{one}}), request); a.Status != nil || a.Stored {
		t.Fatalf("got %v", a.Status)
	}
	rotated := guard(t, s, rpckey.Options{Secrets: []rpckey.Secret{two, one}})
	if a := ask(t, rotated, request); a.Status != nil || !a.Stored {
		t.Errorf("got %v", a.Status)
	}
	if a := ask(t, rotated, &payv1.ChargeRequest{Amount: 2}); codes.Code(a.Status.GetCode()) != codes.FailedPrecondition {
		t.Errorf("got %v", a.Status)
	}
	if a := ask(t, guard(t, s, rpckey.Options{Secrets: []rpckey.Secret{two}}), request); codes.Code(a.Status.GetCode()) != codes.Unavailable {
		t.Errorf("got %v", a.Status)
	}
	r, err := s.Load(t.Context(), retrysafe.Ref{Scope: "acme", Key: key})
	must(t, err)
	if r.Fingerprint.Alg != 0x14 {
		t.Errorf("the algorithm is %x", r.Fingerprint.Alg)
	}
	for alg, want := range map[uint8]codes.Code{1: codes.FailedPrecondition, 0x21: codes.FailedPrecondition, 9: codes.FailedPrecondition, 6: codes.FailedPrecondition, 5: codes.Unavailable, 12: codes.Unavailable} {
		s := memstore.New(nil)
		w := r.Update()
		w.Fingerprint.Alg, w.Term = alg, r.Retain
		_, err := s.Create(t.Context(), w)
		must(t, err)
		if a := ask(t, guard(t, s, rpckey.Options{}), request); codes.Code(a.Status.GetCode()) != want {
			t.Errorf("algorithm %d: got %v", alg, a.Status)
		}
	}
}

// Two scopes have different fingerprints of the same call, and what is no message of
// protobuf is refused.
func TestFingerprintIncludesTheScope(t *testing.T) {
	t.Parallel()
	s := memstore.New(nil)
	sums := map[retrysafe.Fingerprint]bool{}
	for _, scope := range []string{"acme", "rival"} {
		g, err := rpckey.New(engine(t, s), func(context.Context) (string, error) { return scope, nil }, nil)
		must(t, err)
		ask(t, g, &payv1.ChargeRequest{Amount: 1})
		r, err := s.Load(t.Context(), retrysafe.Ref{Scope: scope, Key: key})
		must(t, err)
		sums[r.Fingerprint] = true
	}
	if len(sums) != 2 {
		t.Error("equal calls of two tenants have equal sums")
	}
	if a := ask(t, guard(t, memstore.New(nil), rpckey.Options{}), struct{}{}); codes.Code(a.Status.GetCode()) != codes.Internal {
		t.Errorf("got %v", a.Status)
	}
}

// A program links what it uses: Connect does not bring gRPC, nor the other way round.
func TestEachTransportLinksOnlyItself(t *testing.T) {
	t.Parallel()
	for pkg, never := range map[string][]string{
		".":            {"google.golang.org/grpc", "connectrpc.com/connect"},
		"./connectkey": {"google.golang.org/grpc"},
		"./grpckey":    {"connectrpc.com/connect"},
	} {
		cmd := exec.CommandContext(t.Context(), "go", "list", "-deps", pkg)
		cmd.Stderr = t.Output()
		out, err := cmd.Output()
		must(t, err)
		for dep := range strings.FieldsSeq(string(out)) {
			for _, n := range never {
				if dep == n || strings.HasPrefix(dep, n+"/") {
					t.Errorf("%s links %s", pkg, dep)
				}
			}
		}
	}
}

// With Repanic a panic goes on when it was settled, and so does the one by which a handler
// of net/http drops its connection.
func TestPanicGoesOn(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		o     rpckey.Options
		value any
		on    bool
	}{
		"repanic": {rpckey.Options{Repanic: true}, "a defect", true},
		"abort":   {rpckey.Options{}, http.ErrAbortHandler, true},
		"default": {rpckey.Options{}, "a defect", false},
	} {
		for _, inTx := range []bool{false, true} {
			s := memstore.New(nil)
			if inTx {
				c.o.Tx = rpckey.InTx(s)
			}
			g := guard(t, s, c.o)
			got := func() (value any) {
				defer func() { value = recover() }()
				g.Unary(t.Context(), &rpckey.Call{
					Procedure: charge, Message: &payv1.ChargeRequest{}, Metadata: func(string) []string { return []string{key} },
				}, func(context.Context, bool) rpckey.Answer { panic(c.value) })
				return nil
			}()
			if (got != nil) != c.on || c.on && got != c.value {
				t.Errorf("%s: the panic is %v", name, got)
			}
			r, err := s.Load(t.Context(), retrysafe.Ref{Scope: "acme", Key: key})
			if inTx && !errors.Is(err, retrysafe.ErrNotFound) || !inTx && r.State != retrysafe.StateUnknown {
				t.Errorf("%s: the record is %s, %v", name, r.State, err)
			}
		}
	}
}

// A handler that ends its goroutine is settled, like one that panics.
func TestHandlerThatEndsItsGoroutine(t *testing.T) {
	t.Parallel()
	s := memstore.New(nil)
	g := guard(t, s, rpckey.Options{})
	done := make(chan struct{})
	go func() {
		defer close(done)
		g.Unary(t.Context(), &rpckey.Call{
			Procedure: charge, Message: &payv1.ChargeRequest{}, Metadata: func(string) []string { return []string{key} },
		}, func(context.Context, bool) rpckey.Answer { runtime.Goexit(); return rpckey.Answer{} })
	}()
	<-done
	r, err := s.Load(t.Context(), retrysafe.Ref{Scope: "acme", Key: key})
	must(t, err)
	if r.State != retrysafe.StateUnknown {
		t.Errorf("the record is %s", r.State)
	}
}

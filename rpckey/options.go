package rpckey

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"

	codepb "google.golang.org/genproto/googleapis/rpc/code"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/retrysafe/retrysafe"
)

// A ScopeFunc returns the tenant that owns a call's key: that of the authenticated
// caller, as an interceptor before this one has put it into the context. It must never
// be taken from the request message. An empty scope or an error refuses the call.
type ScopeFunc func(context.Context) (string, error)

// Options are what a [Guard] may be given. Nil and zero values are the safe defaults.
type Options struct {
	// Policy overrides the engine's policy.
	Policy *retrysafe.Policy

	// Tx runs each handler in a transaction, in which its effects and its answer are one
	// commit, by [retrysafe.DoTx]: exactly one effect. See [InTx] and [Tx]. An error or a
	// panic of the handler rolls its writes back; an error that is an answer is stored
	// then, and after another one the key is free. The effects are
	// [retrysafe.EffectsInTx]; Lapse does not apply.
	Tx TxRunner

	// KeyMetadata is the name of the metadata that carries the key. Default
	// idempotency-key.
	KeyMetadata string
	// KeyField is the name of a string field of the request message that carries the
	// key, such as request_id (AIP-155). Every guarded request message must have it.
	// The metadata is still read: a call may bring its key in either, and in both only
	// if it is the same one. The field does not count in the fingerprint.
	KeyField string
	// Optional lets calls without a key pass unguarded instead of refusing them.
	Optional bool
	// Strict refuses keys that are not quoted.
	Strict bool
	// Observe enforces nothing: calls run as if there were no guard, and those that would
	// have been refused or replayed are reported. With Tx a handler still runs in a
	// transaction. Keys are recorded without their answers. For rolling out.
	Observe bool

	// Exclude are fields that do not count in the fingerprint, as paths of field names:
	// "sent_at", "device.battery". A path goes into every element of a repeated field,
	// and not into maps. A request message without the field is not affected.
	Exclude []string
	// FingerprintMetadata are names of request metadata that count in the fingerprint.
	FingerprintMetadata []string
	// FormerFields are choices of Exclude and FingerprintMetadata that were in force
	// before. A record names the choice that it was stored under, and a retry is compared
	// by that one: keep a former choice for as long as its records live. A record of a
	// choice that is not listed is refused, never guessed at.
	FormerFields []Fields
	// Secrets make the fingerprints HMACs with a key per tenant. The first is
	// current; keep former ones for as long as their records live.
	Secrets []Secret

	// Codes says what an error means for the operation, for the codes whose meaning is
	// another than in [DefaultCodes].
	Codes map[codepb.Code]Meaning
	// MaxRequest bounds a request message, in bytes of its encoding: a larger call is
	// refused before anything is reserved. Default 4 MiB, as a gRPC server has it. The
	// transport has decoded the message by then, so set its own limit too.
	MaxRequest int
	// MaxResponse bounds a stored answer, in bytes. A larger one is sent to the first
	// caller, and a retry learns that the call was executed. Default 1 MiB.
	MaxResponse int
	// OmitMetadata are names of response metadata that are not stored. Set-cookie,
	// authorization and others that belong to one exchange never are.
	OmitMetadata []string

	// Streams says what becomes of streaming calls. Default [StreamsRefuse].
	Streams StreamPolicy
	// Unguarded are procedures that pass untouched, as "/package.Service/Method", or
	// "/package.Service/" for all of a service. Those of gRPC itself (health,
	// reflection, channelz) always pass.
	Unguarded []string
	// Procedures change the options for some procedures, named as in Unguarded. The
	// function gets a copy of these options. An entry for a method is applied instead of
	// one for its service.
	Procedures map[string]func(*Options)

	// Repanic lets a handler's panic go on after it was settled, instead of
	// answering INTERNAL and logging it.
	Repanic bool
	// ProblemBase is put before a problem's code to make the address in google.rpc.Help.
	// Default: the pages of this project.
	ProblemBase string
	// Report is called for every refusal, and in observe mode for every call that would
	// have been refused or replayed. It must be quick.
	Report func(Notice)
	// Logger gets warnings, errors and panics. Default slog.Default().
	Logger *slog.Logger
}

// A Notice is a call that a guard refused or, in observe mode, would have refused or
// replayed.
type Notice struct {
	// Code is the problem's code, such as key-reused, or "replay".
	Code string
	// Procedure is "/package.Service/Method".
	Procedure string
	// KeyHash identifies the key without revealing it. Empty if there was none.
	KeyHash string
	// Enforced is false in observe mode: the handler ran all the same.
	Enforced bool
}

// noticeReplay is the code of a [Notice] for a call that would have been replayed.
const noticeReplay = "replay"

// StreamPolicy says what becomes of streaming calls.
type StreamPolicy uint8

const (
	// StreamsRefuse answers UNIMPLEMENTED.
	StreamsRefuse StreamPolicy = iota
	// StreamsPass lets streams pass unguarded: a retry of one runs it again.
	StreamsPass
)

// A Secret keys fingerprints. ID is 1 to 15 and is stored with each record.
type Secret struct {
	ID  uint8
	Key []byte
}

const (
	defaultRequest  = 4 << 20
	defaultResponse = 1 << 20
	// defaultKey is the name of the metadata that carries the key.
	defaultKey = "idempotency-key"
)

// infrastructure are the services of gRPC itself. Probes and tools that call them bring
// no key.
var infrastructure = []string{
	"/grpc.health.v1.Health/", "/grpc.channelz.v1.Channelz/",
	"/grpc.reflection.v1.ServerReflection/", "/grpc.reflection.v1alpha.ServerReflection/",
}

// complete checks o and fills in its defaults.
func (o *Options) complete() error {
	o.KeyMetadata = strings.ToLower(cmp.Or(o.KeyMetadata, defaultKey))
	o.MaxRequest = cmp.Or(o.MaxRequest, defaultRequest)
	o.MaxResponse = cmp.Or(o.MaxResponse, defaultResponse)
	o.ProblemBase = cmp.Or(o.ProblemBase, problemPages)
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	switch {
	case o.MaxRequest < 0 || o.MaxResponse < 0:
		return errors.New("option MaxRequest or MaxResponse is negative")
	case o.Tx != nil && !o.Tx.Valid():
		return errors.New("option Tx: the store of InTx is nil")
	case o.Tx != nil && o.Policy != nil && o.Policy.Effects == retrysafe.EffectsKeyed:
		return errors.New("option Tx: the effects are in transactions, and Policy says that they are keyed; leave Effects unset")
	case o.Streams > StreamsPass:
		return errors.New("option Streams holds a value that is none of its constants")
	case o.KeyField != "" && !protoreflect.Name(o.KeyField).IsValid():
		return fmt.Errorf("option KeyField: %q is no name of a field; write it as the .proto file does, such as request_id", o.KeyField)
	case strings.HasSuffix(o.KeyMetadata, "-bin") || isProtocol(o.KeyMetadata):
		return fmt.Errorf("option KeyMetadata: %q belongs to the protocol or is binary; a key is text in metadata of the application's own", o.KeyMetadata)
	}
	for _, list := range [][]string{o.Unguarded, slices.Collect(maps.Keys(o.Procedures))} {
		for _, name := range list {
			if err := checkProcedure(name); err != nil {
				return err
			}
		}
	}
	for code, m := range o.Codes {
		if _, known := DefaultCodes()[code]; !known || m > MeaningNotExecuted {
			return fmt.Errorf("option Codes: %v has no meaning %v; the codes are those of errors, the meanings the constants of Meaning", code, m)
		}
	}
	if err := checkFormer(o.FormerFields); err != nil {
		return err
	}
	return checkSecrets(o.Secrets)
}

func checkSecrets(secrets []Secret) error {
	ids := map[uint8]bool{}
	for _, s := range secrets {
		switch {
		case s.ID < 1 || s.ID > 15:
			return fmt.Errorf("option Secrets: ID %d is not 1 to 15", s.ID)
		case ids[s.ID]:
			return fmt.Errorf("option Secrets: ID %d is there twice", s.ID)
		case len(s.Key) < 16:
			return fmt.Errorf("option Secrets: key %d is under 16 bytes", s.ID)
		}
		ids[s.ID] = true
	}
	return nil
}

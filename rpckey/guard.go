package rpckey

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	codepb "google.golang.org/genproto/googleapis/rpc/code"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/keysyntax"
)

// A Guard makes unary calls retry-safe. The interceptors of packages connectkey and
// grpckey ask it. It is safe for concurrent use.
type Guard struct {
	base       *retrysafe.Engine // as New was given it
	engine     *retrysafe.Engine // under this guard's policy
	policy     retrysafe.Policy
	scope      ScopeFunc
	o          Options
	codes      map[codepb.Code]Meaning
	omitted    map[string]bool   // names of response metadata that are not stored
	procedures map[string]*Guard // by the names in Options.Procedures
	methods    *sync.Map         // procedure → *method
	choices    []*choice         // of what counts in a fingerprint; see choicesOf
}

// New returns a guard. The engine decides about keys, the scope says which tenant owns
// a key; neither can be left out. Opts may be nil.
func New(e *retrysafe.Engine, scope ScopeFunc, opts *Options) (*Guard, error) {
	if e == nil || scope == nil {
		return nil, errors.New("rpckey: New needs an engine and a scope: without a scope one caller could get another's answers")
	}
	var o Options
	if opts != nil {
		o = *opts
	}
	g, err := (&Guard{base: e, scope: scope, methods: new(sync.Map)}).with(o)
	if err != nil {
		return nil, fmt.Errorf("rpckey: %w", err)
	}
	for _, caveat := range g.caveats() {
		g.o.Logger.Warn("retrysafe: policy has a caveat", "caveat", caveat)
	}
	for _, name := range slices.Sorted(maps.Keys(g.procedures)) {
		for _, caveat := range g.procedures[name].caveats() {
			if !slices.Contains(g.caveats(), caveat) {
				g.o.Logger.Warn("retrysafe: policy has a caveat", "procedure", name, "caveat", caveat)
			}
		}
	}
	return g, nil
}

// with returns a guard with the given options over the same engine.
func (g *Guard) with(o Options) (*Guard, error) {
	if err := o.complete(); err != nil {
		return nil, err
	}
	n := &Guard{base: g.base, scope: g.scope, methods: g.methods, o: o, choices: choicesOf(&o)}
	p := g.base.Policy()
	if o.Policy != nil {
		p = *o.Policy
	}
	if o.Tx != nil { // nothing lapses: its record appears with the commit
		p.Effects, p.Lapse = retrysafe.EffectsInTx, retrysafe.Lapse(0)
	}
	if o.Observe {
		p.InFlight = retrysafe.InFlightConflict // in observe mode no call waits
	}
	var err error
	if n.engine, err = g.base.With(p); err != nil {
		return nil, err
	}
	if p := n.engine.Policy(); o.Observe && p.Effects == retrysafe.EffectsInTx { // an observed handler commits without its answer
		if n.engine, err = n.engine.With(retrysafe.Policy{Effects: retrysafe.EffectsUnprotected, OnFailure: p.OnFailure}); err != nil {
			return nil, err
		}
	}
	n.policy = n.engine.Policy()
	n.codes = DefaultCodes()
	maps.Copy(n.codes, o.Codes)
	n.omitted = make(map[string]bool)
	for _, name := range o.OmitMetadata {
		n.omitted[strings.ToLower(name)] = true
	}
	if n.procedures, err = n.perProcedure(); err != nil {
		return nil, err
	}
	return n, nil
}

// perProcedure returns the guards of [Options.Procedures].
func (g *Guard) perProcedure() (map[string]*Guard, error) {
	all := make(map[string]*Guard)
	for _, name := range slices.Sorted(maps.Keys(g.o.Procedures)) {
		change := g.o.Procedures[name]
		if change == nil {
			return nil, fmt.Errorf("option Procedures: the function of %s is nil", name)
		}
		o := g.o
		o.Procedures = nil
		change(&o)
		n, err := g.with(o)
		if err == nil {
			err = n.checkFields(name)
		}
		if err != nil {
			return nil, fmt.Errorf("option Procedures: %s: %w", name, err)
		}
		all[name] = n
	}
	return all, nil
}

// caveats lists what the guard gives up, for a startup log.
func (g *Guard) caveats() []string {
	all := g.policy.Caveats()
	var added []string
	for code, m := range g.o.Codes {
		if m == MeaningNotExecuted {
			added = append(added, code.String())
		}
	}
	if len(added) > 0 && g.policy.Effects == retrysafe.EffectsUnprotected {
		slices.Sort(added)
		all = append(all, "an error with "+strings.Join(added, ", ")+" is taken as proof that nothing happened, and effects are unprotected: "+
			"a handler that returns one after an effect repeats the effect")
	}
	return all
}

// A Call is one unary call, as a transport has received it.
type Call struct {
	// Procedure is "/package.Service/Method".
	Procedure string
	// Method describes the procedure. If it is nil, it is looked up among the files
	// that are linked into the program.
	Method protoreflect.MethodDescriptor
	// NoSideEffects says that the transport knows the method to have none.
	NoSideEffects bool
	// Metadata returns the values of the call's metadata under a name in lower case.
	Metadata func(name string) []string
	// Message is the request. It must be a proto.Message.
	Message any
	// Recorded returns the response metadata that the handler has set through its
	// context so far, for [CompleteTx]. Nil: there is none.
	Recorded func() (header, trailer map[string][]string)
}

// A Next runs the handler in the context that it is given. If the call is guarded, the
// response metadata that the handler sets must be held back and returned in the answer.
type Next func(ctx context.Context, guarded bool) Answer

// Unary answers one unary call. It calls next once at most, on its own goroutine. The
// answer says whether it is the handler's own: then the transport returns what the
// handler has returned, with the metadata of the answer.
func (g *Guard) Unary(ctx context.Context, c *Call, next Next) Answer {
	g = g.forProcedure(c.Procedure)
	m := g.method(c)
	if m.noSideEffects || c.NoSideEffects || g.unguarded(c.Procedure) {
		return next(ctx, false)
	}
	if g.o.Observe {
		return g.watch(ctx, c, next)
	}
	call, re := g.intake(ctx, c)
	switch {
	case re != nil:
		return g.refuse(c.Procedure, call.Key, re)
	case call.Key == "": // optional and absent, or guarded already
		return g.pass(ctx, c, next)
	case g.o.Tx != nil:
		return g.unaryTx(ctx, c, m, call, next)
	}
	run, out, err := g.engine.Begin(ctx, call)
	switch {
	case run != nil:
		x := &exchange{g: g, ctx: ctx, c: c, output: m.output(), run: run}
		return x.execute(next)
	case out != nil:
		return g.replay(c.Procedure, m.output(), call.Key, out)
	default:
		return g.refuse(c.Procedure, call.Key, g.explain(c.Procedure, call.Key, err))
	}
}

// Stream returns the refusal of a streaming call, or nil if it may pass.
func (g *Guard) Stream(c *Call) *Answer {
	g = g.forProcedure(c.Procedure)
	if g.o.Streams == StreamsPass || c.NoSideEffects || g.method(c).noSideEffects || g.unguarded(c.Procedure) {
		return nil
	}
	if g.o.Observe {
		g.report(streamUnsupported.code, c.Procedure, "", false)
		return nil
	}
	a := g.refuse(c.Procedure, "", &refusal{problem: streamUnsupported})
	return &a
}

// forProcedure returns the guard with the options of a procedure.
func (g *Guard) forProcedure(procedure string) *Guard {
	if n, ok := g.procedures[procedure]; ok {
		return n
	}
	if n, ok := g.procedures[serviceOf(procedure)]; ok {
		return n
	}
	return g
}

// unguarded reports whether a procedure passes untouched.
func (g *Guard) unguarded(procedure string) bool {
	service := serviceOf(procedure)
	return slices.Contains(infrastructure, service) || slices.Contains(g.o.Unguarded, service) || slices.Contains(g.o.Unguarded, procedure)
}

// intake reads what the engine needs of a call: the key, its scope and the fingerprint.
// A refusal reserves nothing. Without a key the call is not guarded.
func (g *Guard) intake(ctx context.Context, c *Call) (call retrysafe.Call, re *refusal) {
	message, ok := c.Message.(proto.Message)
	if !ok {
		g.o.Logger.Error("retrysafe: the request is no protobuf message, so it cannot be compared with a retry; list the procedure in Unguarded, or use messages of protobuf",
			"procedure", c.Procedure, "type", fmt.Sprintf("%T", c.Message))
		return call, &refusal{problem: messageUnsupported}
	}
	if call.Key, re = g.key(c, message.ProtoReflect()); re != nil || call.Key == "" {
		return call, re
	}
	var err error
	if call.Scope, err = g.scopeOf(ctx); err != nil {
		g.o.Logger.Warn("retrysafe: caller is not identified", "procedure", c.Procedure, "error", err)
		return call, &refusal{problem: callerUnidentified}
	}
	if run, ok := retrysafe.FromContext(ctx); ok && run.Ref() == call.Ref {
		return retrysafe.Call{}, nil // an outer guard has reserved this key already
	}
	call.Operation = c.Procedure
	if len(call.Operation) > maxOperation {
		call.Operation = strings.ToValidUTF8(call.Operation[:maxOperation], "")
	}
	switch err := g.fingerprint(&call, c, message); {
	case errors.Is(err, errTooLarge):
		return call, &refusal{problem: bodyTooLarge, found: fmt.Sprintf("The limit is %d bytes.", g.o.MaxRequest)}
	case err != nil:
		g.o.Logger.Error("retrysafe: the request has no encoding", "procedure", c.Procedure, "error", err)
		return call, &refusal{problem: messageUnsupported}
	}
	return call, nil
}

const (
	maxScope     = 1024 // the engine's limit
	maxOperation = 256  // a longer name is cut
)

var errNoScope = errors.New("the scope is empty, too long or contains a control character")

// scopeOf returns the scope of the call's key. It has no control character, so it cannot
// look like a scope of retrysafe's own, nor like one that httpkey puts together.
func (g *Guard) scopeOf(ctx context.Context) (string, error) {
	s, err := g.scope(ctx)
	if err == nil && (s == "" || len(s) > maxScope || strings.ContainsFunc(s, func(c rune) bool { return c < ' ' || c == 0x7f })) {
		err = errNoScope
	}
	return s, err
}

// key returns the key of a call, which is in the metadata, in a field of the message or
// in both. Empty: there is none, and none is needed.
func (g *Guard) key(c *Call, message protoreflect.Message) (string, *refusal) {
	values := c.Metadata(g.o.KeyMetadata)
	if len(values) > 1 {
		return "", &refusal{problem: keyMalformed, found: "There is more than one value."}
	}
	if g.o.KeyField != "" {
		field, err := keyField(message.Descriptor(), g.o.KeyField)
		if err != nil {
			g.o.Logger.Error("retrysafe: the request cannot carry a key", "procedure", c.Procedure, "error", err)
			return "", &refusal{problem: keyFieldMissing}
		}
		if text := message.Get(field).String(); text != "" {
			values = append(slices.Clip(values), text)
		}
	}
	key := ""
	for _, value := range values {
		next, err := keysyntax.Parse(value, false, g.o.Strict)
		switch {
		case err != nil:
			return "", &refusal{problem: keyMalformed, found: "The key was not accepted: " + err.Error() + "."}
		case key != "" && next != key:
			return "", &refusal{problem: keyMalformed, found: "The metadata and the field " + g.o.KeyField + " carry different keys."}
		}
		key = next
	}
	if key != "" || g.o.Optional {
		return key, nil
	}
	re := &refusal{problem: keyMissing, found: "There is no metadata " + g.o.KeyMetadata + "."}
	if g.o.KeyField != "" {
		re.found = "The field " + g.o.KeyField + " is empty, and there is no metadata " + g.o.KeyMetadata + "."
	}
	return "", re
}

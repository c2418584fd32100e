package rpckey

import (
	"fmt"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"
)

// method is what is known of a procedure.
type method struct {
	descriptor    protoreflect.MethodDescriptor // nil if no file that describes it is linked
	noSideEffects bool
}

// method returns what is known of the procedure of a call. Transports call interceptors
// for registered procedures only, so the cache is bounded.
func (g *Guard) method(c *Call) *method {
	if known, ok := g.methods.Load(c.Procedure); ok {
		return known.(*method)
	}
	m := &method{descriptor: c.Method}
	if m.descriptor == nil {
		m.descriptor, _ = findMethod(c.Procedure)
	}
	if m.descriptor != nil {
		options, ok := m.descriptor.Options().(*descriptorpb.MethodOptions)
		m.noSideEffects = ok && options.GetIdempotencyLevel() == descriptorpb.MethodOptions_NO_SIDE_EFFECTS
	}
	known, _ := g.methods.LoadOrStore(c.Procedure, m)
	return known.(*method)
}

// output describes the response of the method, if it is known.
func (m *method) output() protoreflect.MessageDescriptor {
	if m.descriptor == nil {
		return nil
	}
	return m.descriptor.Output()
}

// checkProcedure reports whether a name is that of a procedure or of a service. If the
// service is linked into the program, it must have the method.
func checkProcedure(name string) error {
	service, method, ok := strings.Cut(strings.TrimPrefix(name, "/"), "/")
	if !ok || !strings.HasPrefix(name, "/") || !protoreflect.FullName(service).IsValid() || method != "" && !protoreflect.Name(method).IsValid() {
		return fmt.Errorf("%q is no procedure; write /package.Service/Method, or /package.Service/ for all of a service", name)
	}
	d, _ := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName(service)) // if it is not linked in, a transport may know it
	if s, ok := d.(protoreflect.ServiceDescriptor); ok && method != "" && s.Methods().ByName(protoreflect.Name(method)) == nil {
		return fmt.Errorf("%q: %s has no method %s", name, service, method)
	}
	return nil
}

// findMethod returns the description of a procedure, if a file that has it is linked
// into the program.
func findMethod(procedure string) (protoreflect.MethodDescriptor, bool) {
	name := strings.ReplaceAll(strings.TrimPrefix(procedure, "/"), "/", ".")
	d, err := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName(name))
	if err != nil {
		return nil, false
	}
	m, ok := d.(protoreflect.MethodDescriptor)
	return m, ok
}

// serviceOf returns "/package.Service/" of a procedure.
func serviceOf(procedure string) string {
	return procedure[:strings.LastIndexByte(procedure, '/')+1]
}

// inputs returns the request messages of a procedure, or of all unary methods of a
// service that are guarded, as far as they are known.
func inputs(name string) []protoreflect.MessageDescriptor {
	if m, ok := findMethod(name); ok {
		return []protoreflect.MessageDescriptor{m.Input()}
	}
	service := protoreflect.FullName(strings.Trim(name, "/"))
	d, _ := protoregistry.GlobalFiles.FindDescriptorByName(service)
	s, ok := d.(protoreflect.ServiceDescriptor)
	if !ok {
		return nil
	}
	var all []protoreflect.MessageDescriptor
	for i := range s.Methods().Len() {
		m := s.Methods().Get(i)
		options, _ := m.Options().(*descriptorpb.MethodOptions)
		if options.GetIdempotencyLevel() != descriptorpb.MethodOptions_NO_SIDE_EFFECTS && !m.IsStreamingClient() && !m.IsStreamingServer() {
			all = append(all, m.Input())
		}
	}
	return all
}

// checkFields reports whether the request messages of a procedure have the fields that
// the options name, as far as the messages are known. An excluded field need be in one
// of them.
func (g *Guard) checkFields(name string) error {
	known := inputs(name)
	for _, md := range known {
		if g.o.KeyField == "" || g.unguarded(name) {
			break
		}
		if _, err := keyField(md, g.o.KeyField); err != nil {
			return err
		}
	}
	for _, path := range g.o.Exclude {
		var err error
		for _, md := range known {
			if err = new(fieldTree).add(md, path); err == nil {
				break
			}
		}
		if err != nil {
			return fmt.Errorf("option Exclude: %w", err)
		}
	}
	return nil
}

// keyField returns the field of a message that carries the key.
func keyField(md protoreflect.MessageDescriptor, name string) (protoreflect.FieldDescriptor, error) {
	field := md.Fields().ByName(protoreflect.Name(name))
	if field == nil || field.Kind() != protoreflect.StringKind || field.IsList() {
		return nil, fmt.Errorf("option KeyField: %s has no field %s of type string; add it, or set another KeyField for the procedure by Options.Procedures", md.FullName(), name)
	}
	return field, nil
}

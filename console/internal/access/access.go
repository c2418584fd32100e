// Package access says which person a request to the console comes from, and what that
// person may do.
package access

import "context"

// A Role is what a person may do.
type Role uint8

const (
	// RoleNone may do nothing. It is the zero value.
	RoleNone Role = iota
	// RoleRead may look at records, without stored requests and answers.
	RoleRead
	// RoleAct may also change records, and see stored requests and answers.
	RoleAct
)

// A Person is the authenticated sender of a request. Name is what the audit says.
type Person struct {
	Name string
	Role Role
}

// May reports whether the person has at least a role.
func (p Person) May(r Role) bool { return p.Role >= r && r != RoleNone }

type personKey struct{}

// With returns a context that carries the person of a request.
func With(ctx context.Context, p Person) context.Context {
	return context.WithValue(ctx, personKey{}, p)
}

// From returns the person of a request, or the zero Person, whose role is none.
func From(ctx context.Context) Person {
	p, _ := ctx.Value(personKey{}).(Person)
	return p
}

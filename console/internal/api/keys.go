package api

import (
	"context"
	"errors"
	"net/http"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/console/internal/access"
	"github.com/retrysafe/retrysafe/internal/adminwire"
	"github.com/retrysafe/retrysafe/internal/headerkind"
	"github.com/retrysafe/retrysafe/operator"
)

func (a *API) whoami(c *call) (any, error) {
	role := "read"
	if c.by.May(access.RoleAct) {
		role = "act"
	}
	return adminwire.Person{Name: c.by.Name, Role: role}, nil
}

func (a *API) status(c *call) (any, error) {
	if a.Status == nil {
		return struct{}{}, nil
	}
	return a.Status(c.Context())
}

func (a *API) list(c *call) (any, error) {
	q := adminwire.ParseQuery(c.URL.RawQuery)
	f, key := q.Filter(), q.Text("key")
	if err := q.End(); err != nil {
		return nil, invalid("%v", err)
	}
	if key != "" {
		return a.lookup(c, retrysafe.Ref{Scope: f.Scope, Key: key})
	}
	page, err := a.Service.List(c.Context(), f)
	if err != nil {
		return nil, err
	}
	out := adminwire.Page{Records: []adminwire.Record{}}
	for i := range page.Records {
		out.Records = append(out.Records, adminwire.NewRecord(&page.Records[i], c.detail(), false))
	}
	if page.More {
		out.Next = adminwire.FormatRef(page.Next)
	}
	return out, nil
}

// lookup returns a list of the one record with this name, or an empty one.
func (a *API) lookup(c *call, ref retrysafe.Ref) (any, error) {
	if ref.Scope == "" {
		return nil, invalid("key needs scope beside it")
	}
	out := adminwire.Page{Records: []adminwire.Record{}}
	r, err := a.load(c, ref)
	switch {
	case errors.Is(err, retrysafe.ErrNotFound):
		return out, nil
	case err != nil:
		return nil, err
	}
	out.Records = append(out.Records, r)
	return out, nil
}

func (a *API) show(c *call) (any, error) {
	ref, err := c.ref()
	if err != nil {
		return nil, err
	}
	return a.load(c, ref)
}

// load returns a record as the person may see it. Of a record that cannot be read it
// returns the readable part.
func (a *API) load(c *call, ref retrysafe.Ref) (adminwire.Record, error) {
	r, err := a.Service.Show(c.Context(), ref)
	unreadable := errors.Is(err, retrysafe.ErrUnreadable) && r.Revision != 0
	if err != nil && !unreadable {
		return adminwire.Record{}, err
	}
	return adminwire.NewRecord(&r, c.detail(), unreadable), nil
}

// ref returns the record that the path names.
func (c *call) ref() (retrysafe.Ref, error) {
	ref, ok := adminwire.ParseRef(c.PathValue("ref"))
	if !ok || ref.Scope == "" || ref.Key == "" {
		return ref, &refusal{problem(http.StatusNotFound, adminwire.CodeNotFound, "this is not a ref as a record has it")}
	}
	return ref, nil
}

func (a *API) groups(c *call) (any, error) {
	q := adminwire.ParseQuery(c.URL.RawQuery)
	f := q.Filter()
	if err := q.End(); err != nil {
		return nil, invalid("%v", err)
	}
	list, err := a.Service.Groups(c.Context(), f)
	if err != nil {
		return nil, err
	}
	return adminwire.NewGroups(list), nil
}

func (a *API) audit(c *call) (any, error) {
	q := adminwire.ParseQuery(c.URL.RawQuery)
	f := operator.AuditFilter{
		ID: q.Text("id"), By: q.Text("by"), Verb: q.Text("verb"), Ref: q.Ref("ref"), Batch: q.Text("batch"),
		Since: q.Time("since"), Before: q.Time("before"), Limit: int(q.Int("limit", 1, adminwire.MaxAudit)),
	}
	if err := q.End(); err != nil {
		return nil, invalid("%v", err)
	}
	list, err := a.Service.Audit(c.Context(), f)
	if err != nil {
		return nil, err
	}
	if list == nil {
		list = []operator.Entry{}
	}
	return adminwire.Audit{Entries: list}, nil
}

// action returns the action that a request asks for on the record of its path.
func (c *call) action() (operator.Action, *adminwire.Action, error) {
	var in adminwire.Action
	ref, err := c.ref()
	if err == nil {
		err = c.read(&in)
	}
	return operator.Action{ID: in.ID, By: c.by.Name, Why: in.Why, Ref: ref, Revision: in.Revision, ProviderRef: in.ProviderRef}, &in, err
}

// A simpleVerb is a verb that takes no arguments of its own.
type simpleVerb func(*operator.Service, context.Context, operator.Action) (operator.Entry, error)

// simple serves a verb that takes no arguments of its own.
func simple(do simpleVerb) func(*API, *call) (any, error) {
	return func(a *API, c *call) (any, error) {
		act, in, err := c.action()
		switch {
		case err != nil:
			return nil, err
		case in.Answer != nil || in.ProviderRef != "" || in.Force:
			return nil, invalid("answer, provider_ref and force are not for this action")
		}
		ctx, cancel := c.acting()
		defer cancel()
		e, err := do(a.Service, ctx, act)
		return a.outcome(ctx, c, act.Ref, e, err)
	}
}

func (a *API) resolve(c *call) (any, error) { return a.answer(c, (*operator.Service).Resolve) }
func (a *API) decline(c *call) (any, error) { return a.answer(c, (*operator.Service).Decline) }

func (a *API) answer(c *call, do func(*operator.Service, context.Context, operator.Action, retrysafe.Result) (operator.Entry, error)) (any, error) {
	act, in, err := c.action()
	if err != nil {
		return nil, err
	}
	if in.Force {
		return nil, invalid("force is not for this action")
	}
	result, err := givenAnswer(in.Answer)
	if err != nil {
		return nil, err
	}
	act.Bodiless = in.Answer.NoBody
	ctx, cancel := c.acting()
	defer cancel()
	e, err := do(a.Service, ctx, act, result)
	return a.outcome(ctx, c, act.Ref, e, err)
}

// givenAnswer returns the answer for retries, with the names of headers in their usual
// form.
func givenAnswer(in *adminwire.GivenAnswer) (retrysafe.Result, error) {
	if in == nil {
		return retrysafe.Result{}, invalid("answer is missing: what retries get from now on")
	}
	if in.Body != "" && len(in.BodyBytes) > 0 {
		return retrysafe.Result{}, invalid("the answer has both body and body_base64; keep one of them")
	}
	out := in.Result()
	switch {
	case in.NoBody && len(out.Body) > 0:
		return out, invalid("the answer has a body, and no_body says that it has none; keep one of them")
	case !in.NoBody && operator.LacksBody(&out):
		return out, invalid("the answer has no body, and clients' programs read that of a %d; give it in body or body_base64, or say no_body", out.Status)
	}
	out.Header = nil
	for name, values := range in.Headers {
		name = http.CanonicalHeaderKey(name)
		for _, value := range values {
			if err := headerkind.CheckReplayed(name, value); err != nil {
				return out, invalid("header %q: %v", name, err)
			}
			if out.Header == nil {
				out.Header = map[string][]string{}
			}
			out.Header[name] = append(out.Header[name], value)
		}
	}
	return out, nil
}

// outcome returns how an action ended. With a refusal comes the record as it is now, so
// that its sender need not ask again.
func (a *API) outcome(ctx context.Context, c *call, ref retrysafe.Ref, e operator.Entry, err error) (any, error) {
	refused := (*operator.RefusedError)(nil)
	switch {
	case errors.As(err, &refused):
		p := a.problemOf(c, err)
		c.Request = c.WithContext(access.With(ctx, c.by))
		if now, err := a.load(c, ref); err == nil {
			p.Record = &now
		}
		return nil, &refusal{p}
	case err != nil:
		return nil, &actionError{e.ID, err}
	}
	return adminwire.Outcome{Entry: e, Replayed: e.Replayed}, nil
}

// reveal returns a record with its contents. The audit says so.
func (a *API) reveal(c *call) (any, error) {
	act, in, err := c.action()
	switch {
	case err != nil:
		return nil, err
	case in.Answer != nil || in.ProviderRef != "" || in.Force:
		return nil, invalid("answer, provider_ref and force are not for this action")
	}
	ctx, cancel := c.acting()
	defer cancel()
	r, e, err := a.Service.Reveal(ctx, act)
	if err != nil {
		return a.outcome(ctx, c, act.Ref, e, err)
	}
	record := adminwire.NewRecord(&r, adminwire.Contents, false)
	return adminwire.Outcome{Entry: e, Replayed: e.Replayed, Record: &record}, nil
}

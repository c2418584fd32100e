package httpresolver

import (
	"fmt"
	"net/url"
	"strings"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/answerrule"
	"github.com/retrysafe/retrysafe/internal/jsonrule"
)

// names are all names by which one operation may be known.
type names struct {
	rec  *retrysafe.Record
	opts *Options

	request              jsonrule.Document
	readRequest, hasBody bool
}

// downstreamKey returns the key that the other side got. If the record's step log ends with
// an open call, it is that call's.
func (n *names) downstreamKey() string {
	call := n.opts.Call
	steps, _ := n.rec.Checkpoint.Steps() // a checkpoint without a step log has none
	if last := len(steps); last > 0 && steps[last-1].Open {
		call = steps[last-1].Name
	}
	return retrysafe.DownstreamKey(n.opts.Namespace, n.rec.Ref, call)
}

// fromRequest is the name of the operation's own request in a template.
const fromRequest = "request"

// inQuestion has the places of a question, and inAnswer those of an answer, which may
// refer to the reply.
var (
	inQuestion = answerrule.Vocabulary{Names: []string{"key", "key_hash", "downstream_key", "provider_ref", "operation", "scope"}, Pointed: []string{fromRequest}}
	inAnswer   = answerrule.Vocabulary{Names: inQuestion.Names, Pointed: inQuestion.Pointed, Document: true}
)

// value returns the value of a place, and whether there is one.
func (n *names) value(p *answerrule.Place) (text string, ok bool) {
	switch p.Name {
	case "key":
		text = n.rec.Key
	case "key_hash":
		text = retrysafe.HashKey(n.rec.Key)
	case "downstream_key":
		text = n.downstreamKey()
	case "provider_ref":
		text = n.rec.ProviderRef
	case "operation":
		text = n.rec.Operation
	case "scope":
		text = n.rec.Scope
	case fromRequest:
		if !n.readRequest {
			n.readRequest = true
			if body, ok := n.body(); ok {
				var err error
				n.request, err = jsonrule.Parse(body)
				n.hasBody = err == nil
			}
		}
		if n.hasBody {
			text, _ = n.request.Text(p.At)
		}
	}
	return text, text != ""
}

func (n *names) body() ([]byte, bool) {
	if n.opts.Body == nil {
		return nil, false
	}
	return n.opts.Body(*n.rec)
}

// inPath and inQuery are for a place in the path of a URL, and in its query.
func inPath(v string) (string, bool)  { return url.PathEscape(v), true }
func inQuery(v string) (string, bool) { return url.QueryEscape(v), true }

// An address is a URL with placeholders in its path and query.
type address struct {
	answerrule.Template
	query int // places from here on are in the query
}

// parseAddress reads the template of a URL, and returns its host.
func parseAddress(text string, plainHTTP bool) (a address, host string, err error) {
	if a.Template, err = inQuestion.Parse(text); err != nil {
		return a, "", err
	}
	// Without its placeholders it has to be a URL already: they stand for text in it.
	bare, query := "", false
	a.query = len(a.Places)
	for i, part := range a.Texts {
		if strings.ContainsAny(part, "{}") {
			return a, "", fmt.Errorf("there is a brace that belongs to no placeholder; a placeholder is one of %s", &inQuestion)
		}
		bare += part
		if strings.Contains(part, "#") {
			return a, "", fmt.Errorf("there is a fragment (#), which is never sent")
		}
		if i == len(a.Places) {
			break
		}
		if rest, ok := strings.CutPrefix(bare, "http://"); ok && !strings.Contains(rest, "/") {
			return a, "", fmt.Errorf("%s stands before the path; the host is the same for every question", a.Places[i].Text)
		}
		if rest, ok := strings.CutPrefix(bare, "https://"); ok && !strings.Contains(rest, "/") {
			return a, "", fmt.Errorf("%s stands before the path; the host is the same for every question", a.Places[i].Text)
		}
		if query = query || strings.Contains(bare, "?"); query && a.query == len(a.Places) {
			a.query = i
		}
		bare += "x"
	}
	host, err = checkURL(bare, plainHTTP)
	return a, host, err
}

// of returns the URL for an operation. A value that would make another path of it, as
// ".." does, cannot stand there.
func (a *address) of(n *names) (text, lacks string) {
	text, lacks = a.Fill(n.value, func(i int) answerrule.Escape {
		if i >= a.query {
			return inQuery
		}
		return inPath
	})
	if lacks != "" || len(a.Places) == 0 {
		return text, lacks
	}
	path, _, _ := strings.Cut(text, "?")
	for segment := range strings.SplitSeq(path, "/") {
		if segment == "." || segment == ".." {
			return "", a.Places[0].Text
		}
	}
	return text, ""
}

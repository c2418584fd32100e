package config

import (
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// tenant is a section that may be said in one word, as on the command line:
// header:NAME, bearer, jwt:CLAIM or none.
type tenant struct{ to *Tenant }

func (t tenant) read(r *reader, path string, n *yaml.Node) {
	to := r.resolve(n)
	if to.Kind != yaml.ScalarNode || to.Tag == nullTag {
		t.to.fields().read(r, path, n)
		return
	}
	l, ok := r.literal(path, n)
	if !ok {
		return
	}
	from, of, _ := strings.Cut(l.text, ":")
	v := Tenant{From: from, TrustedProxies: t.to.TrustedProxies}
	if from == t.to.From {
		v = *t.to // a flag names the header or the claim anew; what else the file says of it stays
	}
	switch {
	case from == "header" && of != "":
		v.Name = of
	case from == "jwt" && of != "":
		v.Claim = of
	case (from == "bearer" || from == "none") && of == "":
	default:
		kinds, guess := []string{"header", "bearer", "jwt", "none"}, ""
		if written, _, _ := strings.Cut(to.Value, ":"); !slices.Contains(kinds, written) {
			guess = didYouMean(written, kinds)
		}
		r.refuse(path, n, "%s is none of header:NAME, bearer, jwt:CLAIM, none%s", quote(to.Value), guess)
		return
	}
	if wrong := wrongText(l.text); wrong != "" {
		r.refuse(path, n, "%s %s", quote(to.Value), wrong)
		return
	}
	*t.to = v
}

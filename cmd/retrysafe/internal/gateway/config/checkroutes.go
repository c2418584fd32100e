package config

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/internal/headerkind"
)

// reserved is where the gateway's own pages are.
const reserved = "/.retrysafe/"

// guardable are the methods that a route may name. The others change nothing, so
// there is nothing to guard.
var guardable = []string{http.MethodPost, http.MethodPatch, http.MethodPut, http.MethodDelete}

// routes refuses patterns that no request could be matched by, or that one
// request could be matched by twice.
func (k *checker) routes() {
	mux := http.NewServeMux()
	var there []int
	for i, r := range k.Routes {
		path := element("routes", i) + ".match"
		method, rest := r.split()
		_, place, _ := strings.Cut(rest, "/")
		switch {
		case r.Match == "":
			k.refuse(path, "it is missing; it is a pattern such as POST /payments or POST /hooks/{rest...}")
			continue
		case method != "" && !slices.Contains(guardable, method):
			k.refuse(path, "%s: a route guards POST, PATCH, PUT or DELETE, not %s%s", quote(r.Match), quote(method), didYouMean(method, guardable))
			continue
		case strings.HasPrefix("/"+place, reserved):
			k.refuse(path, "%s: what begins with %s belongs to the gateway itself", quote(r.Match), reserved)
			continue
		}
		if err := register(http.NewServeMux(), r); err != nil {
			_, why, _ := strings.Cut(err.Error(), "at offset ")
			k.refuse(path, "%s is not a pattern such as POST /payments/{id}: at offset %s", quote(r.Match), why)
			continue
		}
		if err := register(mux, r); err != nil {
			k.collision(path, i, there)
			continue
		}
		there = append(there, i)
	}
}

// collision refuses a route's pattern because of another's.
func (k *checker) collision(path string, i int, there []int) {
	for _, j := range there {
		both := http.NewServeMux()
		_ = register(both, k.Routes[j])
		err := register(both, k.Routes[i])
		if err == nil {
			continue
		}
		_, why, _ := strings.Cut(err.Error(), "):\n")
		where := element("routes", j)
		if line := k.Routes[j].Line; line > 0 {
			where += fmt.Sprintf(" on line %d", line)
		}
		k.refuse(path, "it conflicts with %s: %s", where, strings.ReplaceAll(why, "\n", " "))
		return
	}
}

// register adds a route to mux, which panics if it cannot.
func register(mux *http.ServeMux, r Route) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%v", p)
		}
	}()
	mux.Handle(r.Match, http.NotFoundHandler())
	return nil
}

// settings refuses what the defaults or a route ask for that cannot be had. What
// a route has from the defaults is told once.
func (k *checker) settings() {
	told := map[string]bool{}
	for _, p := range k.problemsOf(&k.Defaults) {
		told[p.field+p.err.Error()] = true
		k.refuse(child("defaults", p.field), "%w", p.err)
	}
	for i := range k.Routes {
		for _, p := range k.problemsOf(&k.Routes[i].Settings) {
			if !told[p.field+p.err.Error()] && (!p.follows || !k.broken("defaults")) {
				k.refuse(child(element("routes", i), p.field), "%w", p.err)
			}
		}
	}
}

// A wrong is what is wrong with a field of some settings. It follows if it is
// about several fields together.
type wrong struct {
	field   string
	err     error
	follows bool
}

// problemsOf returns what is wrong with settings.
func (k *checker) problemsOf(s *Settings) []wrong {
	all := slices.Concat(boundsOf(s), k.roomOf(s), k.keysOf(s), k.waysOf(s), k.headersOf(s))
	if len(boundsOf(s)) == 0 {
		if err := s.Policy.Check(); err != nil {
			field, own := policyField(&s.Policy)
			if own != nil {
				err = own
			}
			all = append(all, wrong{field, err, true})
		}
	}
	slices.SortStableFunc(all, func(a, b wrong) int { return strings.Compare(a.field, b.field) })
	return all
}

// policyField returns the field that a policy is most likely refused for, and the reason
// in the words of the file where those of the library would not help.
func policyField(p *retrysafe.Policy) (string, error) {
	switch {
	case p.Effects == retrysafe.EffectsUnprotected && (p.Lapse == retrysafe.LapseRerun || p.Lapse == retrysafe.LapseResume):
		return "lapse", fmt.Errorf("%w: a lapsed attempt with unprotected effects may have happened, so it cannot %s; write quarantine or fail, or effects: keyed if the service honours a key", retrysafe.ErrPolicy, p.Lapse)
	case p.Effects == retrysafe.EffectsUnprotected && p.AsyncReserve:
		return "async_reserve", fmt.Errorf("%w: a crash of the store's server would forget an attempt that is running, and a retry would run it again, which unprotected effects do not allow; leave it off, or write effects: keyed if the service honours a key", retrysafe.ErrPolicy)
	case p.MaxRun < p.Lease:
		return "max_run", nil
	}
	return "lease", nil
}

// boundsOf returns which bounds of settings bound nothing, and which names mean
// nothing.
func boundsOf(s *Settings) []wrong {
	var all []wrong
	refuse := func(field, format string, args ...any) {
		all = append(all, wrong{field: field, err: fmt.Errorf(format, args...)})
	}
	p := &s.Policy
	for _, f := range []struct {
		name string
		n    int64
	}{
		{"timeout", int64(s.Timeout)}, {"lease", int64(p.Lease)}, {"max_run", int64(p.MaxRun)}, {"retention", int64(p.Retention)},
		{"wait", int64(p.Wait)}, {"reconcile", int64(p.Reconcile)}, {"patience", int64(p.Patience)},
		{"max_request", s.MaxRequest}, {"max_response", s.MaxResponse},
	} {
		if f.n <= 0 {
			refuse(f.name, "it must be more than 0")
		}
	}
	if s.Concurrency < 0 {
		refuse("concurrency", "it is negative; 0 is no bound")
	}
	if s.MinKeyLength < 1 || s.MinKeyLength > 255 {
		refuse("min_key_length", "it is %d; keys have 1 to 255 characters", s.MinKeyLength)
	}
	if s.AmbiguousPaths != AmbiguousRefuse && s.AmbiguousPaths != AmbiguousGuard {
		refuse("ambiguous_paths", "%s is none of refuse, guard", quote(s.AmbiguousPaths))
	}
	for field, care := range map[string]string{"short_keys": s.ShortKeys, "personal_data": s.PersonalData} {
		if care != "ignore" && care != "warn" && care != "refuse" {
			refuse(field, "%s is none of ignore, warn, refuse", quote(care))
		}
	}
	return all
}

// keysOf returns what is wrong with the key that the upstream gets, and with the caller
// that keys are bound to.
func (k *checker) keysOf(s *Settings) []wrong {
	switch {
	case s.Policy.Effects == retrysafe.EffectsInTx:
		return []wrong{{"effects", errors.New("in_tx " + noTx), true}}
	case s.ForwardKey != "" && s.DeriveKey != "":
		return []wrong{{"derive_key", errors.New("forward_key is there too; the upstream gets the client's key or one derived from it, not both"), true}}
	case s.Policy.Effects == retrysafe.EffectsKeyed && s.ForwardKey == "" && s.DeriveKey == "":
		return []wrong{{"effects", errors.New("keyed says that the upstream runs nothing twice under one key, but it gets no key; add forward_key: Idempotency-Key, or derive_key"), true}}
	case s.BindPrincipal && k.Tenant.From == "bearer":
		return []wrong{{"bind", errors.New("with tenant from: bearer each token has keys of its own already"), true}}
	case s.BindPrincipal && k.Tenant.From == "none":
		return []wrong{{"bind", errors.New("with tenant from: none a request has no principal"), true}}
	case s.BindPrincipal && k.Tenant.From != "" && k.Tenant.Principal == "":
		return []wrong{{"bind", errors.New("it needs tenant.principal, the header or the claim that names the principal"), true}}
	}
	return nil
}

// waysOf returns which ways to treat a request exclude each other.
func (k *checker) waysOf(s *Settings) []wrong {
	switch {
	case s.Off && s.Observe:
		return []wrong{{"observe", errors.New("off is there too; what is off is not observed"), true}}
	case s.AmbiguousPaths == AmbiguousGuard && !s.guardsAll():
		return []wrong{{"ambiguous_paths", errors.New("guard is only for routes that let nothing pass unguarded; leave out off, observe and required: false, or write refuse"), true}}
	case s.Async && s.Observe:
		return []wrong{{"observe", errors.New("async is there too; a request that is stored for later is more than observed; set observe: false, or off: true, beside async: true"), true}}
	case s.Async && s.Stream:
		return []wrong{{"stream", errors.New("async is there too; no client is connected when the request runs"), true}}
	case s.Async && len(s.KeepCredentials) > 0 && k.Encryption.KeysFile == "":
		return []wrong{{"keep_credentials", errors.New("the store would keep them as they are; add encryption: {keys_file: …}"), true}}
	}
	return nil
}

// headersOf returns what is wrong with the headers and fields that settings name.
func (k *checker) headersOf(s *Settings) []wrong {
	var all []wrong
	add := func(field string, err error) {
		if err != nil {
			all = append(all, wrong{field: field, err: err})
		}
	}
	add("key_header", wrongHeader(s.KeyHeader))
	for field, name := range map[string]string{"forward_key": s.ForwardKey, "derive_key": s.DeriveKey} {
		if name != "" {
			add(field, wrongHeader(name))
		}
	}
	for field, name := range map[string]string{"key_header": s.KeyHeader, "forward_key": s.ForwardKey, "derive_key": s.DeriveKey} {
		if k.Tenant.From == "header" && name != "" && (strings.EqualFold(name, k.Tenant.Name) || strings.EqualFold(name, k.Tenant.Principal)) {
			add(field, fmt.Errorf("%s says who the caller is; a key needs a header of its own", quote(name)))
		}
	}
	for field, names := range map[string][]string{
		"fingerprint_headers": s.FingerprintHeaders, "replay_headers": s.ReplayHeaders,
		"keep_headers": s.KeepHeaders, "keep_credentials": s.KeepCredentials,
	} {
		for i, name := range names {
			if !isToken(name) {
				add(element(field, i), errNoHeader(name))
			}
		}
	}
	for field, pointers := range map[string][]string{"include": s.Include, "exclude": s.Exclude} {
		for i, p := range pointers {
			if !strings.HasPrefix(p, "/") {
				add(element(field, i), fmt.Errorf("%s is not a field of a body; write it as a JSON pointer: /amount, /items/*/sku", quote(p)))
			}
		}
	}
	return all
}

// header refuses what is not the name of a header that says something of its own.
func (k *checker) header(path, name, missing string) {
	if name == "" {
		k.refuse(path, "%s", missing)
	} else if err := wrongHeader(name); err != nil {
		k.refuse(path, "%w", err)
	}
}

// taken are headers that mean something else to clients, proxies and services, beside
// those of a connection.
var taken = []string{
	"Host", "Content-Length", "Content-Type", "Content-Encoding", "Expect", "Date", "Cookie", "Authorization",
}

func wrongHeader(name string) error {
	switch canonical := http.CanonicalHeaderKey(name); {
	case !isToken(name):
		return errNoHeader(name)
	case slices.Contains(taken, canonical), headerkind.IsHop(canonical):
		return fmt.Errorf("%s means something else already; use a header of its own", quote(name))
	}
	return nil
}

func errNoHeader(name string) error {
	if name == "" {
		return errors.New("it is empty where the name of a header belongs")
	}
	return fmt.Errorf("%s is not the name of a header", quote(name))
}

// isToken reports whether a name is a token as HTTP has it (RFC 9110, 5.6.2).
func isToken(name string) bool {
	for i := range len(name) {
		c := name[i]
		if c|0x20 < 'a' || c|0x20 > 'z' {
			if (c < '0' || c > '9') && !strings.ContainsRune("!#$%&'*+-.^_`|~", rune(c)) {
				return false
			}
		}
	}
	return name != ""
}

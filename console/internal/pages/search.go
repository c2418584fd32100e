package pages

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/operator"
)

// scopeMemory remembers scopes that pages have shown, so that a key is found in them by
// one read each.
type scopeMemory struct {
	mu   sync.Mutex
	all  map[string]struct{}
	list []string
}

// maxScopes bounds the memory, and the reads of one search.
const maxScopes = 256

func (m *scopeMemory) add(scope string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, ok := m.all[scope]; ok || strings.HasPrefix(scope, "\x00") {
		return
	}
	if m.all == nil {
		m.all = map[string]struct{}{}
	}
	if len(m.list) >= maxScopes {
		delete(m.all, m.list[0])
		m.list = m.list[1:]
	}
	m.all[scope] = struct{}{}
	m.list = append(m.list, scope)
}

func (m *scopeMemory) scopes() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return append([]string(nil), m.list...)
}

const (
	// searchTime bounds how long one page of a search reads the store.
	searchTime = 80 * time.Millisecond
	// searchPage is how many records one read of a search lists. The first read of a page
	// is finished, however long it takes, so that the search gets on; a later one is given
	// up after searchGrace.
	searchPage  = 200
	searchGrace = 40 * time.Millisecond
	maxFound    = 50
	maxQuery    = 512
)

// searchData is what the page of a search shows.
type searchData struct {
	Query, Scope string
	Rows         []keyRow
	TenantURL    string
	Read         int    // records that were read so far, on this and earlier pages
	Next         string // goes on with the search, if records are left
	Full         bool   // more were found than the page shows
	Problem      string
}

// A seeker finds records by what a person knows of them.
type seeker struct {
	text   string
	isHash bool
}

var hashed = regexp.MustCompile(`^[0-9a-f]{16}$`)

// matches reports whether a record has the text as its key, hash, scope, tenant or
// provider reference, or within the texts that its notes and its reason have.
func (s *seeker) matches(r *retrysafe.Record) bool {
	if r.IsSystem() {
		return false
	}
	tenant, _, _ := strings.Cut(r.Scope, "\x1f")
	if r.Key == s.text || tenant == s.text || r.Scope == s.text || r.ProviderRef == s.text || s.isHash && retrysafe.HashKey(r.Key) == s.text {
		return true
	}
	if len(s.text) < 6 { // short texts are in too many reasons
		return false
	}
	if strings.Contains(r.Reason, s.text) {
		return true
	}
	for i := range r.Inquiry.Notes {
		if n := &r.Inquiry.Notes[i]; n.ID == s.text || strings.Contains(n.Text, s.text) {
			return true
		}
	}
	return false
}

// search looks first where a look costs little: in the scopes that pages have shown, and
// among records that are not final, which stores find by an index. Then it goes through
// all records, for a bounded time on each page; the next page goes on.
func (p *Pages) search(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	text, scope := strings.TrimSpace(q.Get("q")), q.Get("scope")
	d := searchData{Query: visible(text), Scope: scopeText(scope)}
	v := view{Title: "Search", Page: "search", Query: text}
	if text == "" || len(text) > maxQuery {
		v.Note, v.Data = &note{"warn", "Nothing to search for", "Give a key, the hash that logs show, a tenant, or a provider's reference."}, d
		p.show(w, r, http.StatusOK, "search", v)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), 10*time.Second)
	defer cancel()
	s := &searching{p: p, seeker: seeker{text, hashed.MatchString(text)}, until: time.Now().Add(searchTime), found: map[retrysafe.Ref]bool{}}
	after := retrysafe.Ref{Scope: q.Get("after_scope"), Key: q.Get("after_key")}
	s.read, _ = strconv.Atoi(q.Get("read"))
	s.read = max(s.read, 0)
	var err error
	more := true
	if after == (retrysafe.Ref{}) {
		err = s.quick(ctx, scope)
	}
	if err == nil && !s.exact {
		after, more, err = s.scan(ctx, scope, after)
	}
	if err != nil {
		d.Problem = p.logged(r, err)
	}
	if len(s.rows) == 1 && s.exact && q.Get("stay") == "" {
		secure(w)
		http.Redirect(w, r, s.rows[0].URL, http.StatusSeeOther)
		return
	}
	d.Rows, d.Read, d.Full = s.rows, s.read, len(s.rows) >= maxFound
	d.TenantURL = p.link("/keys", url.Values{"tenant": {text}})
	if more {
		next := url.Values{"q": {text}, "read": {strconv.Itoa(s.read)}}
		set(next, "scope", scope)
		set(next, "after_scope", after.Scope)
		set(next, "after_key", after.Key)
		if s.exact {
			next.Set("stay", "1")
		}
		d.Next = p.link("/search", next)
	}
	v.Data = d
	p.show(w, r, http.StatusOK, "search", v)
}

// searching is one page of a search.
type searching struct {
	p *Pages
	seeker
	until time.Time
	found map[retrysafe.Ref]bool
	rows  []keyRow
	read  int
	exact bool // a key of this name was found directly
}

func (s *searching) add(r *retrysafe.Record) {
	if !s.found[r.Ref] && len(s.rows) < maxFound {
		s.found[r.Ref] = true
		s.rows = append(s.rows, s.p.keyRow(r))
	}
}

// quick looks where a look costs little.
func (s *searching) quick(ctx context.Context, scope string) error {
	scopes := s.p.scopes.scopes()
	if scope != "" {
		scopes = []string{scope}
	}
	for _, name := range scopes {
		if scope == "" && time.Now().After(s.until) {
			break
		}
		found, err := s.p.Service.Show(ctx, retrysafe.Ref{Scope: name, Key: s.text})
		switch {
		case err == nil:
			s.add(&found)
			s.exact = true
		case !errors.Is(err, retrysafe.ErrNotFound) && !errors.Is(err, retrysafe.ErrUnreadable):
			return err
		}
	}
	page, err := s.p.Service.List(ctx, operator.Filter{Scope: scope, Limit: 10 * searchPage, States: []retrysafe.State{retrysafe.StateUnknown, retrysafe.StateAccepted}})
	if err != nil {
		return err
	}
	for i := range page.Records {
		if s.matches(&page.Records[i]) {
			s.add(&page.Records[i])
		}
	}
	return nil
}

// scan goes through the records behind a key until the time is over.
func (s *searching) scan(ctx context.Context, scope string, after retrysafe.Ref) (retrysafe.Ref, bool, error) {
	f := operator.Filter{Scope: scope, After: after, Limit: searchPage}
	for first := true; first || time.Now().Before(s.until) && len(s.rows) < maxFound; first = false {
		step, cancel := ctx, context.CancelFunc(func() {})
		if !first {
			step, cancel = context.WithDeadline(ctx, s.until.Add(searchGrace))
		}
		page, err := s.p.Service.List(step, f)
		over := step.Err() != nil && ctx.Err() == nil
		cancel()
		if err != nil && over {
			break
		}
		if err != nil {
			return f.After, true, fmt.Errorf("the search stopped: %w", err)
		}
		for i := range page.Records {
			if s.matches(&page.Records[i]) {
				s.add(&page.Records[i])
			}
		}
		s.read += len(page.Records)
		if !page.More {
			return retrysafe.Ref{}, false, nil
		}
		f.After = page.Next
	}
	return f.After, true, nil
}

// Package pages is the operator console: HTML pages, rendered on the server, over
// operator.Service. They work without JavaScript; a small script of our own keeps open
// pages up to date.
//
// The package does not authenticate. The caller puts the person of each request into its
// context, by package access, and answers requests from other sites with 403.
package pages

import (
	"context"
	"embed"
	"errors"
	"io/fs"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/console/internal/access"
	"github.com/retrysafe/retrysafe/internal/adminwire"
	"github.com/retrysafe/retrysafe/operator"
	"github.com/retrysafe/retrysafe/outbox"
)

// Sources is what the pages show and act on.
type Sources struct {
	// Service is the operator's service. Required.
	Service *operator.Service
	// Letters are the dead letters of the outbox. Nil: there is no outbox.
	Letters *operator.DeadLetters
	// Depth returns how many messages the outbox has. Nil: not known.
	Depth func(context.Context) (outbox.Depth, error)
	// Batches runs batches. Nil: the pages offer none.
	Batches Batches
	// Logger gets the errors of the store, which pages do not show. Required.
	Logger *slog.Logger
	// Counted bounds how many records the groups are counted from. If there are more, the
	// counts are marked. Zero: 100,000.
	Counted int
	// Prefix is the path under which the pages are mounted, without a slash at its end.
	Prefix string
	// Facts are what the process knows about itself.
	Facts Facts
}

// Facts are functions about the running process. Each may be nil: the pages then say that
// it is not known here.
type Facts struct {
	// Checks returns the health of the store, of background duties and of the outbox.
	Checks func(context.Context) []Check
	// LastHour returns the outcomes of the last hour by minute, the oldest first.
	LastHour func() []Minute
	// Today returns counts since midnight UTC.
	Today func() Today
	// Config returns the configuration in force as text, without secrets.
	Config func() string
	// Reports returns the comparisons with providers' ledgers, the newest first.
	Reports func(context.Context) ([]Report, error)
	// Proof returns the report of `retrysafe prove --format json`, or fs.ErrNotExist.
	Proof func(context.Context) ([]byte, error)
	// LookedInto reports whether a resolver or a webhook finds out what became of unknown
	// outcomes of an operation. Where none does, pages say that an operator has to settle
	// them.
	LookedInto func(operation string) bool
	// API is the address that clients call, for the command lines that pages show.
	API string
}

// A Check is the health of one part.
type Check struct {
	Name string
	// Level is "ok", "warn" or "bad". Any other value is shown as not known.
	Level string
	// Text says what was found, in one line.
	Text string
}

// A Minute is how many calls had each outcome in one minute.
type Minute struct {
	At                                      time.Time
	Ran, Replayed, Refused, Unknown, Failed int64
}

// Today are counts since midnight UTC, in this process.
type Today struct{ Prevented, Contradicted, Lost int64 }

// A Report is one comparison with a provider's ledger.
type Report struct {
	Ledger, Day string
	Ended       time.Time
	// Differences is how many differences were found, by their kind.
	Differences map[string]int64
	// Err says why the comparison failed, if it did.
	Err string
}

// Batches runs batches in the background.
type Batches interface {
	// Select counts what a batch would change, and keeps that for a while under the name
	// that it returns.
	Select(ctx context.Context, b operator.Batch) (found *operator.Selection, name string, err error)
	// Start begins the batch on what Select has counted, and does not wait for its end. A
	// batch that is started twice runs once.
	Start(b operator.Batch, selection string) error
	// Job returns how far a batch is. It is false if there is none with this ID.
	Job(ctx context.Context, id string) (adminwire.Job, bool, error)
}

// Pages serves the console. Close ends what it reads in the background.
type Pages struct {
	Sources

	mux     *http.ServeMux
	work    background
	groups  *snapshot[groupsFound]
	running *snapshot[runningFound]
	scopes  scopeMemory
}

//go:embed assets
var assets embed.FS

// New returns the pages over the sources.
func New(s Sources) (*Pages, error) {
	if s.Service == nil || s.Logger == nil {
		return nil, errors.New("console: the pages need an operator.Service and a logger")
	}
	s.Prefix = strings.TrimSuffix(s.Prefix, "/")
	if s.Prefix != "" && s.Prefix[0] != '/' {
		return nil, errors.New(`console: Prefix must begin with a slash, as in "/retrysafe"`)
	}
	p := &Pages{Sources: s, mux: http.NewServeMux()}
	p.work.start()
	p.groups, p.running = newSnapshot(&p.work, s.Logger, p.readGroups), newSnapshot(&p.work, s.Logger, p.readRunning)
	p.routes()
	return p, nil
}

// Close ends the reads that run in the background and waits for them.
func (p *Pages) Close() { p.work.stop() }

func (p *Pages) routes() {
	get := func(path string, h func(http.ResponseWriter, *http.Request)) {
		p.mux.Handle("GET "+path, p.guarded(access.RoleRead, h))
	}
	post := func(path string, h func(http.ResponseWriter, *http.Request)) {
		p.mux.Handle("POST "+path, p.guarded(access.RoleAct, h))
	}
	get("/{$}", p.overview)
	get("/search", p.search)
	get("/keys", p.keys)
	get("/keys/batch", p.batchForm)
	post("/keys/batch/preview", p.batchPreview)
	post("/keys/batch/apply", p.batchApply)
	get("/batches/{id}", p.batchProgress)
	get("/key", p.key)
	post("/key/reveal", p.reveal)
	post("/key/act/{verb}", p.act)
	get("/outbox", p.outbox)
	get("/outbox/letters/{id}", p.letter)
	post("/outbox/letters/{id}/reveal", p.revealLetter)
	post("/outbox/letters/{id}/act/{verb}", p.actLetter)
	get("/reconciliation", p.reconciliation)
	get("/audit", p.audit)
	get("/ledgers", p.ledgers)
	get("/proof", p.proof)
	get("/configuration", p.configuration)
	p.mux.HandleFunc("POST /theme", p.setTheme)
	p.mux.Handle("GET /assets/", Assets())
	p.mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		if !access.From(r.Context()).May(access.RoleRead) {
			p.Login(w, r, http.StatusUnauthorized, "")
			return
		}
		p.fail(w, r, http.StatusNotFound, "There is no such page.")
	})
}

// Assets serves the style sheet and the script, which hold nothing secret: the login page
// needs them. Their names carry a hash of their content, so that browsers may keep them.
func Assets() http.Handler {
	sub, _ := fs.Sub(assets, "assets") // the folder is embedded
	files := http.StripPrefix("/assets/", http.FileServerFS(sub))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		secure(w)
		w.Header().Set("Cache-Control", "public, max-age=3600")
		files.ServeHTTP(w, r)
	})
}

// ServeHTTP serves a page. The path of the request is without the prefix.
func (p *Pages) ServeHTTP(w http.ResponseWriter, r *http.Request) { p.mux.ServeHTTP(w, r) }

// maxForm bounds what a form may send. The largest field is the body of an answer.
const maxForm = 1 << 20

// guarded lets requests of persons with a role through.
func (p *Pages) guarded(role access.Role, h http.HandlerFunc) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		person := access.From(r.Context())
		switch {
		case !person.May(access.RoleRead):
			p.Login(w, r, http.StatusUnauthorized, "")
			return
		case !person.May(role):
			p.fail(w, r, http.StatusForbidden, "Your role is read. This needs a person with the role act.")
			return
		}
		if r.Method == http.MethodPost {
			r.Body = http.MaxBytesReader(w, r.Body, maxForm)
			if err := r.ParseForm(); err != nil {
				p.fail(w, r, http.StatusBadRequest, "The form could not be read. It may be larger than 1 MiB.")
				return
			}
		}
		h(w, r)
	})
}

// refOf returns the key that the address of a page names. Scope and key are arbitrary
// bytes, which a percent-encoded address holds and a field of a form does not.
func refOf(r *http.Request) retrysafe.Ref {
	q := r.URL.Query()
	return retrysafe.Ref{Scope: q.Get("scope"), Key: q.Get("key")}
}

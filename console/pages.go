package console

import (
	"errors"
	"net/http"

	"github.com/retrysafe/retrysafe/console/internal/access"
	"github.com/retrysafe/retrysafe/console/internal/pages"
	"github.com/retrysafe/retrysafe/outbox"
)

// Facts are functions about the running process, for the pages. Each may be nil: the
// pages then say that it is not known.
type Facts = pages.Facts

// A Check is the health of one part: its name, a level, and a text. See [Facts].
type Check = pages.Check

// A Minute is how many calls had each outcome in one minute. See [Facts].
type Minute = pages.Minute

// Today are counts since midnight UTC. See [Facts].
type Today = pages.Today

// A Report is one comparison with a provider's ledger. See [Facts].
type Report = pages.Report

// addPages adds the pages, the login and what the login page needs without one.
func (h *Handler) addPages(o *Options, guard *access.Guard) error {
	from := pages.Sources{Service: o.Service, Batches: h.api, Logger: o.Logger, Prefix: o.Prefix, Facts: o.Overview.Facts}
	if o.Outbox != nil {
		from.Letters = o.Service.DeadLetters(o.Outbox, o.Window)
		if d, ok := o.Outbox.(outbox.DepthReporter); ok {
			from.Depth = d.Depth
		}
	}
	var err error
	if h.pages, err = pages.New(from); err != nil {
		return err
	}
	p := h.pages
	login := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Method == http.MethodPost && r.URL.Path == "/theme":
			p.ServeHTTP(w, r)
		case r.Method == http.MethodPost && r.URL.Path == "/login":
			serveLogin(p, guard, w, r)
		default:
			p.Login(w, r, http.StatusUnauthorized, "")
		}
	})
	inside := http.NewServeMux()
	inside.Handle("/", p)
	inside.HandleFunc("POST /login", func(w http.ResponseWriter, r *http.Request) { serveLogin(p, guard, w, r) })
	inside.HandleFunc("POST /logout", func(w http.ResponseWriter, r *http.Request) {
		guard.Logout(w, r)
		http.Redirect(w, r, o.Prefix+"/", http.StatusSeeOther)
	})
	h.mux.Handle(o.Prefix+"/", http.StripPrefix(o.Prefix, guard.Pages(inside, login)))
	h.mux.Handle("GET "+o.Prefix+"/assets/", http.StripPrefix(o.Prefix, pages.Assets()))
	return nil
}

// maxLogin bounds what the form of the login sends.
const maxLogin = 16 << 10

// serveLogin begins a session for the person whose token the form has.
func serveLogin(p *pages.Pages, guard *access.Guard, w http.ResponseWriter, r *http.Request) {
	r.Body = http.MaxBytesReader(w, r.Body, maxLogin)
	switch _, err := guard.Login(w, r, r.PostFormValue("token")); {
	case errors.Is(err, access.ErrSlowed):
		p.Login(w, r, http.StatusTooManyRequests, "Too many wrong tokens came from this address. Wait a second, and try again.")
	case err != nil:
		p.Login(w, r, http.StatusUnauthorized, "The token is wrong.")
	default:
		http.Redirect(w, r, p.Next(r.PostFormValue("next")), http.StatusSeeOther)
	}
}

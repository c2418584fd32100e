package pages

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"html/template"
	"net/http"
	"net/url"
	"strings"

	"github.com/retrysafe/retrysafe/console/internal/access"
)

//go:embed templates
var templates embed.FS

// parsed has one template for each page, with the frame around it.
var parsed = parseTemplates()

func parseTemplates() map[string]*template.Template {
	funcs := template.FuncMap{
		"visible": visible, "clip": clip, "span": span, "num": number[int], "num64": number[int64], "count": count, "lower": strings.ToLower,
	}
	frame := template.Must(template.New("frame.html").Funcs(funcs).ParseFS(templates, "templates/frame.html", "templates/parts.html"))
	all := map[string]*template.Template{}
	files, _ := templates.ReadDir("templates") // the folder is embedded
	for _, f := range files {
		name := strings.TrimSuffix(f.Name(), ".html")
		if name == "frame" || name == "parts" {
			continue
		}
		all[name] = template.Must(template.Must(frame.Clone()).ParseFS(templates, "templates/"+f.Name()))
	}
	return all
}

// version distinguishes the style sheet and script of this build from others'.
var version = assetsVersion()

func assetsVersion() string {
	hash := sha256.New()
	for _, name := range []string{"console.css", "console.js", "icon.svg"} {
		text, _ := assets.ReadFile("assets/" + name) // the file is embedded
		hash.Write(text)
	}
	return hex.EncodeToString(hash.Sum(nil))[:12]
}

// A view is what every page is rendered from.
type view struct {
	Title  string
	Page   string // which entry of the menu it belongs to
	Prefix string
	Person access.Person
	MayAct bool
	Theme  string
	Here   string // the address of this page, to come back to
	Query  string // what the search box says
	Note   *note
	Sent   bool // it answers a form, and its address does not show it again
	Ver    string
	Menu   []menuItem
	Data   any
}

// A note is a message above a page.
type note struct {
	Level string // ok, warn or bad
	Title string
	Text  string
}

type menuItem struct {
	Name, Path string
	Current    bool
}

var menu = []struct{ page, name, path string }{
	{"overview", "Overview", "/"},
	{"keys", "Keys", "/keys"},
	{"outbox", "Outbox", "/outbox"},
	{"reconciliation", "Reconciliation", "/reconciliation"},
	{"audit", "Audit", "/audit"},
	{"ledgers", "Ledgers", "/ledgers"},
	{"proof", "Proof", "/proof"},
	{"configuration", "Configuration", "/configuration"},
}

// policy allows our own style sheet and script, and nothing else.
const policy = "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

// secure sets the headers that every page has.
func secure(w http.ResponseWriter) {
	h := w.Header()
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Frame-Options", "DENY")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cache-Control", "no-store")
}

// show renders a page. It is rendered as a whole before anything is sent.
func (p *Pages) show(w http.ResponseWriter, r *http.Request, status int, name string, v view) {
	v.Prefix, v.Ver, v.Theme = p.Prefix, version, theme(r)
	v.Person = access.From(r.Context())
	v.MayAct = v.Person.May(access.RoleAct)
	v.Sent = r.Method == http.MethodPost
	if v.Here == "" {
		v.Here = p.here(r)
	}
	for _, m := range menu {
		v.Menu = append(v.Menu, menuItem{m.name, p.Prefix + m.path, m.page == v.Page})
	}
	var b bytes.Buffer
	if err := parsed[name].ExecuteTemplate(&b, "frame.html", v); err != nil {
		secure(w)
		http.Error(w, "The page could not be rendered: "+err.Error(), http.StatusInternalServerError)
		return
	}
	secure(w)
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write(b.Bytes()) // the client may have gone
}

// here returns the address of the page that a request is for. For a form that was sent it
// is the overview.
func (p *Pages) here(r *http.Request) string {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		return p.Prefix + "/"
	}
	here := p.Prefix + r.URL.EscapedPath()
	if r.URL.RawQuery != "" {
		here += "?" + r.URL.RawQuery
	}
	return here
}

// fail shows that a request cannot be served.
func (p *Pages) fail(w http.ResponseWriter, r *http.Request, status int, title string) {
	p.show(w, r, status, "message", view{Title: title, Note: &note{"bad", title, ""}})
}

// storeFailed shows that the store did not answer. Its error is in the log, and not on the
// page.
func (p *Pages) storeFailed(w http.ResponseWriter, r *http.Request, err error) {
	p.show(w, r, http.StatusServiceUnavailable, "message", view{Title: "The store did not answer", Note: &note{"bad", "The store did not answer.", p.logged(r, err)}})
}

// logged logs an error of the store, and returns what a page says instead.
func (p *Pages) logged(r *http.Request, err error) string {
	p.Logger.Warn("console: a page could not be read from the store", "page", r.Pattern, "by", access.From(r.Context()).Name, "error", err)
	return "The log of this process has the reason."
}

// Login shows the login page. The form sends the token to /login.
func (p *Pages) Login(w http.ResponseWriter, r *http.Request, status int, problem string) {
	v := view{Title: "Log in", Page: "login"}
	if problem != "" {
		v.Note = &note{"bad", "You are not logged in", problem}
	}
	next := ""
	if r.Method == http.MethodGet && r.URL.Path != "/login" && r.URL.Path != "/" {
		next = p.here(r)
	}
	v.Data = next
	p.show(w, r, status, "login", v)
}

// Next returns where a login leads: the page that was asked for, if it is one of ours.
func (p *Pages) Next(text string) string {
	u, err := url.Parse(text)
	if err != nil || u.Host != "" || u.Scheme != "" || !strings.HasPrefix(u.Path, p.Prefix+"/") || strings.HasPrefix(text, "//") || strings.Contains(text, `\`) {
		return p.Prefix + "/"
	}
	return text
}

const themeCookie = "retrysafe-theme"

// theme returns the colours that the person has chosen. Empty are those of the system.
func theme(r *http.Request) string {
	if c, err := r.Cookie(themeCookie); err == nil && (c.Value == "dark" || c.Value == "light") {
		return c.Value
	}
	return ""
}

func (p *Pages) setTheme(w http.ResponseWriter, r *http.Request) {
	r.Body = http.MaxBytesReader(w, r.Body, 4096)
	cookie := http.Cookie{
		Name: themeCookie, Value: r.PostFormValue("theme"), Path: p.Prefix + "/", MaxAge: 365 * 24 * 3600, HttpOnly: true, SameSite: http.SameSiteStrictMode,
		Secure: r.TLS != nil,
	}
	if cookie.Value != "dark" && cookie.Value != "light" {
		cookie.Value, cookie.MaxAge = "", -1
	}
	http.SetCookie(w, &cookie)
	secure(w)
	http.Redirect(w, r, p.Next(r.PostFormValue("next")), http.StatusSeeOther)
}

// link returns the address of a page with parameters.
func (p *Pages) link(path string, q url.Values) string {
	if len(q) == 0 {
		return p.Prefix + path
	}
	return p.Prefix + path + "?" + q.Encode()
}

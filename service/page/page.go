// Package page serves a page, which only reads, to people: the figures, the locks, the sites, the refs
// of a project and their changes, and the audit. Visitors log in with a token, or a proxy names them. They
// see what their rules let them read, by the calls that programs make, and within the same limits.
package page

import (
	"bytes"
	"context"
	"embed"
	"errors"
	"fmt"
	"html/template"
	"maps"
	"net/http"
	"strings"
	"time"

	"connectrpc.com/connect"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/service/access"
	"github.com/globalrefdb/globalrefdb/service/api"
	"github.com/globalrefdb/globalrefdb/site/overview"
)

const (
	// listed is how many rows a view has.
	listed = 200
	// mostLooked is how many rows are read for a view: the visitor may not read all of them.
	mostLooked = 5000
	// sharedFor is how long all visitors see what was read for one of them.
	sharedFor = 3 * time.Second
)

// Options configure a page.
type Options struct {
	DB     *refdb.DB
	API    *api.Service
	Cache  *access.Cache // not running yet
	Prefix string        // of all paths: "/", a name, and perhaps more of both
	// UserHeader is the header in which a proxy names the visitor; "" for none. Whoever can send a
	// request can be anybody then.
	UserHeader string
	// Calls passes on the requests of a caller, whom api.WithCaller has set, within the limits of calls.
	Calls func(http.Handler) http.Handler
	// Events answers Watch for a caller, as server-sent events, within the limits of streams.
	Events http.Handler
	// Refused is told of each credential that was refused, and why.
	Refused func(error)
}

// A Page is the handler of all paths below a prefix.
type Page struct {
	o        Options
	sessions access.Sessions
	mux      *http.ServeMux
	assets   assets
	views    map[string]*template.Template
	figures  shared[overview.Overview]
	projects shared[[]driver.Project]
}

// reserved are the first parts of the server's other paths.
var reserved = map[string]bool{"healthz": true, "readyz": true, "metrics": true, "v1": true}

// New returns a page, or an error that wraps refdb.ErrInvalid if the prefix or the header can't work.
func New(o Options) (*Page, error) {
	if err := checkPrefix(o.Prefix); err != nil {
		return nil, err
	}
	if strings.Trim(o.UserHeader, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-") != "" {
		return nil, fmt.Errorf("%w header %q of users: give letters, digits and hyphens", refdb.ErrInvalid, o.UserHeader)
	}
	p := &Page{o: o, sessions: o.Cache.Sessions(), mux: http.NewServeMux(), assets: newAssets(), figures: newShared[overview.Overview](), projects: newShared[[]driver.Project]()}
	p.views = p.parse()
	p.mux.Handle("GET "+o.Prefix, http.RedirectHandler(p.path("/", nil), http.StatusSeeOther))
	for path, show := range map[string]func(http.ResponseWriter, *http.Request, access.Identity) error{
		"/{$}": p.showOverview, "/locks": p.showLocks, "/sites": p.showSites, "/projects": p.showProjects, "/project": p.showProject,
		"/history": p.showHistory, "/audit": p.showAudit, "/search": p.showSearch,
	} {
		p.mux.Handle("GET "+o.Prefix+path, p.identified(o.Calls(p.view(show)), p.toLogin))
	}
	p.mux.Handle("GET "+o.Prefix+"/events", p.identified(o.Events, p.fail))
	p.mux.HandleFunc("GET "+o.Prefix+"/login", p.showLogin)
	p.mux.HandleFunc("POST "+o.Prefix+"/login", p.logIn)
	p.mux.HandleFunc("POST "+o.Prefix+"/logout", p.logOut)
	p.mux.Handle("GET "+o.Prefix+"/assets/{name}", p.assets)
	return p, nil
}

func checkPrefix(prefix string) error {
	parts := strings.Split(prefix, "/")
	ok := len(parts) > 1 && parts[0] == "" && !reserved[parts[1]]
	for _, part := range parts[1:] {
		ok = ok && part != "" && strings.Trim(part, "abcdefghijklmnopqrstuvwxyz0123456789-") == ""
	}
	if !ok {
		return fmt.Errorf("%w prefix %q of the page: give / and lower-case letters, digits and hyphens, such as /ui, and none of the server's own: /healthz, /readyz, /metrics, /v1", refdb.ErrInvalid, prefix)
	}
	return nil
}

// Serves reports whether a path is the page's.
func (p *Page) Serves(path string) bool {
	rest, ok := strings.CutPrefix(path, p.o.Prefix)
	return ok && (rest == "" || rest[0] == '/')
}

// policy lets the page load nothing but its own script, style and events.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"

// ServeHTTP implements [http.Handler].
func (p *Page) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cache-Control", "no-store")
	p.mux.ServeHTTP(w, r)
}

// view answers with what show writes, or with its error.
func (p *Page) view(show func(http.ResponseWriter, *http.Request, access.Identity) error) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		caller, _ := api.Caller(r.Context())
		if err := show(w, r, caller); err != nil {
			p.fail(w, r, err)
		}
	})
}

// fail answers with a failure.
func (p *Page) fail(w http.ResponseWriter, r *http.Request, err error) {
	status, text := http.StatusInternalServerError, "internal error: the server's log has the class of the error"
	if known := (*connect.Error)(nil); errors.As(err, &known) {
		text = known.Message()
		switch known.Code() {
		case connect.CodeInvalidArgument, connect.CodeOutOfRange, connect.CodeFailedPrecondition:
			status = http.StatusBadRequest
		case connect.CodeUnauthenticated:
			status = http.StatusUnauthorized
		case connect.CodePermissionDenied:
			status = http.StatusForbidden
		case connect.CodeUnavailable, connect.CodeCanceled, connect.CodeResourceExhausted:
			status = http.StatusServiceUnavailable
		}
	}
	switch {
	case errors.Is(err, access.ErrUnauthenticated):
		status, text = http.StatusUnauthorized, access.ErrUnauthenticated.Error()
	case errors.Is(err, access.ErrDenied):
		status, text = http.StatusForbidden, err.Error()
	case errors.Is(err, access.ErrStale):
		status, text = http.StatusServiceUnavailable, access.ErrStale.Error()+": try again"
	case errors.Is(err, errSlow):
		status, text = http.StatusServiceUnavailable, err.Error()
	case errors.Is(err, refdb.ErrInvalid):
		status, text = http.StatusBadRequest, err.Error()
	}
	p.render(w, r, status, "error", http.StatusText(status), text)
}

// read calls do within the limits of a call that reads.
func (p *Page) read(ctx context.Context, do func(context.Context, access.Identity) error) error {
	return p.o.API.Read(ctx, do)
}

// A frame is what all views have.
type frame struct {
	Title   string
	Subject string // who has logged in; "" for nobody
	// All and Admin say whether the subject may read, or administer, everything; Proxied, whether a proxy has
	// named it.
	All, Admin, Proxied bool
	Query               string // of the last search
	Of                  any    // what the view itself has
}

// render answers with a view.
func (p *Page) render(w http.ResponseWriter, r *http.Request, status int, name, title string, of any) {
	f := frame{Title: title, Of: of}
	if caller, ok := api.Caller(r.Context()); ok {
		f.Subject, f.Proxied = caller.Subject, p.proxied(r)
		f.All, f.Admin = caller.MayAll(access.Read) == nil, caller.MayAll(access.Administer) == nil
		f.Query = r.URL.Query().Get("q")
	}
	var text bytes.Buffer
	if err := p.views[name].Execute(&text, f); err != nil {
		http.Error(w, "the view can't be shown", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write(text.Bytes()) // an error is the visitor's connection's
}

//go:embed templates
var templateFiles embed.FS

// parse returns the templates of the views, by the names of their files. Their links lead below p's prefix.
func (p *Page) parse() map[string]*template.Template {
	functions := maps.Clone(functions)
	functions["path"], functions["asset"] = p.link, p.asset
	layout := template.Must(template.New("layout.html").Funcs(functions).ParseFS(templateFiles, "templates/layout.html"))
	all := map[string]*template.Template{}
	for _, name := range []string{"error", "login", "overview", "sites", "locks", "projects", "project", "history", "audit", "search"} {
		all[name] = template.Must(template.Must(layout.Clone()).ParseFS(templateFiles, "templates/"+name+".html"))
	}
	return all
}

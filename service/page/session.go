package page

import (
	"errors"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"github.com/globalrefdb/globalrefdb/service/access"
	"github.com/globalrefdb/globalrefdb/service/api"
)

const (
	cookieName = "refdb_session"
	loginBytes = 4 << 10 // of a form
)

// ReadsBody reports whether the body of a request may be read. The caller limits the time for that.
func (p *Page) ReadsBody(r *http.Request) bool {
	return r.Method == http.MethodPost && r.URL.Path == p.path("/login", nil)
}

var errNobody = errors.New("nobody has logged in")

// identified passes on requests of visitors whose identity is known; others go to refuse with the reason.
func (p *Page) identified(next http.Handler, refuse func(http.ResponseWriter, *http.Request, error)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		caller, err := p.identify(r)
		if err == nil {
			err = caller.HasRules()
		}
		switch {
		case errors.Is(err, errNobody):
			refuse(w, r, access.ErrUnauthenticated)
		case err != nil:
			p.o.Refused(err)
			refuse(w, r, err)
		default:
			next.ServeHTTP(w, r.WithContext(api.WithCaller(r.Context(), caller)))
		}
	})
}

// proxied reports whether a proxy has named the visitor.
func (p *Page) proxied(r *http.Request) bool {
	return p.o.UserHeader != "" && len(r.Header.Values(p.o.UserHeader)) > 0
}

// identify returns the visitor: whom the proxy names, or whose session it is.
func (p *Page) identify(r *http.Request) (access.Identity, error) {
	if p.proxied(r) {
		names := r.Header.Values(p.o.UserHeader)
		subject, err := access.SubjectOfUser(names[0])
		if err != nil || len(names) > 1 {
			return access.Identity{}, access.ErrUnauthenticated
		}
		return p.named(subject)
	}
	cookies := r.CookiesNamed(cookieName)
	if len(cookies) == 0 {
		return access.Identity{}, errNobody
	}
	// Another site of the domain may have set one, too, which is not sealed with the key.
	var err error
	for _, c := range cookies[:min(len(cookies), 3)] {
		var i access.Identity
		if i, err = p.sessions.Resume(c.Value); err == nil {
			return i, nil
		}
	}
	return access.Identity{}, err
}

// named returns the identity of a visitor whom the proxy names. The proxy vouches for the beginning of a
// request: a stream lasts no longer than a session would.
func (p *Page) named(subject string) (access.Identity, error) {
	now, err := p.o.Cache.Now()
	if err != nil {
		return access.Identity{}, err
	}
	end := now.Add(access.SessionLife)
	return p.o.Cache.Identify(subject, func(now time.Time) error {
		if !now.Before(end) {
			return access.ErrUnauthenticated
		}
		return nil
	})
}

// toLogin answers a visitor whose identity is not known.
func (p *Page) toLogin(w http.ResponseWriter, r *http.Request, err error) {
	if !errors.Is(err, access.ErrUnauthenticated) || p.proxied(r) {
		p.fail(w, r, err)
		return
	}
	http.Redirect(w, r, p.path("/login", nil), http.StatusSeeOther)
}

func (p *Page) showLogin(w http.ResponseWriter, r *http.Request) {
	p.render(w, r, http.StatusOK, "login", "Log in", "")
}

// ownForm returns an error unless a form was sent by this page, or by no browser.
func ownForm(r *http.Request) error { return http.NewCrossOriginProtection().Check(r) }

func (p *Page) logIn(w http.ResponseWriter, r *http.Request) {
	if ownForm(r) != nil {
		p.render(w, r, http.StatusForbidden, "login", "Log in", "The form was sent by another site.")
		return
	}
	r.Body = http.MaxBytesReader(w, r.Body, loginBytes)
	if err := r.ParseForm(); err != nil {
		p.render(w, r, http.StatusBadRequest, "login", "Log in", "The form could not be read.")
		return
	}
	text, _, err := p.sessions.Begin(r.PostForm.Get("token"))
	if err != nil {
		p.o.Refused(err)
	}
	switch {
	case errors.Is(err, access.ErrStale):
		p.render(w, r, http.StatusServiceUnavailable, "login", "Log in", "The server can't read the rules at the moment. Try again.")
	case errors.Is(err, access.ErrDenied):
		p.render(w, r, http.StatusForbidden, "login", "Log in", "The token's subject has no rule, so there is nothing to show.")
	case err != nil:
		p.render(w, r, http.StatusUnauthorized, "login", "Log in", "The token is not valid: it may be mistyped, expired or revoked.")
	default:
		http.SetCookie(w, p.cookie(r, text, int(access.SessionLife.Seconds())))
		http.Redirect(w, r, p.path("/", nil), http.StatusSeeOther)
	}
}

func (p *Page) logOut(w http.ResponseWriter, r *http.Request) {
	if ownForm(r) != nil {
		http.Error(w, "the form was sent by another site", http.StatusForbidden)
		return
	}
	http.SetCookie(w, p.cookie(r, "", -1))
	http.Redirect(w, r, p.path("/login", nil), http.StatusSeeOther)
}

// cookie returns the cookie of a session. It is Secure unless the browser has asked a server of its own
// machine: a proxy that ends TLS need not say so.
func (p *Page) cookie(r *http.Request, text string, seconds int) *http.Cookie {
	return &http.Cookie{
		Name: cookieName, Value: text, Path: p.o.Prefix, MaxAge: seconds, HttpOnly: true, SameSite: http.SameSiteStrictMode,
		Secure: r.TLS != nil || r.Header.Get("X-Forwarded-Proto") == "https" || !local(r.Host),
	}
}

// local reports whether a host is the browser's own machine.
func local(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	address, err := netip.ParseAddr(strings.Trim(host, "[]"))
	return host == "localhost" || err == nil && address.IsLoopback()
}

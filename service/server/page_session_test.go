package server_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/service/access"
	"github.com/globalrefdb/globalrefdb/service/server"
)

func TestSomebodyWithoutASessionSeesOnlyTheLogin(t *testing.T) {
	t.Parallel()
	r := inMemory(t)
	populate(t, r)
	s := r.serve(t, server.DefaultLimits, nil)
	v := s.visitor(t)
	for _, path := range []string{"/", "/locks", "/sites", "/projects", "/project", "/history", "/audit", "/search"} {
		if status, text := v.get(path, "name", "red/app", "project", "red/app", "q", "red"); status != http.StatusSeeOther || strings.Contains(text, "red/app") {
			t.Errorf("%s: %d %s", path, status, text)
		}
	}
	if status, text := v.get("/events", "project", "red/app"); status != http.StatusUnauthorized {
		t.Errorf("the changes: %d %s", status, text)
	}
	if status, text := v.get("/login"); status != http.StatusOK || !strings.Contains(text, `name="token"`) {
		t.Errorf("the login: %d %s", status, text)
	}
}

func TestALoginNeedsAValidTokenAndThePagesOwnForm(t *testing.T) {
	t.Parallel()
	r := inMemory(t)
	populate(t, r)
	if text, _, err := access.CreateToken(t.Context(), r.db, "nobody", time.Hour, ""); err != nil {
		t.Fatal(err)
	} else {
		r.tokens["nobody"] = text
	}
	s := r.serve(t, server.DefaultLimits, nil)
	s.loggedIn(t, "all") // the key is there
	token := r.tokens["all"]
	for name, row := range map[string]struct {
		token  string
		header map[string]string
		want   int
	}{
		"a token":                {token, nil, http.StatusSeeOther},
		"this page":              {token, map[string]string{"Sec-Fetch-Site": "same-origin"}, http.StatusSeeOther},
		"another site":           {token, map[string]string{"Sec-Fetch-Site": "cross-site"}, http.StatusForbidden},
		"a site of the domain":   {token, map[string]string{"Sec-Fetch-Site": "same-site"}, http.StatusForbidden},
		"an old browser":         {token, map[string]string{"Origin": "https://evil.example"}, http.StatusForbidden},
		"no token":               {"", nil, http.StatusUnauthorized},
		"a mistyped token":       {token + "x", nil, http.StatusUnauthorized},
		"a token without a rule": {r.tokens["nobody"], nil, http.StatusForbidden},
		"a large form":           {strings.Repeat("x", 1<<20), nil, http.StatusBadRequest},
	} {
		v := s.visitor(t)
		status, text, _ := v.submit("/login", url.Values{"token": {row.token}}, row.header)
		if status != row.want || row.token != "" && strings.Contains(text, row.token) {
			t.Errorf("%s: %d %s, want %d", name, status, text, row.want)
		}
		if after, _ := v.get("/locks"); (after == http.StatusOK) != (row.want == http.StatusSeeOther) {
			t.Errorf("%s: then the locks answer %d", name, after)
		}
	}
}

func TestTheCookieOfASession(t *testing.T) {
	t.Parallel()
	r := inMemory(t)
	populate(t, r)
	s := r.serve(t, server.DefaultLimits, nil)
	v := s.loggedIn(t, "all")
	for _, proto := range []string{"", "https"} {
		q, err := http.NewRequestWithContext(t.Context(), http.MethodPost, v.url+"/login", strings.NewReader(url.Values{"token": {r.tokens["all"]}}.Encode()))
		if err != nil {
			t.Fatal(err)
		}
		q.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		q.Header.Set("X-Forwarded-Proto", proto)
		answer, err := v.client.Do(q)
		if err != nil {
			t.Fatal(err)
		}
		answer.Body.Close()
		c := answer.Cookies()[0]
		if !c.HttpOnly || c.SameSite != http.SameSiteStrictMode || c.MaxAge != 3600 || c.Path != "/ui" || c.Secure != (proto == "https") || strings.Contains(c.Value, r.tokens["all"]) {
			t.Errorf("got %v", c)
		}
	}
	if status, _, _ := v.submit("/logout", nil, map[string]string{"Sec-Fetch-Site": "cross-site"}); status != http.StatusForbidden {
		t.Errorf("another site ends the session: %d", status)
	}
	if status, _, location := v.submit("/logout", nil, nil); status != http.StatusSeeOther || location != "/ui/login" {
		t.Errorf("got %d, to %s", status, location)
	}
	if status, _ := v.get("/locks"); status != http.StatusSeeOther {
		t.Errorf("after the logout: %d", status)
	}
	v.client.Jar.SetCookies(must(url.Parse(v.url)), []*http.Cookie{{Name: "refdb_session", Value: r.tokens["all"], Path: "/ui"}})
	if status, _ := v.get("/locks"); status != http.StatusSeeOther {
		t.Errorf("with the token as the cookie: %d", status)
	}
}

func TestAProxyNamesTheVisitor(t *testing.T) {
	t.Parallel()
	r := inMemory(t)
	populate(t, r)
	r.allow(t, "@user:ada", access.Read, "red/app", "*")
	r.userHeader = "X-Remote-User"
	s := r.serve(t, server.DefaultLimits, nil)
	v := s.visitor(t)
	for name, row := range map[string]struct {
		users []string
		want  int
	}{
		"ada":            {[]string{"ada"}, http.StatusOK},
		"without a rule": {[]string{"bob"}, http.StatusForbidden},
		"a token's":      {[]string{"all"}, http.StatusForbidden},
		"none":           {[]string{""}, http.StatusUnauthorized},
		"two":            {[]string{"ada", "ada"}, http.StatusUnauthorized},
		"invalid":        {[]string{"//x"}, http.StatusUnauthorized},
		"nobody":         {nil, http.StatusSeeOther},
	} {
		q, err := http.NewRequestWithContext(t.Context(), http.MethodGet, v.url+"/locks", nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, u := range row.users {
			q.Header.Add("X-Remote-User", u)
		}
		status, text, _ := v.send(q)
		if status != row.want || strings.Contains(text, "red/app<") != (row.want == http.StatusOK) || strings.Contains(text, "blue/app") {
			t.Errorf("%s: %d %s", name, status, text)
		}
	}
	// The calls of the API don't know the header.
	q, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.url+"/refdb.v1.RefdbService/Get", strings.NewReader(`{"project":"red/app","refs":["refs/heads/main"]}`))
	if err != nil {
		t.Fatal(err)
	}
	q.Header.Set("Content-Type", "application/json")
	q.Header.Set("X-Remote-User", "ada")
	if status, text := do(t, q); status != http.StatusUnauthorized {
		t.Errorf("a call: %d %s", status, text)
	}
}

func TestAHeaderNamesVisitorsOnlyAtASocket(t *testing.T) {
	t.Parallel()
	r := inMemory(t)
	populate(t, r)
	r.allow(t, "@user:ada", access.Read, "red/app", "*")
	r.userHeader = "X-Remote-User"
	s, err := server.New(server.Options{DB: r.db, Rules: r.db, Logger: slog.New(slog.DiscardHandler), Limits: server.DefaultLimits, Page: r.page, UserHeader: r.userHeader})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Run(t.Context(), server.Listen{Address: "127.0.0.1:0"}, server.Stop{}, func(net.Addr) { t.Error("it listens") }); !errors.Is(err, refdb.ErrInvalid) {
		t.Errorf("at an address: %v", err)
	}
	socket := filepath.Join(t.TempDir(), "socket")
	r.run(t, server.Listen{Address: socket}, server.DefaultLimits, server.Stop{})
	client := http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}}}
	defer client.CloseIdleConnections()
	eventually(t, "ada sees her locks", func() bool {
		q := must(http.NewRequestWithContext(t.Context(), http.MethodGet, "http://refdb/ui/locks", nil))
		q.Header.Set("X-Remote-User", "ada")
		answer := must(client.Do(q))
		defer answer.Body.Close()
		text := must(io.ReadAll(answer.Body))
		return answer.StatusCode == http.StatusOK && strings.Contains(string(text), "red/app<")
	})
}

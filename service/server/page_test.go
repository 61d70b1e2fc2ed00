package server_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"html"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/service/access"
	"github.com/globalrefdb/globalrefdb/service/server"
)

// A visitor is a browser at the page of a server.
type visitor struct {
	*testing.T
	client http.Client
	url    string // of the page
}

func (s *serving) visitor(t *testing.T) *visitor {
	t.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	return &visitor{T: t, url: s.url + "/ui", client: http.Client{Jar: jar, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}}
}

// loggedIn returns a visitor with a session of a subject.
func (s *serving) loggedIn(t *testing.T, subject string) *visitor {
	t.Helper()
	v := s.visitor(t)
	eventually(t, subject+" has logged in", func() bool {
		status, _, location := v.submit("/login", url.Values{"token": {s.rig.tokens[subject]}}, nil)
		return status == http.StatusSeeOther && location == "/ui/"
	})
	return v
}

// send returns the status of an answer, what it has, and where it leads.
func (v *visitor) send(r *http.Request) (status int, text, location string) {
	v.Helper()
	answer, err := v.client.Do(r)
	if err != nil {
		v.Fatal(err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		v.Fatal(err)
	}
	if answer.Header.Get("Content-Security-Policy") == "" || answer.Header.Get("X-Content-Type-Options") != "nosniff" ||
		answer.Header.Get("Referrer-Policy") != "no-referrer" || !strings.Contains(r.URL.Path, "/assets/") && answer.Header.Get("Cache-Control") != "no-store" {
		v.Errorf("%s %s: the answer has the header %v", r.Method, r.URL, answer.Header)
	}
	return answer.StatusCode, string(body), answer.Header.Get("Location")
}

func (v *visitor) get(path string, query ...string) (status int, text string) {
	v.Helper()
	q := url.Values{}
	for i := 0; i < len(query); i += 2 {
		q.Set(query[i], query[i+1])
	}
	if len(q) > 0 {
		path += "?" + q.Encode()
	}
	r, err := http.NewRequestWithContext(v.Context(), http.MethodGet, v.url+path, nil)
	if err != nil {
		v.Fatal(err)
	}
	status, text, _ = v.send(r)
	return status, text
}

// submit sends a form.
func (v *visitor) submit(path string, form url.Values, header map[string]string) (status int, text, location string) {
	v.Helper()
	r, err := http.NewRequestWithContext(v.Context(), http.MethodPost, v.url+path, strings.NewReader(form.Encode()))
	if err != nil {
		v.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	for name, value := range header {
		r.Header.Set(name, value)
	}
	return v.send(r)
}

// A populated rig has refs, locks, changes and audit entries in projects of two teams.
func populate(t *testing.T, r *rig) {
	t.Helper()
	r.page = "/ui"
	for _, project := range []string{"red/app", "red/tool", "blue/app"} {
		for _, ref := range []string{mainRef, "refs/meta/secret"} {
			r.put(t, project, ref, one)
			if _, err := r.db.TryLock(t.Context(), project, ref); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := r.db.Projects().Put(t.Context(), driver.Project{Project: project, ID: "id-" + strings.ReplaceAll(project, "/", "-"), Rules: "+refs/*", Mode: "enforce", Store: "none"}); err != nil {
			t.Fatal(err)
		}
		if _, err := r.db.Audit().Record(t.Context(), driver.AuditEntry{Who: "root@" + project, Action: "locks purge", Project: project, Detail: mainRef}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := r.db.Audit().Record(t.Context(), driver.AuditEntry{Who: "root@everywhere", Action: "token create"}); err != nil {
		t.Fatal(err)
	}
	r.allow(t, "all", access.Read, "*", "*")
	r.allow(t, "admin", access.Administer, "*", "*")
	r.allow(t, "red", access.Read, "red/*", "*")
	r.allow(t, "red-admin", access.Administer, "red/*", "*")
	r.allow(t, "main", access.Read, "*", mainRef)
	r.allow(t, "tool", access.Lock, "red/tool", "refs/heads/*")
	r.allow(t, "other", access.Write, "green", "*")
}

func TestVisitorsSeeWhatTheirRulesLetThemRead(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		populate(t, r)
		s := r.serve(t, server.DefaultLimits, nil)
		type seen map[string]string // by subject: letters of projects, "!" for the secret refs; "-" if it is forbidden
		names := []struct{ letter, text string }{{"r", "red/app"}, {"t", "red/tool"}, {"b", "blue/app"}, {"!", "meta/secret"}}
		for _, view := range []struct {
			path  string
			query []string
			by    seen
		}{
			{"/locks", nil, seen{"all": "rtb!", "admin": "rtb!", "red": "rt!", "main": "rtb", "tool": "t", "other": ""}},
			{"/locks", []string{"project", "red/app"}, seen{"all": "r!", "red": "r!", "main": "r", "tool": "-", "other": "-"}},
			{"/locks", []string{"owner", "operator"}, seen{"all": "rtb!", "red": "rt!", "main": "rtb", "tool": "t", "other": ""}},
			{"/projects", nil, seen{"all": "rtb", "red": "rt", "main": "rtb", "tool": "t", "other": ""}},
			{"/", nil, seen{"red": "rt", "main": "rtb", "tool": "t", "other": ""}},
			{"/project", []string{"name", "red/app"}, seen{"all": "r!", "red": "r!", "main": "r", "tool": "-", "other": "-"}},
			{"/project", []string{"name", "refdb/sites"}, seen{"all": "-", "admin": "-", "red": "-"}},
			{"/history", []string{"project", "red/app"}, seen{"all": "r!", "red": "r!", "main": "r", "tool": "-", "other": "-"}},
			{"/history", []string{"project", "red/app", "ref", "refs/meta/secret"}, seen{"all": "r!", "red": "r!", "main": "-", "tool": "-"}},
			{"/history", []string{"project", "refdb/sites"}, seen{"all": "-", "admin": "-"}},
			{"/events", []string{"project", "red/app"}, seen{"tool": "-", "other": "-"}},
			{"/sites", nil, seen{"all": "", "admin": "", "red": "-", "red-admin": "-", "main": "-", "tool": "-", "other": "-"}},
			{"/audit", nil, seen{"admin": "rtb", "all": "-", "red-admin": "-", "red": "-", "main": "-"}},
			{"/audit", []string{"project", "red/app"}, seen{"admin": "r", "red-admin": "r", "all": "-", "red": "-", "main": "-"}},
			{"/audit", []string{"project", "blue/app"}, seen{"admin": "b", "red-admin": "-"}},
			{"/search", []string{"q", "app"}, seen{"all": "rb", "red": "r", "main": "rb", "tool": "", "other": ""}},
			{"/search", []string{"q", "main"}, seen{"all": "rtb", "red": "rt", "main": "rtb", "tool": "t", "other": ""}},
			{"/search", []string{"q", "ta/secret"}, seen{"all": "rtb!", "red": "rt!", "main": "", "tool": "", "other": ""}},
			{"/search", []string{"q", "operator"}, seen{"all": "rtb!", "red": "rt!", "main": "rtb", "tool": "t", "other": ""}},
		} {
			for subject, want := range view.by {
				status, text := s.loggedIn(t, subject).get(view.path, view.query...)
				got := ""
				for _, name := range names {
					if strings.Contains(text, name.text) {
						got += name.letter
					}
				}
				if status == http.StatusForbidden {
					got += "-"
				} else if status != http.StatusOK {
					t.Errorf("%s %q: %s gets %d", view.path, view.query, subject, status)
				}
				if got != want {
					t.Errorf("%s %q: %s sees %q, want %q", view.path, view.query, subject, got, want)
				}
			}
		}
	})
}

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

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// follow opens the stream of a project's changes, and returns its lines.
func (v *visitor) follow(project string) *bufio.Scanner {
	v.Helper()
	q, err := http.NewRequestWithContext(v.Context(), http.MethodGet, v.url+"/events?project="+url.QueryEscape(project), nil)
	if err != nil {
		v.Fatal(err)
	}
	answer, err := v.client.Do(q)
	if err != nil {
		v.Fatal(err)
	}
	v.Cleanup(func() { answer.Body.Close() })
	if answer.StatusCode != http.StatusOK {
		v.Fatalf("the stream answers %d", answer.StatusCode)
	}
	return bufio.NewScanner(answer.Body)
}

func until(t *testing.T, lines *bufio.Scanner, text string, not ...string) {
	t.Helper()
	for lines.Scan() {
		for _, n := range not {
			if strings.Contains(lines.Text(), n) {
				t.Fatalf("got %q", lines.Text())
			}
		}
		if strings.Contains(lines.Text(), text) {
			return
		}
	}
	t.Fatalf("the stream ended before %q: %v", text, lines.Err())
}

func TestLiveChangesAreThoseThatTheVisitorMayRead(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		populate(t, r)
		s := r.serve(t, server.DefaultLimits, nil)
		lines := s.loggedIn(t, "main").follow("red/app")
		until(t, lines, "event: heartbeat") // it has begun
		err := r.db.Update(t.Context(), "red/app", []refdb.Update{{Ref: "refs/meta/secret", Old: one, New: two}, {Ref: mainRef, Old: one, New: three}}, refdb.Advisory())
		if err != nil {
			t.Fatal(err)
		}
		until(t, lines, three, "secret", two)
	})
}

func TestAStreamEndsWithItsTokenAndWithTheServer(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(t *testing.T, s *serving) string{
		"token": func(t *testing.T, s *serving) string {
			tokens := must(access.ReadRecords(t.Context(), s.rig.db)).Tokens
			for _, token := range tokens {
				if token.Subject == "all" {
					if err := access.RevokeToken(t.Context(), s.rig.db, token.ID); err != nil {
						t.Fatal(err)
					}
				}
			}
			return `"unauthenticated"`
		},
		"server": func(_ *testing.T, s *serving) string {
			s.Drain()
			return `"unavailable"`
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := inMemory(t)
			populate(t, r)
			s := r.serve(t, server.DefaultLimits, nil)
			v := s.loggedIn(t, "all")
			lines := v.follow("red/app")
			until(t, lines, "event: heartbeat")
			until(t, lines, end(t, s))
			for lines.Scan() {
				if lines.Text() != "" {
					t.Errorf("the stream goes on: %q", lines.Text())
				}
			}
			if status, _ := v.get("/locks"); name == "token" && status != http.StatusSeeOther {
				t.Errorf("the session goes on: %d", status)
			}
		})
	}
}

var tags = regexp.MustCompile(`<[^>]*>`)

func TestHostileNamesAreText(t *testing.T) {
	t.Parallel()
	r := inMemory(t)
	r.page = "/ui"
	hostile := `<script>alert(1)</script>"'><img src=x onerror=alert(2)>`
	project, ref, value := hostile, "refs/heads/\"'><script>x(3)</script>\u202e", refdb.Value("javascript:alert(4)<script>y</script>")
	r.put(t, project, ref, value)
	if _, err := r.db.TryLock(t.Context(), project, ref); err != nil {
		t.Fatal(err)
	}
	if _, err := r.db.Audit().Record(t.Context(), driver.AuditEntry{Who: hostile, Action: hostile, Project: project, Detail: hostile, Reason: "\u202e" + hostile}); err != nil {
		t.Fatal(err)
	}
	r.allow(t, "admin", access.Administer, "*", "*")
	r.allow(t, "admin", access.Read, access.Pattern(project), "*")
	s := r.serve(t, server.DefaultLimits, nil)
	v := s.loggedIn(t, "admin")
	for _, view := range [][]string{
		{"/"}, {"/locks"}, {"/locks", "project", project, "prefix", ref, "owner", hostile}, {"/projects"}, {"/project", "name", project, "prefix", hostile}, {"/project", "name", project},
		{"/history", "project", project, "ref", ref}, {"/audit"}, {"/audit", "project", project}, {"/search", "q", hostile}, {"/search", "q", "script"}, {"/audit", "since", hostile},
		{"/history", "project", "a\x00b"}, {"/project", "name", "\xff\xfe"}, {"/locks", "prefix", "\xff"}, {"/search", "q", "\xff<script>"}, {"/history", "project", "x", "before", hostile},
		{"/project", "name", project, "after", hostile}, {"/locks", "after", hostile, "after_ref", hostile},
	} {
		status, text := v.get(view[0], view[1:]...)
		if status != http.StatusOK && status != http.StatusBadRequest {
			t.Errorf("%q: %d", view, status)
		}
		lower := strings.ToLower(text)
		if n := strings.Count(lower, "<script"); n != 1 || strings.Contains(lower, "<img") || strings.Contains(tags.ReplaceAllString(text, ""), "\u202e") || strings.Contains(lower, `href="javascript:`) {
			t.Errorf("%q: %d scripts in %s", view, n, text)
		}
	}
	_, text := v.get("/project", "name", project)
	if !strings.Contains(text, "&lt;script&gt;alert(1)&lt;/script&gt;") || !strings.Contains(text, `\u202e`) {
		t.Errorf("the names are not shown: %s", text)
	}
}

func TestAListingOfLocksGoesOn(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		var refs []string
		for i := range 250 {
			refs = append(refs, fmt.Sprintf("refs/heads/branch-%03d", i))
		}
		for _, project := range []string{"red/app", "red/zoo", "yellow"} {
			if _, err := r.db.TryLock(t.Context(), project, refs...); err != nil {
				t.Fatal(err)
			}
		}
		r.allow(t, "red", access.Read, "red/*", "refs/heads/*")
		r.page = "/ui"
		v := r.serve(t, server.DefaultLimits, nil).loggedIn(t, "red")
		path, rows := "/locks", 0
		for page := range 3 {
			status, text := v.get(path)
			if status != http.StatusOK || strings.Contains(text, "yellow") {
				t.Fatalf("%d %s", status, text)
			}
			n := strings.Count(text, `class="state `)
			rows += n
			_, next, more := strings.Cut(text, `rel="next" href="/ui`)
			if want := []int{200, 200, 100}[page]; n != want || more != (page < 2) {
				t.Fatalf("page %d has %d rows, more: %v", page, n, more)
			}
			next, _, _ = strings.Cut(next, `"`)
			path = html.UnescapeString(next)
		}
		if rows != 500 {
			t.Errorf("got %d locks", rows)
		}
	})
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

func TestThePageIsWithinTheLimitsOfCalls(t *testing.T) {
	t.Parallel()
	r := inMemory(t)
	populate(t, r)
	limits := server.DefaultLimits
	limits.StreamsPerSubject = 1
	s := r.serve(t, limits, nil)
	v := s.loggedIn(t, "all")
	until(t, v.follow("red/app"), "event: heartbeat")
	if status, text := v.get("/events", "project", "red/app"); status != http.StatusTooManyRequests {
		t.Errorf("a second stream: %d %s", status, text)
	}
}

func TestFiguresAreThoseOfTop(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		populate(t, r)
		s := r.serve(t, server.DefaultLimits, nil)
		status, text := s.loggedIn(t, "all").get("/")
		if status != http.StatusOK || !strings.Contains(text, "writable") || !strings.Contains(text, "<dt>Locks held</dt><dd>6") || strings.Contains(text, "Not read") {
			t.Errorf("%d %s", status, text)
		}
	})
}

func TestAPageNeedsAPrefixThatNothingElseHas(t *testing.T) {
	t.Parallel()
	r := inMemory(t)
	for prefix, ok := range map[string]bool{"/ui": true, "/a/b-c": true, "ui": false, "/": false, "/ui/": false, "/metrics": false, "/v1/x": false, "/U": false, "/a b": false, "/refdb.v1.RefdbService": false, "/..": false, "/{x}": false} {
		_, err := server.New(server.Options{DB: r.db, Rules: r.db, Limits: server.DefaultLimits, Page: prefix})
		if (err == nil) != ok {
			t.Errorf("%q: %v", prefix, err)
		}
	}
	for _, o := range []server.Options{{UserHeader: "X-User"}, {Page: "/ui", UserHeader: "X User"}} {
		o.DB, o.Rules, o.Limits = r.db, r.db, server.DefaultLimits
		if _, err := server.New(o); err == nil {
			t.Errorf("page %q with the header %q: no error", o.Page, o.UserHeader)
		}
	}
}

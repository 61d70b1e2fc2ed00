package server_test

import (
	"bufio"
	"fmt"
	"html"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"regexp"
	"strings"
	"testing"

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

package redact_test

import (
	"net/url"
	"strings"
	"testing"

	"github.com/globalrefdb/globalrefdb/internal/redact"
)

func TestRedact(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ url, text, want string }{
		{"postgres://u:hunter2@h/d", "dial postgres://u:hunter2@h/d: refused", "dial postgres://u:xxxxx@h/d: refused"},
		{"postgres://u:hunter2@h/d", "password is hunter2", "password is xxxxx"},
		{"postgres://u:p%40ss@h/d", "p%40ss and p@ss", "xxxxx and xxxxx"},
		{"postgres://u:a b+c@h/d", "a b+c", "xxxxx"},
		{"postgres://u:pa/ss@h/d", `invalid port ":pa/ss" after host`, `invalid port ":xxxxx" after host`},
		{"postgres://u@h/d?password=hunter2&x=y", "x hunter2 y", "x xxxxx y"},
		{"postgres://u@h/d?sslpassword=hunter2", "sslpassword=hunter2", "sslpassword=xxxxx"},
		{"postgres://u:pw@h/d", "postgres://u:pw@h/d", "postgres://u:xxxxx@h/d"},
		{"postgres://u:pw@h1,h2:5/d", "cannot parse `postgres://u:pw@h1,h2:5/d`", "cannot parse `postgres://u:xxxxx@h1,h2:5/d`"},
		{"sqlite:/var/lib/a.db", "open /var/lib/a.db: denied", "open /var/lib/a.db: denied"},
		{"", "another postgres://u:pw@h/d and host=h password='a b' user=u", "another postgres://u:xxxxx@h/d and host=h password=xxxxx user=u"},
		{"", "refs/heads/a:b@c is a ref", "refs/heads/a:b@c is a ref"},
	} {
		if got := redact.Text(c.text, c.url); got != c.want {
			t.Errorf("redact(%q, %q) = %q, want %q", c.text, c.url, got, c.want)
		}
	}
}

func FuzzRedact(f *testing.F) {
	f.Add("hunter2", "user", "host")
	f.Add("p@ss:w/rd?#%", "", "h")
	f.Add("a b", "u", "[::1]")
	f.Fuzz(func(t *testing.T, password, user, host string) {
		// Shorter ones may be part of any message.
		if len(password) < 6 || strings.Contains("xxxxx"+"postgres:///db?x=y error at "+user+host, password) {
			return
		}
		for _, raw := range []string{
			(&url.URL{Scheme: "postgres", User: url.UserPassword(user, password), Host: host, Path: "/db"}).String(),
			"postgres://" + url.PathEscape(user) + ":" + password + "@h/db",
			"postgres:///db?x=y&password=" + url.QueryEscape(password),
		} {
			for _, text := range []string{raw, "error at " + password} {
				if got := redact.Text(text, raw); strings.Contains(got, password) {
					t.Errorf("redact(%q, %q) = %q", text, raw, got)
				}
			}
		}
	})
}

package access

import (
	"errors"
	"strings"
	"testing"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/memory"
)

func TestCredentialsOfDifferentKindsNeverNameTheSameSubject(t *testing.T) {
	t.Parallel()
	names := []string{
		"ci", "gitlab:ci", "gitlab:group/project", "gitlab", "spiffe://example.org/ci", "spiffe", "/ci", "a/b", "a:b:c", "spiffe:/x", "//example.org/ci", ":ci", "a:",
		"@user:ada", "@user:CORP/ada", "@user", "@user://example.org/ci",
	}
	for _, name := range names {
		var kinds []string
		if CheckTokenSubject(name) == nil {
			kinds = append(kinds, "token")
		}
		if subject, err := SubjectOfURI(name); err == nil && subject == name {
			kinds = append(kinds, "certificate")
		}
		if user, ok := strings.CutPrefix(name, "@user:"); ok {
			if subject, err := SubjectOfUser(user); err == nil && subject == name {
				kinds = append(kinds, "proxy")
			}
		}
		for i, c := range name {
			if c != ':' {
				continue
			}
			if subject, err := SubjectOfClaim(name[:i], name[i+1:]); err == nil && subject == name {
				kinds = append(kinds, "JWT")
			}
		}
		if len(kinds) > 1 {
			t.Errorf("%q may be the subject of each of %q", name, kinds)
		}
		if len(kinds) > 0 && CheckSubject(name) != nil {
			t.Errorf("%q, of a %s, can have no rule", name, kinds[0])
		}
	}
}

func TestSubjectsOfUsersOfAProxy(t *testing.T) {
	t.Parallel()
	for user, want := range map[string]string{
		"ada": "@user:ada", "CORP/ada": "@user:CORP/ada", "ada@example.org": "@user:ada@example.org", "a:b": "@user:a:b",
		"": "", "//x": "", " ada": "", "ada ": "", "a\nb": "", "*": "", "\xff": "", strings.Repeat("a", 200): "",
	} {
		if got, err := SubjectOfUser(user); want == "" && !errors.Is(err, driver.ErrInvalid) || want != "" && (err != nil || got != want) {
			t.Errorf("%q: got %q, %v", user, got, err)
		}
	}
}

func TestSubjectsOfIssuersAndCertificates(t *testing.T) {
	t.Parallel()
	for _, row := range []struct{ issuer, value, subject string }{
		{"github", "repo:org/repo:environment:production", "github:repo:org/repo:environment:production"},
		{"k8s", "system:serviceaccount:ns:name", "k8s:system:serviceaccount:ns:name"},
		{"gitlab", "group/project", "gitlab:group/project"},
		{"gitlab", "/x", "gitlab:/x"},
		{"spiffe", "//example.org/ci", ""},
		{"gitlab", "", ""},
		{"gitlab", " x ", ""},
		{"gitlab", "a*", ""},
		{"gitlab", "a\nb", ""},
		{"gitlab", strings.Repeat("a", 200), ""},
		{"git:lab", "x", ""},
		{"git/lab", "x", ""},
		{"", "x", ""},
	} {
		if got, err := SubjectOfClaim(row.issuer, row.value); row.subject == "" && !errors.Is(err, driver.ErrInvalid) || row.subject != "" && (err != nil || got != row.subject) {
			t.Errorf("%s, %q: %q, %v", row.issuer, row.value, got, err)
		}
	}
	for uri, ok := range map[string]bool{
		"spiffe://example.org/ns/prod/sa/Deploy_1.x": true, "refdb://ci/deploy": true,
		"spiffe://example.org": false, "spiffe://example.org/": false, "spiffe://example.org//a": false, "spiffe://example.org/a/": false,
		"spiffe://example.org/a/../b": false, "spiffe://example.org/./b": false, "spiffe://Example.org/a": false, "Spiffe://example.org/a": false,
		"spiffe://example.org/a%2Fb": false, "spiffe://example.org/a?b": false, "spiffe://example.org/a#b": false, "spiffe://u@example.org/a": false,
		"spiffe://example.org:1/a": false, "spiffe:///a": false, "://a/b": false, "mailto:a@b": false, "ci": false, "": false,
		"spiffe://example.org/" + strings.Repeat("a", 200): false,
	} {
		if got, err := SubjectOfURI(uri); (err == nil) != ok || ok && got != uri || err != nil && !errors.Is(err, driver.ErrInvalid) {
			t.Errorf("%q: %q, %v", uri, got, err)
		}
	}
}

func TestEachOwnerIsOfOneSubject(t *testing.T) {
	t.Parallel()
	db := open(t, memory.New().Open())
	subjects := []string{"eu-1", "eu", "gitlab:a", "gitlab:a/b", "gitlab:a%2Fb", "gitlab:a%252Fb", "spiffe://example.org/a", "%", "%2F", "%25"}
	for _, subject := range subjects {
		owner := Owner(subject, "lock")
		if got, ok := SubjectOf(owner); got != subject || !ok {
			t.Errorf("%q is %q's, %v", owner, got, ok)
		}
		for _, other := range subjects {
			if Owns(other, owner) != (other == subject) {
				t.Errorf("%q of %q: is it %q's? %v", owner, subject, other, Owns(other, owner))
			}
		}
	}
	if s, ok := SubjectOf(db.Owner()); ok || Owns("eu-1", db.Owner()) {
		t.Errorf("the site's lock is of the subject %q", s)
	}
	if Owns("eu-1", "/eu-1") {
		t.Error("an owner without a lock's name")
	}
	// The start of an owner is the site, and none has the empty name: it stands for the host's.
	if unnamed, err := refdb.New(memory.New().Open(), refdb.Options{Site: "/eu-1"}); err == nil {
		unnamed.Close()
		t.Error("a site's name may hold a slash")
	}
}

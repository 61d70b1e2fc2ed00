package testdb

import (
	"errors"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Role makes a role that can log in, with the grants that docs/OPERATIONS.md has for the role of that name (refdb_site,
// refdb_locks), and returns its name and the database's address for it. It is dropped at the test's end.
func (d *Database) Role(tb testing.TB, documented string) (name, address string) {
	tb.Helper()
	name = strings.ReplaceAll(UniqueName("role"), "-", "_")
	d.Exec(tb, `CREATE ROLE `+name+` LOGIN`)
	tb.Cleanup(func() {
		d.Exec(tb, `DROP OWNED BY `+name)
		d.Exec(tb, `DROP ROLE `+name)
	})
	u, err := url.Parse(d.url)
	if err != nil {
		tb.Fatal(err)
	}
	database := strings.TrimPrefix(u.Path, "/")
	for _, grant := range Grants(tb, documented) {
		grant = strings.Replace(grant, "ON DATABASE refdb ", `ON DATABASE "`+database+`" `, 1)
		d.Exec(tb, strings.Replace(grant, "TO "+documented, "TO "+name, 1))
	}
	u.User = url.User(name)
	return name, u.String()
}

// Grants returns the statements of docs/OPERATIONS.md that grant something to a role.
func Grants(tb testing.TB, role string) []string {
	tb.Helper()
	text, err := os.ReadFile(filepath.Join(repository(tb), "docs", "OPERATIONS.md"))
	if err != nil {
		tb.Fatal(err)
	}
	var all []string
	for _, found := range regexp.MustCompile(`(?m)^    (GRANT [^;\n]* TO `+role+`);$`).FindAllStringSubmatch(string(text), -1) {
		all = append(all, found[1])
	}
	if len(all) < 3 {
		tb.Fatalf("docs/OPERATIONS.md grants %q to %s", all, role)
	}
	return all
}

// repository returns the root of this repository, in which all tests run.
func repository(tb testing.TB) string {
	dir, err := os.Getwd()
	for err == nil {
		if _, err = os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
		if parent := filepath.Dir(dir); parent != dir && errors.Is(err, fs.ErrNotExist) {
			dir, err = parent, nil
		}
	}
	tb.Fatal(err)
	return ""
}

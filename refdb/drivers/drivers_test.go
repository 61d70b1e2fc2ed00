package drivers_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/globalrefdb/globalrefdb/migrations"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/drivers"
	"github.com/globalrefdb/globalrefdb/refdb/drivers/schema"
	"github.com/globalrefdb/globalrefdb/test/dbtest"
)

func TestAURLThatNamesNoDatabaseIsInvalid(t *testing.T) {
	t.Parallel()
	const secret = "s3cr3t-pa55"
	for _, c := range []struct{ name, url, says string }{
		{"empty", "", "it is empty: give sqlite:FILE"},
		{"no scheme", "/var/lib/refdb.sqlite", "it has no scheme: give sqlite:FILE"},
		{"an empty scheme", "://host/d", "it has no scheme"},
		{"a connection string", "host=h password=" + secret, "it has no scheme"},
		{"a password before the first colon", secret + "@host:5432/d", "it has no scheme"},
		{"another database", "mysql://u:" + secret + "@h/d", `unknown database scheme "mysql": give sqlite:FILE`},
		{"a scheme in upper case", "POSTGRES://u:" + secret + "@h/d", `unknown database scheme "POSTGRES"`},
		{"a scheme with a driver's name in it", "postgresqlite:x", `unknown database scheme "postgresqlite"`},
		{"SQLite without a file", "sqlite:", "no file is named"},
		{"PostgreSQL without slashes", "postgres:" + secret, "postgres://"},
		{"a malformed port", "postgres://u:" + secret + "@h:port/d", "postgres://USER"},
		{"Spanner without a database", "spanner://projects/" + secret, "databases/DATABASE"},
	} {
		t.Run(c.name, func(t *testing.T) {
			d, err := drivers.Open(t.Context(), c.url)
			m, migratorErr := schema.Open(t.Context(), c.url)
			if d != nil || m != nil {
				t.Errorf("opened: %v, %v", d, m)
			}
			for _, err := range []error{err, migratorErr, schema.Up(t.Context(), c.url)} {
				if !errors.Is(err, driver.ErrInvalid) || !strings.Contains(err.Error(), c.says) {
					t.Errorf("%v; want one that says %q", err, c.says)
					continue
				}
				if text := err.Error(); strings.Contains(text, secret) || strings.Contains(text, "\n") {
					t.Errorf("it repeats the URL, or has more than one line: %s", text)
				}
			}
		})
	}
}

func TestEveryKindIsMigratedAndOpened(t *testing.T) {
	t.Parallel()
	for _, kind := range dbtest.All() {
		t.Run(string(kind.Dialect), func(t *testing.T) {
			t.Parallel()
			url := kind.Empty(t).URL()
			if d, err := drivers.DialectOf(url); d != kind.Dialect || err != nil {
				t.Errorf("dialect %q, %v", d, err)
			}
			if d, err := drivers.Open(t.Context(), url); d != nil || !errors.Is(err, driver.ErrSchema) {
				t.Errorf("without a schema: %v, %v", d, err)
			}
			must(t, schema.Up(t.Context(), url))
			must(t, schema.Up(t.Context(), url))
			for _, same := range []string{url, strings.Replace(url, "postgres://", "postgresql://", 1)} {
				d, err := drivers.Open(t.Context(), same)
				must(t, err)
				if _, err := d.Now(t.Context()); err != nil {
					t.Error(err)
				}
				must(t, d.Close())
			}
		})
	}
}

func FuzzDialectOf(f *testing.F) {
	for _, url := range []string{"", "sqlite:x", "postgres://u:pw@h/d", "spanner://projects/p", "mysql:", ":", "x"} {
		f.Add(url)
	}
	f.Fuzz(func(t *testing.T, url string) {
		d, err := drivers.DialectOf(url)
		if (err == nil) != (migrations.Latest(d) > 0) {
			t.Errorf("dialect %q, %v", d, err)
		}
		if err != nil && !errors.Is(err, driver.ErrInvalid) {
			t.Errorf("%v is not ErrInvalid", err)
		}
	})
}

package lease_test

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/globalrefdb/globalrefdb/lease"
	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/memory"
)

func open(t *testing.T) *refdb.DB {
	t.Helper()
	db, err := refdb.New(memory.New().Open(), refdb.Options{Site: "eu"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

func TestANameIsAnyString(t *testing.T) {
	db := open(t)
	names := []string{
		"deploy", "a/b", "..", ".", "HEAD.lock", "@{", "o'brien", "%", "%41", "a b", " ", "\x00", "\xff\xfe", "größe", "日本", "-", "~^:?*[\\",
		strings.Repeat("/", lease.MaxNameBytes),
	}
	for range 200 {
		name := make([]byte, 1+rand.IntN(lease.MaxNameBytes))
		for i := range name {
			name[i] = byte(rand.IntN(256))
		}
		names = append(names, string(name))
	}
	refs := make(map[string]string)
	for _, name := range names {
		for _, mode := range []lease.Mode{lease.Shared, lease.Exclusive} {
			l, err := lease.TryAcquire(t.Context(), db, project, name, mode)
			if err != nil {
				t.Fatalf("%q: %v", name, err)
			}
			if got, m, ok := lease.ParseRef(l.Ref()); !ok || got != name || m != mode {
				t.Errorf("%q, %s became %q, %s, %t", name, mode, got, m, ok)
			}
			prefix := l.Ref()[:strings.LastIndexByte(l.Ref(), '/')]
			if other, ok := refs[prefix]; ok && other != name {
				t.Errorf("%q and %q share %q", name, other, prefix)
			}
			refs[prefix] = name
			if err := l.Release(t.Context()); err != nil {
				t.Error(err)
			}
		}
	}
}

func TestARefThatIsNotARowOfALeaseIsNotParsed(t *testing.T) {
	for _, ref := range []string{
		"", "refs/heads/main", "refs/leases/a", "refs/leases/a/turn", "refs/leases/a/shared-", "refs/leases/a/shared", "refs/leases/a/Shared-x",
		"refs/leases/a/exclusive-x/y", "refs/leases//shared-x", "refs/leases/%/shared-x", "refs/leases/%4/shared-x", "refs/leases/%4g/shared-x",
		"refs/leases/%41/shared-x", "refs/leases/%2f/shared-x", "refs/leases/a b/shared-x", "x/refs/leases/a/shared-x",
	} {
		if name, mode, ok := lease.ParseRef(ref); ok {
			t.Errorf("%q is a row of the %s lease %q", ref, mode, name)
		}
	}
}

func TestAnInvalidLeaseIsRefusedWithoutARequest(t *testing.T) {
	db := open(t)
	if err := db.Close(); err != nil { // any request would fail
		t.Fatal(err)
	}
	for _, c := range []struct {
		what, project, name string
		mode                lease.Mode
	}{
		{"no name", project, "", lease.Shared},
		{"a long name", project, strings.Repeat("x", lease.MaxNameBytes+1), lease.Shared},
		{"no project", "", "x", lease.Shared},
		{"a reserved project", driver.ReclaimPrefix + "x", "x", lease.Shared},
		{"no room for both", strings.Repeat("p", 600), strings.Repeat("/", lease.MaxNameBytes), lease.Shared},
		{"no mode", project, "x", 0},
		{"another mode", project, "x", 3},
	} {
		for _, ask := range asks() {
			l, err := ask(t.Context(), db, c.project, c.name, c.mode)
			if l != nil || refdb.ClassOf(err) != refdb.Permanent || !strings.Contains(err.Error(), refdb.ErrInvalid.Error()) || strings.Contains(err.Error(), "\n") {
				t.Errorf("%s: %v", c.what, err)
			}
		}
	}
}

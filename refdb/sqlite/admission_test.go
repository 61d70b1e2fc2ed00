package sqlite_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
)

// A restored backup is another file.
func TestACopyIsNotAdmitted(t *testing.T) {
	d, url := open(t)
	update(t, d, refA, "", v1)
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(strings.TrimPrefix(url, "sqlite:"))
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "copy.db")
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	again := openAgain(t, "sqlite:"+path)
	if err := put(t.Context(), again, refA, v1, v2); !errors.Is(err, driver.ErrNotAdmitted) {
		t.Errorf("at the copy: %v", err)
	}
	update(t, openAgain(t, url), refA, v1, v2)
}

// A file system may give the copy the inode number of the file that was removed before.
func TestACopyThatReplacesARemovedFileIsNotAdmitted(t *testing.T) {
	d, url := open(t)
	update(t, d, refA, "", v1)
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	path := strings.TrimPrefix(url, "sqlite:")
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := put(t.Context(), openAgain(t, url), refA, v1, v2); !errors.Is(err, driver.ErrNotAdmitted) {
		t.Errorf("at the copy: %v", err)
	}
}

// The requests of a group are refused one by one, and requests that need no admission succeed.
func TestAGroupIsRefusedOneByOne(t *testing.T) {
	d, _ := open(t)
	write(t, d, "UPDATE admission SET server = 'another'")
	var all sync.WaitGroup
	for i := range 50 {
		all.Go(func() {
			if err := put(t.Context(), d, refA, "", v1); !errors.Is(err, driver.ErrNotAdmitted) {
				t.Error(err)
			}
		})
		all.Go(func() {
			if _, err := d.Record(t.Context(), driver.AuditEntry{ID: string(rune('a' + i)), Action: "look"}); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	page, err := d.Audit(t.Context(), driver.AuditQuery{Limit: 100})
	if err != nil || len(page.Entries) != 50 {
		t.Errorf("%d entries, %v", len(page.Entries), err)
	}
}

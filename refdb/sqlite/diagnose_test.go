package sqlite_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/sqlite"
)

// faults returns the checks that found a fault.
func faults(t *testing.T, d *sqlite.Driver) map[string]string {
	t.Helper()
	report, err := d.Diagnose(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	found := make(map[string]string)
	names := make(map[string]bool)
	for _, line := range report {
		names[line.Name] = true
		if line.Detail == "" {
			t.Errorf("%s has no detail", line.Name)
		}
		// The fill level of the disk does not matter here.
		if !line.OK && line.Name != "free space" {
			found[line.Name] = line.Detail
		}
	}
	for _, name := range []string{"version", "journal_mode", "synchronous", "quick_check", "write", "log", "place"} {
		if !names[name] {
			t.Errorf("the check %s is missing", name)
		}
	}
	return found
}

func TestDiagnoseFindsNothingWrongWithAFreshFile(t *testing.T) {
	d, _ := open(t)
	if got := faults(t, d); len(got) != 0 {
		t.Errorf("found %v", got)
	}
}

func TestDiagnoseFindsThatCommitsMayBeLost(t *testing.T) {
	_, url := open(t)
	got := faults(t, openAgain(t, url+"?synchronous=normal"))
	if len(got) != 1 || got["synchronous"] != "not full: a power failure may undo the last transactions; leave synchronous out of the address" {
		t.Errorf("found %v", got)
	}
}

func TestDiagnoseFindsADamagedFile(t *testing.T) {
	path := migrated(t)
	d := openAgain(t, "sqlite:"+path)
	var updates []driver.Update
	for i := range 2000 {
		updates = append(updates, driver.Update{Ref: fmt.Sprintf("refs/heads/%05d", i), New: v1})
	}
	if err := change(t.Context(), d, driver.UpdateRequest{Updates: updates}); err != nil {
		t.Fatal(err)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for i := len(content) - 4096; i < len(content); i++ {
		content[i] = 0xAA
	}
	if err := os.WriteFile(path, content, 0o666); err != nil {
		t.Fatal(err)
	}
	if got := faults(t, openAgain(t, "sqlite:"+path)); got["quick_check"] == "" {
		t.Errorf("found %v", got)
	}
}

func TestDiagnoseEndsWithItsContext(t *testing.T) {
	d, _ := open(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := d.Diagnose(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

package check_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/site/check"
	"github.com/globalrefdb/globalrefdb/site/config"
	"github.com/globalrefdb/globalrefdb/site/internal/sitetest"
)

// A forge makes directories at a site that does not have the repository yet. The daemon leaves them alone, and clones nothing there.
func TestADirectoryInTheWayOfACloneIsAFinding(t *testing.T) {
	t.Parallel()
	r := sitetest.NewReplicas(t)
	c := *r.Config
	for _, project := range []string{"forge/app", "missing"} {
		if _, err := r.DB.Projects().Put(t.Context(), driver.Project{Project: project, ID: project, Rules: "ref *", Mode: config.Enforce, Store: config.StoreAll}); err != nil {
			t.Fatal(err)
		}
	}
	theirs := filepath.Join(c.Root, "forge", "app.git")
	if err := os.MkdirAll(filepath.Join(theirs, "hooks", "pre-receive.d"), 0o755); err != nil {
		t.Fatal(err)
	}
	found := func() (subjects []string) {
		t.Helper()
		err := check.Run(t.Context(), &c, r.DB, nil, check.Options{}, func(f check.Finding) {
			if f.Code == check.Behind {
				subjects = append(subjects, f.Project+" "+f.Subject+" "+f.Detail)
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		return subjects
	}
	if got := found(); len(got) > 0 {
		t.Errorf("nothing is to be cloned: %q", got)
	}
	c.AutoClone = true
	if got := found(); len(got) != 1 || !strings.HasPrefix(got[0], "forge/app "+theirs+" ") || !strings.Contains(got[0], "move it away") {
		t.Errorf("it is in the way: %q", got)
	}
	if err := os.Rename(theirs, theirs+".away"); err != nil {
		t.Fatal(err)
	}
	if got := found(); len(got) > 0 {
		t.Errorf("nothing is in the way: %q", got)
	}
}

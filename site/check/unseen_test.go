package check_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/globalrefdb/globalrefdb/site/check"
	"github.com/globalrefdb/globalrefdb/site/config"
	"github.com/globalrefdb/globalrefdb/site/install"
	"github.com/globalrefdb/globalrefdb/site/internal/sitetest"
)

// Repositories that a look at the whole site leaves out are findings: "0 findings" says nothing about them.
func TestRepositoriesThatAreNotOfTheSiteAreFound(t *testing.T) {
	t.Parallel()
	r, all := newFleet(t, 1)
	root := filepath.Dir(filepath.Dir(all[0].Path))
	elsewhere := filepath.Join(t.TempDir(), "elsewhere.git")
	for _, path := range []string{elsewhere, filepath.Join(root, "twice"), filepath.Join(root, "twice.git"), filepath.Join(root, config.Unfinished+"x", "made.git")} {
		sitetest.GitIn(t, root, "init", "--quiet", "--bare", path)
	}
	if err := errors.Join(os.Symlink(elsewhere, filepath.Join(root, "link.git")), os.Symlink(all[0].Path, filepath.Join(root, "alias.git")),
		os.Symlink(root, filepath.Join(root, "loop"))); err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	if err := check.Unserved(r.Config, func(f check.Finding) {
		if f.Code != check.RepositoryUnknown {
			t.Errorf("%+v", f)
		}
		found[strings.TrimPrefix(f.Subject, root+"/")] = f.Detail
	}); err != nil {
		t.Fatal(err)
	}
	for path, says := range map[string]string{"link.git": "neither below site.root nor", "twice": "name one as a [repository]", "twice.git": "name one as a [repository]"} {
		if !strings.Contains(found[path], says) {
			t.Errorf("of %s it says %q", path, found[path])
		}
		delete(found, path)
	}
	if len(found) > 0 {
		t.Errorf("it also finds %v", found)
	}
}

// Objects are read where they are looked for; where they are besides is said.
func TestObjectsThatAreNotReadAreFound(t *testing.T) {
	t.Parallel()
	r, all := newFleet(t, 2)
	alternates := filepath.Join(all[0].Path, "objects/info/alternates")
	elsewhere := filepath.Join(t.TempDir(), "elsewhere.git")
	sitetest.GitIn(t, r.B.Dir, "init", "--quiet", "--bare", elsewhere)
	text := elsewhere + "/objects\n" + all[1].Path + "/objects\n"
	if err := errors.Join(os.MkdirAll(filepath.Dir(alternates), 0o755), os.WriteFile(alternates, []byte(text), 0o644)); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		some    []config.Repository
		objects bool
		want    []string
	}{
		"objects of both":     {all, true, []string{elsewhere + "/objects"}},
		"objects of one":      {all[:1], true, []string{elsewhere + "/objects", all[1].Path + "/objects"}},
		"no objects are read": {all, false, nil},
	} {
		var got []string
		err := check.Run(t.Context(), r.Config, r.DB, c.some, check.Options{Objects: c.objects}, func(f check.Finding) {
			if f.Code != check.ObjectsUnread {
				t.Errorf("%s: %+v", name, f)
			}
			if got = append(got, f.Subject); !strings.Contains(f.Detail, "git --git-dir="+filepath.Dir(f.Subject)+" fsck") {
				t.Errorf("%s: it says %s", name, f.Detail)
			}
		})
		if err != nil || !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, found %q, want %q", name, err, got, c.want)
		}
	}
}

func TestRepositoriesThatAreNotComparedAreCounted(t *testing.T) {
	t.Parallel()
	r, all := newFleet(t, 3)
	if err := errors.Join(install.Disable(t.Context(), r.Config, r.DB, all[1], func(install.Step) {}), install.RecordDisabled(t.Context(), all[1])); err != nil {
		t.Fatal(err)
	}
	var left []string
	o := check.Options{NotCompared: func(one config.Repository) { left = append(left, one.Project) }}
	if err := check.Run(t.Context(), r.Config, r.DB, all, o, func(f check.Finding) { t.Errorf("%+v", f) }); err != nil || !slices.Equal(left, []string{all[1].Project}) {
		t.Errorf("%v, not compared are %v", err, left)
	}
}

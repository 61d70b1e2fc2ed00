package site_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/intents"
	"github.com/globalrefdb/globalrefdb/site/config"
	"github.com/globalrefdb/globalrefdb/site/install"
	"github.com/globalrefdb/globalrefdb/site/internal/sitetest"
	"github.com/globalrefdb/globalrefdb/test/dbtest/local"
)

// A forge makes repositories, and writes their configuration, without asking anybody.
func TestWhatAForgeDoesToRepositoriesIsCounted(t *testing.T) {
	t.Parallel()
	setting, at := exporting(t)
	g := idleGuard(t, local.SQLite(t), "eu-1", setting)
	init := func(project string) config.Repository {
		t.Helper()
		r := config.Repository{Project: project, Path: filepath.Join(g.dir, "git", project+".git")}
		sitetest.Run(t, "", "git", "init", "--quiet", "--bare", r.Path)
		return r
	}
	lead := func(to string) {
		t.Helper()
		g.git("config", "core.hooksPath", to)
	}
	state := func(name string) float64 { return metric(t, at, `refdb_site_repositories_state{state="`+name+`"}`) }
	lead(filepath.Join(g.dir, "git", config.HooksDir, "current"))
	init("forge/made")
	if err := install.RecordDisabled(t.Context(), init("forge/left")); err != nil {
		t.Fatal(err)
	}
	broken := filepath.Join(init("forge/broken").Path, "config")
	if err := errors.Join(os.Remove(broken), os.Mkdir(broken, 0o755)); err != nil {
		t.Fatal(err)
	}
	g.start()
	counts := func(want map[string]float64) {
		t.Helper()
		g.daemon.SurveyNow(t.Context())
		for name, n := range want {
			if got := state(name); got != n {
				t.Errorf("%g repositories are %s, want %g", got, name, n)
			}
		}
	}
	counts(map[string]float64{"guarded": 1, "open": 1, "disabled": 1, "bypassed": 0, "unknown": 1})
	// The forge writes the configuration of a guarded one anew.
	g.git("config", "--unset", "core.hooksPath")
	counts(map[string]float64{"guarded": 0, "open": 1, "disabled": 1, "bypassed": 1, "unknown": 1})
	// Nobody can say that there are none that can't be listed.
	root := filepath.Join(g.dir, "git")
	if err := os.Rename(root, root+".away"); err != nil {
		t.Fatal(err)
	}
	counts(map[string]float64{"guarded": 0, "unknown": 1})
	if err := os.Rename(root+".away", root); err != nil {
		t.Fatal(err)
	}
}

func TestWhatPacksTakeInTheDatabaseIsExported(t *testing.T) {
	t.Parallel()
	setting, at := exporting(t)
	g := newGuard(t, local.SQLite(t), "eu-1", setting)
	g.daemon.SurveyNow(t.Context())
	metricIs(t, at, "refdb_site_packs_stored_bytes", 0)
	metricIs(t, at, "refdb_site_packs_unused_bytes", 0)
	data := []byte(strings.Repeat("x", 30))
	part := driver.PackPart{Pack: driver.Pack{ID: "p", Project: "team/app", Owner: "x", Tips: []string{g.commit[0]}, Size: 30, Sum: "s"}, Data: data, Last: true}
	if err := g.db.Packs().Store(t.Context(), part); err != nil {
		t.Fatal(err)
	}
	g.daemon.SurveyNow(t.Context())
	metricIs(t, at, "refdb_site_packs_unused_bytes", 30)
	if _, err := g.db.Intents().Prepare(t.Context(), "team/app", []refdb.Update{{Ref: x, New: refdb.Value(g.commit[0])}}, "test", intents.WithPacks("p")); err != nil {
		t.Fatal(err)
	}
	g.daemon.SurveyNow(t.Context())
	metricIs(t, at, "refdb_site_packs_unused_bytes", 0)
	metricIs(t, at, "refdb_site_packs_stored_bytes", 30)
}

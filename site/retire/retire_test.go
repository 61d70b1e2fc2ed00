package retire_test

import (
	"errors"
	"path/filepath"
	"testing"

	"github.com/globalrefdb/globalrefdb/internal/gitrepo"
	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/intents"
	"github.com/globalrefdb/globalrefdb/refdb/memory"
	"github.com/globalrefdb/globalrefdb/site/internal/sitetest"
	"github.com/globalrefdb/globalrefdb/site/packs"
	"github.com/globalrefdb/globalrefdb/site/presence"
	"github.com/globalrefdb/globalrefdb/site/retire"
)

const (
	project = "team/app"
	mainRef = "refs/heads/main"
)

// opener opens one database for any number of sites.
func opener(t *testing.T) func(site string) *refdb.DB {
	database := memory.New()
	return func(site string) *refdb.DB {
		db, err := refdb.New(database.Open(), refdb.Options{Site: site})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { db.Close() })
		return db
	}
}

// records counts what sites say about themselves.
func records(t *testing.T, db *refdb.DB) (n int) {
	for _, err := range db.Refs(t.Context(), presence.Project, "refs/") {
		if err != nil {
			t.Fatal(err)
		}
		n++
	}
	return n
}

// A push that was announced may have been acknowledged: it is made if the database has its objects, and never dropped.
func TestAnAnnouncedPushIsMadeIfTheDatabaseHasItsObjects(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		store     string // what the database keeps of the project
		withPack  bool
		wantError error
	}{
		"it has them":             {"all", true, nil},
		"it has none of the push": {"all", false, retire.ErrPending},
		"it has none of any push": {"", false, retire.ErrPending},
		"it keeps them no more":   {"", true, retire.ErrPending},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			open := opener(t)
			gone, operator := open("gone"), open("operator")
			repo := sitetest.Bare{Dir: filepath.Join(t.TempDir(), "a.git")}
			sitetest.GitIn(t, t.TempDir(), "init", "--quiet", "--bare", repo.Dir)
			opened, err := gitrepo.OpenDir(repo.Dir)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := operator.Projects().Put(t.Context(), driver.Project{Project: project, ID: "id", Rules: "ref *", Mode: "enforce", Store: c.store}); err != nil {
				t.Fatal(err)
			}
			for ref, value := range map[string]refdb.Value{"refs/sites/gone": "generation", "refs/unpacked/id/gone": "epoch 7", "refs/modes/id/gone": "grant 7", "refs/mirrors/id": "site gone"} {
				if _, err := operator.Put(t.Context(), presence.Project, ref, value); err != nil {
					t.Fatal(err)
				}
			}
			commit := repo.Commit(t, "pushed")
			moves := []refdb.Update{{Ref: mainRef, New: refdb.Value(commit)}}
			var ids []string
			if c.withPack {
				made, err := packs.Source{DB: gone, Repo: opened, Project: project}.Store(t.Context(), moves, packs.Limits{})
				if err != nil {
					t.Fatal(err)
				}
				ids = append(ids, made.ID)
			}
			if _, err := gone.Intents().Prepare(t.Context(), project, moves, "git", intents.WithPacks(ids...)); err != nil {
				t.Fatal(err)
			}

			err = retire.Retire(t.Context(), operator, retire.Request{Site: "gone", By: "alice@host", Why: "its disk is lost"})
			value, failed := operator.Get(t.Context(), project, mainRef)
			sites, listed := presence.Registered(t.Context(), operator)
			if failed := errors.Join(failed, listed); failed != nil {
				t.Fatal(failed)
			}
			left := 0
			for _, err := range operator.Intents().All(t.Context(), driver.IntentFilter{}) {
				if err != nil {
					t.Fatal(err)
				}
				left++
			}
			switch {
			case !errors.Is(err, c.wantError):
				t.Errorf("it ends with %v", err)
			case c.wantError == nil && records(t, operator) > 0:
				t.Error("what the site said about itself is left")
			case c.wantError == nil && (value != refdb.Value(commit) || left != 0 || len(sites) != 0):
				t.Errorf("main is %s, %d intents and %v are left", value, left, sites)
			case c.wantError != nil && (!value.IsAbsent() || left != 1 || len(sites) != 1):
				t.Errorf("nobody has decided, and main is %s, %d intents and %v are left", value, left, sites)
			}
		})
	}
}

// A request of the site's daemon may arrive late.
func TestASiteThatAnnouncesAPushMeanwhileIsNotRetired(t *testing.T) {
	t.Parallel()
	open := opener(t)
	gone, operator := open("gone"), open("operator")
	if _, err := operator.Projects().Put(t.Context(), driver.Project{Project: project, ID: "id", Rules: "ref *", Mode: "enforce", Store: "all"}); err != nil {
		t.Fatal(err)
	}
	const old = "1111111111111111111111111111111111111111"
	for ref, value := range map[string]refdb.Value{mainRef: old, "refs/heads/other": old} {
		if _, err := operator.Put(t.Context(), project, ref, value); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := operator.Put(t.Context(), presence.Project, "refs/sites/gone", "generation"); err != nil {
		t.Fatal(err)
	}
	deletes := func(ref string) {
		if _, err := gone.Intents().Prepare(t.Context(), project, []refdb.Update{{Ref: ref, Old: old, New: refdb.Deleted}}, "git"); err != nil {
			t.Fatal(err)
		}
	}
	deletes(mainRef)
	late := retire.Request{Site: "gone", By: "alice@host", Why: "test", Each: func(string, string) { deletes("refs/heads/other") }}
	if err := retire.Retire(t.Context(), operator, late); !errors.Is(err, retire.ErrPending) || records(t, operator) != 1 {
		t.Fatalf("it ends with %v, and %d records are left", err, records(t, operator))
	}
	if err := retire.Retire(t.Context(), operator, retire.Request{Site: "gone", By: "alice@host", Why: "again"}); err != nil || records(t, operator) != 0 {
		t.Errorf("again: it ends with %v, and %d records are left", err, records(t, operator))
	}
	for _, ref := range []string{mainRef, "refs/heads/other"} {
		if v, err := operator.Get(t.Context(), project, ref); err != nil || !v.IsAbsent() {
			t.Errorf("%s is %s, %v", ref, v, err)
		}
	}
}

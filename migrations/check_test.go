package migrations_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/golang-migrate/migrate/v4/database"

	"github.com/globalrefdb/globalrefdb/migrations"
)

func TestCheckSaysWhatToDo(t *testing.T) {
	latest := migrations.Latest(migrations.Postgres)
	for name, c := range map[string]struct {
		migrations.Record
		want string // "" for no error
	}{
		"the latest version":                             {migrations.Record{Version: latest, Exists: true}, ""},
		"no table, or no row in it":                      {migrations.Record{}, "there is none: run `refdbctl migrate up`"},
		"the version before":                             {migrations.Record{Version: latest - 1, Exists: true}, ""},
		"a version that is no longer served":             {migrations.Record{Version: latest - 2, Exists: true}, "run `refdbctl migrate up`"},
		"a newer version":                                {migrations.Record{Version: latest + 1, Exists: true}, "upgrade the program"},
		"a newer version that this program serves":       {migrations.Record{Version: latest + 2, Oldest: latest, Exists: true}, ""},
		"a newer version that needs a newer one":         {migrations.Record{Version: latest + 2, Oldest: latest + 1, Exists: true}, "upgrade the program"},
		"an interrupted migration":                       {migrations.Record{Version: latest, Dirty: true, Exists: true}, "`refdbctl migrate force VERSION`"},
		"an interrupted migration down":                  {migrations.Record{Dirty: true, Exists: true}, "`refdbctl migrate force VERSION`"},
		"an interrupted migration to one that it serves": {migrations.Record{Version: latest + 1, Oldest: latest, Dirty: true, Exists: true}, "`refdbctl migrate force VERSION`"},
	} {
		t.Run(name, func(t *testing.T) {
			err := migrations.Check(migrations.Postgres, c.Record)
			if c.want == "" {
				must(t, err)
				return
			}
			wantError(t, err, c.want)
			if strings.Contains(err.Error(), "\n") {
				t.Errorf("more than one line: %v", err)
			}
		})
	}
}

func TestDialectsHaveTheSameVersions(t *testing.T) {
	for _, d := range []migrations.Dialect{migrations.Postgres, migrations.Spanner, migrations.SQLite} {
		if got := migrations.Latest(d); got != 12 {
			t.Errorf("%s: latest version %d", d, got)
		}
	}
	if got := migrations.Latest("oracle"); got != 0 {
		t.Errorf("an unknown dialect has version %d", got)
	}
	if _, err := migrations.New("oracle", &recorder{}); err == nil {
		t.Error("an unknown dialect has a migrator")
	}
}

func TestAnEndedContextLetsTheStepUnderWayFinish(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	d := &recorder{version: database.NilVersion, run: func() error { cancel(); return nil }}
	m, err := migrations.New(migrations.Postgres, d)
	must(t, err)
	if err := m.Up(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("up: %v", err)
	}
	wantVersion(t, m, 1)
	d.wantCalls(t, "lock", "mark 1", "run", "done 1", "unlock")

	d.run, d.calls = nil, nil
	must(t, m.Up(t.Context()))
	want := []string{"lock"}
	for version := 2; version <= int(migrations.Latest(migrations.Postgres)); version++ {
		want = append(want, fmt.Sprint("mark ", version), "run", fmt.Sprint("done ", version))
	}
	d.wantCalls(t, append(want, "unlock")...)
}

func TestAFailedStepIsNamed(t *testing.T) {
	fault := errors.New("disk full")
	d := &recorder{version: 1, run: func() error { return fault }}
	m, err := migrations.New(migrations.Postgres, d)
	must(t, err)
	err = m.Up(t.Context())
	if !errors.Is(err, fault) {
		t.Errorf("up: %v", err)
	}
	wantError(t, err, "migrate to version 2: ")
	d.wantCalls(t, "lock", "mark 2", "run", "unlock")
}

func TestAMigrationThatFindsTheDatabaseLockedTriesAgain(t *testing.T) {
	latest := migrations.Latest(migrations.Spanner)
	d := &recorder{version: 3}
	d.mark = func() error {
		d.version, d.mark = int(latest), nil
		return database.ErrLocked
	}
	m, err := migrations.New(migrations.Spanner, d)
	must(t, err)
	must(t, m.Up(t.Context()))
	wantVersion(t, m, latest)
	d.wantCalls(t, "lock", "unlock", "lock", "unlock")
}

// A recorder is a driver that only records its calls.
type recorder struct {
	database.Driver
	version int
	dirty   bool
	calls   []string
	run     func() error // instead of a step
	mark    func() error // instead of a mark
}

func (r *recorder) Lock() error   { r.calls = append(r.calls, "lock"); return nil }
func (r *recorder) Unlock() error { r.calls = append(r.calls, "unlock"); return nil }
func (r *recorder) Close() error  { return nil }

func (r *recorder) Version() (int, bool, error) { return r.version, r.dirty, nil }

func (r *recorder) SetVersion(version int, dirty bool) error {
	call := "done "
	if dirty {
		if r.mark != nil {
			return r.mark()
		}
		call = "mark "
	}
	r.calls = append(r.calls, fmt.Sprint(call, version))
	r.version, r.dirty = version, dirty
	return nil
}

func (r *recorder) Run(migration io.Reader) error {
	if _, err := io.Copy(io.Discard, migration); err != nil {
		return err
	}
	r.calls = append(r.calls, "run")
	if r.run != nil {
		return r.run()
	}
	return nil
}

func (r *recorder) wantCalls(t *testing.T, want ...string) {
	t.Helper()
	if !slices.Equal(r.calls, want) {
		t.Errorf("calls %q, want %q", r.calls, want)
	}
}

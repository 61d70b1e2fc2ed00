package migrations_test

import (
	"context"
	"errors"
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
		version       uint
		dirty, exists bool
		want          string // "" for no error
	}{
		"the version that is needed":  {version: latest, exists: true},
		"no table":                    {want: "there is none: run `refdbctl migrate up`"},
		"a table without a row":       {exists: true, want: "there is none: run `refdbctl migrate up`"},
		"an older version":            {version: latest - 1, exists: true, want: "run `refdbctl migrate up`"},
		"a newer version":             {version: latest + 1, exists: true, want: "upgrade the program"},
		"a migration that ended":      {version: latest, dirty: true, exists: true, want: "`refdbctl migrate force VERSION`"},
		"a migration down that ended": {dirty: true, exists: true, want: "`refdbctl migrate force VERSION`"},
	} {
		t.Run(name, func(t *testing.T) {
			err := migrations.Check(migrations.Postgres, c.version, c.dirty, c.exists)
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
		if got := migrations.Latest(d); got != 6 {
			t.Errorf("%s: latest version %d", d, got)
		}
	}
	if got := migrations.Latest("oracle"); got != 0 {
		t.Errorf("a dialect that isn't there has version %d", got)
	}
	if _, err := migrations.New("oracle", &recorder{}); err == nil {
		t.Error("a dialect that isn't there has a migrator")
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
	d.wantCalls(t, "lock", "mark 2", "run", "done 2", "mark 3", "run", "done 3", "mark 4", "run", "done 4", "mark 5", "run", "done 5", "mark 6", "run", "done 6", "unlock")
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

func TestWhoeverIsSlowerLooksAgain(t *testing.T) {
	d := &recorder{version: 3}
	d.mark = func() error {
		d.version, d.mark = 6, nil
		return database.ErrLocked
	}
	m, err := migrations.New(migrations.Spanner, d)
	must(t, err)
	must(t, m.Up(t.Context()))
	wantVersion(t, m, 6)
	d.wantCalls(t, "lock", "unlock", "lock", "unlock")
}

// A recorder is a database that only remembers what was asked of it.
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
	r.calls = append(r.calls, call+string(rune('0'+version)))
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

package projects

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/site/config"
)

// While another site may let pushes through by what was there before, no push is decided on by a row.
func TestARowIsUsedOnceNoSiteGoesByAnother(t *testing.T) {
	const readAt = time.Hour
	row := func(op, mode string, revision int64, age time.Duration) driver.Project {
		return driver.Project{Project: "a", ID: "id", Op: op, Mode: mode, Revision: revision, Age: age}
	}
	for _, c := range []struct {
		name   string
		row    driver.Project
		before *Known
		first  bool // the daemon has just started
		want   time.Duration
	}{
		{"a change", row("2", config.Enforce, 2, 0), &Known{Project: row("1", config.Enforce, 1, 0), Settled: time.Minute}, false, readAt + RulesSettle},
		{"the row that is known", row("1", config.Enforce, 1, 0), &Known{Project: row("1", config.Enforce, 1, 0), Settled: time.Minute}, false, time.Minute},
		{"a removal", row("2", config.Removed, 2, 0), &Known{Project: row("1", config.Enforce, 1, 0), Settled: time.Minute}, false, readAt + RulesSettle},
		{"what comes after a removal: all sites refused pushes", row("3", config.Enforce, 3, 0), &Known{Project: row("2", config.Removed, 2, 0), Settled: time.Minute}, false, time.Minute},
		{"an old change that was made before the start", row("2", config.Enforce, 2, rulesOld), nil, true, 0},
		{"one that may be new to others", row("2", config.Enforce, 2, rulesOld-1), nil, true, readAt + RulesSettle},
		{"an old change that was not known for another reason", row("2", config.Enforce, 2, rulesOld), nil, false, readAt + RulesSettle},
	} {
		before := map[string]Known{}
		if c.before != nil {
			before["a"] = *c.before
		}
		if got := new(Cache).settlesAt(c.row, before, readAt, c.first); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}

// While the database hangs, pushes that ask it wait for each other.
func TestACallerThatWaitsForAnotherGivesUpWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	k := &Cache{}
	if err := k.enter(t.Context()); err != nil {
		t.Fatal(err)
	}
	for name, ask := range map[string]func(context.Context, *refdb.DB) error{"Refresh": k.Refresh, "Validate": k.Validate} {
		ended := make(chan error, 1)
		go func() { ended <- ask(ctx, nil) }()
		select {
		case err := <-ended:
			if !errors.Is(err, context.Canceled) {
				t.Errorf("%s: %v", name, err)
			}
		case <-time.After(2 * time.Minute):
			t.Errorf("%s still waits", name)
		}
	}
}

package site_test

import (
	"context"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/site/compare"
	"github.com/globalrefdb/globalrefdb/site/internal/sitetest"
)

// reads counts the requests by which a daemon reads states, and the row of ref x.
type reads struct {
	refdb.Driver
	states, rows atomic.Int64
}

func (r *reads) States(ctx context.Context, project string, refs []string) ([]driver.State, error) {
	r.states.Add(1)
	return r.Driver.States(ctx, project, refs)
}

func (r *reads) Get(ctx context.Context, project string, refs []string) ([]refdb.Ref, error) {
	if slices.Contains(refs, x) { // what the site says about itself, and HEAD, are no part of a push
		r.rows.Add(1)
	}
	return r.Driver.Get(ctx, project, refs)
}

// Unwrap has the roles that the driver has beside those of all drivers found.
func (r *reads) Unwrap() refdb.Driver { return r.Driver }

// What a push at one site costs another one that follows: under its claim it reads the refs once, and their rows, which have the time that is
// recorded.
func TestAFollowedPushIsReadFromTheDatabaseOnce(t *testing.T) {
	t.Parallel()
	shared := sessionDatabase(t)
	g, other := newGuard(t, shared, "eu-1", storesAll), idleGuard(t, shared, "us-1", storesAll)
	var counted *reads
	other.driver = func(d refdb.Driver) refdb.Driver {
		counted = &reads{Driver: d}
		return counted
	}
	other.start()
	pushes := func(value string) (states, rows int64) {
		t.Helper()
		before := [2]int64{counted.states.Load(), counted.rows.Load()}
		g.git("update-ref", x, value)
		sitetest.Eventually(t, "the other site follows, and records it", func() bool {
			text, err := os.ReadFile(compare.SettledFile(other.repo))
			return err == nil && strings.Contains(string(text), value+" "+x)
		})
		return counted.states.Load() - before[0], counted.rows.Load() - before[1]
	}
	pushes(g.commit[0])
	for _, value := range g.commit[1:3] {
		if states, rows := pushes(value); states != 1 || rows != 1 {
			t.Errorf("%d reads of states, %d of rows", states, rows)
		}
	}
}

package site_test

import (
	"maps"
	"testing"

	"github.com/globalrefdb/globalrefdb/site/wire"
	"github.com/globalrefdb/globalrefdb/test/dbtest"
)

func sessionDatabase(t *testing.T) *dbtest.Database {
	t.Helper()
	return dbtest.SQLite(t)
}

func TestATransactionOfASession(t *testing.T) {
	t.Parallel()
	g := sessionTest(t)
	a, b := g.commit[0], g.commit[1]
	j := g.jgit().session()
	for _, step := range []struct{ from, to string }{{"", a}, {a, b}, {b, ""}} {
		moves := []wire.Line{line("refs/heads/x", step.from, step.to), line("refs/heads/y", step.from, step.to)}
		tx := j.granted(moves...)
		if n := g.intents(); n != 2 {
			t.Fatalf("%d intents stand, want 2", n)
		}
		j.move(moves...)
		want := map[string]string{"refs/heads/x": g.zeroed(step.to), "refs/heads/y": g.zeroed(step.to)}
		if got := j.report(tx); !maps.Equal(got, want) {
			t.Errorf("settled as %v, want %v", got, want)
		}
		g.has("refs/heads/x", step.to, g.zeroed(step.to))
	}
}

func (g *guard) zeroed(value string) string {
	if value == "" {
		return zero
	}
	return value
}

package site_test

import (
	"maps"
	"testing"

	"github.com/globalrefdb/globalrefdb/site/wire"
	"github.com/globalrefdb/globalrefdb/test/dbtest/local"
)

func sessionDatabase(t *testing.T) *local.Database {
	t.Helper()
	return local.SQLite(t)
}

// eachDatabase runs a test on a site with each of the databases that a machine can have.
func eachDatabase(t *testing.T, test func(t *testing.T, g *guard)) {
	for name, database := range map[string]func(testing.TB) *local.Database{"SQLite": local.SQLite, "PostgreSQL": local.Postgres} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, newGuard(t, database(t), "eu-1"))
		})
	}
}

func TestATransactionOfASession(t *testing.T) {
	t.Parallel()
	eachDatabase(t, transactionOfASession)
}

func transactionOfASession(t *testing.T, g *guard) {
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

// A crash of everything: the daemon is killed in its place, by what it leaves, between the OK and the report, and the guard dies too.
func TestAGuardThatDiesWhileTheDaemonIsAway(t *testing.T) {
	t.Parallel()
	eachDatabase(t, func(t *testing.T, g *guard) {
		a, b := g.commit[0], g.commit[1]
		g.set(x, a)
		g.set("refs/heads/y", a)
		lives, dies := g.jgit().session(), g.jgitChild().session()
		moves := []wire.Line{line("refs/heads/y", a, b)}
		tx := lives.granted(moves...)
		dies.granted(line(x, a, b))
		dies.move(line(x, a, b))
		g.halt()
		dies.kill()
		lives.move(moves...)
		g.start()
		lives.lists(tx, moves...)
		lives.session()
		lives.report(tx)
		g.resolved()
		g.has(x, b, b)
		g.has("refs/heads/y", b, b)
	})
}

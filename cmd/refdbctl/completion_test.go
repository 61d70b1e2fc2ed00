package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/exit"
	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/site/presence"
)

// offered returns what the shell offers for the last of args.
func (w *world) offered(tb testing.TB, args ...string) []string {
	tb.Helper()
	r := w.run(tb, append([]string{"__completeNoDesc"}, args...)...)
	if r.code != exit.OK {
		tb.Errorf("%q: status %d", args, r.code)
	}
	lines := strings.Split(strings.TrimSuffix(r.out, "\n"), "\n")
	if !strings.HasPrefix(lines[len(lines)-1], ":") {
		tb.Fatalf("%q: %q", args, r.out)
	}
	return lines[:len(lines)-1]
}

type uncounted struct{ refdb.Driver }

func (uncounted) Summaries(context.Context, driver.SummaryQuery) (driver.SummaryPage, error) {
	return driver.SummaryPage{}, errors.New("too many refs to count")
}

func TestTheShellCompletesNamesInTheDatabase(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	// Projects are not counted for that, which takes long.
	w.wrap = func(d refdb.Driver) refdb.Driver { return uncounted{d} }
	for i, project := range []string{"team/lib", "team/app", "other", "team/$(reboot)", "team/removed"} {
		row := driver.Project{Project: project, ID: fmt.Sprint("id", i), Rules: "ref *", Mode: "enforce"}
		if project == "team/removed" {
			row.Mode = "removed"
		}
		if _, err := w.open(t).Projects().Put(t.Context(), row); err != nil {
			t.Fatal(err)
		}
	}
	w.InsertRef(t, "team/app", mainRef, refdb.Value(id("a")))
	w.InsertRef(t, "team/app", "refs/heads/topic", refdb.Value(id("a")))
	w.InsertRef(t, "team/app", "refs/tags/v1", refdb.Value(id("a")))
	for _, name := range []string{"eu-1", "us-1"} {
		w.InsertRef(t, presence.Project, "refs/sites/"+name, "generation")
	}
	for _, x := range []struct {
		args []string
		want []string
	}{
		{[]string{"refs", "list", "team/"}, []string{"team/app", "team/lib"}},
		{[]string{"refs", "get", "o"}, []string{"other"}},
		{[]string{"refs", "get", "team/app", "refs/heads/"}, []string{mainRef, "refs/heads/topic"}},
		{[]string{"refs", "get", "team/app", mainRef, ""}, nil},
		{[]string{"refs", "put", "team/app", mainRef, ""}, nil},
		{[]string{"refs", "rollback", "team/app", mainRef, "refs/t"}, []string{"refs/tags/v1"}},
		{[]string{"lock", "team/app", mainRef, "refs/heads/t"}, []string{"refs/heads/topic"}},
		{[]string{"locks", "list", "--project", "team/l"}, []string{"team/lib"}},
		{[]string{"locks", "list", "--owner", ""}, []string{"eu-1", "us-1"}},
		{[]string{"locks", "resolve", "--site", "u"}, []string{"us-1"}},
		{[]string{"--site", "e"}, []string{"eu-1"}},
		{[]string{"recover", "--without", ""}, []string{"eu-1", "us-1"}},
		{[]string{"sites", "retire", "u"}, []string{"us-1"}},
		{[]string{"project", "set", "team/app", "--mode", ""}, []string{"enforce", "log"}},
		{[]string{"top", "team/app", "team/l"}, []string{"team/lib"}},
		{[]string{"help", "refs", "li"}, []string{"list"}},
		{[]string{"doctor", "-o", ""}, []string{"table", "json", "csv"}},
		{[]string{"migrate", "force", ""}, nil},
	} {
		if got := w.offered(t, x.args...); !slices.Equal(got, x.want) && len(got)+len(x.want) > 0 {
			t.Errorf("%q: offers %q, want %q", x.args, got, x.want)
		}
	}
}

// Messages would garble the command line.
func TestCompletionWithoutTheDatabaseSaysNothing(t *testing.T) {
	t.Parallel()
	down := newWorld(t)
	down.down = func() error { return fmt.Errorf("dialing %s: %w", secret, refdb.ErrUnavailable) }
	for name, w := range map[string]*world{
		"no address":               {env: map[string]string{}},
		"an address that is wrong": {env: map[string]string{"REFDB_URL": "nonsense:" + secret}},
		"a database that is away":  down,
	} {
		r := w.run(t, "__completeNoDesc", "--log-level=debug", "refs", "list", "")
		if r.code != exit.OK || strings.Count(r.out, "\n") != 1 || strings.Contains(r.err, "refdbctl: ") || strings.Contains(r.err, secret) || strings.Contains(r.err, "level=") {
			t.Errorf("%s: status %d: %q, %q", name, r.code, r.out, r.err)
		}
	}
}

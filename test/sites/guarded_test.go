//go:build linux

package sites

import (
	"fmt"
	"maps"
	"regexp"
	"strings"
	"testing"

	"github.com/globalrefdb/globalrefdb/refdb"
)

// A guardedRow is a push that a site accepts whole, or in part because git itself
// refuses the rest. R stands for a name of the row's own.
type guardedRow struct {
	name   string
	before map[string]string // what the refs hold, by letters: pushed as well
	pack   bool              // they are packed
	loose  map[string]string // and then pushed loose
	args   []string          // of git push, with letters
	after  map[string]string // what the refs hold then; others don't exist
	told   map[string]byte   // what the client is told of each ref, and of no others
}

var guardedRows = []guardedRow{
	{
		name: "create a branch", args: []string{"A:refs/heads/R"},
		after: map[string]string{"refs/heads/R": "A"}, told: map[string]byte{"refs/heads/R": '*'},
	},
	{
		name: "create a tag", args: []string{"T:refs/tags/R"},
		after: map[string]string{"refs/tags/R": "T"}, told: map[string]byte{"refs/tags/R": '*'},
	},
	{
		name: "push for review", args: []string{"A:refs/for/R"},
		after: map[string]string{"refs/for/R": "A"}, told: map[string]byte{"refs/for/R": '*'},
	},
	{
		name: "fast-forward", before: map[string]string{"refs/heads/R": "A"}, args: []string{"B:refs/heads/R"},
		after: map[string]string{"refs/heads/R": "B"}, told: map[string]byte{"refs/heads/R": ' '},
	},
	{
		name: "force", before: map[string]string{"refs/heads/R": "B"}, args: []string{"+C:refs/heads/R"},
		after: map[string]string{"refs/heads/R": "C"}, told: map[string]byte{"refs/heads/R": '+'},
	},
	{
		name: "the branch that HEAD points to", before: map[string]string{"refs/heads/main": "A"}, args: []string{"B:refs/heads/main"},
		after: map[string]string{"refs/heads/main": "B"}, told: map[string]byte{"refs/heads/main": ' '},
	},
	{
		name: "delete, loose", before: map[string]string{"refs/heads/R": "A"}, args: []string{":refs/heads/R"},
		told: map[string]byte{"refs/heads/R": '-'},
	},
	{
		name: "delete, packed", before: map[string]string{"refs/heads/R": "A"}, pack: true, args: []string{":refs/heads/R"},
		told: map[string]byte{"refs/heads/R": '-'},
	},
	{
		name: "delete, loose and packed", before: map[string]string{"refs/heads/R": "A"}, pack: true,
		loose: map[string]string{"refs/heads/R": "B"}, args: []string{":refs/heads/R"},
		told: map[string]byte{"refs/heads/R": '-'},
	},
	{
		name: "several refs", before: map[string]string{"refs/heads/R-1": "A", "refs/heads/R-2": "A"},
		args:  []string{"B:refs/heads/R-1", ":refs/heads/R-2", "A:refs/heads/R-3"},
		after: map[string]string{"refs/heads/R-1": "B", "refs/heads/R-3": "A"},
		told:  map[string]byte{"refs/heads/R-1": ' ', "refs/heads/R-2": '-', "refs/heads/R-3": '*'},
	},
	{
		name: "several refs, atomic", before: map[string]string{"refs/heads/R-1": "A", "refs/heads/R-2": "A"}, pack: true,
		args:  []string{"--atomic", "B:refs/heads/R-1", ":refs/heads/R-2", "A:refs/heads/R-3"},
		after: map[string]string{"refs/heads/R-1": "B", "refs/heads/R-3": "A"},
		told:  map[string]byte{"refs/heads/R-1": ' ', "refs/heads/R-2": '-', "refs/heads/R-3": '*'},
	},
	{
		name: "one of several that git refuses", before: map[string]string{"refs/heads/R": "A"},
		args:  []string{"A:refs/heads/R/under", "A:refs/heads/R-2"},
		after: map[string]string{"refs/heads/R": "A", "refs/heads/R-2": "A"},
		told:  map[string]byte{"refs/heads/R/under": '!', "refs/heads/R-2": '*'},
	},
	{
		name: "one of several that git refuses, atomic", before: map[string]string{"refs/heads/R": "A"},
		args:  []string{"--atomic", "A:refs/heads/R/under", "A:refs/heads/R-2"},
		after: map[string]string{"refs/heads/R": "A"},
		told:  map[string]byte{"refs/heads/R/under": '!', "refs/heads/R-2": '!'},
	},
	{
		name: "a name in need of quotes", args: []string{"A:refs/heads/R-o'brien-ä-\"x\""},
		after: map[string]string{"refs/heads/R-o'brien-ä-\"x\"": "A"}, told: map[string]byte{"refs/heads/R-o'brien-ä-\"x\"": '*'},
	},
}

// in replaces letters by the row's own name and the names of objects.
func (r guardedRow) in(own string, h *history) guardedRow {
	object := map[string]string{"A": h.a, "B": h.b, "C": h.c, "T": h.tag}
	values := func(m map[string]string) map[string]string {
		all := make(map[string]string)
		for ref, letter := range m {
			all[strings.ReplaceAll(ref, "R", own)] = object[letter]
		}
		return all
	}
	r.before, r.loose, r.after = values(r.before), values(r.loose), values(r.after)
	told := make(map[string]byte)
	for ref, flag := range r.told {
		told[strings.ReplaceAll(ref, "R", own)] = flag
	}
	r.told = told
	var args []string
	for _, arg := range r.args {
		if from, to, ok := strings.Cut(arg, ":"); ok {
			force := strings.HasPrefix(from, "+")
			arg = object[strings.TrimPrefix(from, "+")] + ":" + strings.ReplaceAll(to, "R", own)
			if force {
				arg = "+" + arg
			}
		}
		args = append(args, arg)
	}
	r.args = args
	return r
}

// eachCluster runs test with each git on a cluster of each storage, with those lines of configuration. Storages other
// than git's usual one are served as files only.
func eachCluster(t *testing.T, extra string, test func(t *testing.T, c *cluster, ways []transport)) {
	eachStorage(t, func(t *testing.T, g *git, kind storage) {
		t.Parallel()
		ways := transports
		if kind != files {
			ways = transports[:1]
		}
		d := design{storage: kind, extra: extra}
		for _, way := range ways {
			d.projects = append(d.projects, "over/"+way.name)
		}
		test(t, newCluster(t, g, d), ways)
	})
}

// onTransport leaves out most rows but on files.
func onTransport(t *testing.T, way transport, row int) {
	t.Helper()
	if testing.Short() && way.name != "file" && row%4 > 0 {
		t.Skip("left out by -short: the same over another transport; make test-all runs it")
	}
}

func TestWhatGitAcceptsLandsHereAndInTheDatabase(t *testing.T) {
	eachCluster(t, "", func(t *testing.T, c *cluster, ways []transport) {
		for _, way := range ways {
			t.Run(way.name, func(t *testing.T) {
				c := c.in(t)
				project := "over/" + way.name
				repo := c.eu.repo(project)
				url := way.serve(t, c.g, c.eu.root) + "/" + project + ".git"
				for i, row := range guardedRows {
					t.Run(row.name, func(t *testing.T) {
						onTransport(t, way, i)
						c := c.in(t)
						row := row.in(fmt.Sprint("row-", i), c.h)
						for ref, value := range row.before {
							c.given(url, ref, value)
						}
						if row.pack {
							c.g.run(t, repo, "-c", "core.hooksPath=/dev/null", "pack-refs", "--all")
						}
						for ref, value := range row.loose {
							c.given(url, ref, value)
						}
						want := c.global(project)
						for ref := range row.before {
							delete(want, ref)
						}
						maps.Copy(want, row.after)

						p := c.h.push(t, url, row.args...)
						if !maps.Equal(p.status, row.told) {
							t.Errorf("the client was told %q, not %q: %s", p.status, row.told, p.said)
						}
						c.settled()
						sameRefs(t, "the site", c.eu.refs(project), want)
						sameRefs(t, "the database", c.global(project), want)
					})
				}
			})
		}
	})
}

// given pushes what a row needs first.
func (c *cluster) given(url, ref, value string) {
	c.Helper()
	if p := c.h.push(c, url, "+"+value+":"+ref); !p.ok {
		c.Fatalf("%s: %+v", ref, p)
	}
	c.settled() // the next push may not wait for this one
}

// A refusedRow is a ref that can't be pushed to now, and what the pusher reads.
type refusedRow struct {
	name  string
	ready func(c *cluster, project, ref string)
	reads string // a regular expression
}

var refusedRows = []refusedRow{
	{
		name: "the site is behind",
		ready: func(c *cluster, project, ref string) {
			c.given(c.eu.repo(project), ref, c.h.a)
			c.us.syncFrom(c.eu, project)
			c.given(c.us.repo(project), ref, c.h.c)
		},
		reads: `REF: this site is behind \(global CCC, here AAA\): fetch and retry in a few seconds`,
	},
	{
		name: "the other site created it",
		ready: func(c *cluster, project, ref string) {
			c.given(c.us.repo(project), ref, c.h.c)
		},
		reads: `REF: .*global CCC`,
	},
	{
		name: "the other site deleted it",
		ready: func(c *cluster, project, ref string) {
			c.given(c.eu.repo(project), ref, c.h.a)
			c.us.syncFrom(c.eu, project)
			c.given(c.us.repo(project), ref, "")
		},
		reads: `REF: this site is behind \(global deleted, here AAA\)`,
	},
	{
		name: "locked by somebody",
		ready: func(c *cluster, project, ref string) {
			lock, err := c.db.TryLock(c.Context(), project, ref)
			if err != nil {
				c.Fatal(err)
			}
			c.Cleanup(func() { _ = lock.Release(c.background()) })
		},
		reads: `REF: locked by bystander\S* since .*\d`,
	},
	{
		name: "another site is about to move it",
		ready: func(c *cluster, project, ref string) {
			p, err := c.db.Intents().Prepare(c.Context(), project, []refdb.Update{{Ref: ref, New: refdb.Value(c.h.c)}}, "elsewhere")
			if err != nil {
				c.Fatal(err)
			}
			c.Cleanup(func() {
				if err := c.db.Intents().Finish(c.background(), p, nil, []string{ref}); err != nil {
					c.Error(err)
				}
			})
		},
		reads: `REF: .* at bystander since .*\d`,
	},
	{
		name: "the database does not know it",
		ready: func(c *cluster, project, ref string) {
			c.given(c.eu.repo(project), ref+"-other", c.h.a) // for its objects
			c.g.run(c, c.eu.repo(project), "-c", "core.hooksPath=/dev/null", "update-ref", ref, c.h.a)
			c.Cleanup(func() {
				c.g.run(c, c.eu.repo(project), "-c", "core.hooksPath=/dev/null", "update-ref", "-d", ref)
			})
		},
		reads: "REF exists here but not in the global database: ask the administrator to run `refdbctl site check`",
	},
}

func TestARefusalIsReadableAndOtherRefsOfThePushGoOn(t *testing.T) {
	// Several rows wait in vain for a lock.
	eachCluster(t, "\tlockWait = 200ms\n", func(t *testing.T, c *cluster, ways []transport) {
		for _, way := range ways {
			t.Run(way.name, func(t *testing.T) {
				c := c.in(t)
				project := "over/" + way.name
				url := way.serve(t, c.g, c.eu.root) + "/" + project + ".git"
				for i, row := range refusedRows {
					t.Run(row.name, func(t *testing.T) {
						onTransport(t, way, i)
						c := c.in(t)
						ref, free := fmt.Sprint("refs/heads/refused-", i), fmt.Sprint("refs/heads/free-", i)
						row.ready(c, project, ref)
						here, global := c.eu.refs(project), c.global(project)
						p := c.h.push(t, url, "+"+c.h.b+":"+ref, c.h.b+":"+free)

						if p.status[free] != '*' || p.reason[ref] != "hook declined" {
							t.Errorf("the client was told %+v", p)
						}
						reads := strings.NewReplacer("REF", ref, "AAA", c.h.a[:7], "CCC", c.h.c[:7]).Replace(row.reads)
						if !regexp.MustCompile(reads).MatchString(p.remote()) {
							t.Errorf("the client reads %q, not %q", p.remote(), reads)
						}
						here[free], global[free] = c.h.b, c.h.b
						sameRefs(t, "the site", c.eu.refs(project), here)
						sameRefs(t, "the database", c.global(project), global)

						// No part of an atomic push is carried out.
						p = c.h.push(t, url, "--atomic", "+"+c.h.b+":"+ref, "+"+c.h.c+":"+free)
						if p.ok || len(p.accepted()) > 0 {
							t.Errorf("the client was told %+v", p)
						}
						sameRefs(t, "the site, after an atomic push", c.eu.refs(project), here)
						sameRefs(t, "the database, after an atomic push", c.global(project), global)
					})
				}
			})
		}
	})
}

// in returns c for a subtest.
func (c *cluster) in(t testing.TB) *cluster {
	sub := &cluster{TB: t, g: c.g, h: c.h, db: c.db}
	eu, us := *c.eu, *c.us
	eu.c, us.c = sub, sub
	sub.eu, sub.us = &eu, &us
	return sub
}

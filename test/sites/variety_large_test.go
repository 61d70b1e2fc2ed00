//go:build linux

package sites

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// fastImport makes commits in the client's repository. Each of the branches gets commits that build on each other, and each of these
// the given number of new files, below a directory of its own.
func (v *variety) fastImport(name string, branches, commits, files int) {
	v.Helper()
	var in strings.Builder
	for b := range branches {
		for i := range commits {
			fmt.Fprintf(&in, "commit refs/heads/%s-%d\ncommitter T <t@example.com> %d +0000\ndata 1\nx\n", name, b, 1_700_000_000+i)
			for f := range files {
				text := fmt.Sprintf("%s %d %d %d", name, b, i, f)
				fmt.Fprintf(&in, "M 644 inline d%d/%d/f%d\ndata %d\n%s\n", b, i, f, len(text), text)
			}
			in.WriteString("\n")
		}
	}
	v.g.feed(v, v.h.dir, in.String(), "fast-import", "--quiet", "--force")
}

// slowly is pushed for what takes longer than other tests wait.
func (v *variety) slowly(args ...string) {
	v.Helper()
	v.g.run(v, v.h.dir, append([]string{"push", "--quiet", v.at.repo(project)}, args...)...)
	v.at.other().must("site", "wait", "--limit", "15m", project)
	v.at.other().follows(project)
}

// manyRefs are refspecs of n refs, which hold one of two commits.
func (v *variety) manyRefs(prefix string, n int) (specs []string) {
	for i := range n {
		specs = append(specs, fmt.Sprintf("%s:refs/heads/%s/%04d", []string{v.h.a, v.h.b}[i%2], prefix, i))
	}
	return specs
}

var largeRows = []varietyRow{
	{"10,000 commits in the first push", func(v *variety) {
		v.fastImport("long", 1, 10_000, 0)
		v.pushed("refs/heads/long-0:refs/heads/long")
	}},
	{"1,000 refs in one atomic push; others moved and deleted in one", func(v *variety) {
		specs := v.manyRefs("atomic", 1000)
		v.pushed(append(specs, "--atomic")...)
		var next []string
		for i, spec := range specs[:50] {
			_, ref, _ := strings.Cut(spec, ":")
			next = append(next, []string{v.h.c + ":" + ref, ":" + ref}[i%2])
		}
		v.pushed(append(next, "--atomic", "--force")...)
	}},
	{"many refs in a push that is not atomic", func(v *variety) {
		n := 100
		if long() {
			n = 1000 // before git 2.51 as many transactions
		}
		v.slowly(v.manyRefs("many", n)...)
	}},
	{"a tree of 10,000 entries, and a change in it", func(v *variety) {
		blob := v.blob("of 10,000 names")
		entries := make([]string, 10_000)
		for i := range entries {
			entries[i] = fmt.Sprintf("100644 blob %s\tf%05d", blob, i)
		}
		wide := v.commit(v.tree(entries...), v.h.a)
		v.pushed(wide + ":refs/heads/wide")
		entries[5000] = v.file("100755", "f05000", "changed")
		v.pushed(v.commit(v.tree(entries...), wide) + ":refs/heads/wide")
	}},
	{"2,000 files in 100 commits", func(v *variety) {
		v.fastImport("files", 1, 100, 20)
		v.pushed("refs/heads/files-0:refs/heads/files")
	}},
}

func TestLargePushesArriveWhole(t *testing.T) {
	if testing.Short() {
		t.Skip("left out by -short: pushes of megabytes through both databases, half a minute; make test-all runs it")
	}
	t.Parallel()
	all, err := gits()
	for _, g := range must(t, all, err) {
		t.Run(g.version, func(t *testing.T) {
			v := &variety{cluster: newCluster(t, g, design{h: newHistory(t, g, "sha1", 0, 0), extra: storing})}
			v.play(t, largeRows)
			v.copied(t)
		})
	}
}

// As large as a repository of a large project: 4,294 branches, 858,800 objects.
func TestALargeRepositoryArrivesWhole(t *testing.T) {
	if !long() {
		t.Skip("left out: a repository of 4,294 refs and 858,800 objects, which takes minutes; REFDB_TEST_LONG=1 runs it")
	}
	all, err := gits()
	g := must(t, all, err)[0]
	v := &variety{cluster: newCluster(t, g, design{h: newHistory(t, g, "sha1", 0, 0), extra: storing, database: onPostgres})}
	v.at = v.eu
	const branches = 4294
	v.fastImport("large", branches, 10, 16)
	lap := time.Now()
	v.slowly("refs/heads/large-*:refs/heads/large-*")
	t.Logf("%d refs were pushed, and at the other site, after %s", branches, time.Since(lap))
	lap = time.Now()
	v.eu.must("site", "store", "compact", project)
	v.us.losesRepository(project)
	v.us.must("site", "clone", project)
	v.us.follows(project)
	t.Logf("a base of it was stored, and cloned, after %s", time.Since(lap))
	v.pushed(v.h.c + ":refs/heads/after")
}

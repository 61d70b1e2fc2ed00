//go:build linux

package sites

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// A variety is two sites that follow by themselves, and the repository of a client.
type variety struct {
	*cluster
	at *server // the site that takes the pushes of the present row
}

// A varietyRow is something that clients do. What the site at accepts, the other site must have whole.
type varietyRow struct {
	name string
	do   func(v *variety)
}

// play plays rows at both sites in turn. After each, the other site has every value of the database, and all objects.
func (v *variety) play(t *testing.T, rows []varietyRow) {
	for i, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			if testing.Short() && i%3 > 0 {
				t.Skip("left out by -short: two of three kinds of pushes; make test-all runs them")
			}
			v := &variety{cluster: v.in(t)}
			v.at = []*server{v.eu, v.us}[i%2]
			row.do(v)
			v.arrived()
		})
	}
}

// arrived waits until both sites have every value of the database, and fails the test unless they have all objects.
func (v *variety) arrived() {
	v.Helper()
	v.at.other().follows(project)
	v.at.follows(project)
}

// pushed pushes, and waits until the other site has that.
func (v *variety) pushed(args ...string) {
	v.Helper()
	v.at.pushed(args...)
	v.at.other().follows(project)
}

// lacks fails the test if the site at, the other one, or the database has the ref.
func (v *variety) lacks(ref string) {
	v.Helper()
	for name, refs := range map[string]map[string]string{v.at.name: v.at.refs(project), v.at.other().name: v.at.other().refs(project), "the database": v.global(project)} {
		if value := refs[ref]; strings.Trim(value, "0") != "" {
			v.Errorf("%s has %s: %s", name, ref, value)
		}
	}
}

func (v *variety) blob(text string) string {
	v.Helper()
	return v.g.feed(v, v.h.dir, text, "hash-object", "-w", "--stdin")
}

// tree makes a tree of entries such as "100644 blob ID\tname".
func (v *variety) tree(entries ...string) string {
	v.Helper()
	return v.g.feed(v, v.h.dir, strings.Join(entries, "\n")+"\n", "mktree")
}

func (v *variety) file(mode, name, text string) string {
	v.Helper()
	return mode + " blob " + v.blob(text) + "\t" + name
}

func (v *variety) commit(tree string, parents ...string) string {
	v.Helper()
	args := []string{"commit-tree", "-m", "a commit", tree}
	for _, p := range parents {
		args = append(args, "-p", p)
	}
	return v.g.run(v, v.h.dir, args...)
}

// tag makes an annotated tag of any object.
func (v *variety) tag(name, object string) string {
	v.Helper()
	v.g.run(v, v.h.dir, "tag", "-a", "-f", "-m", "tag "+name, name, object)
	return v.g.run(v, v.h.dir, "rev-parse", "refs/tags/"+name)
}

// clone makes a client's clone of the site at, and a commit in it.
func (v *variety) clone(args ...string) (dir, commit string) {
	v.Helper()
	dir = filepath.Join(shortDir(v), "clone")
	v.at.git("config", "uploadpack.allowFilter", "true")
	v.g.run(v, "/", append(append([]string{"clone", "--quiet", "--branch", "main"}, args...), "file://"+v.at.repo(project), dir)...)
	if err := os.WriteFile(filepath.Join(dir, "file"), []byte("of "+strings.Join(args, " ")), 0o644); err != nil {
		v.Fatal(err)
	}
	v.g.run(v, dir, "add", "file")
	v.g.run(v, dir, "commit", "--quiet", "-m", "in a clone")
	return dir, v.g.run(v, dir, "rev-parse", "HEAD")
}

var varietyRows = []varietyRow{
	{"the first push, to an empty repository", func(v *variety) { v.pushed(v.h.a + ":refs/heads/main") }},
	{"a forced move: back, aside, to what no ref has reached", func(v *variety) {
		v.pushed(v.h.b + ":refs/heads/main")
		v.pushed("--force", v.h.a+":refs/heads/main")
		v.pushed("--force", v.h.c+":refs/heads/main", v.h.leaves[0]+":refs/heads/forced")
		v.pushed("--force", v.h.leaves[1]+":refs/heads/forced", v.h.b+":refs/heads/main")
	}},
	{"a deletion, and the name again", func(v *variety) {
		v.pushed(v.h.b+":refs/heads/gone", v.h.c+":refs/heads/gone-too", v.h.tag+":refs/tags/gone")
		v.pushed(":refs/heads/gone", ":refs/heads/gone-too", ":refs/tags/gone")
		v.pushed(v.h.c + ":refs/heads/gone")
		v.pushed("--atomic", ":refs/heads/gone", v.h.b+":refs/tags/gone")
		v.lacks("refs/heads/gone")
	}},
	{"a name that becomes a directory, and back, in one push each", func(v *variety) {
		v.pushed(v.h.a + ":refs/heads/d")
		v.pushed(":refs/heads/d", v.h.b+":refs/heads/d/e", v.h.c+":refs/heads/d/f/g")
		v.pushed(":refs/heads/d/e", ":refs/heads/d/f/g", v.h.c+":refs/heads/d")
		v.lacks("refs/heads/d/e")
	}},
	{"several such pushes between two looks", func(v *variety) {
		v.at.pushed(v.h.a + ":refs/heads/k")
		v.at.pushed(":refs/heads/k", v.h.b+":refs/heads/k/l")
		v.at.pushed(":refs/heads/k/l", v.h.c+":refs/heads/k")
		v.at.pushed(":refs/heads/k", v.h.a+":refs/heads/k/l/m")
	}},
	{"a renamed branch", func(v *variety) {
		v.pushed(v.h.c + ":refs/heads/before")
		v.pushed(":refs/heads/before", v.h.c+":refs/heads/after")
		v.lacks("refs/heads/before")
	}},
	{"tags of tags, of a tree and of a blob", func(v *variety) {
		tree := v.tree(v.file("100644", "tagged", "tagged"))
		blob := v.blob("a blob that only a tag has")
		v.pushed(v.tag("outer", v.tag("middle", v.tag("inner", v.h.b)))+":refs/tags/outer",
			v.tag("tree", tree)+":refs/tags/tree", v.tag("blob", blob)+":refs/tags/blob")
	}},
	{"refs that hold a tree and a blob themselves, and their moves", func(v *variety) {
		blob, tree := v.blob("of a ref"), v.tree(v.file("100644", "f", "of a tree of a ref"))
		v.pushed(blob+":refs/tags/bare-blob", tree+":refs/tags/bare-tree")
		other := v.tree(v.file("100644", "f", "another"), "100644 blob "+blob+"\tg", "040000 tree "+tree+"\tdir")
		v.pushed("--force", other+":refs/tags/bare-blob", v.commit(other, v.h.a)+":refs/tags/bare-tree")
		v.pushed("--force", v.blob("a third")+":refs/tags/bare-tree", ":refs/tags/bare-blob")
		v.pushed("--force", v.tag("of-it", v.commit(tree))+":refs/tags/bare-tree")
	}},
	{"a submodule whose commit is nowhere", func(v *variety) {
		nowhere := strings.Repeat("12", len(v.h.a)/2)
		with := v.commit(v.tree(v.file("100644", ".gitmodules", "[submodule \"s\"]\n\tpath = s\n\turl = https://example.com/s\n"), "160000 commit "+nowhere+"\ts"), v.h.a)
		v.pushed(with + ":refs/heads/submodule")
		v.pushed(v.commit(v.tree("160000 commit "+strings.Repeat("34", len(v.h.a)/2)+"\ts"), with) + ":refs/heads/submodule")
	}},
	{"files of all modes, a symbolic link, no file at all", func(v *variety) {
		below := v.tree(v.file("100755", "script", "#!/bin/sh\n"), v.file("120000", "link", "../elsewhere"), v.file("100644", "größe", ""))
		v.pushed(v.commit(v.tree("040000 tree "+below+"\tbelow", v.file("120000", "dangling", "/nowhere/at/all"), v.file("100644", "-", "x")), v.h.b) + ":refs/heads/modes")
		v.pushed(v.commit(v.g.feed(v, v.h.dir, "", "mktree")) + ":refs/heads/empty")
	}},
	{"unrelated histories, merged", func(v *variety) {
		root := v.commit(v.tree(v.file("100644", "other", "of another history")))
		v.pushed(root + ":refs/heads/unrelated")
		third := v.commit(v.tree(v.file("100644", "third", "that nobody has pushed")))
		v.pushed(v.commit(v.tree(v.file("100644", "merged", "merged")), v.h.b, root, third, v.h.leaves[0]) + ":refs/heads/merged")
	}},
	{"notes, and refs outside of heads and tags", func(v *variety) {
		notes := v.commit(v.tree(v.file("100644", v.h.a, "a note")))
		v.pushed(notes+":refs/notes/commits", v.h.c+":refs/pull/1/head", v.h.leaves[2]+":refs/keep-around/"+v.h.leaves[2],
			v.blob("configuration")+":refs/meta/config", v.h.leaves[3]+":refs/changes/01/1/meta")
	}},
	{"names that are not ASCII, and long ones", func(v *variety) {
		v.pushed(v.h.a+":refs/heads/größe/日本語", v.h.b+":refs/tags/o'brien;\"$(x)\"", v.h.c+":refs/heads/🚀",
			v.h.a+":refs/heads/e\u0301", v.h.b+":refs/heads/\u00e9", // two names that look the same
			v.h.a+":refs/heads/"+strings.Repeat("long/", 60)+"end")
	}},
	{"what the other site has already, by a fetch", func(v *variety) {
		known := v.commit(v.tree(v.file("100644", "known", "to both")), v.h.b)
		v.at.other().git("fetch", "--quiet", v.h.dir, known)
		v.pushed(v.commit(v.tree(v.file("100644", "next", "next")), known) + ":refs/heads/known")
	}},
	{"what both sites were pushed, in other refs", func(v *variety) {
		same := v.commit(v.tree(v.file("100644", "same", "same")), v.h.c)
		v.at.pushed(same + ":refs/heads/same-1")
		v.at.other().pushed(same + ":refs/heads/same-2")
	}},
	{"what was pushed, deleted, and is pushed again elsewhere", func(v *variety) {
		back := v.commit(v.tree(v.file("100644", "back", "back")), v.h.a)
		v.pushed(back + ":refs/heads/back")
		v.pushed(":refs/heads/back")
		v.at.other().pushed(v.commit(v.tree(v.file("100644", "later", "later")), back) + ":refs/heads/back")
	}},
	{"a push from a shallow clone", func(v *variety) {
		dir, commit := v.clone("--depth", "1")
		v.g.run(v, dir, "push", "--quiet", "origin", commit+":refs/heads/from-shallow")
		v.g.run(v, dir, "push", "--quiet", "origin", commit+"^:refs/heads/its-parent")
	}},
	{"a push from a shallow clone of another history: refused, whatever git is told to allow", func(v *variety) {
		source := filepath.Join(shortDir(v), "source")
		format := map[int]string{40: "sha1", 64: "sha256"}[len(v.h.a)]
		v.g.run(v, "/", "init", "--quiet", "--object-format="+format, source)
		for _, text := range []string{"1", "2"} {
			v.g.run(v, source, "commit", "--quiet", "--allow-empty", "-m", text)
		}
		dir := filepath.Join(shortDir(v), "shallow")
		v.g.run(v, "/", "clone", "--quiet", "--depth", "1", "file://"+source, dir)
		for _, allowed := range []string{"false", "true"} {
			v.at.git("config", "receive.shallowUpdate", allowed)
			if _, err := v.g.try(dir, "push", "--quiet", v.at.repo(project), "HEAD:refs/heads/cut-off"); err == nil {
				v.Errorf("receive.shallowUpdate=%s: a history that is cut off was accepted", allowed)
			}
			v.lacks("refs/heads/cut-off")
		}
		v.at.git("config", "--unset", "receive.shallowUpdate")
		v.pushed(v.h.c + ":refs/heads/after-shallow")
	}},
	{"a push from a partial clone", func(v *variety) {
		for _, filter := range []string{"blob:none", "tree:0"} {
			dir, commit := v.clone("--filter=" + filter)
			v.g.run(v, dir, "push", "--quiet", "origin", commit+":refs/heads/from-"+strings.ReplaceAll(filter, ":", "-"))
			v.arrived()
		}
	}},
	{"objects that the site has in alternates", func(v *variety) {
		shared := filepath.Join(shortDir(v.at.life), "shared.git") // it stays until the repository goes
		v.g.run(v, "/", "clone", "--quiet", "--bare", v.h.dir, shared)
		inAlternate := v.commit(v.tree(v.file("100644", "alternate", "alternate")), v.h.c)
		v.g.run(v, shared, "fetch", "--quiet", v.h.dir, inAlternate+":refs/heads/in-alternate")
		if err := os.WriteFile(filepath.Join(v.at.repo(project), "objects/info/alternates"), []byte(shared+"/objects\n"), 0o644); err != nil {
			v.Fatal(err)
		}
		v.pushed(v.commit(v.tree(v.file("100644", "alternate", "alternate"), v.file("100644", "f", "on top")), inAlternate) + ":refs/heads/on-alternate")
		v.pushed(inAlternate + ":refs/heads/alternate")
	}},
	{"10 refs to one commit, and 10 that build on each other", func(v *variety) {
		one, chain, args := v.commit(v.tree(v.file("100644", "one", "one")), v.h.a), v.h.a, []string{}
		for i := range 10 {
			chain = v.commit(v.tree(v.file("100644", "f", fmt.Sprint(i))), chain)
			args = append(args, one+fmt.Sprintf(":refs/heads/same/%d", i), chain+fmt.Sprintf(":refs/heads/chain/%d", i))
		}
		v.pushed(args...)
		slices.Reverse(args)
		for i, refspec := range args {
			_, ref, _ := strings.Cut(refspec, ":")
			args[i] = ":" + ref
		}
		v.pushed(args...)
	}},
}

// All kinds of pushes to one site are whole at the other, and in the database: a copy that is made of that alone has the same, from
// the packs as they were stored, and from one base.
func TestEveryKindOfPushArrivesWhole(t *testing.T) {
	eachStorage(t, func(t *testing.T, g *git, s storage) {
		d := onSQLite
		if long() {
			d = onPostgres
		}
		v := &variety{cluster: newCluster(t, g, design{storage: s, h: newHistory(t, g, s.objects, 4, 0), extra: storing, database: d})}
		v.play(t, varietyRows)
		v.copied(t)
	})
}

// copied fails the test unless what the database has makes whole copies.
func (v *variety) copied(t *testing.T) {
	t.Run("copies from the database alone", func(t *testing.T) {
		v := v.in(t)
		for range 2 {
			v.us.must("site", "store", "verify", project)
			v.us.losesRepository(project)
			v.us.must("site", "clone", project)
			v.us.follows(project)
			v.eu.must("site", "store", "compact", project)
		}
	})
}

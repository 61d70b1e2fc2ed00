package site_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/globalrefdb/globalrefdb/internal/gitrepo"
	"github.com/globalrefdb/globalrefdb/internal/testpack"
	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/intents"
	"github.com/globalrefdb/globalrefdb/site"
	"github.com/globalrefdb/globalrefdb/site/catchup"
	"github.com/globalrefdb/globalrefdb/site/check"
	"github.com/globalrefdb/globalrefdb/site/config"
	"github.com/globalrefdb/globalrefdb/site/internal/sitetest"
	"github.com/globalrefdb/globalrefdb/test/dbtest/local"
)

// A pair is two sites whose projects the database keeps: what is pushed at eu comes to us.
type pair struct {
	testing.TB
	eu, us  *guard
	metrics string // where us exports them
}

func newPair(t *testing.T, l gitrepo.UnpackLimits) *pair {
	t.Helper()
	shared := local.SQLite(t)
	setting, at := exporting(t)
	p := &pair{t, idleGuard(t, shared, "eu-1", storesAll), idleGuard(t, shared, "us-1", storesAll, setting), at}
	p.us.limits = func(d *site.Daemon) { d.SetUnpackLimits(l) }
	for _, g := range []*guard{p.eu, p.us} {
		g.copyTemplate("other")
		g.register("other")
		g.start()
	}
	return p
}

// pushes pushes an object of a pack to a ref of team/app at eu.
func (p *pair) pushes(pack []byte, id, ref string) (said string, ok bool) {
	p.Helper()
	c := p.eu.client()
	cmd := exec.Command("git", "--git-dir="+c.dir, "index-pack", "--stdin")
	cmd.Stdin = bytes.NewReader(pack)
	if out, err := cmd.CombinedOutput(); err != nil {
		p.Fatalf("%v: %s", err, out)
	}
	return c.push(id + ":" + ref)
}

// othersFollow waits until a push to another project has come to us.
func (p *pair) othersFollow(n int) {
	p.Helper()
	repo := filepath.Join(p.eu.dir, "git/other.git")
	sitetest.Run(p, "", "git", "--git-dir="+repo, "update-ref", "refs/heads/x", p.eu.commit[n])
	sitetest.Eventually(p, "another project follows", func() bool {
		out, _ := exec.Command("git", "--git-dir="+filepath.Join(p.us.dir, "git/other.git"), "rev-parse", "refs/heads/x").Output()
		return strings.TrimSpace(string(out)) == p.eu.commit[n]
	})
}

// finds returns what a check of team/app at us finds with a code.
func (p *pair) finds(code string) (found []check.Finding) {
	p.Helper()
	c, err := config.Load(p.Context(), p.us.config)
	if err != nil {
		p.Fatal(err)
	}
	r, err := c.Repository("team/app")
	if err == nil {
		err = check.Run(p.Context(), c, p.us.db, []config.Repository{r}, check.Options{}, func(f check.Finding) {
			if f.Code == code {
				found = append(found, f)
			}
		})
	}
	if err != nil {
		p.Fatal(err)
	}
	return found
}

// held waits until a pack holds team/app up at us, and returns why.
func (p *pair) held() (reason string) {
	p.Helper()
	sitetest.Eventually(p, "a pack holds the project up", func() bool {
		for _, b := range p.us.status().Behind {
			if b.Project == "team/app" && b.Pack != "" && strings.Contains(b.Reason, "pack "+b.Pack+" of ") {
				reason = b.Reason
			}
		}
		return reason != ""
	})
	metricIs(p, p.metrics, "refdb_site_packs_held", 1)
	return reason
}

func (p *pair) follows(ref, id string) {
	p.Helper()
	sitetest.Eventually(p, "the project follows", func() bool { return p.us.local(ref) == id })
	sitetest.Eventually(p, "nothing holds it up", func() bool { return metric(p, p.metrics, "refdb_site_packs_held") == 0 })
}

// Whether a project takes such objects was decided where they were pushed. Elsewhere they are an alarm, and never hold a ref up.
func TestAnObjectThatFsckObjectsToIsAnAlarmAtTheOtherSites(t *testing.T) {
	t.Parallel()
	p := newPair(t, gitrepo.DefaultUnpackLimits())
	metricIs(t, p.metrics, "refdb_site_packs_malformed_total", 0)
	tree := p.eu.git("rev-parse", p.eu.commit[0]+"^{tree}")
	var pack testpack.Pack
	id := pack.Add(testpack.Commit, []byte("tree "+tree+"\nauthor nobody 1 +0000\ncommitter nobody 1 +0000\n\nx\n"))
	if said, ok := p.pushes(pack.Bytes(), id, x); !ok {
		t.Fatal(said)
	}
	p.follows(x, id)
	metricIs(t, p.metrics, "refdb_site_packs_malformed_total", 1)
	all := p.us.status().Malformed
	if len(all) != 1 || all[0].Project != "team/app" || !strings.HasPrefix(all[0].Owner, "eu-1/") || !strings.HasPrefix(all[0].Objection, "object "+id+": missingEmail") || all[0].Pack == "" {
		t.Errorf("status says %+v", all)
	}
	found := p.finds(check.ObjectMalformed)
	if len(found) != 1 || !strings.Contains(found[0].Detail, id) {
		t.Fatalf("check finds %+v", found)
	}
	if log := p.us.log.String(); !strings.Contains(log, all[0].Pack) || strings.Contains(log, "team/app") {
		t.Error("the log does not name the pack, or names the project")
	}
	// The advice, at the site where it is pushed to.
	_, advice, _ := strings.Cut(found[0].Detail, "`")
	advice, _, _ = strings.Cut(advice, "`")
	cmd := exec.Command("sh", "-c", advice)
	cmd.Dir = p.eu.repo
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v: %s", advice, err, out)
	}
	var another testpack.Pack
	id = another.Add(testpack.Commit, []byte("tree "+tree+"\nauthor somebody 1 +0000\ncommitter nobody 1 +0000\n\nx\n"))
	if said, ok := p.pushes(another.Bytes(), id, "refs/heads/y"); ok || !strings.Contains(said, "missingEmail") {
		t.Errorf("it goes on: %s", said)
	}
}

// What few bytes unfold to is stored, or holds up its project alone, and the daemon says what to do.
func TestABombIsStoredOrHoldsUpItsProjectAlone(t *testing.T) {
	t.Parallel()
	const MiB = 1 << 20
	large := int64(16 * MiB)
	if !testing.Short() {
		large = 1 << 30
	}
	little := gitrepo.DefaultUnpackLimits()
	little.Memory = 24 * MiB
	for name, row := range map[string]struct {
		long   bool // left out by -short
		limits gitrepo.UnpackLimits
		build  func(p *testpack.Pack, commit func(tree string, parents ...string) string) (id string)
		holds  string // what status says; "" if it is stored
	}{
		"zeros": {limits: gitrepo.DefaultUnpackLimits(), build: func(p *testpack.Pack, _ func(string, ...string) string) string { return p.AddZeros(large) }},
		"deltas of which each doubles": {limits: little, build: func(p *testpack.Pack, _ func(string, ...string) string) string {
			at := p.Offset()
			p.AddZeros(MiB)
			p.Double(at, MiB, 5)
			return testpack.ID(testpack.Blob, 32*MiB, testpack.Zeros(32*MiB))
		}, holds: "24 MiB of memory: if the project should have the value, fetch its objects from a site that has them: `refdbctl site sync team/app --from URL`"},
		"trees of which each has the one below ten times": {limits: gitrepo.DefaultUnpackLimits(), build: func(p *testpack.Pack, commit func(string, ...string) string) string {
			p.Add(testpack.Blob, []byte("x"))
			id, mode := testpack.ID(testpack.Blob, 1, strings.NewReader("x")), "100644"
			for range 10 {
				var entries []byte
				raw, _ := hex.DecodeString(id)
				for i := range 10 {
					entries = append(fmt.Appendf(entries, "%s %d\x00", mode, i), raw...)
				}
				id, mode = p.Add(testpack.Tree, entries), "40000"
			}
			return p.Add(testpack.Commit, []byte(commit(id)))
		}},
		"a commit with very many parents": {long: true, limits: gitrepo.DefaultUnpackLimits(), build: func(p *testpack.Pack, commit func(string, ...string) string) string {
			p.Add(testpack.Tree, nil)
			const tree = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"
			var parents []string
			for i := range 8_000 {
				parents = append(parents, p.Add(testpack.Commit, []byte(commit(tree)+fmt.Sprint(i))))
			}
			return p.Add(testpack.Commit, []byte(commit(tree, parents...)))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			if testing.Short() && row.long {
				t.Skip("left out by -short: a commit with 8,000 parents; make test-all runs it")
			}
			t.Parallel()
			p := newPair(t, row.limits)
			var pack testpack.Pack
			id := row.build(&pack, func(tree string, parents ...string) string {
				text := "tree " + tree + "\n"
				for _, parent := range parents {
					text += "parent " + parent + "\n"
				}
				return text + "author n <e> 1 +0000\ncommitter n <e> 1 +0000\n\n"
			})
			const tag = "refs/tags/bomb" // a branch has to be a commit
			if said, ok := p.pushes(pack.Bytes(), id, tag); !ok {
				t.Fatal(said)
			}
			if row.holds != "" {
				if reason := p.held(); !strings.Contains(reason, row.holds) {
					t.Errorf("it is held because %s", reason)
				}
				p.othersFollow(1)
				// The advice.
				c, err := config.Load(t.Context(), p.us.config)
				if err == nil {
					_, err = catchup.Sync(t.Context(), c, p.us.db, config.Repository{Project: "team/app", Path: p.us.repo}, catchup.Options{From: p.eu.repo, Peer: "eu"})
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			p.follows(tag, id)
			p.othersFollow(2)
			for _, g := range []*guard{p.eu, p.us} {
				if s := g.status(); !s.OK() {
					t.Errorf("%s: %s", g.name, s.Summary())
				}
			}
			left, err := filepath.Glob(filepath.Join(p.us.repo, "objects", "tmp_*"))
			if err != nil || len(left) > 0 {
				t.Errorf("unpacking leaves %v, %v", left, err)
			}
		})
	}
}

// What is no pack, or not what was stored, holds up its project alone.
func TestAPackThatCannotBeReadHoldsUpItsProjectAlone(t *testing.T) {
	t.Parallel()
	p := newPair(t, gitrepo.DefaultUnpackLimits())
	data := []byte("PACK\x00\x00\x00\x02\x00\x00\x00\x01 and no object")
	sum := sha256.Sum256(data)
	id := strings.Repeat("1", 40)
	part := driver.PackPart{Pack: driver.Pack{ID: "bad", Project: "team/app", Owner: p.eu.db.Owner(), Tips: []string{id}, Size: int64(len(data)), Sum: hex.EncodeToString(sum[:])}, Data: data, Last: true}
	err := p.eu.db.Packs().Store(t.Context(), part)
	if err == nil {
		var prepared intents.Preparation
		if prepared, err = p.eu.db.Intents().Prepare(t.Context(), "team/app", []refdb.Update{{Ref: x, New: refdb.Value(id)}}, "test", intents.WithPacks("bad")); err == nil {
			err = p.eu.db.Intents().Finish(t.Context(), prepared, []string{x}, nil)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	if reason := p.held(); !strings.Contains(reason, "git can't unpack it") || !strings.Contains(reason, "`refdbctl site store compact team/app` at a site that has the objects") {
		t.Errorf("it is held because %s", reason)
	}
	p.othersFollow(1)
	if log := p.us.log.String(); !strings.Contains(log, "pack=bad") {
		t.Error("the log does not name the pack")
	}
}

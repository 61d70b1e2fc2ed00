//go:build linux

package sites

import (
	"fmt"
	"strings"
	"testing"

	"github.com/globalrefdb/globalrefdb/refdb"
)

// Git can't hold refs/heads/t beside refs/heads/t/x.
func TestOfTwoSitesThatCreateNamesThatExcludeEachOtherOneIsRefused(t *testing.T) {
	eachStorage(t, func(t *testing.T, g *git, s storage) {
		c := newCluster(t, g, design{storage: s, h: newHistory(t, g, s.objects, 2, 2), extra: storing})
		createNames(t, c)
	})
}

func createNames(t *testing.T, c *cluster) {
	t.Helper()
	c.eu.pushed(c.h.a + ":refs/heads/main")
	c.us.follows(project)
	rounds := 3
	if testing.Short() {
		rounds = 2 // each site creates the longer name once
	} else if long() {
		rounds = 40
	}
	for n := range rounds {
		above := fmt.Sprintf("refs/heads/t%d", n)
		names := map[*server]string{c.eu: above, c.us: above + "/x"}
		if n%2 == 1 {
			names = map[*server]string{c.eu: above + "/x/y", c.us: above}
		}
		results := make(map[*server]func() push)
		for s, ref := range names {
			results[s] = s.startPush(c.h.a + ":" + ref)
		}
		var accepted []*server
		for s, result := range results {
			if p := result(); p.ok {
				accepted = append(accepted, s)
			} else if ref := names[s]; !strings.Contains(p.said, "git can't store it beside") && !strings.Contains(p.said+p.reason[ref], "refs/heads/t") {
				t.Errorf("the push of %s was refused without a word about the other: %+v", ref, p)
			}
		}
		if len(accepted) != 1 {
			t.Fatalf("%d of the two pushes were accepted, of %v", len(accepted), names)
		}
		c.settled()
		for s := range names {
			s.follows(project)
		}
		// The one that was refused replaces the other, at its own site, and then goes back at the other.
		winner := accepted[0]
		loser := winner.other()
		loser.pushed(":"+names[winner], c.h.b+":"+names[loser])
		winner.follows(project)
		winner.pushed(":"+names[loser], c.h.a+":"+names[winner])
		loser.follows(project)
	}
	for _, s := range []*server{c.eu, c.us} {
		s.must("site", "check")
	}
}

func TestARefWithAPartThatNoFileCanBeNamedAfterIsRefused(t *testing.T) {
	eachGit(t, func(t *testing.T, g *git) {
		c := newCluster(t, g, design{h: newHistory(t, g, "sha1", 2, 2), extra: storing})
		c.eu.pushed(c.h.a+":refs/heads/main", c.h.a+":refs/heads/"+strings.Repeat("é", 125)+"/x")
		c.us.follows(project)
		c.eu.refused("a part between slashes of 251 bytes", c.h.a+":refs/heads/x/"+strings.Repeat("y", 251))
	})
}

// Two names may exclude each other all the same, such as by a program that does not ask. What the sites say to do mends it.
func TestARefThatNoCopyCanPlaceIsNamedUntilTheAdviceIsFollowed(t *testing.T) {
	eachGit(t, func(t *testing.T, g *git) {
		c := newCluster(t, g, design{h: newHistory(t, g, "sha1", 2, 2), extra: storing})
		c.eu.pushed(c.h.a+":refs/heads/t", c.h.b+":refs/heads/main")
		c.us.follows(project)
		us := c.us.http()
		err := c.db.Update(t.Context(), project, []refdb.Update{{Ref: "refs/heads/t/x", New: refdb.Value(c.h.b)}})
		must(t, 0, err)
		const advice = "the database also holds refs/heads/t, and git can't hold both: delete one of the two with git push at a site that has it, or refs/heads/t with refdbctl "
		eventually(t, "the status names the ref", func() error {
			status, err := c.us.status()
			if err != nil {
				return err
			}
			for _, b := range status.Behind {
				if strings.Contains(b.Reason, "refs/heads/t/x: "+advice) {
					return nil
				}
			}
			return fmt.Errorf("%w: %+v", errBehind, status.Behind)
		})
		out, err := c.us.run("site", "check", "-o", "json")
		if err == nil || !strings.Contains(out, `"name-conflict"`) || strings.Contains(out, "global-missing-here") {
			t.Errorf("check: %v, %s", err, out)
		}
		if status, text := us.get("/" + project + ".git/info/refs?service=git-upload-pack"); status != 503 || !strings.Contains(text, "refs/heads/t/x") {
			t.Errorf("readers get %d: %s", status, text)
		}
		// The other pushes go on.
		c.us.pushed(c.h.a + ":refs/heads/other")
		_, command, _ := strings.Cut(out, advice)
		command, _, _ = strings.Cut(command, `"`)
		c.us.must(strings.Fields(command)...)
		c.eu.follows(project)
		c.us.follows(project)
		c.us.must("site", "check")
		if status, text := us.reads("/" + project + ".git/info/refs?service=git-upload-pack"); status != 200 || !strings.Contains(text, "refs/heads/t/x") {
			t.Errorf("readers get %d: %s", status, text)
		}
	})
}

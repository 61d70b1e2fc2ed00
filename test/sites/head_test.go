//go:build linux

package sites

import (
	"fmt"
	"strings"
	"testing"

	"github.com/globalrefdb/globalrefdb/site/head"
)

// pointsTo waits until HEAD at both sites and in the database is that branch, and both sites have recorded that they agree.
func (c *cluster) pointsTo(branch string) {
	c.Helper()
	eventually(c, "HEAD is "+branch, func() error {
		value, err := c.db.Get(c.Context(), project, "HEAD")
		if err != nil {
			return err
		}
		eu, err := c.g.try(c.eu.repo(project), "symbolic-ref", "HEAD")
		if err != nil {
			return err
		}
		us, err := c.g.try(c.us.repo(project), "symbolic-ref", "HEAD")
		if err != nil {
			return err
		}
		if string(value) != "ref: "+branch || eu != branch || us != branch {
			return fmt.Errorf("eu has %s, us %s, the database %q", eu, us, value)
		}
		for _, s := range []*server{c.eu, c.us} {
			agreed, err := head.ReadAgreed(s.repo(project))
			if err != nil || agreed != value {
				return fmt.Errorf("%s has agreed on %q, %v", s.name, agreed, err)
			}
		}
		return nil
	})
}

// A forge's button changes HEAD by git symbolic-ref.
func TestADefaultBranchThatOneSiteChangesIsThatOfAllSites(t *testing.T) {
	t.Parallel()
	all, err := gits()
	g := must(t, all, err)[0]
	c := newCluster(t, g, design{h: newHistory(t, g, files.objects, 1, 1), extra: storing})
	const main, trunk, later = "refs/heads/main", "refs/heads/trunk", "refs/heads/later"
	c.eu.pushed(c.h.a+":"+main, c.h.b+":"+trunk)
	c.us.follows(project)
	c.eu.git("symbolic-ref", "HEAD", trunk)
	c.pointsTo(trunk)
	c.us.git("symbolic-ref", "HEAD", main)
	c.pointsTo(main)
	if testing.Short() {
		return // the rest is in all tests: make test-all
	}

	// A branch that is not there yet.
	c.us.git("symbolic-ref", "HEAD", later)
	c.pointsTo(later)
	c.eu.pushed(c.h.a + ":" + later)
	c.us.follows(project)

	// While the daemon is down.
	c.eu.kill()
	c.eu.git("symbolic-ref", "HEAD", main)
	c.eu.start()
	c.pointsTo(main)

	// A detached HEAD is no other site's.
	c.eu.git("update-ref", "--no-deref", "HEAD", c.h.b)
	c.us.git("symbolic-ref", "HEAD", trunk)
	c.pointsTo(trunk)

	// A site that was cloned takes part.
	c.us.losesRepository(project)
	c.us.must("site", "clone", project)
	c.us.git("symbolic-ref", "HEAD", main)
	c.pointsTo(main)
}

// Two sites let HEAD point elsewhere before they hear of each other.
func TestOfTwoSitesThatChangeTheDefaultBranchOneWinsAndTheOtherFindsIt(t *testing.T) {
	t.Parallel()
	all, err := gits()
	g := must(t, all, err)[0]
	c := newCluster(t, g, design{h: newHistory(t, g, files.objects, 1, 1), extra: storing})
	const main, trunk, other, third = "refs/heads/main", "refs/heads/trunk", "refs/heads/other", "refs/heads/third"
	c.eu.pushed(c.h.a+":"+main, c.h.b+":"+trunk, c.h.a+":"+other)
	c.us.follows(project)
	c.pointsTo(main)
	c.us.kill()
	c.us.git("symbolic-ref", "HEAD", other)
	c.eu.git("symbolic-ref", "HEAD", trunk)
	eventually(t, "the database takes it over", func() error {
		if value, err := c.db.Get(t.Context(), project, "HEAD"); err != nil || value != "ref: "+trunk {
			return fmt.Errorf("%q, %w", value, err)
		}
		return nil
	})
	c.us.start()
	eventually(t, "us says that they differ", func() error {
		if !strings.Contains(c.us.daemon.out.String(), "HEAD here is not what the database says") {
			return errPending
		}
		return nil
	})
	finds := func(s *server, want bool) {
		t.Helper()
		if out, _ := s.run("site", "check"); strings.Contains(out, "head-differs") != want {
			t.Errorf("site check at %s: %s", s.name, out)
		}
	}
	finds(c.eu, false)
	finds(c.us, true)
	// What wins later elsewhere changes nothing about that.
	c.eu.git("symbolic-ref", "HEAD", third)
	eventually(t, "the database follows the site that has won", func() error {
		if value, err := c.db.Get(t.Context(), project, "HEAD"); err != nil || value != "ref: "+third {
			return fmt.Errorf("%q, %w", value, err)
		}
		return nil
	})
	finds(c.us, true)
	if got := c.us.git("symbolic-ref", "HEAD"); got != other {
		t.Errorf("HEAD of us moved to %s", got)
	}
	c.us.git("symbolic-ref", "HEAD", third)
	c.pointsTo(third)
	finds(c.us, false)
	c.us.git("symbolic-ref", "HEAD", other)
	c.pointsTo(other)
}

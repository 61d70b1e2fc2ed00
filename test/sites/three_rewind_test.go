//go:build linux

package sites

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
)

// A losable is a database that can go back in time. The functions are called in this order.
type losable struct {
	on    func(testing.TB) database
	keeps func()        // what the database has by now it will still have; clients go on
	lose  func(x *trio) // it goes back to that, or a little later
}

var losables = map[string]func(t *testing.T) losable{
	"a standby is promoted that lacks the last pushes": func(t *testing.T) losable {
		p := newStandbyPair(t)
		return losable{
			on: func(testing.TB) database { return p },
			keeps: func() {
				p.follow()
			},
			lose: func(x *trio) {
				x.pushesAtAll()
				p.way.Cut()
				x.pushesAtAll() // which the standby does not get
				p.crash()
				p.promote()
			},
		}
	},
	"an earlier copy of a SQLite file is put back": func(t *testing.T) losable {
		f := newSQLiteFile(t)
		return losable{
			on:    func(testing.TB) database { return f },
			keeps: func() { f.copyTo(t, f.path+".copy") },
			lose: func(x *trio) {
				x.pushesAtAll()
				x.replaces(func() database {
					f.putBack(t, f.path+".copy")
					return f
				})
			},
		}
	},
}

// The database of three sites goes back in time under the load and the faults of the run above, without the loss of a disk. After
// refdbctl recover, and new bases of the projects that it lists, each acknowledged push is where it was.
func TestThreeSitesGetBackWhatTheirDatabaseHasLost(t *testing.T) {
	size := trioSizeOf(t)
	for name, newLosable := range losables {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLosable(t)
			x := newTrioOn(t, size, l.on)
			x.run(func() {
				x.strikes(size.rewind/2, diskLost)
				l.keeps()
				l.lose(x)
				x.recovers()
				x.strikes(size.rewind/2, diskLost)
			})
			for l, err := range x.db.Recovery().LostChanges(t.Context(), true) {
				t.Logf("lost: %+v", l)
				if err != nil || l.Fate != driver.Rewritten && l.Fate != driver.Dropped {
					t.Errorf("lost: %+v, %v", l, err)
				}
			}
			x.check()
		})
	}
}

// pushesAtAll waits until each site whose daemon runs has acknowledged a push that begins now or later.
func (x *trio) pushesAtAll() {
	x.Helper()
	since := x.journal.now()
	for _, s := range x.served() {
		if err := s.again(func() error {
			if !x.journal.accepts(s.name, since) {
				return errPending
			}
			return nil
		}); err != nil {
			x.Fatalf("a push to %s: %v", s.name, err)
		}
	}
}

// recovers waits until all sites have found that the database went back, recovers it as an operator would, and stores new bases.
// If a site is silent nobody waits for it, and it may be the only one that has all objects of some projects: it returns these.
func (x *trio) recovers() (without []string) {
	x.Helper()
	eventually(x, "the halt", func() error {
		a, err := x.db.Recovery().Admission(x.Context())
		if err == nil && (!a.Halted || len(a.Waiting()) > 0) {
			err = fmt.Errorf("%+v", a)
		}
		return err
	})
	since := x.journal.now()
	for _, s := range x.served() {
		eventually(x, "a refusal of "+s.name, func() error {
			if !x.journal.refuses(s.name, since) && !x.journal.accepts(s.name, since) {
				return errPending
			}
			return nil
		})
	}
	for _, s := range x.sites {
		if x.journal.accepts(s.name, since) {
			x.Errorf("%s has acknowledged a push although the database has lost some", s.name)
		}
	}
	x.eu.must("recover", "--reason", "test", "-y")
	x.recovered = x.journal.now()
	var report struct {
		Lost []struct{ Project string }
	}
	if err := json.Unmarshal([]byte(x.eu.must("recover", "--status", "-o", "json")), &report); err != nil {
		x.Fatal(err)
	}
	var projects []string
	for _, l := range report.Lost {
		projects = append(projects, l.Project)
	}
	slices.Sort(projects)
	projects = slices.Compact(projects)
	projects = slices.DeleteFunc(projects, func(project string) bool { return !slices.Contains(x.projects, project) }) // sites' own
	without = x.compactsAll(projects)
	x.Logf("%d changes of %d projects were lost; of %d projects no site had all objects", len(report.Lost), len(projects), len(without))
	if x.silent == nil {
		x.shares(without)
		without = nil
	}
	return without
}

// compactsAll stores new bases of projects, each at the first site that can, and returns those of which no site has all objects.
func (x *trio) compactsAll(projects []string) (without []string) {
	x.Helper()
	for _, project := range projects {
		if x.compactAnywhere(project) != nil {
			without = append(without, project)
		}
	}
	return without
}

// shares stores new bases of projects of which no site has all objects: the sites get those of one another.
func (x *trio) shares(projects []string) {
	x.Helper()
	for _, project := range projects {
		eventually(x, "a base of "+project, func() error {
			var all sync.WaitGroup
			for _, to := range x.sites {
				all.Go(func() {
					for _, from := range x.sites {
						if from != to {
							_, _ = to.run(syncArgs(from.server, to.server, project)...) // it may lack what the third has
						}
					}
				})
			}
			all.Wait()
			return x.compactAnywhere(project)
		})
	}
}

// compactAnywhere stores a base of a project at the first site that can.
func (x *trio) compactAnywhere(project string) error {
	var all []error
	for _, s := range x.served() {
		_, err := s.run("site", "store", "compact", project)
		if err == nil {
			return nil
		}
		all = append(all, err)
	}
	return errors.Join(all...)
}

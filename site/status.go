package site

import (
	"cmp"
	"errors"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/globalrefdb/globalrefdb/site/client"
	"github.com/globalrefdb/globalrefdb/site/config"
	"github.com/globalrefdb/globalrefdb/site/presence"
	"github.com/globalrefdb/globalrefdb/site/readers"
	"github.com/globalrefdb/globalrefdb/site/wire"
)

// status returns what the daemon says about itself.
func (d *Daemon) status() client.Status {
	c := d.state.Config()
	s := client.Status{
		Site: c.Site, Version: d.o.Version, PID: os.Getpid(),
		Started: d.began.UTC(), Uptime: time.Since(d.began).Seconds(), SessionVersion: wire.SessionVersion, Stopping: d.state.Stopping(), Gerrit: d.gerrit.Status(),
		Pushes: d.hooks.Status(), Sessions: d.guards.Sessions(), Stuck: d.moving.Alarms.List(), Counters: d.state.Counts.Status(), Unguarded: []client.Unguarded{}, Malformed: []client.Malformed{}, Behind: d.behind(), Tasks: d.taskStatus(),
	}
	s.Counters.Followed, s.Counters.Unpacked, _ = d.follower.Stats()
	s.Readers = append(d.readers.Status(), d.guards.NeverRead(d.readers.Reads, readers.NeverReadFor)...)
	s.HooksError, _ = d.hookdir.State()
	s.RootGone = d.rootGone()
	if err := d.list.Writable(); err != nil {
		s.MovesError = err.Error()
	}
	for _, p := range d.projects.Unenforced() {
		u := d.logged.Of(p.Project.Project)
		u.Mode = p.Mode
		s.Unguarded = append(s.Unguarded, u)
	}
	switch err := d.state.Presence.Lost(); {
	case err != nil:
		s.PresenceError = err.Error()
	case !d.state.Inherited():
		s.PresenceError = "the daemon does not know yet what its predecessor left"
	default:
		s.Presence = true
	}
	if err := d.state.Health(); err == nil {
		s.Database = true
	} else {
		s.DatabaseError = err.Error()
	}
	if d.o.Journal != nil {
		if err := d.o.Journal.Failed(); err != nil {
			s.StateError = err.Error()
		}
	}
	if sites, known := d.witness.Unreachable(); known {
		s.Unreachable = []client.UnreachableSite{}
		for _, u := range sites {
			s.Unreachable = append(s.Unreachable, client.UnreachableSite{Site: u.Name, Seen: u.Seen()})
		}
	}
	malformed, _ := d.follower.Malformed()
	for _, m := range malformed {
		s.Malformed = append(s.Malformed, client.Malformed{Project: m.Project, Pack: m.Pack.ID, Owner: m.Pack.Owner, Objection: m.Objection, Age: time.Since(m.At).Seconds()})
	}
	s.PushMirrors = d.mirrors.Status()
	return s
}

// ready returns nil while the daemon serves pushes. The reason why it does not may have names in it: operators read it elsewhere.
func (d *Daemon) ready() error {
	switch {
	case d.state.Stopping():
		return errors.New("the daemon stops")
	case (d.state.Presence.Lost() != nil || !d.state.Inherited()) && d.state.Health() != nil:
		return errors.New("the daemon refuses pushes, as the database does not answer: run `refdbctl site status`")
	case d.state.Presence.Lost() != nil || !d.state.Inherited():
		return errors.New("the daemon refuses pushes: run `refdbctl site status`")
	}
	return nil
}

// behind returns the projects whose repositories are not what the database says, and why; it is not nil.
func (d *Daemon) behind() []client.Behind {
	all := []client.Behind{}
	for _, b := range d.follower.Failures() {
		all = append(all, client.Behind{Project: b.Project, Reason: b.Reason, Age: time.Since(b.Since).Seconds(), Pack: b.Pack})
	}
	all = append(all, d.lifecycle.Failures()...)
	for _, b := range d.lifecycle.Gone() {
		if !slices.ContainsFunc(all, func(a client.Behind) bool { return a.Project == b.Project }) {
			all = append(all, b)
		}
	}
	return all
}

// about returns what the daemon tells all sites about itself.
func (d *Daemon) about() presence.About {
	s := d.status()
	a := presence.About{Version: d.o.Version, Schema: d.o.Schema, Freezes: true, Store: cmp.Or(d.state.Config().NewProjectStore, config.StoreNone), Followed: d.follower.Followed(), Behind: len(s.Behind), Alarms: s.Alarms()}
	slices.SortFunc(s.Behind, func(x, y client.Behind) int {
		return cmp.Or(cmp.Compare(y.Age, x.Age), strings.Compare(x.Project, y.Project))
	})
	for _, b := range s.Behind {
		a.Projects = append(a.Projects, b.Project)
		a.BehindFor = max(a.BehindFor, b.Age)
	}
	return a
}

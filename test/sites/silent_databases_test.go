//go:build linux

package sites

import (
	"testing"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/test/dbtest"
)

// A phase is when a database that will go back may begin to lack what comes.
type phase int

const (
	atFirst       phase = iota
	whileAllServe       // after pushes at all sites
	whenSilent          // one site is silent, and awaited
	whenAway            // and nobody waits for it
)

// A replaceable is a database whose server can be replaced.
type replaceable struct {
	on      func(testing.TB) database
	loses   bool                   // what clients pushed last
	light   bool                   // the tables are not checked at the end, and no bases are made
	reaches func(x *trio, m phase) // nil if it has to do nothing
	replace func(x *trio)          // returns when the new server answers
}

// reach lets the database keep what it has by now, if that is the phase, and clients go on.
func (r replaceable) reach(x *trio, m phase) {
	x.Helper()
	if r.reaches != nil {
		r.reaches(x, m)
		x.pushesAtAll()
	}
}

// A silentRow is a way to replace the server.
type silentRow struct {
	name     string
	short    bool                                       // with -short, too
	checked  bool                                       // everything is checked at the end, but with -short; in long runs after each row's first round
	pausable bool                                       // also while the silent site's daemon stands still
	new      func(t *testing.T, number int) replaceable // the number says when copies are made
}

var silentRows = []silentRow{
	{"PostgreSQL is restarted", true, false, true, func(t *testing.T, _ int) replaceable {
		s := newPostgres(t)
		return replaceable{
			on:      func(testing.TB) database { return s },
			replace: func(*trio) { s.stopFast(); s.start() },
		}
	}},
	{"PostgreSQL is stopped at once, and started", false, false, true, func(t *testing.T, _ int) replaceable {
		s := newPostgres(t)
		return replaceable{
			on:      func(testing.TB) database { return s },
			replace: func(*trio) { s.again() },
		}
	}},
	{"a standby is promoted that lacks the last pushes", false, true, true, func(t *testing.T, number int) replaceable {
		p := newStandbyPair(t)
		ends := []phase{whileAllServe, whenSilent, whenAway}[number%3]
		return replaceable{
			on:    func(testing.TB) database { return p },
			loses: true,
			reaches: func(_ *trio, m phase) {
				if m == atFirst {
					p.follow()
				}
				if m == ends {
					p.way.Cut()
				}
			},
			replace: func(*trio) { p.crash(); p.promote() },
		}
	}},
	{"a copy of PostgreSQL's files from before the site's end is put back", false, false, true, func(t *testing.T, _ int) replaceable {
		return putBackAt(newPostgres(t), whileAllServe)
	}},
	{"a copy of PostgreSQL's files from after the site's end is put back", false, false, true, func(t *testing.T, number int) replaceable {
		return putBackAt(newPostgres(t), []phase{whenSilent, whenAway}[number%2])
	}},
	// The daemon of a site must not keep the old file open: it is not paused here.
	{"an earlier copy of a SQLite file is put back", false, true, false, func(t *testing.T, number int) replaceable {
		f := newSQLiteFile(t)
		copied := []phase{whileAllServe, whenSilent, whenAway}[number%3]
		return replaceable{
			on:    func(testing.TB) database { return f },
			loses: true,
			reaches: func(_ *trio, m phase) {
				if m == copied {
					f.copyTo(t, f.path+".copy")
				}
			},
			replace: func(x *trio) {
				x.replaces(func() database {
					f.putBack(t, f.path+".copy")
					return f
				})
			},
		}
	}},
	// A daemon would go on with the old database.
	{"a copy of a Spanner database takes its place", false, false, false, func(t *testing.T, number int) replaceable {
		copied := []phase{whileAllServe, whenSilent, whenAway}[number%3]
		var d, other *dbtest.Database
		return replaceable{
			on: func(t testing.TB) database {
				d = dbtest.Spanner(t)
				return d
			},
			loses: true,
			light: true,
			reaches: func(_ *trio, m phase) {
				if m == copied {
					other = dbtest.SpannerCopy(t, d)
				}
			},
			replace: func(x *trio) { x.replaces(func() database { return other }) },
		}
	}},
}

// putBackAt makes a copy of a server's files at that phase, which is put back.
func putBackAt(s *postgresServer, at phase) replaceable {
	return replaceable{
		on:    func(testing.TB) database { return s },
		loses: true,
		reaches: func(_ *trio, m phase) {
			if m == at {
				s.copyFiles()
			}
		},
		replace: func(*trio) {
			s.crash()
			s.putBack()
			s.start()
		},
	}
}

// stopFast stops the server as a service manager does.
func (s *postgresServer) stopFast() {
	s.t.Helper()
	if err := s.Run(s.t.Context(), "pg_ctl", "stop", "-D", s.DataDir(), "-m", "fast", "-w", "-t", "300"); err != nil {
		s.t.Fatal(err)
	}
	if err := s.Stop(); err != nil {
		s.t.Fatal(err)
	}
}

// replaces kills the daemons that run, replaces the database, and starts them again.
func (x *trio) replaces(replace func() database) {
	x.Helper()
	x.commands.Lock()
	defer x.commands.Unlock()
	for _, s := range x.served() {
		s.kill()
	}
	if err := x.db.Close(); err != nil {
		x.Fatal(err)
	}
	x.shared = replace()
	x.url = x.shared.URL()
	db, err := refdb.New(x.shared.Open(x), refdb.Options{Site: "bystander"})
	x.db = must(x.TB, db, err)
	x.Cleanup(func() { db.Close() })
	for _, s := range x.sites {
		s.db = x.url
		s.configure(x.extra)
	}
	for _, s := range x.served() {
		s.server.start()
	}
}

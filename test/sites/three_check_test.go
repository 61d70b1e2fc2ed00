//go:build linux

package sites

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/site/compare"
	"github.com/globalrefdb/globalrefdb/site/config"
)

// check lets the sites heal, and fails the test unless nothing is lost, and nothing is left.
func (x *trio) check() {
	x.Helper()
	j := x.journal
	x.Logf("%d pushes; refs: %v; the slowest push took %s", j.pushes, j.count, j.slowest.Round(time.Millisecond))
	x.Logf("refusals: %v", j.why)
	x.Logf("besides: %v; the last that failed: %q", j.jobs, x.failures)
	if j.acknowledged() < 10 {
		x.Error("too few pushes were acknowledged to prove anything")
	}
	began := time.Now()
	x.heals()
	x.Logf("healed within %s", time.Since(began).Round(time.Millisecond))
	for _, project := range x.projects {
		x.onLines(project)
	}
	x.everywhere("fsck", func(s *trioSite, project string) error {
		out, err := x.g.try(s.repo(project), "fsck", "--connectivity-only", "--no-dangling", "--no-progress")
		if err == nil && out != "" {
			err = errors.New(out)
		}
		return err
	})
	x.eachProject("verify", func(s *trioSite, project string) error {
		_, err := s.run("site", "store", "verify", project)
		return err
	})
	x.tables()
	x.eachProject("compact", func(s *trioSite, project string) error {
		_, err := s.run("site", "store", "compact", project)
		return err
	})
	x.eachProject("verify what was compacted", func(s *trioSite, project string) error {
		_, err := s.run("site", "store", "verify", project)
		return err
	})
	x.compacted()
	for _, s := range x.sites {
		s.stop()
		if left := processesIn(s.dir); len(left) > 0 {
			x.Errorf("processes of %s are left: %v", s.name, left)
		}
	}
	for l, err := range x.db.Locks(x.Context(), refdb.LockFilter{}) {
		if err != nil {
			x.Fatal(err)
		}
		x.Errorf("a lock is left when all daemons have ended: %+v", l)
	}
}

// heals waits until no site has anything to do.
func (x *trio) heals() {
	x.Helper()
	for began := time.Now(); ; time.Sleep(300 * time.Millisecond) {
		err := x.unhealed()
		if err == nil {
			return
		}
		if time.Since(began) > patience/10 {
			x.Logf("after %s: %v", time.Since(began).Round(time.Millisecond), err)
		}
		if time.Since(began) > patience {
			x.explain()
			x.Errorf("it does not heal within %s: %v", patience, err)
			return
		}
	}
}

// explain logs what the database and the sites know of each ref in which they differ.
func (x *trio) explain() {
	x.Helper()
	for _, project := range x.projects {
		global := x.global(project)
		for _, s := range x.sites {
			settled, _ := os.ReadFile(compare.SettledFile(s.repo(project)))
			for ref, value := range s.refs(project) {
				if value == global[ref] {
					continue
				}
				x.Logf("%s of %s is %s at %s, which settled", ref, project, value, s.name)
				for line := range strings.Lines(string(settled)) {
					if strings.HasSuffix(line, " "+ref+"\n") {
						x.Logf("  %s", line)
					}
				}
				for c, err := range x.db.History(x.Context(), project, ref) {
					x.Logf("  %+v, %v", c, err)
				}
				x.Logf("  pushed: %+v", x.journal.moves[target{project, ref}])
			}
		}
	}
}

// unhealed returns what is left to do.
func (x *trio) unhealed() error {
	for i, err := range x.db.Intents().All(x.Context(), driver.IntentFilter{}) {
		if err != nil {
			return err
		}
		return fmt.Errorf("pending: %s of %s: %s to %s by %s", i.Ref, i.Project, i.Old, i.New, i.Owner)
	}
	for l, err := range x.db.Locks(x.Context(), refdb.LockFilter{}) {
		if err != nil {
			return err
		}
		if l.Project != "refdb/sites" {
			return fmt.Errorf("locked: %+v", l)
		}
	}
	var all []error
	for _, s := range x.sites {
		status, err := s.status()
		if err == nil && (!status.OK() || len(status.Pushes) > 0 || len(status.Behind) > 0) {
			err = fmt.Errorf("%s: %+v", s.name, status)
		}
		all = append(all, err)
		_, repaired := s.run("site", "check", "--repair") // removes the lock files of what was killed
		if _, err = s.run("site", "check"); err != nil {
			all = append(all, repaired, err)
		}
		all = append(all, leftFiles(s.root))
	}
	for _, project := range x.projects {
		global := x.global(project)
		maps.DeleteFunc(global, func(ref, value string) bool { return ref == "HEAD" || strings.Trim(value, "0") == "" })
		for _, s := range x.sites {
			if got := s.refs(project); !maps.Equal(got, global) {
				all = append(all, fmt.Errorf("%s has not what the database has of %s: %v, not %v", s.name, project, got, global))
			}
		}
	}
	return errors.Join(all...)
}

// leftFiles returns an error if there are lock files, or repositories that were not finished.
func leftFiles(root string) error {
	return filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Name() == config.HooksDir {
			return fs.SkipDir
		}
		// A killed process may also leave a file that it was about to rename, which nobody reads.
		if err == nil && (strings.HasSuffix(path, ".lock") || d.IsDir() && strings.HasPrefix(d.Name(), config.Unfinished)) {
			err = fmt.Errorf("%s is left", path)
		}
		return err
	})
}

// onLines fails the test unless the values of each ref of a project form a line, by what the clients were told and by the history.
func (x *trio) onLines(project string) {
	x.Helper()
	type record struct{ at, end string }
	records := make(map[string]*record) // from the latest change back
	seen := make(map[target]map[string]bool)
	for c, err := range x.db.History(x.Context(), project, "") {
		if err != nil {
			x.Fatal(err)
		}
		r, at := records[c.Ref], target{project, c.Ref}
		if r == nil {
			r = &record{plainValue(c.New), plainValue(c.New)}
			records[c.Ref], seen[at] = r, make(map[string]bool)
		}
		if plainValue(c.New) != r.at {
			x.Errorf("%s of %s: a change ends with %.8q, and the next one begins with %.8q", c.Ref, project, plainValue(c.New), r.at)
		}
		r.at = plainValue(c.Old)
		seen[at][plainValue(c.New)] = true
	}
	global := x.global(project)
	for ref, r := range records {
		if now := plainValue(refdb.Value(global[ref])); r.at != "" || r.end != now {
			x.Errorf("the history of %s of %s begins with %.8q and ends with %.8q: it is %.8q", ref, project, r.at, r.end, now)
		}
	}
	for at, moves := range x.journal.moves {
		if at.project != project {
			continue
		}
		for _, m := range moves {
			if m.outcome == refused && x.doubtful[move{old: m.old, new: m.new}] {
				m.outcome = unknown
			}
			if m.outcome == acknowledged && !seen[at][m.new] {
				x.missing++
				x.Errorf("acknowledged, and not in the history of %s of %s: %v", at.ref, project, m)
			}
		}
		if err := findLine(moves, plainValue(refdb.Value(global[at.ref]))); err != nil {
			x.Errorf("%s of %s: %v\nall of its moves:\n\t%s", at.ref, project, err, x.journal.of(at))
		}
	}
}

// everywhere does something with each repository of each site.
func (x *trio) everywhere(what string, do func(s *trioSite, project string) error) {
	x.Helper()
	var all sync.WaitGroup
	for _, s := range x.sites {
		all.Go(func() {
			for _, project := range x.projects {
				if err := do(s, project); err != nil {
					x.Errorf("%s of %s at %s: %v", what, project, s.name, err)
				}
			}
		})
	}
	all.Wait()
}

// eachProject does something with each project, at one site after the other.
func (x *trio) eachProject(what string, do func(s *trioSite, project string) error) {
	x.Helper()
	for i, project := range x.projects {
		s := x.sites[i%len(x.sites)]
		if err := do(s, project); err != nil {
			x.Errorf("%s of %s at %s: %v", what, project, s.name, err)
		}
	}
}

// tables fails the test if a table has rows without a reason.
func (x *trio) tables() {
	x.Helper()
	usage, err := x.db.Packs().Usage(x.Context(), "")
	if err != nil {
		x.Fatal(err)
	}
	x.Logf("packs: %+v", usage)
	// A push makes one pack, or one more that leaves out more; a compaction makes one.
	if limit := 2*x.journal.pushes + x.bases; usage.Packs+usage.Unused > limit {
		x.Errorf("%d packs of %d pushes and %d bases", usage.Packs+usage.Unused, x.journal.pushes, x.bases)
	}
	for _, row := range []struct {
		what, sql string
		want      int64
	}{
		{"intents", `SELECT count(*) FROM intents WHERE decision = '' OR decision IS NULL`, 0},
		{"parts without a pack", `SELECT count(*) FROM pack_parts WHERE pack NOT IN (SELECT id FROM packs)`, 0},
		{"projects", `SELECT count(*) FROM projects`, int64(len(x.projects))},
	} {
		if got := x.count(row.sql); got != row.want {
			x.Errorf("%s: %d rows, not %d", row.what, got, row.want)
		}
	}
	// Nobody is about to use what nobody has used.
	if _, err := x.db.Packs().DropAbandoned(x.Context(), 0); err != nil {
		x.Error(err)
	}
}

// compacted fails the test unless the database has one pack of each project that has any, and nothing else.
func (x *trio) compacted() {
	x.Helper()
	usage, err := x.db.Packs().Usage(x.Context(), "")
	if err != nil || usage.Packs == 0 || usage.Packs > len(x.projects) || usage.Packs != usage.FullPacks || usage.Unused != 0 {
		x.Errorf("of %d projects: %+v, %v", len(x.projects), usage, err)
	}
	if parts, want := x.count(`SELECT count(*) FROM pack_parts`), x.count(`SELECT sum(parts) FROM packs`); parts != want {
		x.Errorf("%d parts of packs, not %d", parts, want)
	}
}

// count returns the number that a query returns.
func (x *trio) count(query string) (n int64) {
	x.Helper()
	ctx, cancel := context.WithTimeout(x.Context(), patience)
	defer cancel()
	var err error
	if path, ok := strings.CutPrefix(x.url, "sqlite:"); ok {
		var db *sql.DB
		if db, err = sql.Open("sqlite", "file:"+path+"?_pragma=busy_timeout(60000)"); err == nil {
			err = db.QueryRowContext(ctx, query).Scan(&n)
			db.Close()
		}
	} else {
		var conn *pgx.Conn
		if conn, err = pgx.Connect(ctx, x.url); err == nil {
			err = conn.QueryRow(ctx, query).Scan(&n)
			conn.Close(ctx)
		}
	}
	if err != nil {
		x.Fatalf("%s: %v", query, err)
	}
	return n
}

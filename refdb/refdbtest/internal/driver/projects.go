package driver

import (
	"context"
	"crypto/rand"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/refdbtest/internal/suite"
)

// A project's row holds its ID, its rules and its mode.
func projectRows() []row {
	return []row{
		{"a project is read as it was written", func(e *env) {
			if got := e.Projects(driver.ProjectQuery{Project: e.Project}); len(got) != 0 {
				e.Errorf("before: %+v", got)
			}
			before, err := e.A.Now(e.Context())
			e.Must(err)
			wrote := e.PutProject(e.A, e.ProjectRequest("ref refs/heads/*\nskipRef o'brien", 0))
			got := e.Projects(driver.ProjectQuery{Project: e.Project})
			if len(got) != 1 || !suite.SameProject(got[0], wrote) || wrote.Rules != "ref refs/heads/*\nskipRef o'brien" ||
				wrote.ID != "id" || wrote.Mode != "enforce" || wrote.Store != "all" || wrote.Revision <= 0 || wrote.Time.Before(before) || wrote.Time.After(before.Add(time.Hour)) {
				e.Errorf("wrote %+v, read %+v", wrote, got)
			}
			if len(got) == 1 && (got[0].Age < 0 || got[0].Age > time.Hour) {
				e.Errorf("age %s", got[0].Age)
			}
		}},
		{"a change replaces only the revision that it names", func(e *env) {
			first := e.PutProject(e.A, e.ProjectRequest("one", 0))
			second := e.PutProject(e.B, e.ProjectRequest("two", first.Revision))
			if second.Rules != "two" || second.Revision <= first.Revision {
				e.Errorf("%+v follows %+v", second, first)
			}
			for _, revision := range []int64{0, first.Revision, second.Revision + 1} {
				_, err := e.TryPutProject(e.A, e.ProjectRequest("three", revision))
				var changed *driver.ProjectChangedError
				if !errors.Is(err, driver.ErrMismatch) || !errors.As(err, &changed) || changed.Have != second.Revision || changed.Want != revision || changed.Project != e.Project {
					e.Errorf("over %d: %v", revision, err)
				}
			}
			if got := e.Projects(driver.ProjectQuery{Project: e.Project}); len(got) != 1 || !suite.SameProject(got[0], second) {
				e.Errorf("read %+v, want %+v", got, second)
			}
		}},
		{"a project that does not exist can't be changed", func(e *env) {
			_, err := e.TryPutProject(e.A, e.ProjectRequest("one", 1))
			var changed *driver.ProjectChangedError
			if !errors.As(err, &changed) || changed.Have != 0 {
				e.Errorf("%v", err)
			}
		}},
		{"P7 a write whose reply was lost is not made twice", func(e *env) {
			r := e.ProjectRequest("one", 0)
			first := e.PutProject(e.A, r)
			if again := e.PutProject(e.B, r); !suite.SameProject(first, again) {
				e.Errorf("%+v, and again %+v", first, again)
			}
			r = e.ProjectRequest("two", first.Revision)
			second := e.PutProject(e.A, r)
			if again := e.PutProject(e.B, r); !suite.SameProject(second, again) {
				e.Errorf("%+v, and again %+v", second, again)
			}
		}},
		{"changes since a revision include all projects, in order", func(e *env) {
			first := e.PutProject(e.A, e.ProjectRequest("one", 0))
			var want []driver.Project
			for _, name := range []string{"/z", "/a", "/m"} {
				r := e.ProjectRequest("one", 0)
				r.Project += name
				want = append(want, e.PutProject(e.B, r))
			}
			want = append(want, e.PutProject(e.A, e.ProjectRequest("two", first.Revision)))
			got := slices.DeleteFunc(e.Projects(driver.ProjectQuery{After: first.Revision}), func(p driver.Project) bool {
				return p.Project != e.Project && !slices.ContainsFunc(want, func(w driver.Project) bool { return w.Project == p.Project })
			})
			if !slices.EqualFunc(got, want, suite.SameProject) {
				e.Errorf("got %+v, want %+v", got, want)
			}
			page, err := e.A.Projects(e.Context(), driver.ProjectQuery{After: want[0].Revision - 1, Limit: 1})
			e.Must(err)
			if len(page) != 1 || !suite.SameProject(page[0], want[0]) {
				e.Errorf("a page of one: %+v", page)
			}
			if got := e.Projects(driver.ProjectQuery{Project: e.Project, After: want[3].Revision}); len(got) != 0 {
				e.Errorf("after the last: %+v", got)
			}
		}},
		{"a project does not include those below it", func(e *env) {
			r := e.ProjectRequest("one", 0)
			r.Project += "/below"
			e.PutProject(e.A, r)
			if got := e.Projects(driver.ProjectQuery{Project: e.Project}); len(got) != 0 {
				e.Errorf("got %+v", got)
			}
		}},
		{"concurrent writers get distinct revisions, and one of them writes each row", func(e *env) {
			const rounds, writers = 5, 4
			seen := map[int64]bool{}
			for range rounds {
				old := e.Projects(driver.ProjectQuery{Project: e.Project})
				var revision int64
				if len(old) > 0 {
					revision = old[0].Revision
				}
				var mu sync.Mutex
				var all sync.WaitGroup
				won := 0
				for i := range writers {
					all.Go(func() {
						p := []process{e.A, e.B}[i%2]
						mine, own := e.ProjectRequest("one", 0), e.ProjectRequest("two", revision)
						mine.Project += "/" + rand.Text()
						q, err := e.TryPutProject(p, mine)
						r, refused := e.TryPutProject(p, own)
						mu.Lock()
						defer mu.Unlock()
						if err != nil || seen[q.Revision] {
							e.Errorf("revision %d, %v", q.Revision, err)
						}
						if seen[q.Revision] = true; refused == nil {
							if won++; seen[r.Revision] {
								e.Errorf("revision %d twice", r.Revision)
							}
							seen[r.Revision] = true
						} else if !errors.Is(refused, driver.ErrMismatch) {
							e.Error(refused)
						}
					})
				}
				all.Wait()
				if won != 1 {
					e.Fatalf("%d writers changed revision %d", won, revision)
				}
			}
		}},
		{"a reader that repeatedly asks for later changes misses none", func(e *env) {
			const writers, most = 4, 500
			looks := min(50, max(10, e.Rounds()/2))
			last := e.PutProject(e.A, e.ProjectRequest("one", 0)).Revision
			wrote, looked, done := make(chan driver.Project, writers*most), make(chan struct{}), make(chan struct{})
			var all sync.WaitGroup
			for i := range writers {
				all.Go(func() {
					for n := 0; n < most; n++ {
						select {
						case <-looked:
							return
						default:
						}
						r := e.ProjectRequest("one", 0)
						r.Project += "/" + rand.Text()
						p, err := e.TryPutProject([]process{e.A, e.B}[i%2], r)
						if err != nil {
							e.Error(err)
						}
						wrote <- p
					}
				})
			}
			go func() { all.Wait(); close(done) }()
			seen := map[int64]bool{}
			look := func() (found bool) {
				for _, p := range e.Projects(driver.ProjectQuery{After: last}) {
					found, seen[p.Revision], last = true, true, p.Revision
				}
				return found
			}
			for n := 0; n < looks; {
				select {
				case <-done:
					n = looks
				default:
					if look() {
						n++
					}
				}
			}
			close(looked)
			<-done
			look()
			close(wrote)
			for p := range wrote {
				if !seen[p.Revision] {
					e.Errorf("revision %d was missed", p.Revision)
				}
			}
		}},
		{"an ended context is reported", func(e *env) {
			ctx, cancel := context.WithCancel(e.Context())
			cancel()
			if _, err := e.A.Projects(ctx, driver.ProjectQuery{Limit: 1}); !errors.Is(err, context.Canceled) {
				e.Errorf("read: %v", err)
			}
			if _, err := e.A.PutProject(ctx, e.ProjectRequest("one", 0)); !errors.Is(err, context.Canceled) {
				e.Errorf("write: %v", err)
			}
		}},
	}
}

// The audit is the list of what operators did.
func auditRows() []row {
	return []row{
		{"an entry is read as it was recorded, with the database's time", func(e *env) {
			before, err := e.A.Now(e.Context())
			e.Must(err)
			wrote := e.RecordEntry(e.A, "purge")
			got := e.Audit(driver.AuditQuery{Project: e.Project})
			if len(got) != 1 || !suite.SameEntry(got[0], wrote) || wrote.Time.Before(before) || wrote.Time.After(before.Add(time.Hour)) {
				e.Errorf("recorded %+v, read %+v", wrote, got)
			}
		}},
		{"an outcome is written once", func(e *env) {
			first, second := e.RecordEntry(e.A, "purge"), e.RecordEntry(e.A, "force")
			for _, outcome := range []string{"done", "failed"} {
				if there, err := e.B.Conclude(e.Context(), first.Cursor(), outcome); err != nil || !there {
					e.Errorf("%s: %t, %v", outcome, there, err)
				}
			}
			got := e.Audit(driver.AuditQuery{Project: e.Project})
			if len(got) != 2 || got[0].Outcome != "done" || got[0].Ended.Before(got[0].Time) || !suite.SameEntry(got[1], second) {
				e.Errorf("got %+v", got)
			}
		}},
		{"a missing entry has no outcome", func(e *env) {
			entry := e.RecordEntry(e.A, "purge")
			for _, c := range []driver.AuditCursor{{Time: entry.Time, ID: "other"}, {Time: entry.Time.Add(time.Microsecond), ID: entry.ID}} {
				if there, err := e.A.Conclude(e.Context(), c, "done"); err != nil || there {
					e.Errorf("%+v: %t, %v", c, there, err)
				}
			}
			if got := e.Audit(driver.AuditQuery{Project: e.Project}); len(got) != 1 || !suite.SameEntry(got[0], entry) {
				e.Errorf("got %+v", got)
			}
		}},
		{"entries are listed by project, since a time, in pages", func(e *env) {
			var want []driver.AuditEntry
			for range 5 {
				want = append(want, e.RecordEntry(e.A, "purge"))
			}
			slices.SortFunc(want, func(a, b driver.AuditEntry) int { return a.Time.Compare(b.Time) })
			_, err := e.A.Record(e.Context(), driver.AuditEntry{ID: rand.Text(), Project: e.Project + "/below", Action: "purge"})
			e.Must(err)
			if got := e.Audit(driver.AuditQuery{Project: e.Project}); !slices.EqualFunc(got, want, suite.SameEntry) {
				e.Errorf("all: %+v, want %+v", got, want)
			}
			if got := e.Audit(driver.AuditQuery{Project: e.Project, Since: want[2].Time}); !slices.EqualFunc(got, want[2:], suite.SameEntry) {
				e.Errorf("since the third: %+v, want %+v", got, want[2:])
			}
			var paged []driver.AuditEntry
			for q := (driver.AuditQuery{Project: e.Project, Limit: 2}); len(paged) <= len(want); {
				page, err := e.B.Audit(e.Context(), q)
				e.Must(err)
				paged = append(paged, page.Entries...)
				if q.After = page.Next; q.After == (driver.AuditCursor{}) {
					break
				}
			}
			if !slices.EqualFunc(paged, want, suite.SameEntry) {
				e.Errorf("in pages: %+v, want %+v", paged, want)
			}
		}},
	}
}

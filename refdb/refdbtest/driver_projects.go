package refdbtest

import (
	"context"
	"crypto/rand"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
)

// A project's row holds its ID, its rules and its mode.
func projectRows() []row {
	return []row{
		{"a project is as it was written", func(e *env) {
			if got := e.projects(refdb.ProjectQuery{Project: e.project}); len(got) != 0 {
				e.Errorf("before: %+v", got)
			}
			before, err := e.a.Now(e.Context())
			e.must(err)
			wrote := e.putProject(e.a, e.projectRequest("ref refs/heads/*\nskipRef o'brien", 0))
			got := e.projects(refdb.ProjectQuery{Project: e.project})
			if len(got) != 1 || !sameProject(got[0], wrote) || wrote.Rules != "ref refs/heads/*\nskipRef o'brien" ||
				wrote.ID != "id" || wrote.Mode != "enforce" || wrote.Store != "all" || wrote.Revision <= 0 || wrote.Time.Before(before) || wrote.Time.After(before.Add(time.Minute)) {
				e.Errorf("wrote %+v, read %+v", wrote, got)
			}
			if len(got) == 1 && (got[0].Age < 0 || got[0].Age > time.Minute) {
				e.Errorf("age %s", got[0].Age)
			}
		}},
		{"a change is written over the revision that it names", func(e *env) {
			first := e.putProject(e.a, e.projectRequest("one", 0))
			second := e.putProject(e.b, e.projectRequest("two", first.Revision))
			if second.Rules != "two" || second.Revision <= first.Revision {
				e.Errorf("%+v follows %+v", second, first)
			}
			for _, revision := range []int64{0, first.Revision, second.Revision + 1} {
				_, err := e.tryPutProject(e.a, e.projectRequest("three", revision))
				var changed *refdb.ProjectChangedError
				if !errors.Is(err, refdb.ErrMismatch) || !errors.As(err, &changed) || changed.Have != second.Revision || changed.Want != revision || changed.Project != e.project {
					e.Errorf("over %d: %v", revision, err)
				}
			}
			if got := e.projects(refdb.ProjectQuery{Project: e.project}); len(got) != 1 || !sameProject(got[0], second) {
				e.Errorf("read %+v, want %+v", got, second)
			}
		}},
		{"a project that is not there can't be changed", func(e *env) {
			_, err := e.tryPutProject(e.a, e.projectRequest("one", 1))
			var changed *refdb.ProjectChangedError
			if !errors.As(err, &changed) || changed.Have != 0 {
				e.Errorf("%v", err)
			}
		}},
		{"P7 a write whose reply was lost is not made twice", func(e *env) {
			r := e.projectRequest("one", 0)
			first := e.putProject(e.a, r)
			if again := e.putProject(e.b, r); !sameProject(first, again) {
				e.Errorf("%+v, and again %+v", first, again)
			}
			r = e.projectRequest("two", first.Revision)
			second := e.putProject(e.a, r)
			if again := e.putProject(e.b, r); !sameProject(second, again) {
				e.Errorf("%+v, and again %+v", second, again)
			}
		}},
		{"changes since a revision are those of all projects, in their order", func(e *env) {
			first := e.putProject(e.a, e.projectRequest("one", 0))
			var want []refdb.Project
			for _, name := range []string{"/z", "/a", "/m"} {
				r := e.projectRequest("one", 0)
				r.Project += name
				want = append(want, e.putProject(e.b, r))
			}
			want = append(want, e.putProject(e.a, e.projectRequest("two", first.Revision)))
			got := slices.DeleteFunc(e.projects(refdb.ProjectQuery{After: first.Revision}), func(p refdb.Project) bool {
				return p.Project != e.project && !slices.ContainsFunc(want, func(w refdb.Project) bool { return w.Project == p.Project })
			})
			if !slices.EqualFunc(got, want, sameProject) {
				e.Errorf("got %+v, want %+v", got, want)
			}
			page, err := e.a.Projects(e.Context(), refdb.ProjectQuery{After: want[0].Revision - 1, Limit: 1})
			e.must(err)
			if len(page) != 1 || !sameProject(page[0], want[0]) {
				e.Errorf("a page of one: %+v", page)
			}
			if got := e.projects(refdb.ProjectQuery{Project: e.project, After: want[3].Revision}); len(got) != 0 {
				e.Errorf("after the last: %+v", got)
			}
		}},
		{"one project is not those below it", func(e *env) {
			r := e.projectRequest("one", 0)
			r.Project += "/below"
			e.putProject(e.a, r)
			if got := e.projects(refdb.ProjectQuery{Project: e.project}); len(got) != 0 {
				e.Errorf("got %+v", got)
			}
		}},
		{"writers at once get revisions of their own, and one of them each row", func(e *env) {
			const rounds, writers = 5, 4
			seen := map[int64]bool{}
			for range rounds {
				old := e.projects(refdb.ProjectQuery{Project: e.project})
				var revision int64
				if len(old) > 0 {
					revision = old[0].Revision
				}
				var mu sync.Mutex
				var all sync.WaitGroup
				won := 0
				for i := range writers {
					all.Go(func() {
						p := []process{e.a, e.b}[i%2]
						mine, own := e.projectRequest("one", 0), e.projectRequest("two", revision)
						mine.Project += "/" + rand.Text()
						q, err := e.tryPutProject(p, mine)
						r, refused := e.tryPutProject(p, own)
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
						} else if !errors.Is(refused, refdb.ErrMismatch) {
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
		{"whoever asks again and again for what came after the last change misses none", func(e *env) {
			const writers, looks, most = 4, 50, 500
			last := e.putProject(e.a, e.projectRequest("one", 0)).Revision
			wrote, looked, done := make(chan refdb.Project, writers*most), make(chan struct{}), make(chan struct{})
			var all sync.WaitGroup
			for i := range writers {
				all.Go(func() {
					for n := 0; n < most; n++ {
						select {
						case <-looked:
							return
						default:
						}
						r := e.projectRequest("one", 0)
						r.Project += "/" + rand.Text()
						p, err := e.tryPutProject([]process{e.a, e.b}[i%2], r)
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
				for _, p := range e.projects(refdb.ProjectQuery{After: last}) {
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
		{"an ended context is told", func(e *env) {
			ctx, cancel := context.WithCancel(e.Context())
			cancel()
			if _, err := e.a.Projects(ctx, refdb.ProjectQuery{Limit: 1}); !errors.Is(err, context.Canceled) {
				e.Errorf("read: %v", err)
			}
			if _, err := e.a.PutProject(ctx, e.projectRequest("one", 0)); !errors.Is(err, context.Canceled) {
				e.Errorf("write: %v", err)
			}
		}},
	}
}

// projectRequest writes the row's own project, as an operation of its own.
func (e *env) projectRequest(rules string, revision int64) refdb.ProjectRequest {
	return refdb.ProjectRequest{Project: e.project, ID: "id", Rules: rules, Mode: "enforce", Store: "all", Revision: revision, Op: rand.Text()}
}

func (e *env) tryPutProject(p process, r refdb.ProjectRequest) (got refdb.Project, err error) {
	err = retry(func() (err error) {
		got, err = p.PutProject(e.Context(), r)
		return err
	})
	return got, err
}

func (e *env) putProject(p process, r refdb.ProjectRequest) refdb.Project {
	e.Helper()
	got, err := e.tryPutProject(p, r)
	e.must(err)
	return got
}

func (e *env) projects(q refdb.ProjectQuery) []refdb.Project {
	e.Helper()
	q.Limit = 1000
	got, err := e.b.Projects(e.Context(), q)
	e.must(err)
	return got
}

// sameProject compares everything except the age.
func sameProject(a, b refdb.Project) bool {
	sameTime := a.Time.Equal(b.Time)
	a.Time, a.Age, b.Time, b.Age = time.Time{}, 0, time.Time{}, 0
	return sameTime && a == b
}

// The audit is the list of what operators did.
func auditRows() []row {
	return []row{
		{"an entry is as it was recorded, with the database's time", func(e *env) {
			before, err := e.a.Now(e.Context())
			e.must(err)
			wrote := e.recordEntry(e.a, "purge")
			got := e.audit(refdb.AuditQuery{Project: e.project})
			if len(got) != 1 || !sameEntry(got[0], wrote) || wrote.Time.Before(before) || wrote.Time.After(before.Add(time.Minute)) {
				e.Errorf("recorded %+v, read %+v", wrote, got)
			}
		}},
		{"an outcome is written once", func(e *env) {
			first, second := e.recordEntry(e.a, "purge"), e.recordEntry(e.a, "force")
			for _, outcome := range []string{"done", "failed"} {
				if there, err := e.b.Conclude(e.Context(), first.Cursor(), outcome); err != nil || !there {
					e.Errorf("%s: %t, %v", outcome, there, err)
				}
			}
			got := e.audit(refdb.AuditQuery{Project: e.project})
			if len(got) != 2 || got[0].Outcome != "done" || got[0].Ended.Before(got[0].Time) || !sameEntry(got[1], second) {
				e.Errorf("got %+v", got)
			}
		}},
		{"what is not there has no outcome", func(e *env) {
			entry := e.recordEntry(e.a, "purge")
			for _, c := range []refdb.AuditCursor{{Time: entry.Time, ID: "other"}, {Time: entry.Time.Add(time.Microsecond), ID: entry.ID}} {
				if there, err := e.a.Conclude(e.Context(), c, "done"); err != nil || there {
					e.Errorf("%+v: %t, %v", c, there, err)
				}
			}
			if got := e.audit(refdb.AuditQuery{Project: e.project}); len(got) != 1 || !sameEntry(got[0], entry) {
				e.Errorf("got %+v", got)
			}
		}},
		{"entries are listed by project, from a time on, in pages", func(e *env) {
			var want []refdb.AuditEntry
			for range 5 {
				want = append(want, e.recordEntry(e.a, "purge"))
			}
			slices.SortFunc(want, func(a, b refdb.AuditEntry) int { return a.Time.Compare(b.Time) })
			_, err := e.a.Record(e.Context(), refdb.AuditEntry{ID: rand.Text(), Project: e.project + "/below", Action: "purge"})
			e.must(err)
			if got := e.audit(refdb.AuditQuery{Project: e.project}); !slices.EqualFunc(got, want, sameEntry) {
				e.Errorf("all: %+v, want %+v", got, want)
			}
			if got := e.audit(refdb.AuditQuery{Project: e.project, Since: want[2].Time}); !slices.EqualFunc(got, want[2:], sameEntry) {
				e.Errorf("since the third: %+v, want %+v", got, want[2:])
			}
			var paged []refdb.AuditEntry
			for q := (refdb.AuditQuery{Project: e.project, Limit: 2}); len(paged) <= len(want); {
				page, err := e.b.Audit(e.Context(), q)
				e.must(err)
				paged = append(paged, page.Entries...)
				if q.After = page.Next; q.After == (refdb.AuditCursor{}) {
					break
				}
			}
			if !slices.EqualFunc(paged, want, sameEntry) {
				e.Errorf("in pages: %+v, want %+v", paged, want)
			}
		}},
	}
}

// recordEntry records an entry whose ID sorts before those of earlier entries.
func (e *env) recordEntry(p process, action string) refdb.AuditEntry {
	e.Helper()
	n := 9 - len(e.audit(refdb.AuditQuery{Project: e.project}))
	entry := refdb.AuditEntry{
		Time: time.Unix(1, 0), ID: string(rune('0'+n)) + rand.Text(), Who: "o'brien@host", Origin: "192.0.2.1", Action: action,
		Project: e.project, Detail: "refs/heads/main", Reason: "broke",
	}
	e.must(retry(func() (err error) {
		entry.Time, err = p.Record(e.Context(), entry)
		return err
	}))
	return entry
}

func (e *env) audit(q refdb.AuditQuery) []refdb.AuditEntry {
	e.Helper()
	if q.Limit == 0 {
		q.Limit = 1000
	}
	page, err := e.b.Audit(e.Context(), q)
	e.must(err)
	return page.Entries
}

func sameEntry(a, b refdb.AuditEntry) bool {
	same := a.Time.Equal(b.Time) && a.Ended.Equal(b.Ended)
	a.Time, a.Ended, b.Time, b.Ended = time.Time{}, time.Time{}, time.Time{}, time.Time{}
	return same && a == b
}

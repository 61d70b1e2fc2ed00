package spanner_test

import (
	"testing"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/test/dbtest"
)

// TestRoundTrips has the requests of pushes and locks. These requests come between them: each step
// continues from the state that the steps before it have left.
func TestRoundTripsOfProjectsPacksAndAdmission(t *testing.T) {
	t.Parallel()
	const query, commit, read, begin = "ExecuteStreamingSql", "Commit", "StreamingRead", "BeginTransaction"
	ctx := t.Context()
	w := &wire{}
	d := openWire(t, dbtest.Spanner(t), w)
	var entry driver.AuditCursor
	var server string
	known := driver.Known{Project: project, Ref: branch, New: v1, Op: "op", Owner: owner, At: time.Now()}
	lost := func(op string) driver.Known { k := known; k.Op = op; return k }
	report := func(r driver.Report) error {
		r.Owner, r.Server = owner, server
		_, err := d.Report(ctx, r)
		return err
	}
	recover := func() error {
		_, err := d.Recover(ctx, driver.RecoverRequest{Epoch: "epoch", By: "me", Reason: "why", Limit: 10})
		return err
	}
	full := partOf("full", 0, 1)
	full.Pack.Full = true
	full.Pack.Position = 1
	for _, step := range []struct {
		name string
		do   func() error
		want []string
	}{
		{"counting projects", func() error { _, err := d.Summaries(ctx, driver.SummaryQuery{Limit: 10}); return err }, []string{begin, query, query}},
		{"reading projects", func() error { _, err := d.Projects(ctx, driver.ProjectQuery{Limit: 10}); return err }, []string{query}},
		{"writing a project", func() error {
			_, err := d.PutProject(ctx, driver.ProjectRequest{Project: project, ID: "id", Rules: "r", Mode: "log", Op: "1"})
			return err
		}, []string{query, query, commit}},
		{"recording an action", func() error {
			at, err := d.Record(ctx, driver.AuditEntry{ID: "id", Who: "me", Action: "purge"})
			entry = driver.AuditCursor{Time: at, ID: "id"}
			return err
		}, []string{begin, commit}},
		{"recording its outcome", func() error { _, err := d.Conclude(ctx, entry, "done"); return err }, []string{query, commit}},
		{"recording it again", func() error { _, err := d.Conclude(ctx, entry, "done"); return err }, []string{query, commit}},
		{"listing the audit", func() error { _, err := d.Audit(ctx, driver.AuditQuery{Limit: 10}); return err }, []string{query}},
		{"reading the state of the history", func() error { _, err := d.HistoryState(ctx); return err }, []string{query}},
		{"writing a follower", func() error { return d.PutFollower(ctx, driver.Follower{Name: "f", Cursor: "c", Read: 1}) }, []string{begin, commit}},
		{"listing followers", func() error { _, err := d.Followers(ctx); return err }, []string{query}},
		{"removing a follower", func() error { _, err := d.RemoveFollower(ctx, "f"); return err }, []string{query, commit}},
		{"storing the first part of a pack", func() error { return d.StorePart(ctx, partOf("a", 0, 2)) }, []string{query, commit}},
		{"storing the last part", func() error { return d.StorePart(ctx, partOf("a", 1, 2)) }, []string{query, commit}},
		{"using it and a pack in the request", func() error {
			r := using("n", "a", "b")
			r.Parts = []driver.PackPart{partOf("b", 0, 1)}
			_, err := d.Prepare(ctx, r)
			return err
		}, []string{query, commit}},
		{"listing packs", func() error { _, err := d.Packs(ctx, driver.PackQuery{Project: project, Limit: 10}); return err }, []string{query}},
		{"listing packs with data", func() error {
			_, err := d.Packs(ctx, driver.PackQuery{Project: project, Limit: 10, Inline: 100})
			return err
		}, []string{query, read}},
		{"reading a part", func() error { _, err := d.PackPart(ctx, "a", 0); return err }, []string{query}},
		{"counting packs", func() error { _, err := d.PackUsage(ctx, project); return err }, []string{query}},
		{"dropping a pack", func() error { return d.DropPack(ctx, "none") }, []string{query, commit}},
		{"dropping abandoned packs", func() error { _, err := d.DropAbandonedPacks(ctx, time.Hour, 10); return err }, []string{query}},
		{"storing a base", func() error { return d.StorePart(ctx, full) }, []string{query, commit}},
		{"dropping superseded packs", func() error { _, err := d.DropSupersededPacks(ctx, project, 10); return err }, []string{query}},
		{"removing packs", func() error { _, err := d.RemovePacks(ctx, project, 10); return err }, []string{query, query, commit}},
		{"reading the admission", func() error {
			a, err := d.Admission(ctx)
			server = a.Server
			return err
		}, []string{begin, query, query, query}},
		{"looking for no changes", func() error { _, err := d.Look(ctx, "eu-1", nil); return err }, nil},
		{"looking for a change", func() error { _, err := d.Look(ctx, "eu-1", []driver.Known{known}); return err }, []string{begin, query, query}},
		{"an empty report", func() error { return report(driver.Report{Witness: "eu-1"}) }, []string{query, query, query, commit}},
		{"a report of lost changes", func() error {
			return report(driver.Report{Witness: "eu-1", Missing: []driver.Known{lost("x"), lost("y")}})
		}, []string{query, query, query, query, query, query, commit}},
		{"the same report again", func() error {
			return report(driver.Report{Witness: "eu-1", Missing: []driver.Known{lost("x"), lost("y")}})
		}, []string{query, query, query, query, query, query, commit}},
		{"listing lost changes", func() error { _, err := d.LostChanges(ctx, driver.LostQuery{Limit: 10}); return err }, []string{query}},
		{"a step of a recovery", recover, []string{query, query, query, query, query, query, commit}},
		{"the next step", recover, []string{query, query, query, commit}},
		{"a step after the last", recover, []string{query, query, query, commit}},
	} {
		w.take()
		must(t, step.do())
		wantCalls(t, step.name, w.take(), step.want...)
	}
}

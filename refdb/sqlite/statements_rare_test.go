package sqlite_test

import (
	"strings"
	"testing"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
)

// These requests come between those of pushes and locks: each step continues from the state that
// the steps before it have left. A write is at least BEGIN, the check of the admitted file, and
// COMMIT.
func TestStatementsOfIntentsProjectsPacksAndAdmission(t *testing.T) {
	d, _ := open(t)
	statements := recordStatements(d)
	ctx := t.Context()
	const main, other = "refs/heads/main", "refs/heads/other"
	var p driver.Prepared
	preparing := func(nonce string) driver.PrepareRequest {
		r := preparation(driver.Update{Ref: main, New: v1}, driver.Update{Ref: other, New: v1})
		r.Nonce = nonce
		return r
	}
	prepare := func(r driver.PrepareRequest) (err error) {
		p, err = d.Prepare(ctx, r)
		return err
	}
	intents := func() []driver.LockID {
		return []driver.LockID{{Project: project, Ref: main, Owner: owner, Token: p.Token}, {Project: project, Ref: other, Owner: owner, Token: p.Token}}
	}
	resolve := func(decision driver.Decision) error {
		_, err := d.Resolve(ctx, driver.ResolveRequest{Intents: intents(), Decision: decision, Reason: "why", Origin: driver.Origin{By: "me"}})
		return err
	}
	part := func(id string, number, parts int, full bool) driver.PackPart {
		return driver.PackPart{Number: number, Data: []byte{1}, Last: number == parts-1, Pack: driver.Pack{
			ID: id, Project: project, Owner: owner, Tips: []string{string(v1)}, Full: full, Position: 1 << 40, Size: int64(parts), Sum: "sum",
		}}
	}
	using := preparing("uses")
	using.Packs, using.Parts = []string{"a", "b"}, []driver.PackPart{part("b", 0, 1, false)}
	var entry driver.AuditCursor
	var server string
	lost := func(op string) driver.Known {
		return driver.Known{Project: project, Ref: "refs/heads/lost", New: v1, Op: op, Owner: owner, At: time.Now()}
	}
	report := func(missing ...driver.Known) error {
		_, err := d.Report(ctx, driver.Report{Witness: "eu-1", Owner: owner, Server: server, Missing: missing})
		return err
	}
	recover := func() error {
		_, err := d.Recover(ctx, driver.RecoverRequest{Epoch: "epoch", By: "me", Reason: "why", Limit: 10})
		return err
	}
	for _, step := range []struct {
		name string
		want int
		do   func() error
	}{
		{"Prepare", 11, func() error { return prepare(preparing("n")) }},
		{"Revoke", 9, func() error { return d.Revoke(ctx, preparing("n")) }},
		{"Prepare for KeepOld", 11, func() error { return prepare(preparing("n2")) }},
		{"Resolve, KeepOld", 7, func() error { return resolve(driver.KeepOld) }},
		{"Forget", 5, func() error { return d.Forget(ctx, intents()) }},
		{"Prepare for TakeNew", 11, func() error { return prepare(preparing("n3")) }},
		{"Resolve, TakeNew", 9, func() error { return resolve(driver.TakeNew) }},
		{"Summaries", 1, func() error { _, err := d.Summaries(ctx, driver.SummaryQuery{Limit: 10}); return err }},
		{"Remove", 7, func() error { _, err := d.Remove(ctx, driver.RemoveRequest{Project: project, Limit: 10}); return err }},
		{"Projects", 3, func() error { _, err := d.Projects(ctx, driver.ProjectQuery{Limit: 10}); return err }},
		{"PutProject", 6, func() error {
			_, err := d.PutProject(ctx, driver.ProjectRequest{Project: project, ID: "id", Rules: "r", Mode: "log", Op: "1"})
			return err
		}},
		{"Record", 3, func() error {
			at, err := d.Record(ctx, driver.AuditEntry{ID: "id", Who: "me", Action: "purge"})
			entry = driver.AuditCursor{Time: at, ID: "id"}
			return err
		}},
		{"Conclude", 3, func() error { _, err := d.Conclude(ctx, entry, "done"); return err }},
		{"Audit", 1, func() error { _, err := d.Audit(ctx, driver.AuditQuery{Limit: 10}); return err }},
		{"HistoryState", 4, func() error { _, err := d.HistoryState(ctx); return err }},
		{"PutFollower", 3, func() error { return d.PutFollower(ctx, driver.Follower{Name: "f", Cursor: "c", Read: 1}) }},
		{"Followers", 1, func() error { _, err := d.Followers(ctx); return err }},
		{"RemoveFollower", 3, func() error { _, err := d.RemoveFollower(ctx, "f"); return err }},
		{"StorePart", 7, func() error { return d.StorePart(ctx, part("a", 0, 2, false)) }},
		{"StorePart, the last", 6, func() error { return d.StorePart(ctx, part("a", 1, 2, false)) }},
		{"Prepare with packs", 18, func() error { return prepare(using) }},
		{"Packs", 4, func() error { _, err := d.Packs(ctx, driver.PackQuery{Project: project, Limit: 10}); return err }},
		{"Packs with data", 5, func() error {
			_, err := d.Packs(ctx, driver.PackQuery{Project: project, Limit: 10, Inline: 100})
			return err
		}},
		{"PackPart", 1, func() error { _, err := d.PackPart(ctx, "a", 0); return err }},
		{"PackUsage", 1, func() error { _, err := d.PackUsage(ctx, project); return err }},
		{"DropPack", 4, func() error { return d.DropPack(ctx, "none") }},
		{"DropAbandonedPacks", 4, func() error { _, err := d.DropAbandonedPacks(ctx, time.Hour, 10); return err }},
		{"StorePart of a base", 7, func() error { return d.StorePart(ctx, part("base", 0, 1, true)) }},
		{"DropSupersededPacks", 6, func() error { _, err := d.DropSupersededPacks(ctx, project, 10); return err }},
		{"RemovePacks", 6, func() error { _, err := d.RemovePacks(ctx, project, 10); return err }},
		{"Admission", 5, func() error {
			a, err := d.Admission(ctx)
			server = a.Server
			return err
		}},
		{"Look", 4, func() error { _, err := d.Look(ctx, "eu-1", []driver.Known{lost("x")}); return err }},
		{"Report of nothing", 10, func() error { return report() }},
		{"Report of two lost changes", 13, func() error { return report(lost("x"), lost("y")) }},
		{"Report of the same", 12, func() error { return report(lost("x"), lost("y")) }},
		{"LostChanges", 1, func() error { _, err := d.LostChanges(ctx, driver.LostQuery{Limit: 10}); return err }},
		{"Recover", 10, recover},
		{"Recover, the next step", 17, recover},
		{"Recover, after the last", 5, recover},
	} {
		statements() // drops the statements of the step before
		if err := step.do(); err != nil {
			t.Fatalf("%s: %v", step.name, err)
		}
		ran := statements()
		if got := len(ran); got != step.want {
			t.Errorf("%s: %d statements, want %d:\n%.3000s", step.name, got, step.want, strings.Join(ran, "\n"))
		}
	}
}

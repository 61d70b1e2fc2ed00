package linearizability_test

import (
	"testing"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/test/linearizability"
)

const (
	ref    = "refs/heads/main"
	v1     = refdb.Value("1111111111111111111111111111111111111111")
	v2     = refdb.Value("2222222222222222222222222222222222222222")
	stale  = time.Second
	longer = 2 * stale
)

// A past is a history that is told call by call, each taking a millisecond
// and starting a millisecond after the one before.
type past struct {
	now time.Duration
	ops []linearizability.Op
}

func (p *past) call(owner string, in linearizability.Input, out linearizability.Output) {
	in.Project = "p"
	p.ops = append(p.ops, linearizability.Op{Owner: owner, ID: len(p.ops), Input: in, Output: out,
		Call: int64(p.now), Return: int64(p.now + time.Millisecond)})
	p.now += 2 * time.Millisecond
}

// dies has the last call never return.
func (p *past) dies() {
	op := &p.ops[len(p.ops)-1]
	op.Return, op.Output = linearizability.Never, linearizability.Output{Result: linearizability.Unknown, Unresolved: true}
}

func (p *past) wait(d time.Duration) { p.now += d }

func (p *past) get(v refdb.Value) {
	out := linearizability.Output{Result: linearizability.Done, Values: map[string]refdb.Value{}}
	if v != refdb.Unknown {
		out.Values[ref] = v
	}
	p.call("reader", linearizability.Input{Kind: linearizability.Get, Refs: []string{ref}}, out)
}

func (p *past) update(old, new refdb.Value, out linearizability.Output) {
	p.call("writer", linearizability.Input{Kind: linearizability.Update, Updates: []refdb.Update{{Ref: ref, Old: old, New: new}}}, out)
}

func (p *past) fenced(token refdb.Token, new refdb.Value, out linearizability.Output) {
	p.fencedAs("holder", token, new, out)
}

func (p *past) fencedAs(owner string, token refdb.Token, new refdb.Value, out linearizability.Output) {
	p.call("holder", linearizability.Input{Kind: linearizability.Update, Refs: []string{ref}, Owner: owner, Token: token,
		Updates: []refdb.Update{{Ref: ref, New: new}}}, out)
}

func (p *past) acquire(owner string, token refdb.Token, reclaimed ...linearizability.Holder) {
	p.call(owner, linearizability.Input{Kind: linearizability.Acquire, Refs: []string{ref}, StaleAfter: stale},
		linearizability.Output{Result: linearizability.Done, Token: token, Reclaimed: reclaimed})
}

func (p *past) refused(holders ...linearizability.Holder) {
	p.call("contender", linearizability.Input{Kind: linearizability.Acquire, Refs: []string{ref}, StaleAfter: stale},
		linearizability.Output{Result: linearizability.Locked, Holders: holders})
}

func (p *past) release(token refdb.Token, out linearizability.Output) {
	p.call("holder", linearizability.Input{Kind: linearizability.Release, Refs: []string{ref}, Token: token}, out)
}

func (p *past) beat(token refdb.Token, result driver.BeatResult) {
	p.call("holder", linearizability.Input{Kind: linearizability.Beat}, linearizability.Output{Result: linearizability.Done,
		Beats: []linearizability.Row{{Project: "p", Ref: ref, Token: token, Result: result}}})
}

func held(owner string, token refdb.Token, age time.Duration) linearizability.Holder {
	return linearizability.Holder{Ref: ref, Owner: owner, Token: token, Age: age, StaleAfter: stale}
}

var (
	done    = linearizability.Output{Result: linearizability.Done}
	unknown = linearizability.Output{Result: linearizability.Unknown}
	lost    = linearizability.Output{Result: linearizability.Lost, Lost: []string{ref}}
	deleted = linearizability.Output{Result: linearizability.Done, Deleted: []string{ref}}
)

func TestWhatAHistoryMayHold(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		tell func(*past)
		want linearizability.Verdict
	}{
		"a lock that was not beaten is taken over": {func(p *past) {
			p.acquire("holder", 1)
			p.wait(longer)
			p.acquire("next", 2, held("holder", 1, longer))
		}, linearizability.OK},
		"a lock that was beaten is taken over": {func(p *past) {
			p.acquire("holder", 1)
			p.wait(longer)
			p.beat(1, driver.BeatRenewed)
			p.acquire("next", 2, held("holder", 1, longer))
		}, linearizability.Illegal},
		"a lock is taken over in silence": {func(p *past) {
			p.acquire("holder", 1)
			p.wait(longer)
			p.acquire("next", 2)
		}, linearizability.Illegal},
		"a row is kept for who waits, after the lock": {func(p *past) {
			p.acquire("holder", 1)
			p.release(1, deleted)
			p.refused(held(driver.ReservedFor("next"), 1, 0))
			p.acquire("next", 2)
		}, linearizability.OK},
		"a row is kept for who waits, while the lock stands": {func(p *past) {
			p.acquire("holder", 1)
			p.refused(held(driver.ReservedFor("next"), 1, 0))
		}, linearizability.Illegal},
		"a row that is kept has a token that nobody had": {func(p *past) {
			p.acquire("holder", 1)
			p.release(1, deleted)
			p.refused(held(driver.ReservedFor("next"), 2, 0))
		}, linearizability.Illegal},
		"a lock is older than it can be": {func(p *past) {
			p.acquire("holder", 1)
			p.refused(held("holder", 1, stale/2))
		}, linearizability.Illegal},
		"nobody who refuses is fresh": {func(p *past) {
			p.acquire("holder", 1)
			p.wait(longer)
			p.refused(held("holder", 1, longer))
		}, linearizability.Illegal},
		"a stale token is refused": {func(p *past) {
			p.acquire("holder", 1)
			p.wait(longer)
			p.acquire("next", 2, held("holder", 1, longer))
			p.fenced(1, v1, lost)
			p.beat(1, driver.BeatLost)
			p.release(1, lost)
		}, linearizability.OK},
		"a stale token writes": {func(p *past) {
			p.acquire("holder", 1)
			p.wait(longer)
			p.acquire("next", 2, held("holder", 1, longer))
			p.fenced(1, v1, done)
		}, linearizability.Illegal},
		"a fence of another owner is refused": {func(p *past) {
			p.acquire("holder", 1)
			p.fencedAs("other", 1, v1, lost)
			p.beat(1, driver.BeatRenewed)
			p.fenced(1, v1, done)
		}, linearizability.OK},
		"a fence of another owner passes": {func(p *past) {
			p.acquire("holder", 1)
			p.fencedAs("other", 1, v1, done)
		}, linearizability.Illegal},
		"a fence without a lock passes": {func(p *past) {
			p.fenced(0, v1, done)
		}, linearizability.Illegal},
		"a stale token beats": {func(p *past) {
			p.acquire("holder", 1)
			p.wait(longer)
			p.acquire("next", 2, held("holder", 1, longer))
			p.beat(1, driver.BeatRenewed)
		}, linearizability.Illegal},
		"a stale token releases": {func(p *past) {
			p.acquire("holder", 1)
			p.wait(longer)
			p.acquire("next", 2, held("holder", 1, longer))
			p.release(1, deleted)
		}, linearizability.Illegal},
		"a stale lock that nobody took still fences": {func(p *past) {
			p.acquire("holder", 1)
			p.wait(longer)
			p.fenced(1, v1, done)
		}, linearizability.OK},
		"a token comes twice": {func(p *past) {
			p.acquire("holder", 1)
			p.release(1, deleted)
			p.acquire("next", 1)
		}, linearizability.Illegal},
		"an update ends a stale lock": {func(p *past) {
			p.acquire("holder", 1)
			p.wait(longer)
			p.update("", v1, done)
			p.beat(1, driver.BeatLost)
			p.fenced(1, v2, lost)
			p.acquire("next", 2)
			p.ops[len(p.ops)-1].Output.Values = map[string]refdb.Value{ref: v1}
		}, linearizability.OK},
		"a lock comes with an old value": {func(p *past) {
			p.update("", v1, done)
			p.acquire("holder", 1)
		}, linearizability.Illegal},
		"a stale lock survives an update": {func(p *past) {
			p.acquire("holder", 1)
			p.wait(longer)
			p.update("", v1, done)
			p.beat(1, driver.BeatRenewed)
		}, linearizability.Illegal},
		"an update passes a fresh lock": {func(p *past) {
			p.acquire("holder", 1)
			p.update("", v1, done)
		}, linearizability.Illegal},
		"a lock is lost that nobody took": {func(p *past) {
			p.acquire("holder", 1)
			p.wait(longer)
			p.fenced(1, v1, lost)
		}, linearizability.Illegal},
		"a stale lock may be ended by an update of unknown outcome": {func(p *past) {
			p.acquire("holder", 1)
			p.wait(longer)
			p.update("", v1, unknown)
			p.fenced(1, v2, lost)
		}, linearizability.OK},
		"a fresh lock is not": {func(p *past) {
			p.acquire("holder", 1)
			p.update("", v1, unknown)
			p.fenced(1, v2, lost)
		}, linearizability.Illegal},
		"an update of unknown outcome happens late": {func(p *past) {
			p.update("", v1, unknown)
			p.get("")
			p.get(v1)
		}, linearizability.OK},
		"an update of unknown outcome is undone": {func(p *past) {
			p.update("", v1, unknown)
			p.get(v1)
			p.get("")
		}, linearizability.Illegal},
		"an update of unknown outcome happens before it is asked for": {func(p *past) {
			p.get(v1)
			p.update("", v1, unknown)
		}, linearizability.Illegal},
		"a deletion of unknown outcome may happen, late": {func(p *past) {
			p.update("", v1, done)
			p.update(v1, refdb.Deleted, unknown)
			p.get(v1)
			p.get(refdb.Deleted)
		}, linearizability.OK},
		"or not": {func(p *past) {
			p.update("", v1, done)
			p.update(v1, refdb.Deleted, unknown)
			p.get(v1)
		}, linearizability.OK},
		"but not twice": {func(p *past) {
			p.update("", v1, done)
			p.update(v1, refdb.Deleted, unknown)
			p.get(refdb.Deleted)
			p.update("", v1, done)
			p.get(refdb.Deleted)
		}, linearizability.Illegal},
		"a deleted ref is unknown": {func(p *past) {
			p.update("", refdb.Deleted, done)
			p.get("")
		}, linearizability.Illegal},
		"the lock of a process that died while it asked stands": {func(p *past) {
			p.acquire("dead", 0)
			p.dies()
			p.refused(held("dead", 7, 0))
			p.wait(longer)
			p.acquire("next", 8, held("dead", 7, longer))
		}, linearizability.OK},
		"a lock stands that nobody asked for": {func(p *past) {
			p.acquire("dead", 0)
			p.dies()
			p.refused(held("somebody", 7, 0))
		}, linearizability.Illegal},
		"a release of unknown outcome may release": {func(p *past) {
			p.acquire("holder", 1)
			p.release(1, unknown)
			p.acquire("next", 2)
		}, linearizability.OK},
		"a release releases": {func(p *past) {
			p.acquire("holder", 1)
			p.release(1, deleted)
			p.refused(held("holder", 1, 0))
		}, linearizability.Illegal},
		"after a step of the clock anything may be stale": {func(p *past) {
			p.acquire("holder", 1)
			p.ops = append(p.ops, linearizability.Op{Input: linearizability.Input{Kind: linearizability.Step}, Call: int64(p.now), Return: int64(p.now)})
			p.acquire("next", 2, held("holder", 1, longer))
		}, linearizability.OK},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var p past
			row.tell(&p)
			if r := linearizability.Check(p.ops, patience); r.Verdict != row.want {
				t.Errorf("%s, want %s: %v", r.Verdict, row.want, r.Err())
			}
		})
	}
}

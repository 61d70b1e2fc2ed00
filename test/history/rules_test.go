package history_test

import (
	"testing"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/test/history"
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
	ops []history.Op
}

func (p *past) call(owner string, in history.Input, out history.Output) {
	in.Project = "p"
	p.ops = append(p.ops, history.Op{Owner: owner, ID: len(p.ops), Input: in, Output: out,
		Call: int64(p.now), Return: int64(p.now + time.Millisecond)})
	p.now += 2 * time.Millisecond
}

// dies has the last call never return.
func (p *past) dies() {
	op := &p.ops[len(p.ops)-1]
	op.Return, op.Output = history.Never, history.Output{Result: history.Unknown, Doubt: true}
}

func (p *past) wait(d time.Duration) { p.now += d }

func (p *past) get(v refdb.Value) {
	out := history.Output{Result: history.Done, Values: map[string]refdb.Value{}}
	if v != refdb.Unknown {
		out.Values[ref] = v
	}
	p.call("reader", history.Input{Kind: history.Get, Refs: []string{ref}}, out)
}

func (p *past) update(old, new refdb.Value, out history.Output) {
	p.call("writer", history.Input{Kind: history.Update, Updates: []refdb.Update{{Ref: ref, Old: old, New: new}}}, out)
}

func (p *past) fenced(token refdb.Token, new refdb.Value, out history.Output) {
	p.fencedAs("holder", token, new, out)
}

func (p *past) fencedAs(owner string, token refdb.Token, new refdb.Value, out history.Output) {
	p.call("holder", history.Input{Kind: history.Update, Refs: []string{ref}, Owner: owner, Token: token,
		Updates: []refdb.Update{{Ref: ref, New: new}}}, out)
}

func (p *past) acquire(owner string, token refdb.Token, reclaimed ...history.Holder) {
	p.call(owner, history.Input{Kind: history.Acquire, Refs: []string{ref}, StaleAfter: stale},
		history.Output{Result: history.Done, Token: token, Reclaimed: reclaimed})
}

func (p *past) refused(holders ...history.Holder) {
	p.call("contender", history.Input{Kind: history.Acquire, Refs: []string{ref}, StaleAfter: stale},
		history.Output{Result: history.Locked, Holders: holders})
}

func (p *past) release(token refdb.Token, out history.Output) {
	p.call("holder", history.Input{Kind: history.Release, Refs: []string{ref}, Token: token}, out)
}

func (p *past) beat(token refdb.Token, result refdb.BeatResult) {
	p.call("holder", history.Input{Kind: history.Beat}, history.Output{Result: history.Done,
		Beats: []history.Row{{Project: "p", Ref: ref, Token: token, Result: result}}})
}

func held(owner string, token refdb.Token, age time.Duration) history.Holder {
	return history.Holder{Ref: ref, Owner: owner, Token: token, Age: age, StaleAfter: stale}
}

var (
	done    = history.Output{Result: history.Done}
	unknown = history.Output{Result: history.Unknown}
	lost    = history.Output{Result: history.Lost, Lost: []string{ref}}
	deleted = history.Output{Result: history.Done, Deleted: []string{ref}}
)

func TestWhatAHistoryMayHold(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		tell func(*past)
		want history.Verdict
	}{
		"a lock that was not beaten is taken over": {func(p *past) {
			p.acquire("holder", 1)
			p.wait(longer)
			p.acquire("next", 2, held("holder", 1, longer))
		}, history.OK},
		"a lock that was beaten is taken over": {func(p *past) {
			p.acquire("holder", 1)
			p.wait(longer)
			p.beat(1, refdb.Beaten)
			p.acquire("next", 2, held("holder", 1, longer))
		}, history.Illegal},
		"a lock is taken over in silence": {func(p *past) {
			p.acquire("holder", 1)
			p.wait(longer)
			p.acquire("next", 2)
		}, history.Illegal},
		"a lock is older than it can be": {func(p *past) {
			p.acquire("holder", 1)
			p.refused(held("holder", 1, stale/2))
		}, history.Illegal},
		"nobody who refuses is fresh": {func(p *past) {
			p.acquire("holder", 1)
			p.wait(longer)
			p.refused(held("holder", 1, longer))
		}, history.Illegal},
		"a stale token is refused": {func(p *past) {
			p.acquire("holder", 1)
			p.wait(longer)
			p.acquire("next", 2, held("holder", 1, longer))
			p.fenced(1, v1, lost)
			p.beat(1, refdb.BeatLost)
			p.release(1, lost)
		}, history.OK},
		"a stale token writes": {func(p *past) {
			p.acquire("holder", 1)
			p.wait(longer)
			p.acquire("next", 2, held("holder", 1, longer))
			p.fenced(1, v1, done)
		}, history.Illegal},
		"a fence of another owner is refused": {func(p *past) {
			p.acquire("holder", 1)
			p.fencedAs("other", 1, v1, lost)
			p.beat(1, refdb.Beaten)
			p.fenced(1, v1, done)
		}, history.OK},
		"a fence of another owner passes": {func(p *past) {
			p.acquire("holder", 1)
			p.fencedAs("other", 1, v1, done)
		}, history.Illegal},
		"a fence without a lock passes": {func(p *past) {
			p.fenced(0, v1, done)
		}, history.Illegal},
		"a stale token beats": {func(p *past) {
			p.acquire("holder", 1)
			p.wait(longer)
			p.acquire("next", 2, held("holder", 1, longer))
			p.beat(1, refdb.Beaten)
		}, history.Illegal},
		"a stale token releases": {func(p *past) {
			p.acquire("holder", 1)
			p.wait(longer)
			p.acquire("next", 2, held("holder", 1, longer))
			p.release(1, deleted)
		}, history.Illegal},
		"a stale lock that nobody took still fences": {func(p *past) {
			p.acquire("holder", 1)
			p.wait(longer)
			p.fenced(1, v1, done)
		}, history.OK},
		"a token comes twice": {func(p *past) {
			p.acquire("holder", 1)
			p.release(1, deleted)
			p.acquire("next", 1)
		}, history.Illegal},
		"an update ends a stale lock": {func(p *past) {
			p.acquire("holder", 1)
			p.wait(longer)
			p.update("", v1, done)
			p.beat(1, refdb.BeatLost)
			p.fenced(1, v2, lost)
			p.acquire("next", 2)
			p.ops[len(p.ops)-1].Output.Values = map[string]refdb.Value{ref: v1}
		}, history.OK},
		"a lock comes with an old value": {func(p *past) {
			p.update("", v1, done)
			p.acquire("holder", 1)
		}, history.Illegal},
		"a stale lock survives an update": {func(p *past) {
			p.acquire("holder", 1)
			p.wait(longer)
			p.update("", v1, done)
			p.beat(1, refdb.Beaten)
		}, history.Illegal},
		"an update passes a fresh lock": {func(p *past) {
			p.acquire("holder", 1)
			p.update("", v1, done)
		}, history.Illegal},
		"a lock is lost that nobody took": {func(p *past) {
			p.acquire("holder", 1)
			p.wait(longer)
			p.fenced(1, v1, lost)
		}, history.Illegal},
		"a stale lock may be ended by an update of unknown outcome": {func(p *past) {
			p.acquire("holder", 1)
			p.wait(longer)
			p.update("", v1, unknown)
			p.fenced(1, v2, lost)
		}, history.OK},
		"a fresh lock is not": {func(p *past) {
			p.acquire("holder", 1)
			p.update("", v1, unknown)
			p.fenced(1, v2, lost)
		}, history.Illegal},
		"an update of unknown outcome happens late": {func(p *past) {
			p.update("", v1, unknown)
			p.get("")
			p.get(v1)
		}, history.OK},
		"an update of unknown outcome is undone": {func(p *past) {
			p.update("", v1, unknown)
			p.get(v1)
			p.get("")
		}, history.Illegal},
		"an update of unknown outcome happens before it is asked for": {func(p *past) {
			p.get(v1)
			p.update("", v1, unknown)
		}, history.Illegal},
		"a deletion of unknown outcome may happen, late": {func(p *past) {
			p.update("", v1, done)
			p.update(v1, "", unknown)
			p.get(v1)
			p.get(refdb.Deleted)
		}, history.OK},
		"or not": {func(p *past) {
			p.update("", v1, done)
			p.update(v1, "", unknown)
			p.get(v1)
		}, history.OK},
		"but not twice": {func(p *past) {
			p.update("", v1, done)
			p.update(v1, "", unknown)
			p.get(refdb.Deleted)
			p.update("", v1, done)
			p.get(refdb.Deleted)
		}, history.Illegal},
		"a deleted ref is unknown": {func(p *past) {
			p.update("", refdb.Deleted, done)
			p.get("")
		}, history.Illegal},
		"the lock of a process that died while it asked stands": {func(p *past) {
			p.acquire("dead", 0)
			p.dies()
			p.refused(held("dead", 7, 0))
			p.wait(longer)
			p.acquire("next", 8, held("dead", 7, longer))
		}, history.OK},
		"a lock stands that nobody asked for": {func(p *past) {
			p.acquire("dead", 0)
			p.dies()
			p.refused(held("somebody", 7, 0))
		}, history.Illegal},
		"a release of unknown outcome may release": {func(p *past) {
			p.acquire("holder", 1)
			p.release(1, unknown)
			p.acquire("next", 2)
		}, history.OK},
		"a release releases": {func(p *past) {
			p.acquire("holder", 1)
			p.release(1, deleted)
			p.refused(held("holder", 1, 0))
		}, history.Illegal},
		"after a step of the clock anything may be stale": {func(p *past) {
			p.acquire("holder", 1)
			p.ops = append(p.ops, history.Op{Input: history.Input{Kind: history.Step}, Call: int64(p.now), Return: int64(p.now)})
			p.acquire("next", 2, held("holder", 1, longer))
		}, history.OK},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var p past
			row.tell(&p)
			if r := history.Check(p.ops, patience); r.Verdict != row.want {
				t.Errorf("%s, want %s: %v", r.Verdict, row.want, r.Err())
			}
		})
	}
}

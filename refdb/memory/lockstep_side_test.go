package memory_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/internal/queue"
)

// A side is one of two databases that get the same requests. Its answers are
// compared without times and tokens, which differ between databases.
type side struct {
	driver.Driver
	age func(ref string, d time.Duration)
	row func(ref string) (row, bool)

	projects int // so far
	project  string
	locks    map[int]driver.AcquireRequest // and preparations, by the number of their step
	intents  map[int]driver.PrepareRequest
	tokens   map[int]driver.Token // of those that were granted
	steps    map[driver.Token]int // the reverse
	places   map[int]driver.Place // of the waiters, as they were told
	tickets  map[int64]int        // in the order in which they were seen
}

// row is a row of the table of locks.
type row struct {
	driver.LockInfo
	nonce   string
	waiting []string
}

// start begins a new project.
func (s *side) start() {
	s.projects++
	s.project = fmt.Sprint("project-", s.projects)
	s.locks, s.intents = map[int]driver.AcquireRequest{}, map[int]driver.PrepareRequest{}
	s.tokens, s.steps = map[int]driver.Token{}, map[driver.Token]int{}
	s.places, s.tickets = map[int]driver.Place{}, map[int64]int{}
}

// rows prints the table of locks.
func (s *side) rows() string {
	var b strings.Builder
	for _, ref := range lockstepRefs {
		r, ok := s.row(ref)
		if !ok {
			continue
		}
		r.Age = time.Since(r.Heartbeat)
		fmt.Fprintf(&b, "    %s: %s", ref, s.info(r.LockInfo))
		switch {
		case !r.Reserved():
			fmt.Fprintf(&b, " of step %d", s.steps[r.Token])
		case r.nonce != "":
			fmt.Fprintf(&b, " for %s", s.place(r.nonce))
		}
		for _, text := range r.waiting {
			fmt.Fprintf(&b, ", then %s", s.place(text))
		}
		b.WriteByte('\n')
	}
	return b.String()
}

func (s *side) place(text string) string {
	p, ok := queue.Parse(text)
	if !ok {
		return text
	}
	return fmt.Sprintf("%s/%s/%s with ticket %d, passed %d times, for %v", p.ID, p.Channel, p.Owner, s.ticket(p.Ticket), p.Passed, p.Turn)
}

func (s *side) ticket(at int64) int {
	if _, ok := s.tickets[at]; !ok {
		s.tickets[at] = len(s.tickets)
	}
	return s.tickets[at]
}

func (s *side) info(l driver.LockInfo) string {
	return fmt.Sprintf("%q stale=%t after=%v", l.Owner, l.Stale(), l.StaleAfter)
}

func (s *side) infos(all []driver.LockInfo) (text string) {
	for _, l := range all {
		text += fmt.Sprintf(" [%s: %s]", l.Ref, s.info(l))
	}
	return text
}

func (s *side) refusal(err error) string {
	var locked *driver.LockedError
	var lost *driver.LostError
	switch {
	case err == nil:
		return "done"
	case errors.As(err, &locked):
		return "locked" + s.infos(locked.Holders)
	case errors.As(err, &lost):
		return fmt.Sprint("lost ", lost.Refs)
	}
	return err.Error()
}

// granted records a token, and prints which step it belongs to.
func (s *side) granted(n int, token driver.Token, reclaimed []driver.LockInfo) string {
	if _, ok := s.steps[token]; !ok {
		s.tokens[n], s.steps[token] = token, n
	}
	return fmt.Sprintf("granted to step %d, reclaimed%s", s.steps[token], s.infos(reclaimed))
}

// do makes a step, and prints the result.
func (s *side) do(ctx context.Context, t step) string {
	if t.of < 0 {
		r, ok := s.row(t.refs[0])
		if !ok || r.Reserved() {
			return "nobody's"
		}
		t.of = s.steps[r.Token]
	}
	token, held := s.tokens[t.of]
	owner, refs := s.locks[t.of].Owner, s.locks[t.of].Refs
	fence := driver.Fence{Refs: refs, Owner: owner, Token: token}
	if t.next > 0 && ownerOf(t.next) == owner && len(refs) == 1 {
		fence.Next = s.waiter(t.next, t)
	}
	switch t.does {
	case "acquire":
		s.locks[t.n] = driver.AcquireRequest{
			Project: s.project, Refs: t.refs, Owner: ownerOf(t.waiter), Nonce: fmt.Sprint("nonce", t.n), StaleAfter: time.Hour, Waiter: s.waiter(t.waiter, t),
		}
		return s.acquire(ctx, t.n, t.waiter)
	case "repeat":
		if _, ok := s.intents[t.of]; ok || refs == nil {
			return "nothing"
		}
		return s.acquire(ctx, t.of, 0)
	case "release":
		if _, ok := s.intents[t.of]; ok {
			return s.finish(ctx, t)
		}
		if !held {
			return "nothing"
		}
		got, err := s.Release(ctx, driver.ReleaseRequest{Project: s.project, Refs: refs, Owner: owner, Token: token, Next: fence.Next})
		return fmt.Sprint(s.refusal(err), ", missing ", got.Missing)
	case "update":
		if !held {
			return "nothing"
		}
		fence.Release = t.whole
		return s.refusal(s.Update(ctx, driver.UpdateRequest{Project: s.project, Origin: driver.Origin{ID: "update"}, Updates: s.moves(ctx, t.refs), Fence: &fence}))
	case "update-unfenced":
		return s.refusal(s.Update(ctx, driver.UpdateRequest{Project: s.project, Origin: driver.Origin{ID: "update"}, Updates: s.moves(ctx, t.refs)}))
	case "beat":
		got, err := s.Beat(ctx, []driver.LockID{{Project: s.project, Ref: t.refs[0], Owner: owner, Token: token}})
		return fmt.Sprint(s.refusal(err), got)
	case "abandon":
		r := driver.AbandonRequest{Project: s.project, Refs: t.refs, Owner: ownerOf(t.waiter), Waiter: s.waiter(t.waiter, t).ID}
		if t.whole && held {
			r.Owner, r.Nonce = owner, s.locks[t.of].Nonce
		}
		return s.refusal(s.Abandon(ctx, r))
	case "purge":
		var all []driver.StandingLock
		for _, ref := range t.refs {
			if r, ok := s.row(ref); ok {
				all = append(all, driver.StandingLock{LockID: driver.LockID{Project: s.project, Ref: ref, Owner: r.Owner, Token: r.Token}, Heartbeat: r.Heartbeat})
			}
		}
		got, err := s.Purge(ctx, all)
		return fmt.Sprint(s.refusal(err), got)
	case "prepare":
		r := driver.PrepareRequest{Project: s.project, Updates: s.moves(ctx, t.refs), Owner: ownerOf(t.waiter), Nonce: fmt.Sprint("nonce", t.n), Agent: "agent"}
		got, err := s.Prepare(ctx, r)
		if err != nil {
			return s.refusal(err)
		}
		s.intents[t.n], s.locks[t.n] = r, driver.AcquireRequest{Refs: t.refs, Owner: r.Owner, Nonce: r.Nonce}
		return s.granted(t.n, got.Token, got.Reclaimed)
	case "revoke":
		r, ok := s.intents[t.of]
		if !ok {
			return "nothing"
		}
		return s.refusal(s.Revoke(ctx, r))
	case "resolve":
		r, ok := s.intents[t.of]
		if !ok {
			return "nothing"
		}
		var all []driver.LockID
		for _, u := range r.Updates {
			all = append(all, driver.LockID{Project: s.project, Ref: u.Ref, Owner: r.Owner, Token: s.tokens[t.of]})
		}
		got, err := s.Resolve(ctx, driver.ResolveRequest{Intents: all, Decision: driver.KeepOld, Origin: driver.Origin{By: "operator"}, Reason: "reason"})
		return fmt.Sprint(s.refusal(err), got)
	case "age":
		for _, ref := range t.refs {
			if _, ok := s.row(ref); ok {
				s.age(ref, t.age)
			}
		}
		return "aged"
	}
	panic(t.does)
}

func (s *side) acquire(ctx context.Context, n, waiter int) string {
	got, err := s.Acquire(ctx, s.locks[n])
	if err == nil {
		return s.granted(n, got.Token, got.Reclaimed)
	}
	if got.Place.Ticket.IsZero() {
		return s.refusal(err)
	}
	s.places[waiter] = got.Place
	return fmt.Sprintf("%s, ticket %d, passed %d times, %d ahead", s.refusal(err), s.ticket(got.Place.Ticket.UnixMicro()), got.Place.Passed, got.Place.Ahead)
}

// finish ends the first intent as carried out, or none, and drops the others.
func (s *side) finish(ctx context.Context, t step) string {
	r := s.intents[t.of]
	f := driver.FinishRequest{Project: s.project, Origin: driver.Origin{ID: "finish", Owner: r.Owner}, Token: s.tokens[t.of]}
	for _, u := range r.Updates {
		if t.whole && f.Done == nil {
			f.Done = append(f.Done, u)
		} else {
			f.Dropped = append(f.Dropped, u.Ref)
		}
	}
	return s.refusal(s.Finish(ctx, f))
}

// waiter returns the waiter with the given number; 0 stands for no waiter.
func (s *side) waiter(n int, t step) driver.Waiter {
	if n == 0 {
		return driver.Waiter{}
	}
	w := driver.Waiter{ID: fmt.Sprint("w", n), Turn: t.turn}
	if !t.polls {
		w.Channel = fmt.Sprint("c", n)
	}
	if !t.forgets {
		w.Place = s.places[n]
	}
	if t.passed {
		w.Place.Passed = driver.MaxPassed
	}
	return w
}

func ownerOf(waiter int) string { return []string{"site/1", "o.w n/2"}[waiter%2] }

// moves returns updates of refs from the values that they hold.
func (s *side) moves(ctx context.Context, refs []string) (all []driver.Update) {
	for _, ref := range refs {
		u := driver.Update{Ref: ref, New: "1111111111111111111111111111111111111111"}
		if rows, _ := s.Get(ctx, s.project, []string{ref}); len(rows) > 0 {
			u.Old = rows[0].Value
		}
		all = append(all, u)
	}
	return all
}

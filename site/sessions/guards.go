// Package sessions serves guards: processes that move refs by themselves, such as a Gerrit. It
// serves their sessions, decides about the transactions that they announce and the repositories
// that they create, and settles what they leave when they die. The rules are in PROTOCOL.md, M1 to
// M24.
//
// No message of a guard blocks.
package sessions

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/site/claims"
	"github.com/globalrefdb/globalrefdb/site/client"
	"github.com/globalrefdb/globalrefdb/site/config"
	"github.com/globalrefdb/globalrefdb/site/internal/broadcast"
	"github.com/globalrefdb/globalrefdb/site/moving"
	"github.com/globalrefdb/globalrefdb/site/objects"
	"github.com/globalrefdb/globalrefdb/site/projects"
	"github.com/globalrefdb/globalrefdb/site/pusher"
	"github.com/globalrefdb/globalrefdb/site/wire"
)

// Guards are the known guards, with their sessions, transactions and creations.
type Guards struct {
	Deps

	// Now is the clock that measures sessions and the time without one; nil for [time.Now].
	Now func() time.Time

	mu      sync.Mutex
	limited Limits
	all     map[pusher.Guard]*guard
	changed broadcast.Broadcast // when something has ended that others wait for

	creations        map[pusher.Transaction]*creation
	creationsUnsaved bool // the file of creations is out of date

	heads heads

	saving sync.Mutex // held while the file of guards or that of creations is written
	making sync.Mutex // held while a repository is put under guard that a guard has made
}

// A guard is one run of such a process. The lock of guards guards what changes.
type guard struct {
	id      pusher.Guard
	name    string // what it is, for people; "" until it has begun a session
	number  uint64 // of its last session
	session *session
	since   time.Time // that it has a session, or has none
	first   time.Time // when it began its first session with this daemon
	// begun says that the guard has begun a session with this daemon: transactions that it has not
	// listed then can't move refs any more.
	begun bool
	// inherited says that an earlier daemon knew the guard. Transactions that it granted need not
	// have intents.
	inherited bool
	noted     bool // it is in the file of guards, for later daemons
	server    bool // it is one that other sites are told of
	dead      bool
	watched   bool
	settling  bool // somebody waits to remove its lock files
	alarmed   bool // it lives, has work and no session

	transactions map[string]*transaction
	announced    int // bytes of their refs
}

// A transaction moves refs of a repository.
type transaction struct {
	request
	guard *guard
	dir   string
	repo  config.Repository // without a path if there is none at dir
	lines []wire.Line       // as announced; nil if only an earlier daemon was told
	by    string
	size  int // bytes of lines
	began time.Time

	adopted      bool            // it was found in the database
	listed       bool            // only its guard has said that it had its OK
	mayHaveLocks bool            // it may take lock files, or may soon
	ownWord      bool            // its guard has reported it: that knows what has moved
	onList       map[string]bool // refs that are on the list of moves
	moves        []*moving.Move  // that have an intent
	claim        *claims.Claim
	// endedByOthers says that another process has ended some of its intents. If that was an
	// operator, the decision has to be applied.
	endedByOthers bool
	unknown       bool   // it is not known whether its intents were recorded
	reconciled    bool   // reconciling was asked for since an intent of it has ended
	unlocked      bool   // its guard is dead, and its lock files are gone, or can't be removed now
	release       func() // of the repository that it shares with others
	objects       objects.Pushed
}

// lock locks the guards. Whoever changes more than one guard or transaction uses it with unlock.
func (gs *Guards) lock()   { gs.mu.Lock() }
func (gs *Guards) unlock() { gs.mu.Unlock() }

// wake wakes the waiters of await. The guards are locked.
func (gs *Guards) wake() { gs.changed.Send() }

// await waits until ready, which is called with the guards locked, returns true, until a time at
// most, unless that is zero.
func (gs *Guards) await(ctx context.Context, until time.Time, ready func() bool) bool {
	if !until.IsZero() {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, until)
		defer cancel()
	}
	for {
		gs.mu.Lock()
		if ready() {
			gs.mu.Unlock()
			return true
		}
		changed := gs.changed.Wait()
		gs.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			return false
		}
	}
}

// list returns all guards in the order of their names. gs is locked.
func (gs *Guards) list() []*guard {
	all := make([]*guard, 0, len(gs.all))
	for _, g := range gs.all {
		all = append(all, g)
	}
	slices.SortFunc(all, func(a, b *guard) int { return strings.Compare(a.id.String(), b.id.String()) })
	return all
}

func (gs *Guards) now() time.Time {
	if gs.Now == nil {
		return time.Now()
	}
	return gs.Now()
}

// get returns the guard of that identity, new or known. gs is locked.
func (gs *Guards) get(id pusher.Guard) *guard {
	g := gs.all[id]
	if g == nil {
		g = &guard{id: id, since: gs.now(), transactions: map[string]*transaction{}}
		if gs.all == nil {
			gs.all = map[pusher.Guard]*guard{}
		}
		gs.all[id] = g
	}
	return g
}

// anyTransaction reports whether is says so of one. gs is locked.
func (gs *Guards) anyTransaction(is func(*transaction) bool) bool {
	for _, g := range gs.all {
		for _, t := range g.transactions {
			if is(t) {
				return true
			}
		}
	}
	return false
}

// deadIn reports whether a dead guard may have left lock files in the repository at path. The
// guards are locked.
func (gs *Guards) deadIn(path string) bool {
	return gs.anyTransaction(func(t *transaction) bool { return t.guard.dead && !t.unlocked && t.repo.Path == path })
}

// unlisted reports whether the guard may carry out transactions that this daemon does not know: an
// earlier daemon may have granted them and recorded nothing. The guards are locked.
func (g *guard) unlisted() bool { return g.inherited && !g.begun && !g.dead }

// anyUnlisted reports whether one is. gs is locked.
func (gs *Guards) anyUnlisted() bool {
	for _, g := range gs.all {
		if g.unlisted() {
			return true
		}
	}
	return false
}

// UnsharedIn reports whether a transaction that an earlier daemon granted may move refs in the
// repository at path: nothing keeps the repository from being pruned then.
func (gs *Guards) UnsharedIn(path string) bool {
	gs.mu.Lock()
	defer gs.mu.Unlock()
	return gs.anyUnlisted() || gs.anyTransaction(func(t *transaction) bool { return t.repo.Path == path && t.release == nil && t.phase == granted })
}

// livingIn reports whether a living guard may have lock files in the repository at path. The guards
// are locked.
func (gs *Guards) livingIn(path string) bool {
	return gs.anyUnlisted() || gs.anyTransaction(func(t *transaction) bool {
		return t.repo.Path == path && t.mayHaveLocks && t.phase != over && !t.guard.dead
	})
}

// OpenIn reports whether a transaction in the repository at path may still move refs, or is not
// settled.
func (gs *Guards) OpenIn(path string) bool {
	gs.mu.Lock()
	defer gs.mu.Unlock()
	return gs.anyUnlisted() || gs.anyTransaction(func(t *transaction) bool { return t.repo.Path == path })
}

// deadAreSettled reports whether no goroutine settles what a dead guard has left. The guards are
// locked.
func (gs *Guards) deadAreSettled() bool {
	for _, g := range gs.all {
		if g.settling {
			return false
		}
	}
	return true
}

// Open counts the transactions that are not settled.
func (gs *Guards) Open() (n int) {
	gs.mu.Lock()
	defer gs.mu.Unlock()
	for _, g := range gs.all {
		n += len(g.transactions)
	}
	return n
}

// Pending counts the transactions that are not settled, of guards that have a session.
func (gs *Guards) Pending() (n int) {
	gs.mu.Lock()
	defer gs.mu.Unlock()
	for _, g := range gs.all {
		if g.session != nil {
			n += len(g.transactions)
		}
	}
	return n
}

// find returns a transaction; nil if it is not known. gs is locked.
func (gs *Guards) find(id pusher.Transaction) *transaction {
	if g := gs.all[id.Guard]; g != nil {
		return g.transactions[id.TX]
	}
	return nil
}

// MayMove reports whether a transaction may still move its refs.
func (gs *Guards) MayMove(id pusher.Transaction, boot string) bool {
	if id.Guard.Ended(boot) {
		return false
	}
	gs.mu.Lock()
	defer gs.mu.Unlock()
	g := gs.all[id.Guard]
	if g == nil || !g.begun && g.transactions[id.TX] == nil {
		return true
	}
	t := g.transactions[id.TX]
	return t != nil && t.phase != over
}

// Lives reports whether the guard with an ID is known, and has not died.
func (gs *Guards) Lives(id string) bool {
	gs.mu.Lock()
	defer gs.mu.Unlock()
	for _, g := range gs.all {
		if g.id.ID == id && !g.dead {
			return true
		}
	}
	return false
}

// refs returns the names of all refs that it may have locked.
func (t *transaction) refs() (names []string) {
	for _, l := range t.lines {
		names = append(names, l.Ref)
	}
	for _, m := range t.moves {
		names = append(names, m.Ref)
	}
	if t.claim != nil {
		names = append(names, t.claim.Refs...) // some intents an operator may have ended
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// forget removes a transaction that is settled. gs is locked. The caller then frees it.
func (gs *Guards) forget(t *transaction) {
	if t.guard.transactions[t.id.TX] == t {
		delete(t.guard.transactions, t.id.TX)
		t.guard.announced -= t.size
	}
	gs.wake()
}

// free releases what a transaction held that is forgotten.
func (gs *Guards) free(t *transaction) {
	gs.Storage.DropUnused(&t.objects)
	gs.Claims.Release(t.claim)
	if t.release != nil {
		t.release()
	}
}

// announcedMoves returns the moves of lines as they were announced. Lines that change nothing are
// left out.
func announcedMoves(lines []wire.Line) []refdb.Update {
	var moves []refdb.Update
	for _, l := range lines {
		u := refdb.Update{Ref: l.Ref, Old: refdb.Value(l.Old), New: refdb.Value(l.New)}
		if l.OldZero() {
			u.Old = refdb.Unknown
		}
		if !u.Old.Equivalent(u.New) {
			moves = append(moves, u)
		}
	}
	return moves
}

// Sessions returns what the status says about guards; it is not nil.
func (gs *Guards) Sessions() []client.Session {
	gs.lock()
	defer gs.unlock()
	all := []client.Session{}
	up, err := projects.Uptime()
	for _, g := range gs.list() {
		s := client.Session{Name: g.name, PID: g.id.PID, State: client.SessionOpen, Age: gs.now().Sub(g.since).Seconds(), Number: g.number, Open: len(g.transactions)}
		if started, ok := g.id.Started(); ok && err == nil && !g.dead {
			s.GuardAge = (up - started).Seconds()
		}
		switch {
		case g.dead:
			s.State = client.SessionDead
		case g.silentAt(gs.now()):
			s.State = client.SessionSilent
		case g.session == nil:
			s.State = client.SessionBroken
		}
		for _, t := range g.transactions {
			s.Oldest = max(s.Oldest, time.Since(t.began).Seconds())
		}
		all = append(all, s)
	}
	return all
}

// HasSession reports whether the process has a session.
func (gs *Guards) HasSession(pid int) bool {
	gs.lock()
	defer gs.unlock()
	for _, g := range gs.all {
		if g.id.PID == pid && g.session != nil && !g.dead {
			return true
		}
	}
	return false
}

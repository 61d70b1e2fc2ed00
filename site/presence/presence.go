// Package presence holds a site's name: by a lock in the database, one daemon at a time serves
// it, and by a generation, only with the state directory that served it last.
package presence

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/operator"
	"github.com/globalrefdb/globalrefdb/site/config"
	"github.com/globalrefdb/globalrefdb/site/internal/durable"
	"github.com/globalrefdb/globalrefdb/site/pusher"
)

const (
	// Project holds what sites say about themselves.
	Project = config.SitesProject
	// refPrefix begins the refs that the locks on the sites' names are on.
	refPrefix = "refs/sites/"
)

// ErrTaken says that another daemon serves this site's name.
var ErrTaken = errors.New("another daemon serves this site's name")

// A Presence is the lock on the site's name in the database. Without it two daemons of one
// name could run: each would resolve the other's pushes by its own disk.
type Presence struct {
	db  *refdb.DB
	log *slog.Logger
	id  string // of the generation that this start is to be

	mu   sync.Mutex
	lock *refdb.Lock
	err  error // of the latest attempt to get it

	// expected is the lock of an earlier daemon with this state directory, as it was first seen: its
	// process may still run. Only the goroutine that takes the lock uses it.
	expected refdb.LockInfo
}

// New returns a presence without the lock.
func New(db *refdb.DB, log *slog.Logger) *Presence {
	return &Presence{db: db, log: log, id: rand.Text(), err: errors.New("it is starting")}
}

// Lost returns why this daemon does not have the lock; nil if it has.
func (p *Presence) Lost() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.lock != nil && p.lock.Err() == nil:
		return nil
	case p.err != nil:
		return fmt.Errorf("the site daemon can't serve: %w", p.err)
	default:
		return errors.New("the site daemon can't serve: it has just lost the lock on the site's name, and is requesting it again")
	}
}

// awaitPoll is how often a daemon that waits for its predecessor's lock looks at it.
const awaitPoll = 200 * time.Millisecond

// Begin takes the lock for a daemon that starts. If an earlier daemon with the same state
// directory has it, and its process is not proven to have ended, Begin waits until that lock
// is stale. The error says why this daemon must not serve. If the database does not answer,
// or ctx ends, there is no error: [Presence.Keep] goes on trying.
func (p *Presence) Begin(ctx context.Context, c *config.Config) error {
	for told := false; ; told = true {
		err := p.Acquire(ctx, c)
		switch {
		case errors.Is(err, ErrAwaited):
			if !told {
				p.log.WarnContext(ctx, "the lock on the site's name was left by an earlier daemon, which may still run: waiting until the lock is stale")
			}
			select {
			case <-time.After(awaitPoll):
				continue
			case <-ctx.Done():
				return nil
			}
		case errors.Is(err, ErrTaken), errors.Is(err, ErrGeneration):
			return err
		case err != nil:
			p.log.WarnContext(ctx, "starting without the database; trying again: see `refdbctl site status`", "class", refdb.ClassOf(err).String())
		}
		return nil
	}
}

// Keep takes the lock again whenever it is lost, until ctx ends.
func (p *Presence) Keep(ctx context.Context, c *config.Config) {
	for {
		p.mu.Lock()
		lock := p.lock
		p.mu.Unlock()
		if lock != nil {
			select {
			case <-lock.Done():
				if errors.Is(lock.Err(), refdb.ErrReleased) {
					return
				}
				p.log.WarnContext(ctx, "the lock on the site's name is lost: pushes are refused until it is back")
			case <-ctx.Done():
				return
			}
		}
		for p.Acquire(ctx, c) != nil {
			select {
			case <-time.After(500 * time.Millisecond):
			case <-ctx.Done():
				return
			}
		}
		p.log.InfoContext(ctx, "the lock on the site's name is taken")
	}
}

// Acquire takes the lock, once.
func (p *Presence) Acquire(ctx context.Context, c *config.Config) error {
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	lock, err := p.take(ctx, c)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lock, p.err = lock, err
	return err
}

func (p *Presence) take(ctx context.Context, c *config.Config) (*refdb.Lock, error) {
	// A server that is not admitted may have an earlier generation.
	a, err := p.db.Recovery().Admission(ctx)
	if err == nil {
		err = a.Err()
	}
	if err != nil {
		return nil, err
	}
	if _, _, err := p.recorded(ctx, c); err != nil {
		return nil, err
	}
	return p.lockName(ctx, c, p.mayEnd, func(lock *refdb.Lock) error {
		g, held, err := p.recorded(ctx, c)
		if err != nil {
			return err
		}
		return p.advance(ctx, c, lock, g.location, held)
	})
}

// lockName takes the lock on the site's name and then calls do; if do fails, it releases the
// lock. If there is a lock already, mayEnd returns why it must not be removed.
func (p *Presence) lockName(ctx context.Context, c *config.Config, mayEnd func(*config.Config, ownerProcesses, refdb.LockInfo) error, do func(*refdb.Lock) error) (*refdb.Lock, error) {
	ref := refPrefix + c.Site
	file := durable.In(c.State, "owners")
	earlier, err := readOwners(file)
	if err != nil {
		return nil, err
	}
	for l, err := range p.db.Locks(ctx, refdb.LockFilter{Project: Project, Ref: ref}) {
		if err == nil {
			err = mayEnd(c, earlier, l)
		}
		if err == nil {
			_, err = p.db.Operator().Purge(ctx, []refdb.LockInfo{l}, operator.PurgeFresh())
		}
		if err != nil {
			return nil, err
		}
	}
	process, err := pusher.ThisProcess()
	if err != nil {
		return nil, err
	}
	self := ownerProcess{p.db.Owner(), process}
	// Before the lock: a crash in between must not leave one that looks like another's.
	if err := earlier.with(self).write(file); err != nil {
		return nil, err
	}
	lock, err := p.db.TryLock(ctx, Project, ref)
	if locked := (*refdb.LockedError)(nil); errors.As(err, &locked) {
		return nil, taken(locked.Holders[0], c.Site)
	}
	if err != nil {
		return nil, err
	}
	if err = do(lock); err == nil {
		err = ownerProcesses{self}.write(file)
	}
	if err != nil {
		p.release(lock)
		return nil, err
	}
	return lock, nil
}

// ErrAwaited says that the lock of an earlier daemon must get stale first.
var ErrAwaited = errors.New("waiting until an earlier daemon's lock on the site's name is stale")

// mayEnd lets a daemon remove its own lock, and that of an earlier daemon with the same state
// directory once that daemon's process or lease has ended. A copy of the directory that can't be
// told from the original also knows the original's owner, whose lock is then still beaten.
func (p *Presence) mayEnd(c *config.Config, earlier ownerProcesses, l refdb.LockInfo) error {
	i, known := earlier.find(l.Owner)
	switch {
	case l.Owner == p.db.Owner(), known && (l.Stale() || pusher.ProvenEnded(i.process)):
		return nil
	case !known:
		return taken(l, c.Site)
	case p.expected.ID() != l.ID():
		p.expected = l
	case !p.expected.Heartbeat.Equal(l.Heartbeat):
		return taken(l, c.Site) // it beats
	}
	return fmt.Errorf("%w: %s, whose process is not proven to have ended, last renewed it %s ago", ErrAwaited, l.Owner, l.Age.Round(time.Second))
}

// taken returns what to do about another daemon's lock. A stale one is not taken over
// either: this daemon would resolve the other's pushes by its own disk.
func taken(l refdb.LockInfo, site string) error {
	if !l.Stale() {
		return fmt.Errorf("%w: %q is served by %s: stop that one, or give this site another name", ErrTaken, site, l.Owner)
	}
	return fmt.Errorf("%w: %q was served until %s ago by %s, with another state directory: %s",
		ErrTaken, site, l.Age.Round(time.Second), l.Owner, takeOverHint)
}

// End releases the lock.
func (p *Presence) End() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.lock != nil {
		p.release(p.lock)
	}
	p.lock = nil
}

func (p *Presence) release(lock *refdb.Lock) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if err := lock.Release(ctx); err != nil && !errors.Is(err, refdb.ErrLockLost) {
		p.log.Warn("the lock on the site's name could not be released: the next start takes it", "class", refdb.ClassOf(err).String())
	}
}

// LockOf returns the lock on a site's name, which a daemon holds while it runs; nil if there is
// none, or a stale one. A daemon that was killed leaves it behind for a while.
func LockOf(ctx context.Context, db *refdb.DB, site string) (*refdb.LockInfo, error) {
	ref := refPrefix + site
	if driver.CheckRef(ref) != nil {
		return nil, nil
	}
	for l, err := range db.Locks(ctx, refdb.LockFilter{Project: Project, Ref: ref}) {
		if err != nil || l.Stale() {
			return nil, err
		}
		return &l, nil
	}
	return nil, nil
}

// Sites returns the names of all sites that have ever served.
func Sites(ctx context.Context, db *refdb.DB) (names []string, err error) {
	for ref, err := range db.Refs(ctx, Project, refPrefix) {
		if err != nil {
			return nil, err
		}
		names = append(names, strings.TrimPrefix(ref.Name, refPrefix))
	}
	return names, nil
}

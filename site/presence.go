package site

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
)

// Where the lock on a site's name is.
const (
	presenceProject = "refdb/sites"
	presencePrefix  = "refs/sites/"
)

// errTaken: another daemon serves this site's name.
var errTaken = errors.New("another daemon serves this site's name")

// A presence is the lock on the site's name in the database. Two daemons of one
// name would resolve each other's pushes, each by its own disk.
type presence struct {
	db  *refdb.DB
	log *slog.Logger

	mu   sync.Mutex
	lock *refdb.Lock
	err  error // of the latest attempt to get it
}

// lost says why there is no presence; nil if there is.
func (p *presence) lost() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.lock != nil && p.lock.Err() == nil:
		return nil
	case p.err != nil:
		return fmt.Errorf("the site daemon can't serve: %w", p.err)
	default:
		return errors.New("the site daemon can't serve: it has just lost the lock on the site's name, and asks for it again")
	}
}

// begin gets the lock for a daemon that starts. The error says who has it; if
// the database does not answer there is none, and keep goes on trying.
func (p *presence) begin(ctx context.Context, c *Config) error {
	err := p.acquire(ctx, c)
	if errors.Is(err, errTaken) {
		return err
	}
	if err != nil {
		p.log.WarnContext(ctx, "starting without the database; trying again: see `refdbctl site status`", "class", refdb.ClassOf(err).String())
	}
	return nil
}

// keep gets the lock again whenever it is lost, until ctx ends.
func (p *presence) keep(ctx context.Context, c *Config) {
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
		for p.acquire(ctx, c) != nil {
			select {
			case <-time.After(500 * time.Millisecond):
			case <-ctx.Done():
				return
			}
		}
		p.log.InfoContext(ctx, "the lock on the site's name is taken")
	}
}

func (p *presence) acquire(ctx context.Context, c *Config) error {
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	lock, err := p.take(ctx, c)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lock, p.err = lock, err
	return err
}

func (p *presence) take(ctx context.Context, c *Config) (*refdb.Lock, error) {
	ref := presencePrefix + c.Site
	file := filepath.Join(c.State, "owners")
	ours, err := readOwners(file)
	if err != nil {
		return nil, err
	}
	for l, err := range p.db.Locks(ctx, refdb.LockFilter{Project: presenceProject, Ref: ref}) {
		if err != nil {
			return nil, err
		}
		if !slices.Contains(ours, l.Owner) {
			return nil, taken(l, c.Site)
		}
		// It is an earlier process's with the same state directory, whose file lock is
		// ours now, or our own that was lost: nobody relies on it.
		if _, err := p.db.Purge(ctx, []refdb.LockInfo{l}, refdb.PurgeFresh()); err != nil {
			return nil, err
		}
	}
	// Before the lock: a crash in between must not leave one that looks like another's.
	if err := writeOwners(file, append(ours, p.db.Owner())); err != nil {
		return nil, err
	}
	lock, err := p.db.TryLock(ctx, presenceProject, ref)
	if locked := (*refdb.LockedError)(nil); errors.As(err, &locked) {
		return nil, taken(locked.Holders[0], c.Site)
	}
	if err != nil {
		return nil, err
	}
	return lock, writeOwners(file, []string{p.db.Owner()})
}

// taken says what to do about another's presence. One that is stale is not
// taken over either: this daemon would resolve that one's pushes by its own disk.
func taken(l refdb.LockInfo, site string) error {
	if !l.Stale() {
		return fmt.Errorf("%w: %q is served by %s: stop that one, or give this site another name", errTaken, site, l.Owner)
	}
	return fmt.Errorf("%w: %q was served until %s ago by %s, with another state directory: if that one is gone for good and its repositories are "+
		"here, run `refdbctl locks purge --project %s --stale`", errTaken, site, l.Age.Round(time.Second), l.Owner, presenceProject)
}

// end releases the lock.
func (p *presence) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.lock == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if err := p.lock.Release(ctx); err != nil && !errors.Is(err, refdb.ErrLockLost) {
		p.log.Warn("the lock on the site's name could not be released: the next start takes it", "class", refdb.ClassOf(err).String())
	}
	p.lock = nil
}

// readOwners lists the names under which this state directory's daemons may
// have left a lock behind.
func readOwners(path string) ([]string, error) {
	b, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("reading the daemon's state: %w", err)
	}
	return strings.Fields(string(b)), nil
}

// writeOwners replaces the list, so that it outlasts a crash of the machine.
func writeOwners(path string, owners []string) error {
	slices.Sort(owners)
	owners = slices.Compact(owners)
	return replaceFile(path, []byte(strings.Join(owners, "\n")+"\n"))
}

// replaceFile has the file hold data, whole, after a crash of the machine too.
func replaceFile(path string, data []byte) error {
	temporary := path + ".new"
	f, err := os.OpenFile(temporary, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err == nil {
		_, err = f.Write(data)
		err = errors.Join(err, f.Sync(), f.Close())
	}
	if err == nil {
		err = os.Rename(temporary, path)
	}
	if err == nil {
		err = syncDir(filepath.Dir(path))
	}
	if err != nil {
		return fmt.Errorf("writing the daemon's state: %w", err)
	}
	return nil
}

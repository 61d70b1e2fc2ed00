package hookdir

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/globalrefdb/globalrefdb/site/internal/pause"
)

const (
	// lookEvery is the interval at which the daemon checks its site's hooks.
	lookEvery = time.Second
	// restoreWithin is how long the daemon waits for another process that is changing the
	// directory, and may be stopped.
	restoreWithin = 10 * time.Second
)

// A Keeper monitors the site's hooks, and restores them, while the daemon runs.
type Keeper struct {
	Dir Dir
	// Program is the content of refdb-hook; nil if the daemon has none: then nothing is restored.
	Program []byte
	// Needed reports whether an existing repository leads git to the directory. If the disk of all
	// repositories is unmounted, the directory's disk may be, too, and the directory must not be
	// created below the mount point.
	Needed func() bool
	// Compare is called after the hooks were damaged, because refs may have moved unchecked.
	Compare func(context.Context)
	// Alarm is called each time the hooks are found damaged.
	Alarm  func()
	Logger *slog.Logger

	mu    sync.Mutex
	fault string
	lost  uint64

	whole    string // the sight of the directory when it was last read and found intact
	failure  string // the logged reason why the directory could not be restored
	restored chan struct{}
}

// State returns the present fault of the hooks, and the number of times that they were found
// damaged.
func (k *Keeper) State() (fault string, lost uint64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.fault, k.lost
}

// Run replaces the site's hooks by those of the daemon's version, then monitors and restores them
// until ctx ends.
func (k *Keeper) Run(ctx context.Context) {
	// A comparison takes time. The hooks are monitored meanwhile.
	k.restored = make(chan struct{}, 1)
	var comparing sync.WaitGroup
	comparing.Go(func() {
		for range k.restored {
			k.Compare(ctx)
		}
	})
	defer comparing.Wait()
	defer close(k.restored)
	k.look(ctx)
	target, _ := os.Readlink(k.Dir.HooksPath())
	lost := target == "" && k.whole != "" // lost since that check: the next check restores it, and refs are compared
	if k.Program != nil && target != k.Dir.version(k.Program) && !lost {
		did, err := k.Dir.Provide(ctx, k.Program, true)
		if err != nil {
			k.Logger.ErrorContext(ctx, "the site's hooks can't be replaced by those of this version", "error", err)
		} else {
			k.Logger.InfoContext(ctx, "the site's hooks", "state", did)
		}
	}
	for pause.For(ctx, lookEvery) {
		k.look(ctx)
	}
}

// look restores the hooks if they are damaged.
func (k *Keeper) look(ctx context.Context) {
	sight := k.Dir.sight()
	if k.whole != "" && sight == k.whole {
		return
	}
	faults := k.Dir.faults(nil)
	if len(faults) == 0 {
		k.whole = sight
		k.note("")
		return
	}
	if !k.Needed() {
		return
	}
	k.whole = ""
	if first := k.note(faults[0].Path + ": " + faults[0].Detail); first {
		k.Alarm()
		k.Logger.ErrorContext(ctx, "the site's hooks are damaged: pushes are refused, or not guarded", "path", faults[0].Path, "fault", faults[0].Detail)
	}
	if k.Program != nil {
		limited, cancel := context.WithTimeout(ctx, restoreWithin)
		_, err := k.Dir.Provide(limited, k.Program, false)
		cancel()
		switch {
		case err == nil:
			k.failure = ""
		case err.Error() != k.failure: // log it once, not each second
			k.failure = err.Error()
			k.Logger.ErrorContext(ctx, "the site's hooks can't be restored: see `refdbctl site check`", "error", err)
		}
	}
	faults = k.Dir.faults(nil)
	for _, f := range faults {
		if f.Open {
			if err := k.Dir.Close(); err != nil {
				k.Logger.ErrorContext(ctx, "pushes are not guarded, and can't be refused", "error", err)
			}
			break
		}
	}
	if len(faults) > 0 {
		return
	}
	k.whole = k.Dir.sight()
	k.note("")
	k.Logger.WarnContext(ctx, "the site's hooks are intact again: all refs are compared with the database")
	select {
	case k.restored <- struct{}{}:
	default: // a comparison that covers this one is already pending
	}
}

// note records the present fault, and reports whether it is new.
func (k *Keeper) note(fault string) (first bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	first = k.fault == "" && fault != ""
	if first {
		k.lost++
	}
	k.fault = fault
	return first
}

// sight returns a string that changes when the hooks change, without reading them. It is "" if one
// of them can't be run.
func (d Dir) sight() string {
	var all strings.Builder
	target, _ := os.Readlink(d.HooksPath())
	all.WriteString(target)
	if d.notEnterable("") != "" {
		return ""
	}
	for _, name := range append(Names[:len(Names):len(Names)], config) {
		path := d.HooksPath() + "/" + name
		mode := uint32(unix.X_OK)
		if name == config {
			mode = unix.R_OK
		}
		var s unix.Stat_t
		if unix.Access(path, mode) != nil || unix.Stat(path, &s) != nil {
			return ""
		}
		fmt.Fprintf(&all, " %d:%d:%d:%d", s.Dev, s.Ino, s.Size, s.Mtim.Nano())
	}
	return all.String()
}

package site

import (
	"crypto/rand"
	"fmt"
	"sync"

	"github.com/globalrefdb/globalrefdb/site/wire"
)

// moved counts, for each repository, the transactions of git that have ended there. Who keeps what a repository's refs held
// goes by that: files that git has changed can't tell it, because two changes may come within one tick of a file's time.
//
// A hook tells the daemon before its git tells the client. So what was acknowledged has been counted.
type moved struct {
	boot string // random: counts of another daemon are others

	mu sync.Mutex
	in map[string]uint64 // by path
}

func newMoved() moved { return moved{boot: rand.Text(), in: map[string]uint64{}} }

// raise counts a transaction in the repository at path.
func (m *moved) raise(path string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.in[path]++
}

// mark returns a text that is another one after each transaction, and in each daemon.
func (m *moved) mark(path string) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return fmt.Sprintf("%s %d", m.boot, m.in[path])
}

// guardsAsked says whether a guard may have lock files in the repository that q names.
func (d *Daemon) guardsAsked(q wire.Request) wire.Response {
	r, err := d.config.Load().Find(q.Dir)
	if err != nil {
		return wire.Response{Lines: []string{wire.OneLine(err.Error())}}
	}
	d.guards.lock()
	defer d.guards.unlock()
	if d.guards.livingIn(r.Path) {
		return wire.Response{OK: true, Lines: []string{wire.GuardsMayWork}}
	}
	return wire.Response{OK: true, Lines: []string{wire.NoGuardsWork}}
}

// readAsked says what the mark of the repository is that q names.
func (d *Daemon) readAsked(q wire.Request) wire.Response {
	r, err := d.config.Load().Find(q.Dir)
	if err != nil {
		return wire.Response{Lines: []string{wire.OneLine(err.Error())}}
	}
	return wire.Response{OK: true, Lines: []string{d.moved.mark(r.Path)}}
}

package packs

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/site/internal/durable"
)

// A Mark records which packs of a project a repository has: all packs up to a key in their order.
type Mark struct {
	// ID distinguishes the mark of this repository from the mark of one that replaced it.
	ID string `json:"id"`
	// Epoch is the epoch in which Key was read: a database that goes back uses its positions again.
	Epoch string         `json:"epoch"`
	Key   driver.PackKey `json:"key"`

	mu   sync.Mutex
	made map[string]bool // packs that were made here and have not been listed yet

	// later holds packs after Key that are here, too. The mark's file does not contain them: after
	// a restart they are unpacked again.
	later map[string]driver.PackKey
	// whole holds object IDs of which everything that they reach was found here after since.
	whole map[string]bool
	since time.Time

	// overLimit holds packs that exceeded a limit of git. Each attempt may take git minutes.
	overLimit map[string]excess

	restarted  time.Time // when startOver last put the mark before all packs
	from       string    // the latest base at that time, "" if there was none
	baseNeeded bool      // the next base is unpacked even if its objects seem to be here
}

const (
	// maxWhole bounds the object IDs in whole, and the packs in overLimit.
	maxWhole = 200
	// wholeFor is how long the object IDs in whole count: a prune keeps everything that refs
	// reached within this time.
	wholeFor = time.Hour
	// maxMade bounds the packs in made. Packs that the mark forgets are unpacked again.
	maxMade = 10_000
	// retryExcess is the time after which a pack that exceeded a limit is tried again.
	retryExcess = time.Hour
	// restartEvery is the minimum time between two restarts at the same base, which may be large.
	restartEvery = time.Hour
)

// MarkFile returns the path of the file, in the repository's directory, that holds its mark.
func MarkFile(dir string) string { return filepath.Join(dir, "refdb", "packs") }

// ReadMark returns the mark of the repository in dir. If the repository has no mark, ReadMark
// writes one that records no packs.
func ReadMark(dir string) (*Mark, error) {
	m := &Mark{ID: rand.Text()}
	text, err := os.ReadFile(MarkFile(dir))
	if errors.Is(err, fs.ErrNotExist) {
		return m, m.Write(dir)
	}
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(text, m); err != nil {
		return nil, fmt.Errorf("reading %s: %w: remove the file, and all packs are checked again", MarkFile(dir), err)
	}
	return m, nil
}

// Write replaces the mark's file. After a crash of the machine the file may hold an earlier mark;
// then packs are unpacked again.
func (m *Mark) Write(dir string) error {
	text, err := json.Marshal(struct {
		ID    string         `json:"id"`
		Epoch string         `json:"epoch"`
		Key   driver.PackKey `json:"key"`
	}{m.ID, m.Epoch, m.Key})
	if err != nil {
		return err
	}
	path := MarkFile(dir)
	// Parent directories are not created: a deleted repository must not seem to exist again.
	if err := os.Mkdir(filepath.Dir(path), 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	// The name is unique, because the daemon and refdbctl may write at the same time.
	next, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".new-*")
	if err != nil {
		return err
	}
	_, err = next.Write(append(text, '\n'))
	err = errors.Join(err, next.Chmod(0o644), next.Close())
	if err == nil {
		err = os.Rename(next.Name(), path)
	}
	if err != nil {
		err = errors.Join(err, os.Remove(next.Name()))
	}
	return err
}

// Sync makes the mark that was last written survive a crash of the machine.
func (m *Mark) Sync(dir string) error {
	f, err := os.Open(MarkFile(dir))
	if err != nil {
		return err
	}
	defer f.Close()
	if err := f.Sync(); err != nil {
		return err
	}
	return durable.SyncDir(filepath.Dir(MarkFile(dir)))
}

// Pruned forgets which object IDs were found whole, because objects have been pruned since. Key
// stays: a prune keeps all objects that later packs build on.
func (m *Mark) Pruned() { m.whole = nil }

// Enter moves the mark to the present epoch, the last of epochs. If an epoch after the mark's own
// began at a position before Key, the changes after that position may have been lost, and their
// positions used again; then Enter moves Key back to that position.
func (m *Mark) Enter(epochs []driver.Epoch) {
	present := epochs[len(epochs)-1].ID
	if m.Epoch == present {
		return
	}
	i := slices.IndexFunc(epochs, func(e driver.Epoch) bool { return e.ID == m.Epoch })
	if i < 0 {
		m.Key = driver.PackKey{} // the mark is new, or of another database
	}
	for _, e := range epochs[i+1:] {
		if m.Key.Position > e.First {
			m.Key = driver.PackKey{Position: e.First}
		}
	}
	m.Epoch, m.later, m.whole = present, nil, nil
}

// lower moves Key back to the end of the complete positions, and reports whether Key was beyond it.
// A mark of an older program may be: after a crash of the database, other packs may have got the
// positions in between.
func (m *Mark) lower(complete refdb.Position) bool {
	end := driver.PackKey{Position: complete + 1}
	if m.Key.Compare(end) <= 0 {
		return false
	}
	m.Key = end
	return true
}

// startOver puts the mark before all packs, so that base, the latest one, is unpacked. It returns
// false, and changes nothing, if it did so with the same base within restartEvery: then the base
// did not help.
func (m *Mark) startOver(base string) bool {
	if !m.restarted.IsZero() && m.from == base && time.Since(m.restarted) < restartEvery {
		return false
	}
	m.restarted, m.from, m.baseNeeded = time.Now(), base, true
	m.Key, m.later, m.whole = driver.PackKey{}, nil, nil
	return true
}

// An excess is the error of a pack that exceeded a limit of git.
type excess struct {
	err error
	at  time.Time
}

// recordExcess records that unpacking a pack exceeded a limit.
func (m *Mark) recordExcess(id string, err error) {
	if m.overLimit == nil || len(m.overLimit) >= maxWhole {
		m.overLimit = map[string]excess{}
	}
	m.overLimit[id] = excess{err, time.Now()}
}

// exceeded returns the recorded error if unpacking the pack exceeded a limit within retryExcess,
// and nil otherwise.
func (m *Mark) exceeded(id string) error {
	if e := m.overLimit[id]; time.Since(e.at) < retryExcess {
		return e.err
	}
	return nil
}

// Made records packs that were made of this repository and used by a preparation.
func (m *Mark) Made(ids []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.made == nil || len(m.made)+len(ids) > maxMade {
		m.made = map[string]bool{}
	}
	for _, id := range ids {
		m.made[id] = true
	}
}

// has reports whether the repository has the pack.
func (m *Mark) has(p driver.Pack) bool {
	m.mu.Lock()
	made := m.made[p.ID]
	delete(m.made, p.ID)
	m.mu.Unlock()
	if made {
		m.add(p)
	}
	_, later := m.later[p.ID]
	return later || p.Key().Compare(m.Key) <= 0
}

// add records that the repository has the pack. Packs must be added in their order.
func (m *Mark) add(p driver.Pack) {
	if m.later == nil {
		m.later = map[string]driver.PackKey{}
	}
	m.later[p.ID] = p.Key()
	m.addWhole(p.Tips)
}

// addWhole records that everything that ids reach is here.
func (m *Mark) addWhole(ids []string) {
	if m.whole == nil || len(m.whole)+len(ids) > maxWhole || time.Since(m.since) > wholeFor {
		m.whole, m.since = make(map[string]bool, len(ids)), time.Now()
	}
	for _, id := range ids {
		m.whole[id] = true
	}
}

// IsWhole reports whether everything that an object ID reaches is known to be here.
func (m *Mark) IsWhole(id string) bool { return m.whole[id] && time.Since(m.since) <= wholeFor }

// advance moves Key forward to last, but not beyond the complete positions. All used packs up to
// last must have been listed. It reports whether Key has moved.
func (m *Mark) advance(last driver.PackKey, complete refdb.Position) bool {
	to := last
	if end := (driver.PackKey{Position: complete + 1}); end.Compare(to) < 0 {
		to = end
	}
	if to.Compare(m.Key) <= 0 {
		return false
	}
	m.Key = to
	for id, key := range m.later {
		if key.Compare(m.Key) <= 0 {
			delete(m.later, id)
		}
	}
	return true
}

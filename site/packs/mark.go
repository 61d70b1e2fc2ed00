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

// A Mark says which packs of a project a repository has: all up to a place in their order.
type Mark struct {
	// ID tells the repository's mark from that of one that took its place.
	ID string `json:"id"`
	// Epoch is the one in which Key was read: after a database went back, positions are used again.
	Epoch string         `json:"epoch"`
	Key   driver.PackKey `json:"key"`

	mu   sync.Mutex
	made map[string]bool // packs that were made here, and have not been listed yet

	// later are packs after Key that are here, too. They are not written: after a restart they are unpacked again.
	later map[string]driver.PackKey
	// whole are object IDs of which all that they reach was found here, since then.
	whole map[string]bool
	since time.Time

	// tooMuch are packs that exceeded a limit of git, and when. Each try may take git minutes.
	tooMuch map[string]excess

	restarted  time.Time // when it began again last
	from       string    // the base at which it did, "" if there was none
	baseNeeded bool      // since then: a base is unpacked even if all seems to be here
}

const (
	// maxWhole bounds the object IDs that are known to be whole.
	maxWhole = 200
	// wholeFor is how long object IDs found whole count as whole: nothing is pruned that refs reached as recently.
	wholeFor = time.Hour
	// maxMade bounds the packs that were made here and not listed yet. What is forgotten is unpacked again.
	maxMade = 10_000
	// retryExcess is after how long a pack that exceeded a limit is tried again.
	retryExcess = time.Hour
	// restartEvery is how often a repository begins again at the same base, which may be large.
	restartEvery = time.Hour
)

// MarkFile is the file in a repository's directory that holds its mark.
func MarkFile(dir string) string { return filepath.Join(dir, "refdb", "packs") }

// ReadMark returns the mark of the repository in a directory. If there is none it makes one, without packs.
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

// Write records the mark. A crash of the machine may bring back an earlier one: packs are then unpacked again.
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
	// Not its parents: a repository that is gone must not seem to be there again.
	if err := os.Mkdir(filepath.Dir(path), 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	// Its name is not used twice: the daemon and refdbctl may write at the same time.
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

// Sync makes what was last written survive a crash of the machine.
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

// Pruned forgets what was found to be here: objects were pruned since. What the mark says stands: nothing was pruned that packs
// which are still to come build on.
func (m *Mark) Pruned() { m.whole = nil }

// Enter makes the mark one of the present epoch, the last of these. What came after the beginning of an epoch since the mark's
// own may have been gone since, and its positions used again.
func (m *Mark) Enter(epochs []driver.Epoch) {
	present := epochs[len(epochs)-1].ID
	if m.Epoch == present {
		return
	}
	i := slices.IndexFunc(epochs, func(e driver.Epoch) bool { return e.ID == m.Epoch })
	if i < 0 {
		m.Key = driver.PackKey{} // of another database, or new
	}
	for _, e := range epochs[i+1:] {
		if m.Key.Position > e.First {
			m.Key = driver.PackKey{Position: e.First}
		}
	}
	m.Epoch, m.later, m.whole = present, nil, nil
}

// lower moves Key back to what is complete, and reports whether it stood beyond that. An older program's mark may: other packs can have
// got the positions in between, after a crash of the database.
func (m *Mark) lower(complete refdb.Position) bool {
	end := driver.PackKey{Position: complete + 1}
	if m.Key.Compare(end) <= 0 {
		return false
	}
	m.Key = end
	return true
}

// startOver puts the mark before all packs, so that base, the latest, is unpacked. It reports false if that was done with this base
// within the last hour: it did not help.
func (m *Mark) startOver(base string) bool {
	if !m.restarted.IsZero() && m.from == base && time.Since(m.restarted) < restartEvery {
		return false
	}
	m.restarted, m.from, m.baseNeeded = time.Now(), base, true
	m.Key, m.later, m.whole = driver.PackKey{}, nil, nil
	return true
}

// An excess is why unpacking a pack was too much for git.
type excess struct {
	err error
	at  time.Time
}

// exceeds records that unpacking a pack exceeded a limit.
func (m *Mark) exceeds(id string, err error) {
	if m.tooMuch == nil || len(m.tooMuch) >= maxWhole {
		m.tooMuch = map[string]excess{}
	}
	m.tooMuch[id] = excess{err, time.Now()}
}

// exceeded returns the limit that unpacking a pack exceeded within the last hour; nil if it exceeded none.
func (m *Mark) exceeded(id string) error {
	if e := m.tooMuch[id]; time.Since(e.at) < retryExcess {
		return e.err
	}
	return nil
}

// Made records that packs were made of this repository, and used.
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

// has reports whether the pack is here.
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

// add records that the pack is here. It comes after all that were added before.
func (m *Mark) add(p driver.Pack) {
	if m.later == nil {
		m.later = map[string]driver.PackKey{}
	}
	m.later[p.ID] = p.Key()
	m.know(p.Tips)
}

func (m *Mark) know(ids []string) {
	if m.whole == nil || len(m.whole)+len(ids) > maxWhole || time.Since(m.since) > wholeFor {
		m.whole, m.since = make(map[string]bool, len(ids)), time.Now()
	}
	for _, id := range ids {
		m.whole[id] = true
	}
}

// IsWhole reports whether all that an object ID reaches is known to be here.
func (m *Mark) IsWhole(id string) bool { return m.whole[id] && time.Since(m.since) <= wholeFor }

// listed moves Key on after all used packs up to last were seen, of which those up to complete are all there
// will ever be. It reports whether Key has moved.
func (m *Mark) listed(last driver.PackKey, complete refdb.Position) bool {
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

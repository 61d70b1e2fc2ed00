package packs

import (
	"sync"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
)

// recentFor is how long a base that was read from the database need not be read again for a pack
// that a preparation carries. It is well below the hour within which packs may build on a value
// that the database held.
const recentFor = 10 * time.Minute

// Recent remembers which base was last read from the database, for each project. The zero value is
// ready to use, and a nil *Recent remembers nothing.
type Recent struct {
	mu    sync.Mutex
	bases map[string]recentBase // by project
}

type recentBase struct {
	driver.RefValue
	read time.Time
}

func (r *Recent) has(project string, b driver.RefValue) bool {
	if r == nil {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	have, ok := r.bases[project]
	return ok && have.RefValue == b && time.Since(have.read) < recentFor
}

func (r *Recent) record(project string, b driver.RefValue, read time.Time) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.bases == nil {
		r.bases = map[string]recentBase{}
	}
	r.bases[project] = recentBase{b, read}
}

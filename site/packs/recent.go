package packs

import (
	"sync"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
)

// recentFor is how long a base need not be read again for a pack that its preparation carries. It is well within the hour for which
// what the database held may be built on.
const recentFor = 10 * time.Minute

// Recent remembers which base the database had of each project when that was last read. Its zero value is ready to use.
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

func (r *Recent) note(project string, b driver.RefValue, read time.Time) {
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

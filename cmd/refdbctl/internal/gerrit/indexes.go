package gerrit

import (
	"fmt"
	"time"

	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/exit"
	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/output"
	"github.com/globalrefdb/globalrefdb/site/gerrit"
)

// indexes is the result of the last comparison of Gerrit's indexes. Only a running Gerrit compares
// them.
type indexes struct {
	State    string    `json:"state"` // unknown, comparing, cut-off or compared
	Time     time.Time `json:"time,omitzero"`
	Compared int       `json:"compared"`
	Stale    int       `json:"stale"`
	Asked    bool      `json:"asked"` // another comparison was requested, and has not begun
}

// compareIndexes asks the Gerrit that runs in a directory to compare its indexes.
func compareIndexes(dir *gerrit.Directory) error {
	holder, held, err := gerrit.HolderOf(dir.Path)
	if err != nil {
		return err
	}
	if !held || holder.Offline() {
		return exit.With(exit.Failed, fmt.Sprintf("no Gerrit runs in %s: only a running Gerrit compares its indexes; to have the next start compare them, remove %s/data/refdb/moves", dir.Path, dir.Path))
	}
	return dir.AskForComparison()
}

// indexes prints a note about the last comparison of Gerrit's indexes with the repositories.
func (a *app) indexes(dir *gerrit.Directory) (said indexes, err error) {
	last, known, err := dir.LastComparison()
	if err != nil {
		return indexes{State: "unknown"}, err
	}
	said = indexes{Time: last.Time, Compared: last.Compared, Stale: last.Stale}
	ago := output.Ago(max(0, time.Since(last.Time)).Round(time.Second))
	_, running, _ := gerrit.HolderOf(dir.Path)
	switch {
	case !known:
		said = indexes{State: "unknown"}
		a.Note("indexes: not checked, and no comparison with the repositories is known: --compare requests one")
	case last.Ended:
		said.State = "compared"
		a.Note("indexes: last compared with the repositories %s ago: of %d entries %d were stale, and were reindexed; --compare requests another comparison",
			ago, last.Compared, last.Stale)
	case running:
		said.State = "comparing"
		a.Note("indexes: a comparison with the repositories has been running for %s: searches may be incomplete", ago)
	default:
		said.State = "cut-off"
		a.Note("indexes: a comparison that began %s ago did not finish: the next start of Gerrit repeats it", ago)
	}
	if since, ok := dir.ComparisonAsked(); ok {
		said.Asked = true
		a.Note("indexes: a comparison was requested %s ago, and has not begun: if it does not begin soon, see Gerrit's error_log, and check that the guard's jar is from this release",
			output.Ago(max(0, time.Since(since)).Round(time.Second)))
	}
	return said, nil
}

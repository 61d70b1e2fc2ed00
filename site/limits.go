package site

import (
	"time"

	"github.com/globalrefdb/globalrefdb/internal/gitrepo"
)

// limits holds the daemon's time limits that no configuration changes. Tests set longer ones.
type limits struct {
	request   time.Duration // that a hook takes to send its request
	answer    time.Duration // that it takes to read the answer
	lockFiles time.Duration // that running gits take to let go of lock files after a boot, or in a repair
	snapshot  time.Duration // that a push goes by what was read when it began
	fresh     time.Duration // that update answers by what was read when the push began, before it reads again
	reread    time.Duration // between two times that it reads again
}

func defaultLimits() limits {
	return limits{
		request: 5 * time.Second, answer: 2 * time.Second, lockFiles: gitrepo.LockPatience,
		snapshot: time.Minute, fresh: 100 * time.Millisecond, reread: time.Second,
	}
}

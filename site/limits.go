package site

import (
	"time"

	"github.com/globalrefdb/globalrefdb/internal/gitrepo"
)

// limits holds the daemon's time limits that no configuration changes. Tests set longer ones.
type limits struct {
	request   time.Duration // for a hook to send its request
	lockFiles time.Duration // for running gits to let go of lock files after a boot, or in a repair
}

func defaultLimits() limits { return limits{request: 5 * time.Second, lockFiles: gitrepo.LockPatience} }

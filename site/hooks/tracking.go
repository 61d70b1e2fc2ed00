package hooks

import (
	"fmt"
	"slices"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/site/config"
	"github.com/globalrefdb/globalrefdb/site/pusher"
	"github.com/globalrefdb/globalrefdb/site/refusal"
	"github.com/globalrefdb/globalrefdb/site/wire"
)

// refuseTracking refuses what `git push` does to the refs of its own repository. With a remote
// whose fetch refspec covers served refs, as a mirror's does, `git push` sets these refs to the
// values that it read when it began, and so undoes what was pushed here since. A compare-and-put
// does not notice: git compares with what the refs hold now. Refs below refs/remotes/ are meant for
// this.
func refuseTracking(a pusher.Agent, moves []refdb.Update) error {
	served := slices.IndexFunc(moves, func(u refdb.Update) bool { return !config.IsTracking(u.Ref) })
	if served < 0 {
		return nil
	}
	pushes, err := a.Pushes()
	if err != nil {
		return refusal.Because(refusal.Pusher, fmt.Errorf("%s: %w", wire.NothingWasChanged, err))
	}
	if !pushes {
		return nil
	}
	return refusal.Because(refusal.Tracking, refusal.Lines{wire.TrackingUpdate(moves[served].Ref)})
}

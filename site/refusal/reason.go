package refusal

import (
	"errors"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/site/config"
	"github.com/globalrefdb/globalrefdb/site/pusher"
	"github.com/globalrefdb/globalrefdb/site/wire"
)

// A Reason is why a push was refused, for metrics: one of few, and never with a name in it.
type Reason string

const (
	Behind        Reason = "behind"         // the ref has another value here than in the database
	UnknownRef    Reason = "unknown_ref"    // the ref is here, and not in the database
	Changed       Reason = "changed"        // a guard has read another value than the ref has here
	Locked        Reason = "locked"         // another push, or a lock, has the ref
	Excluded      Reason = "excluded"       // git could not hold the new ref beside another one
	Frozen        Reason = "frozen"         // an operator has frozen the project
	Held          Reason = "held"           // locked, for so long that trying again does not help
	Undecided     Reason = "undecided"      // what became of an earlier push is not known yet
	Database      Reason = "database"       // it did not answer
	Starting      Reason = "starting"       // the daemon does not know yet what its predecessor left
	Stopping      Reason = "stopping"       // the daemon ends
	NotServing    Reason = "not_serving"    // the daemon does not hold its site's name
	State         Reason = "state"          // the daemon can't write to its state
	Unguardable   Reason = "unguardable"    // a symbolic ref, or a name that can't be stored
	PeerRefs      Reason = "peer_refs"      // only a sync moves those
	ReservedName  Reason = "reserved_name"  // it means something to git or to the site
	Tracking      Reason = "tracking"       // git push would write to the repository that it pushes from
	TooMany       Reason = "too_many"       // refs in one push
	NotConfigured Reason = "not_configured" // the repository is none of the site's
	Pusher        Reason = "pusher"         // who pushes has gone, can't be told, or may not ask
	Objects       Reason = "objects"        // they can't be stored in the database
	Pruning       Reason = "pruning"        // the repository is being pruned, or was, under the push
	Exists        Reason = "exists"         // a project is to be created, and is there
	Other         Reason = "other"
)

// Reasons are all reasons.
var Reasons = [...]Reason{
	Behind, UnknownRef, Changed, Locked, Excluded, Frozen, Held, Undecided, Database, Starting, Stopping, NotServing, State,
	Unguardable, PeerRefs, ReservedName, Tracking, TooMany, NotConfigured, Pusher, Objects, Pruning, Exists, Other,
}

// A reasoned error is a refusal with its reason. Its text is that of the error in it.
type reasoned struct {
	error
	reason Reason
}

func (r reasoned) Unwrap() error { return r.error }

// Because adds a reason to err. It returns nil if err is nil.
func Because(r Reason, err error) error {
	if err == nil {
		return nil
	}
	return reasoned{err, r}
}

// ReasonOf returns why err refuses a push.
func ReasonOf(err error) Reason {
	var known reasoned
	var down Outage
	switch {
	case errors.As(err, &known):
		return known.reason
	case errors.As(err, &down):
		return Database
	case errors.Is(err, config.ErrNotConfigured):
		return NotConfigured
	case errors.Is(err, pusher.ErrGone):
		return Pusher
	case errors.Is(err, refdb.ErrTooMany):
		return TooMany
	}
	return Other
}

// Stops returns the answer of a stopping daemon. A hook does not treat it as a refusal, but asks the
// next daemon: see [wire.Response.Stopping].
func Stops() error { return Because(Stopping, errors.New(wire.DaemonStopping)) }

// MismatchReason is the reason of a [Mismatch] with a ref that is global in the database.
func MismatchReason(global refdb.Value) Reason {
	if global == refdb.Unknown {
		return UnknownRef
	}
	return Behind
}

// An Outage says that the database did not answer. The push that met it remembers it:
// otherwise each of its refs would wait for as long again.
type Outage struct{ text string }

func (o Outage) Error() string { return o.text }

// Passes reports whether err refuses a push because of the database, for a reason that may end without a person.
func Passes(err error) bool {
	var down Outage
	return errors.As(err, &down) && down.text != wire.DatabaseLost || ReasonOf(err) == Starting
}

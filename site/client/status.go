// Package client asks a site's daemon, over its socket, for its status, and whether it
// would let a push through.
package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/globalrefdb/globalrefdb/site/wire"
)

// A Status is what a daemon says about itself.
type Status struct {
	Site    string    `json:"site"`
	Version string    `json:"version"`
	PID     int       `json:"pid"`
	Started time.Time `json:"started"`
	Uptime  float64   `json:"uptime_seconds"`
	// SessionVersion is that of the sessions with guards; 0 if the daemon is of a version that does not say it.
	SessionVersion int  `json:"session_version"`
	Stopping       bool `json:"stopping"`

	// Presence is whether the daemon holds its site's name in the database. Without
	// it pushes are refused, and PresenceError says why it has none.
	Presence      bool   `json:"presence"`
	PresenceError string `json:"presence_error,omitempty"`
	// Database is whether it answered when it was last asked, at most some ten
	// seconds ago.
	Database      bool   `json:"database"`
	DatabaseError string `json:"database_error,omitempty"`

	Repositories int    `json:"repositories"` // configured, or found below the root
	Pushes       []Push `json:"pushes"`       // under way, or to be resolved
	// Sessions are those of the guards that live, and what is left of those that have died.
	Sessions []Session `json:"sessions"`
	// Readers are those of the list of moves: guards that keep indexes.
	Readers []Reader `json:"readers"`
	// MovesError is why moves can't be listed; "" if they are.
	MovesError string `json:"moves_error,omitempty"`
	// HooksError is what is wrong with the directory of the site's hooks; "" if nothing is.
	HooksError string `json:"hooks_error,omitempty"`
	// RootGone is whether site.root can't be read, or is empty although the daemon has followed repositories there.
	RootGone bool    `json:"root_gone,omitempty"`
	Stuck    []Stuck `json:"stuck"`
	// Gerrit is what the daemon sees of the site's Gerrit; nil if it has none (site.gerrit).
	Gerrit *Gerrit `json:"gerrit,omitempty"`
	// Unguarded are the projects that are not in mode enforce: in mode log nothing is refused, in mode comparing everything.
	Unguarded []Unguarded `json:"unguarded"`
	// Behind are the repositories that can't be brought to what the database holds, and those that are being brought there.
	Behind []Behind `json:"behind"`
	// Malformed are the projects into which another site let objects, within the last day, that git's fsck objects to. They are stored.
	Malformed []Malformed `json:"malformed"`
	Counters  Counters    `json:"counters"`
}

// A Push is what one process of git has announced and not ended.
type Push struct {
	Project string  `json:"project"`
	PID     int     `json:"pid"`
	Refs    int     `json:"refs"`
	Age     float64 `json:"age_seconds"`
}

// States of a [Session].
const (
	SessionOpen   = "open"
	SessionBroken = "broken" // the guard lives, and is expected to begin another
	SessionSilent = "silent" // so for more than a minute, with transactions that wait for it
	SessionDead   = "dead"   // the guard has died, and what it left is being settled
)

// A Session is that of a guard: a process that moves refs by itself.
type Session struct {
	Name     string  `json:"name"` // what the guard says that it is; "" if it has begun none with this daemon
	PID      int     `json:"pid"`
	GuardAge float64 `json:"guard_age_seconds"`
	State    string  `json:"state"`
	Age      float64 `json:"age_seconds"` // of the session, or since there is none
	Number   uint64  `json:"number"`
	Open     int     `json:"open"`           // transactions that are not settled
	Oldest   float64 `json:"oldest_seconds"` // the age of the oldest of them
}

// A Reader is a guard that reads which refs have moved.
type Reader struct {
	Guard     string  `json:"guard"` // its ID
	Connected bool    `json:"connected"`
	Age       float64 `json:"age_seconds"`    // of the connection, or since there is none
	Unread    int64   `json:"unread_bytes"`   // of the list
	Oldest    float64 `json:"oldest_seconds"` // the age of the oldest entry that is unread
	// Comparing says that the list does not have all that has moved since: the guard compares everything.
	Comparing bool `json:"comparing"`
	// Never says that a server with a session, such as a Gerrit, has never read. Age and Oldest are since its first session then.
	Never bool `json:"never,omitempty"`
}

// States of a [Gerrit].
const (
	GerritStopped   = "stopped"
	GerritGuarded   = "guarded"
	GerritStarting  = "starting"  // it has no session yet, or none for a moment
	GerritUnguarded = "unguarded" // it has had none for too long: it moves refs past the guard
	GerritUnknown   = "unknown"   // the daemon can't look
)

// A Gerrit is the process that has the indexes of a Gerrit's site directory open.
type Gerrit struct {
	Path  string  `json:"path"`
	PID   int     `json:"pid,omitempty"` // 0 if it can't be seen from the daemon
	State string  `json:"state"`
	Age   float64 `json:"age_seconds"` // since it has been in that state
	Error string  `json:"error,omitempty"`
}

// Stuck is an intent that can't be resolved from what the repository has.
type Stuck struct {
	Project string  `json:"project"`
	Ref     string  `json:"ref"`
	Reason  string  `json:"reason"` // and what to do
	Age     float64 `json:"age_seconds"`
}

// Unguarded is a project whose mode is not Enforce.
type Unguarded struct {
	Project  string        `json:"project"`
	Mode     string        `json:"mode"`
	Refusals uint64        `json:"would_refuse"` // transactions of git, since the daemon started
	Recent   []WouldRefuse `json:"recent"`       // the last of them
}

// Behind is a repository that does not follow.
type Behind struct {
	Project string  `json:"project"`
	Reason  string  `json:"reason"`
	Age     float64 `json:"age_seconds"` // since it could not be brought up
	// Pack is the ID of the pack that can't be unpacked, if that is why.
	Pack string `json:"pack,omitempty"`
}

// Malformed says what git's fsck objects to in an object that another site accepted.
type Malformed struct {
	Project   string  `json:"project"`
	Pack      string  `json:"pack"`  // the ID of the last one with such an object
	Owner     string  `json:"owner"` // who stored it
	Objection string  `json:"objection"`
	Age       float64 `json:"age_seconds"`
}

// unreadFor is for how long an entry of the list of moves may be unread before somebody should look at its reader.
const unreadFor = 5 * time.Minute

// BehindPatience is for how long a repository may be behind before somebody should look at it: what is on its way comes
// within that time.
const BehindPatience = time.Minute

// WouldRefuse is why a transaction of git would have been refused.
type WouldRefuse struct {
	Time   time.Time `json:"time"`
	Reason string    `json:"reason"`
}

// Counters count since the daemon started.
type Counters struct {
	Prepared uint64 `json:"prepared"` // transactions of git let through, those of nothing guarded included
	Refused  uint64 `json:"refused"`  // transactions vetoed
	Updated  uint64 `json:"updated"`  // refs that took their intended value
	Dropped  uint64 `json:"dropped"`  // refs that kept the old one
	Alarms   uint64 `json:"alarms"`   // as the metric refdb_site_alarms_total says
	Deaths   uint64 `json:"deaths"`   // processes of git, and guards, that ended with something left to resolve
	Heeded   uint64 `json:"heeded"`   // decisions of an operator that were carried out here
	Failures uint64 `json:"failures"` // requests that the database failed
	Followed uint64 `json:"followed"` // refs that were moved to what other sites made them
	Unpacked uint64 `json:"unpacked"` // packs of other sites
	// Reconciled counts the looks at the site's intents in the database that found nothing to be tried again.
	Reconciled uint64 `json:"reconciled"`
}

// OK reports whether there is nothing for an operator to look at.
func (s Status) OK() bool {
	return s.Presence && s.Database && len(s.Stuck) == 0 && !s.RootGone && s.MovesError == "" && s.HooksError == "" && (s.Gerrit == nil || s.Gerrit.State != GerritUnguarded) &&
		!slices.ContainsFunc(s.Readers, func(r Reader) bool { return r.Oldest > unreadFor.Seconds() }) &&
		!slices.ContainsFunc(s.Sessions, func(one Session) bool { return one.State == SessionSilent }) &&
		!slices.ContainsFunc(s.Behind, func(b Behind) bool { return b.Age > BehindPatience.Seconds() })
}

// Summary returns one line about the status.
func (s Status) Summary() string {
	switch {
	case !s.Presence:
		return "pushes are refused: " + wire.OneLine(s.PresenceError)
	case !s.Database:
		return "the database fails: " + wire.OneLine(s.DatabaseError)
	}
	return fmt.Sprintf("serving, %d pushes in progress, %d refs stuck", len(s.Pushes), len(s.Stuck))
}

// Within returns a context for a request that the daemon answers immediately, and its time limit, which is that of hooks.
func Within(ctx context.Context) (context.Context, time.Duration, context.CancelFunc) {
	limit, err := wire.Limit(os.Getenv)
	if err != nil {
		limit = wire.DefaultLimit // the hook says what is wrong with the variable
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	return ctx, limit, cancel
}

// Query asks the daemon at socket for its status.
func Query(ctx context.Context, socket string) (Status, error) {
	status, err := query(ctx, socket)
	if err != nil {
		return Status{}, fmt.Errorf("the site daemon does not answer at %s: %w", socket, err)
	}
	return status, nil
}

func query(ctx context.Context, socket string) (status Status, err error) {
	answer, err := ask(ctx, socket, wire.Request{State: wire.StateStatus})
	if err != nil {
		return status, err
	}
	text := strings.Join(answer.Lines, "\n")
	if !answer.OK {
		return status, errors.New(text)
	}
	return status, json.Unmarshal([]byte(text), &status)
}

// Answers returns an error if no daemon accepts requests at socket.
func Answers(ctx context.Context, socket string) error {
	ctx, _, cancel := Within(ctx)
	defer cancel()
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unix", socket)
	if err != nil {
		return err
	}
	return conn.Close()
}

// Refusal asks the daemon at socket whether it would let through a push to the repository dir that
// moves nothing. It returns why not, or "".
func Refusal(ctx context.Context, socket, dir string) (refusal string, err error) {
	ctx, limit, cancel := Within(ctx)
	defer cancel()
	answer, err := ask(ctx, socket, wire.Request{State: wire.StatePreReceive, Dir: dir, Limit: limit})
	if err != nil || answer.OK {
		return "", err
	}
	return strings.Join(answer.Lines, "; "), nil
}

// Follow lets the daemon at socket look now whether it is to follow the repository dir, which it does by itself within a
// minute, and compare its refs with the database.
func Follow(ctx context.Context, socket, dir string) error {
	ctx, limit, cancel := Within(ctx)
	defer cancel()
	answer, err := ask(ctx, socket, wire.Request{State: wire.StateFollow, Dir: dir, Limit: limit})
	if err == nil && !answer.OK {
		err = errors.New(strings.Join(answer.Lines, "; "))
	}
	return err
}

// Mark returns the daemon's mark of the repository dir. It changes after each git transaction whose hooks have run, and with each
// start of the daemon.
func Mark(ctx context.Context, socket, dir string) (string, error) {
	answer, err := ask(ctx, socket, wire.Request{State: wire.StateRead, Dir: dir})
	if err == nil && !answer.OK {
		err = errors.New(strings.Join(answer.Lines, "; "))
	}
	if err != nil {
		return "", fmt.Errorf("asking the site daemon at %s: %w", socket, err)
	}
	return strings.Join(answer.Lines, "\n"), nil
}

// GuardsMayWork asks the daemon at socket whether a guard may have lock files in the repository dir.
func GuardsMayWork(ctx context.Context, socket, dir string) (bool, error) {
	answer, err := ask(ctx, socket, wire.Request{State: wire.StateGuards, Dir: dir})
	said := strings.Join(answer.Lines, "; ")
	if err == nil && (!answer.OK || said != wire.GuardsMayWork && said != wire.NoGuardsWork) {
		err = fmt.Errorf("it says %q", said)
	}
	if err != nil {
		return false, fmt.Errorf("asking the site daemon at %s: %w", socket, err)
	}
	return said == wire.GuardsMayWork, nil
}

// ask sends the daemon at socket one request, and returns its answer.
func ask(ctx context.Context, socket string, q wire.Request) (answer wire.Response, err error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unix", socket)
	if err != nil {
		return answer, err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.SetDeadline(time.Unix(1, 0)) })()
	if err := q.Write(conn); err != nil {
		return answer, err
	}
	if err := conn.(*net.UnixConn).CloseWrite(); err != nil {
		return answer, err
	}
	return wire.ReadResponse(conn, func(string) {})
}

// Package client queries a site's daemon, over its socket, for its status, and for whether it would
// accept a push.
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

// A Status is a daemon's report about itself.
type Status struct {
	Site    string    `json:"site"`
	Version string    `json:"version"`
	PID     int       `json:"pid"`
	Started time.Time `json:"started"`
	Uptime  float64   `json:"uptime_seconds"`
	// SessionVersion is the version of the protocol of guards' sessions; 0 if the daemon has a
	// version that does not report it.
	SessionVersion int  `json:"session_version"`
	Stopping       bool `json:"stopping"`

	// Presence reports whether the daemon holds its site's name in the database. If not, pushes are
	// refused, and PresenceError is the reason.
	Presence      bool   `json:"presence"`
	PresenceError string `json:"presence_error,omitempty"`
	// Database reports whether the database answered the last request, at most some ten seconds
	// ago.
	Database      bool   `json:"database"`
	DatabaseError string `json:"database_error,omitempty"`

	// Unreachable are the other sites that are awaited, and whose daemons don't run or can't reach the
	// database: after a restart of its server all pushes would be refused until they are back. It is
	// null while that is not known.
	Unreachable []UnreachableSite `json:"unreachable_sites"`

	Repositories int    `json:"repositories"` // configured, or found below the root
	Pushes       []Push `json:"pushes"`       // in progress, or to be resolved
	// Sessions are the sessions of running guards, and the remains of those of dead guards.
	Sessions []Session `json:"sessions"`
	// Readers are the readers of the list of moves: guards that keep indexes.
	Readers []Reader `json:"readers"`
	// MovesError is the reason why moves can't be listed; "" if they are.
	MovesError string `json:"moves_error,omitempty"`
	// StateError is the error of the daemon's last access to its journal; "" if it succeeded. Pushes are
	// refused while the journal can't be written.
	StateError string `json:"state_error,omitempty"`
	// HooksError is the fault of the directory of the site's hooks; "" if there is none.
	HooksError string `json:"hooks_error,omitempty"`
	// RootGone reports whether site.root can't be read, or is empty although the daemon has
	// followed repositories there.
	RootGone bool    `json:"root_gone,omitempty"`
	Stuck    []Stuck `json:"stuck"`
	// Gerrit is the observed state of the site's Gerrit; nil if there is none (site.gerrit).
	Gerrit *Gerrit `json:"gerrit,omitempty"`
	// Unguarded are the projects that are not in mode enforce. In mode log nothing is refused, in
	// mode comparing everything.
	Unguarded []Unguarded `json:"unguarded"`
	// Behind are the repositories that can't catch up with the database, or are catching up.
	Behind []Behind `json:"behind"`
	// Malformed are the projects into which another site accepted, within the last day, objects
	// that git's fsck rejects. The objects are stored.
	Malformed []Malformed `json:"malformed"`
	// PushMirrors are the mirrors that the site configures.
	PushMirrors []PushMirror `json:"push_mirrors,omitempty"`
	Counters    Counters     `json:"counters"`
	// Tasks are the daemon's background tasks that were started.
	Tasks []Task `json:"tasks"`
}

// An UnreachableSite is a site without which the database's next server would not be admitted.
type UnreachableSite struct {
	Site string    `json:"site"`
	Seen time.Time `json:"seen"` // by the database's clock
}

// States of a [Task].
const (
	TaskRunning = "running"
	TaskEnded   = "ended"
)

// A Task is a background task of the daemon.
type Task struct {
	Name  string  `json:"name"`
	State string  `json:"state"`
	Age   float64 `json:"age_seconds"` // since it has been in that state
	// Error is that of its last attempt; "" if there was none.
	Error string `json:"error,omitempty"`
}

// A Push is a git process with announced moves that have not ended.
type Push struct {
	Project string  `json:"project"`
	PID     int     `json:"pid"`
	Refs    int     `json:"refs"`
	Age     float64 `json:"age_seconds"`
}

// States of a [Session].
const (
	SessionOpen   = "open"
	SessionBroken = "broken" // the guard is running, and is expected to begin another session
	SessionSilent = "silent" // broken for more than a minute, with transactions that wait for it
	SessionDead   = "dead"   // the guard has died, and its open transactions are being settled
)

// A Session is the session of a guard: a process that moves refs by itself.
type Session struct {
	Name     string  `json:"name"` // the guard's description of itself; "" if it has begun no session with this daemon
	PID      int     `json:"pid"`
	GuardAge float64 `json:"guard_age_seconds"`
	State    string  `json:"state"`
	Age      float64 `json:"age_seconds"` // of the session, or time without one
	Number   uint64  `json:"number"`
	Open     int     `json:"open"`           // unsettled transactions
	Oldest   float64 `json:"oldest_seconds"` // the age of the oldest of them
}

// A Reader is a guard that reads the list of moves.
type Reader struct {
	Guard     string  `json:"guard"` // its ID
	Connected bool    `json:"connected"`
	Age       float64 `json:"age_seconds"`    // of the connection, or time without one
	Unread    int64   `json:"unread_bytes"`   // of the list
	Oldest    float64 `json:"oldest_seconds"` // the age of the oldest unread entry
	// Comparing means that the list lacks some of the moves since, so the guard compares
	// everything.
	Comparing bool `json:"comparing"`
	// Never means that a server with a session, such as a Gerrit, has never read. Age and Oldest
	// then count from its first session.
	Never bool `json:"never,omitempty"`
}

// States of a [Gerrit].
const (
	GerritStopped   = "stopped"
	GerritGuarded   = "guarded"
	GerritStarting  = "starting"  // no session yet, or briefly none
	GerritUnguarded = "unguarded" // without a session for too long: it moves refs without the guard
	GerritUnknown   = "unknown"   // the daemon can't determine the state
)

// A Gerrit is the process that has the indexes of a Gerrit's site directory open.
type Gerrit struct {
	Path  string  `json:"path"`
	PID   int     `json:"pid,omitempty"` // 0 if invisible to the daemon
	State string  `json:"state"`
	Age   float64 `json:"age_seconds"` // in this state
	Error string  `json:"error,omitempty"`
}

// Stuck is an intent that can't be resolved from the state of the repository.
type Stuck struct {
	Project string  `json:"project"`
	Ref     string  `json:"ref"`
	Reason  string  `json:"reason"` // including what to do
	Age     float64 `json:"age_seconds"`
}

// Unguarded is a project whose mode is not Enforce.
type Unguarded struct {
	Project  string        `json:"project"`
	Mode     string        `json:"mode"`
	Refusals uint64        `json:"would_refuse"` // git transactions since the daemon's start
	Recent   []WouldRefuse `json:"recent"`       // the last of them
}

// Behind is a repository that can't follow.
type Behind struct {
	Project string  `json:"project"`
	Reason  string  `json:"reason"`
	Age     float64 `json:"age_seconds"` // since its first failure to catch up
	// Pack is the ID of the pack that can't be unpacked, if that is the reason.
	Pack string `json:"pack,omitempty"`
}

// A PushMirror is an external server that projects are pushed to, by one site at a time.
type PushMirror struct {
	Name   string  `json:"name"`
	Pushes bool    `json:"pushes"`         // whether this site pushes
	Site   string  `json:"site,omitempty"` // the site that pushes; "" if this site knows of none
	Age    float64 `json:"age_seconds"`    // since that has been so
	// Error is the reason why this site could not begin to push, or had to end; "" if there is none.
	Error string `json:"error,omitempty"`
	// Waiting is the number of projects that are being pushed or compared, or wait for it, if this
	// site pushes.
	Waiting int `json:"waiting"`
	// Behind are the projects with changes that the mirror lacks, if this site pushes.
	Behind []Behind `json:"behind"`
}

// Malformed describes an object that git's fsck rejects and that another site accepted.
type Malformed struct {
	Project   string  `json:"project"`
	Pack      string  `json:"pack"`  // the ID of the last one with such an object
	Owner     string  `json:"owner"` // the process that stored it
	Objection string  `json:"objection"`
	Age       float64 `json:"age_seconds"`
}

// unreadFor is how long an entry of the list of moves may be unread before an operator should check
// its reader.
const unreadFor = 5 * time.Minute

// BehindPatience is how long a repository may be behind before an operator should check it: changes
// in transit arrive within that time.
const BehindPatience = time.Minute

// WouldRefuse is the reason why a git transaction would have been refused.
type WouldRefuse struct {
	Time   time.Time `json:"time"`
	Reason string    `json:"reason"`
}

// Counters count since the daemon started.
type Counters struct {
	Prepared uint64 `json:"prepared"` // accepted git transactions, including those without guarded refs
	Refused  uint64 `json:"refused"`  // refused transactions
	Updated  uint64 `json:"updated"`  // refs that took their intended value
	Dropped  uint64 `json:"dropped"`  // refs that kept the old one
	Alarms   uint64 `json:"alarms"`   // the same as the metric refdb_site_alarms_total
	Deaths   uint64 `json:"deaths"`   // git processes and guards that died with unsettled transactions
	Heeded   uint64 `json:"heeded"`   // operators' decisions applied here
	Failures uint64 `json:"failures"` // failed requests to the database
	Followed uint64 `json:"followed"` // refs updated to follow other sites
	Unpacked uint64 `json:"unpacked"` // packs from other sites
	// Reconciled counts the checks of the site's intents in the database that found nothing to
	// retry.
	Reconciled uint64 `json:"reconciled"`
}

// OK reports whether there is nothing for an operator to check.
func (s Status) OK() bool {
	return s.Presence && s.Database && s.StateError == "" && len(s.Alarms()) == 0 &&
		!slices.ContainsFunc(s.Behind, func(b Behind) bool { return b.Age > BehindPatience.Seconds() })
}

// Alarms returns the names of the alerts of docs/monitoring/alerts.yaml whose causes a daemon finds by itself, as far as
// they stand: neither those about its requests to the database nor those about repositories that are behind.
func (s Status) Alarms() (names []string) {
	for _, alarm := range []struct {
		name   string
		stands bool
	}{
		{"RefdbRootGone", s.RootGone},
		{"RefdbRefsStuck", len(s.Stuck) > 0},
		{"RefdbHooksDamaged", s.HooksError != ""},
		{"RefdbGuardSilent", slices.ContainsFunc(s.Sessions, func(one Session) bool { return one.State == SessionSilent })},
		{"RefdbMovesUnread", slices.ContainsFunc(s.Readers, func(r Reader) bool { return r.Oldest > unreadFor.Seconds() })},
		{"RefdbMovesNotListed", s.MovesError != ""},
		{"RefdbGerritUnguarded", s.Gerrit != nil && s.Gerrit.State == GerritUnguarded},
	} {
		if alarm.stands {
			names = append(names, alarm.name)
		}
	}
	return names
}

// Summary returns one line about the status.
func (s Status) Summary() string {
	switch {
	case !s.Presence:
		return "pushes are refused: " + wire.OneLine(s.PresenceError)
	case !s.Database:
		return "the database fails: " + wire.OneLine(s.DatabaseError)
	case s.StateError != "":
		return "pushes are refused: " + wire.OneLine(s.StateError)
	}
	return fmt.Sprintf("serving, %d pushes in progress, %d refs stuck", len(s.Pushes), len(s.Stuck))
}

// Within returns a context for a request that the daemon answers immediately, and its time limit,
// which is the same as for hooks.
func Within(ctx context.Context) (context.Context, time.Duration, context.CancelFunc) {
	limit, err := wire.Limit(os.Getenv)
	if err != nil {
		limit = wire.DefaultLimit // the hook says what is wrong with the variable
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	return ctx, limit, cancel
}

// Query returns the status of the daemon at socket.
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

// Refusal asks the daemon at socket whether it would accept a push to the repository dir that moves
// nothing. It returns the reason of a refusal, or "".
func Refusal(ctx context.Context, socket, dir string) (refusal string, err error) {
	ctx, limit, cancel := Within(ctx)
	defer cancel()
	answer, err := ask(ctx, socket, wire.Request{State: wire.StatePreReceive, Dir: dir, Limit: limit})
	if err != nil || answer.OK {
		return "", err
	}
	return strings.Join(answer.Lines, "; "), nil
}

// Follow asks the daemon at socket to check now whether it should follow the repository dir, which
// it does by itself within a minute, and to compare its refs with the database.
func Follow(ctx context.Context, socket, dir string) error {
	ctx, limit, cancel := Within(ctx)
	defer cancel()
	answer, err := ask(ctx, socket, wire.Request{State: wire.StateFollow, Dir: dir, Limit: limit})
	if err == nil && !answer.OK {
		err = errors.New(strings.Join(answer.Lines, "; "))
	}
	return err
}

// Mark returns the daemon's mark of the repository dir. It changes after each git transaction, and
// with each start of the daemon.
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

// GuardsMayWork asks the daemon at socket whether a guard may have lock files in the repository
// dir.
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

// Package overview gathers from the database what an operator looks at first: whether the database
// can be written, the sites, the pushes in progress, the locks, the changes, and the problems among
// them, each with the command to run next. The result is plain data with JSON names, for refdbctl
// top and for web pages.
package overview

import "time"

// An Overview is the state of an installation. Its parts are read at slightly different moments. A
// part that could not be read is nil, and named in Unread.
type Overview struct {
	Time     time.Time `json:"time,omitzero"` // the database's
	Database *Database `json:"database"`
	Sites    []Site    `json:"sites"` // in the order of their names
	Intents  *Intents  `json:"intents"`
	Locks    *Locks    `json:"locks"`
	Changes  *Changes  `json:"changes"`
	Problems []Problem `json:"problems"`
	Unread   []Unread  `json:"unread"`
}

// A Database says whether the database can be written.
type Database struct {
	Server   string   `json:"server"` // its identity
	Writable bool     `json:"writable"`
	Lost     int      `json:"lost"`             // lost changes that nobody has decided about
	Waiting  []string `json:"waiting"`          // sites that have not compared the server, and are waited for
	Schema   int      `json:"schema,omitempty"` // its version; 0 if it was not read
}

// A Site is the state of a site, as far as the database has it.
type Site struct {
	Name    string `json:"site"`
	Alive   *bool  `json:"alive"`   // its daemon holds a fresh lock on the site's name; nil if the locks were not read
	Awaited bool   `json:"awaited"` // a new server of the database can be written only once the site has compared it
	// Testified: the site was silent, and another site has testified about it, so that no server waits for it.
	Testified bool      `json:"testified"`
	Seen      time.Time `json:"seen,omitzero"` // when its daemon was last heard of, by the database's clock
	// Lag is nil if the site does not follow by itself, or if its lag was not read.
	Lag *Lag `json:"lag"`

	// The rest is what the daemon has said about itself, at most a minute after it changed.
	Version        string   `json:"version,omitempty"`
	Schema         int      `json:"schema,omitempty"`          // the newest version of the schema that its program knows
	Followed       int      `json:"followed"`                  // repositories that it keeps up to date
	Behind         int      `json:"behind"`                    // those that it can't
	BehindProjects []string `json:"behind_projects,omitempty"` // the first of these, the longest behind first
	BehindSeconds  float64  `json:"behind_seconds,omitempty"`  // how long the first of them has been behind
	Alarms         []string `json:"alarms,omitempty"`          // names of alerts whose causes the daemon has found
}

// A Lag is what a site has not read of the changes.
type Lag struct {
	Changes    int     `json:"changes"`
	More       bool    `json:"more,omitempty"`       // more than Changes
	Unreadable bool    `json:"unreadable,omitempty"` // the site must start over: the changes were pruned
	Seconds    float64 `json:"seconds"`              // since the first unread change
}

// Intents are the pushes that sites have announced and not ended.
type Intents struct {
	Pending       int      `json:"pending"`        // one for each ref
	Stuck         int      `json:"stuck"`          // those that are old, or whose site's daemon does not run
	Undone        int      `json:"undone"`         // operators' decisions that the sites have not applied
	OldestSeconds float64  `json:"oldest_seconds"` // the age of the oldest pending one
	More          bool     `json:"more,omitempty"` // there are more, which were not counted
	Oldest        []Intent `json:"oldest"`         // the oldest pending ones
}

// An Intent is the announced move of a ref.
type Intent struct {
	Project string  `json:"project"`
	Ref     string  `json:"ref"`
	Site    string  `json:"site"`
	By      string  `json:"by,omitempty"` // the requester of the move
	Seconds float64 `json:"age_seconds"`
}

// Locks are the locks on refs, without those that stand for intents and those on sites' names.
type Locks struct {
	Held    int  `json:"held"`
	Stale   int  `json:"stale"`          // the next process that requests one takes it over
	Awaited int  `json:"awaited"`        // rows with waiters
	Waiters int  `json:"waiters"`        // of all rows
	More    bool `json:"more,omitempty"` // there are more, which were not counted
	// Busiest are the rows with the most waiters.
	Busiest []Lock `json:"busiest"`
}

// A Lock is a lock, or a reservation, that processes wait for.
type Lock struct {
	Project  string  `json:"project"`
	Ref      string  `json:"ref"`
	Owner    string  `json:"owner"`
	Seconds  float64 `json:"held_seconds"` // 0 for a reservation
	Waiters  int     `json:"waiters"`
	Reserved bool    `json:"reserved,omitempty"`
	Stale    bool    `json:"stale,omitempty"`
}

// Changes are the changes of refs within the last minute.
type Changes struct {
	Count     int     `json:"count"`
	More      bool    `json:"more,omitempty"` // Count is the number of those that were read
	PerSecond float64 `json:"per_second"`
}

// An Unread is a part that could not be read.
type Unread struct {
	What  string `json:"what"`
	Error string `json:"error"`
}

// Codes of problems. They don't change: scripts may rely on them.
const (
	LostChanges   = "lost-changes"   // nothing can be written until an operator decides about lost changes
	NotCompared   = "not-compared"   // nothing can be written until a site has compared the database's server
	NotAdmitted   = "not-admitted"   // nothing can be written, for another reason
	Unreachable   = "unreachable"    // a site's daemon does not run, or can't reach the database
	Alarm         = "alarm"          // a site's daemon has found the cause of an alert
	SiteLags      = "site-lags"      // a site does not read what other sites change
	Behind        = "behind"         // a site has repositories that can't catch up
	IntentStuck   = "intent-stuck"   // pushes that were announced and don't end
	IntentDecided = "intent-decided" // operators' decisions that a site does not apply
	LockAwaited   = "lock-awaited"   // processes have waited long for a lock
	Frozen        = "frozen"         // an operator has frozen a project: all pushes to it are refused
)

// A Problem is something that an operator should look at.
type Problem struct {
	Code    string `json:"code"`
	Detail  string `json:"detail"`
	Command string `json:"command"`        // to run next
	Site    string `json:"site,omitempty"` // where to run the command; "" if that does not matter
}

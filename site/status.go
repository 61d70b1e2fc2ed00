package site

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/globalrefdb/globalrefdb/site/wire"
)

// A Status is what a daemon says of itself.
type Status struct {
	Site     string    `json:"site"`
	Version  string    `json:"version"`
	PID      int       `json:"pid"`
	Started  time.Time `json:"started"`
	Uptime   float64   `json:"uptime_seconds"`
	Stopping bool      `json:"stopping"`

	// Presence is whether the daemon holds its site's name in the database. Without
	// it pushes are refused, and PresenceError says why it has none.
	Presence      bool   `json:"presence"`
	PresenceError string `json:"presence_error,omitempty"`
	// Database is whether it answered when it was last asked, at most some ten
	// seconds ago.
	Database      bool   `json:"database"`
	DatabaseError string `json:"database_error,omitempty"`

	Repositories int      `json:"repositories"` // configured, or found below the root
	Pushes       []Push   `json:"pushes"`       // under way, or to be resolved
	Stuck        []Stuck  `json:"stuck"`
	Counters     Counters `json:"counters"`
}

// A Push is what one process of git has announced and not ended.
type Push struct {
	Project string  `json:"project"`
	PID     int     `json:"pid"`
	Refs    int     `json:"refs"`
	Age     float64 `json:"age_seconds"`
}

// Stuck is an intent that can't be resolved from what the repository has.
type Stuck struct {
	Project string  `json:"project"`
	Ref     string  `json:"ref"`
	Reason  string  `json:"reason"` // and what to do
	Age     float64 `json:"age_seconds"`
}

// Counters count since the daemon started.
type Counters struct {
	Prepared uint64 `json:"prepared"` // transactions of git let through, those of nothing guarded included
	Refused  uint64 `json:"refused"`  // transactions vetoed
	Updated  uint64 `json:"updated"`  // refs that took their intended value
	Dropped  uint64 `json:"dropped"`  // refs that kept the old one
	Alarms   uint64 `json:"alarms"`   // refs found to have another value than either
	Deaths   uint64 `json:"deaths"`   // processes that ended with something left to resolve
	Heeded   uint64 `json:"heeded"`   // decisions of an operator that were carried out here
	Failures uint64 `json:"failures"` // requests that the database failed
}

// OK reports whether there is nothing for an operator to look at.
func (s Status) OK() bool { return s.Presence && s.Database && len(s.Stuck) == 0 }

// summary is for a reader of one line.
func (s Status) summary() string {
	switch {
	case !s.Presence:
		return "pushes are refused: " + oneLine(s.PresenceError)
	case !s.Database:
		return "the database fails: " + oneLine(s.DatabaseError)
	}
	return fmt.Sprintf("serving, %d pushes under way, %d refs stuck", len(s.Pushes), len(s.Stuck))
}

// status is what the daemon says of itself.
func (d *Daemon) status() Status {
	c := d.config.Load()
	s := Status{
		Site: c.Site, Version: d.o.Version, PID: os.Getpid(),
		Started: d.began.UTC(), Uptime: time.Since(d.began).Seconds(), Stopping: d.stopping.Load(),
		Pushes: []Push{}, Stuck: d.alarms.list(), Counters: d.counters.read(),
	}
	switch err := d.presence.lost(); {
	case err != nil:
		s.PresenceError = err.Error()
	case d.inherited.Load() == nil:
		s.PresenceError = "it has not learned yet what its predecessor left"
	default:
		s.Presence = true
	}
	if err := d.health.last(); err == nil {
		s.Database = true
	} else {
		s.DatabaseError = err.Error()
	}
	for _, p := range d.pushes.all() {
		byProject := map[string]Push{}
		for _, m := range p.list() {
			push := byProject[m.project]
			byProject[m.project] = Push{
				Project: m.project, PID: p.agent.pid, Refs: push.Refs + 1, Age: max(push.Age, time.Since(m.since).Seconds()),
			}
		}
		for _, project := range slices.Sorted(maps.Keys(byProject)) {
			s.Pushes = append(s.Pushes, byProject[project])
		}
	}
	return s
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
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unix", socket)
	if err != nil {
		return status, err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.SetDeadline(time.Unix(1, 0)) })()
	if err := (wire.Request{State: wire.StateStatus}).Write(conn); err != nil {
		return status, err
	}
	if err := conn.(*net.UnixConn).CloseWrite(); err != nil {
		return status, err
	}
	answer, err := wire.ReadResponse(conn)
	if err != nil {
		return status, err
	}
	text := strings.Join(answer.Lines, "\n")
	if !answer.OK {
		return status, errors.New(text)
	}
	return status, json.Unmarshal([]byte(text), &status)
}

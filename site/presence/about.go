package presence

import (
	"context"
	"encoding/json"
	"math"
	"reflect"
	"strings"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/site/config"
	"github.com/globalrefdb/globalrefdb/site/internal/pause"
)

// aboutPrefix begins the refs, in [Project], whose values are what sites say about themselves.
const aboutPrefix = "refs/about/"

// tellEvery is how often a site says something about itself, if that has changed.
const tellEvery = time.Minute

// NamedBehind is how many of the projects that are behind a site names.
const NamedBehind = 10

// About is what a site's daemon says about itself, in the database.
type About struct {
	Version  string `json:"version"`
	Schema   int    `json:"schema,omitempty"`  // the newest version of the database's schema that the program knows
	Freezes  bool   `json:"freezes,omitempty"` // whether it knows that projects may be frozen
	Store    string `json:"store"`             // the key site.store of its configuration
	Followed int    `json:"followed"`          // repositories that it keeps up
	Behind   int    `json:"behind"`            // those that it can't
	// Projects are the projects of the first of these, the longest behind first.
	Projects []string `json:"projects,omitempty"`
	// BehindFor is how long the first of them had been behind at Told, in seconds; 0 if that is not known.
	BehindFor float64  `json:"behind_seconds,omitempty"`
	Alarms    []string `json:"alarms,omitempty"` // the names of alerts, as in docs/monitoring

	Told time.Time `json:"-"` // when the database recorded this, by its clock
}

// testimonies is the version of the schema that brought testimonies.
const testimonies = 12

// Testifies reports whether the site's program supports testimonies: then, after another site has
// testified about it, it writes no intents on any database before it has reported.
func (a About) Testifies() bool { return a.Schema >= testimonies }

// Behindness returns how long the site's repositories have been behind, at most, by the database's time now; 0 if none is
// or that is not known.
func (a About) Behindness(now time.Time) time.Duration {
	if a.Behind == 0 || a.BehindFor == 0 {
		return 0
	}
	return time.Duration(a.BehindFor*float64(time.Second)) + max(0, now.Sub(a.Told))
}

// repeats reports whether a says no more than what the site said some time before.
func (a About) repeats(before About, ago time.Duration) bool {
	const tolerance = 5 // seconds, by which the clocks of the database and of this machine may have drifted apart
	drift := a.BehindFor - before.BehindFor - ago.Seconds()
	a.BehindFor, before.BehindFor = 0, 0
	return reflect.DeepEqual(a, before) && (a.Behind == 0 || math.Abs(drift) < tolerance)
}

// Tell records what a site says about itself.
func Tell(ctx context.Context, db *refdb.DB, site string, a About) error {
	a.Projects = a.Projects[:min(len(a.Projects), NamedBehind)]
	for {
		text, err := json.Marshal(a)
		if err != nil {
			return err
		}
		if len(text) <= driver.MaxValueBytes || len(a.Projects) == 0 {
			_, err = db.Put(ctx, Project, aboutPrefix+site, refdb.Value(text))
			return err
		}
		a.Projects = a.Projects[:len(a.Projects)-1]
	}
}

// KeepTelling records what this site says about itself whenever that has changed, until ctx ends. Failed is called with what comes of each
// attempt; the next one is a minute later.
func (p *Presence) KeepTelling(ctx context.Context, configured func() *config.Config, about func() About, failed func(error)) {
	var told *About
	var at time.Time
	for {
		if now := about(); p.Lost() == nil && (told == nil || !now.repeats(*told, time.Since(at))) {
			c := configured()
			limited, cancel := context.WithTimeout(ctx, c.Timeout)
			err := Tell(limited, p.db, c.Site, now)
			cancel()
			if err == nil {
				told, at = &now, time.Now()
			}
			failed(err)
		}
		if !pause.For(ctx, tellEvery) {
			return
		}
	}
}

// Abouts returns what sites have said about themselves, by their names.
func Abouts(ctx context.Context, db *refdb.DB) (map[string]About, error) {
	all := map[string]About{}
	for ref, err := range db.Refs(ctx, Project, aboutPrefix) {
		if err != nil {
			return nil, err
		}
		// One that a later version wrote may be another thing.
		var a About
		if json.Unmarshal([]byte(ref.Value), &a) == nil {
			a.Told = ref.Time
			all[strings.TrimPrefix(ref.Name, aboutPrefix)] = a
		}
	}
	return all, nil
}

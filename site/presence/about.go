package presence

import (
	"context"
	"encoding/json"
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
	Version  string   `json:"version"`
	Store    string   `json:"store"`              // the key site.store of its configuration
	Followed int      `json:"followed"`           // repositories that it keeps up
	Behind   int      `json:"behind"`             // those that it can't
	Projects []string `json:"projects,omitempty"` // the first of these
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
	for {
		if now := about(); p.Lost() == nil && (told == nil || !reflect.DeepEqual(now, *told)) {
			c := configured()
			limited, cancel := context.WithTimeout(ctx, c.Timeout)
			err := Tell(limited, p.db, c.Site, now)
			cancel()
			if err == nil {
				told = &now
			}
			failed(err)
		}
		if !pause.For(ctx, tellEvery) {
			return
		}
	}
}

// told returns what sites have said about themselves, by their names.
func told(ctx context.Context, db *refdb.DB) (map[string]About, error) {
	all := map[string]About{}
	for ref, err := range db.Refs(ctx, Project, aboutPrefix) {
		if err != nil {
			return nil, err
		}
		// One that a later version wrote may be another thing.
		var a About
		if json.Unmarshal([]byte(ref.Value), &a) == nil {
			all[strings.TrimPrefix(ref.Name, aboutPrefix)] = a
		}
	}
	return all, nil
}

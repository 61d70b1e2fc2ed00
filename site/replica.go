package site

import (
	"context"
	"fmt"

	"github.com/globalrefdb/globalrefdb/refdb"
)

// replicated lets moves through that bring refs to what they are globally,
// while nobody is moving them. It writes nothing.
func (d *Daemon) replicated(ctx context.Context, c *Config, r Repository, moves []refdb.Update) error {
	names := make([]string, len(moves))
	for i, u := range moves {
		names[i] = u.Ref
	}
	states, err := d.states(ctx, c, r.Project, names)
	if err != nil {
		return err
	}
	var why refused
	for i, s := range states {
		switch u := moves[i]; {
		case s.Lock != nil && !s.Lock.Stale():
			why = append(why, locked(*s.Lock, c.Site))
		case s.Value == refdb.Unknown:
			why = append(why, fmt.Sprintf("%s: it is not in the global database: replication leaves it alone", name(u.Ref)))
		case !same(s.Value, u.New):
			why = append(why, fmt.Sprintf("%s: replication moves it to what it is globally only (global %s, not %s)",
				name(u.Ref), short(s.Value), short(u.New)))
		}
	}
	return why.or()
}

// states asks the database for values and locks.
func (d *Daemon) states(ctx context.Context, c *Config, project string, refs []string) ([]refdb.State, error) {
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	states, err := d.db.States(ctx, project, refs)
	d.heard(err)
	if err != nil {
		return nil, databaseFailed(err)
	}
	return states, nil
}

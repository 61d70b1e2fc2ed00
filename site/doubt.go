package site

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/globalrefdb/globalrefdb/refdb"
)

// doubts are the moves that may be recorded as intents at any moment, and that
// nobody counts on yet: while the database is asked and, if the outcome is unknown, until
// they are revoked. As long as that is so nobody else may move those refs here. An intent that
// comes late could find the ref at its old value again, after others moved it there
// and back, and the repository would seem to say that it was carried out.
type doubts struct {
	mu   sync.Mutex
	list []*doubt
}

type doubt struct {
	project string
	updates []refdb.Update
	// unknown is what to revoke; nil: the answer is waited for.
	unknown *refdb.Preparation
}

func (x *doubt) concerns(project string, moves []refdb.Update) bool {
	return x.project == project && slices.ContainsFunc(moves, func(u refdb.Update) bool {
		return slices.ContainsFunc(x.updates, func(v refdb.Update) bool { return v.Ref == u.Ref })
	})
}

// begin claims the refs of moves, unless somebody else has some of them.
func (ds *doubts) begin(project string, moves []refdb.Update) (*doubt, error) {
	ds.mu.Lock()
	defer ds.mu.Unlock()
	if err := ds.conflict(project, moves); err != nil {
		return nil, err
	}
	x := &doubt{project: project, updates: moves}
	ds.list = append(ds.list, x)
	return x, nil
}

// none says whether there are doubts about the refs of moves.
func (ds *doubts) none(project string, moves []refdb.Update) error {
	ds.mu.Lock()
	defer ds.mu.Unlock()
	return ds.conflict(project, moves)
}

func (ds *doubts) conflict(project string, moves []refdb.Update) error {
	for _, x := range ds.list {
		if x.concerns(project, moves) {
			return refused{fmt.Sprintf("%s: it is not certain yet what became of another push to it: retry in a few seconds", name(x.updates[0].Ref))}
		}
	}
	return nil
}

func (ds *doubts) end(x *doubt) {
	ds.mu.Lock()
	defer ds.mu.Unlock()
	ds.list = slices.DeleteFunc(ds.list, func(y *doubt) bool { return y == x })
}

// unknown makes p, which x is about, one to revoke.
func (ds *doubts) unknown(x *doubt, p refdb.Preparation) {
	ds.mu.Lock()
	defer ds.mu.Unlock()
	x.unknown = &p
}

// revocable are those whose outcome is unknown.
func (ds *doubts) revocable() (all []*doubt) {
	ds.mu.Lock()
	defer ds.mu.Unlock()
	for _, x := range ds.list {
		if x.unknown != nil {
			all = append(all, x)
		}
	}
	return all
}

// revoke makes sure that what is in doubt never takes effect.
func (d *Daemon) revoke(ctx context.Context) error {
	for _, x := range d.doubts.revocable() {
		err := d.db.Revoke(ctx, *x.unknown)
		d.heard(err)
		if err != nil {
			return err
		}
		d.doubts.end(x)
	}
	return nil
}

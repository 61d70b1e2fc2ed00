package main

import (
	"context"
	"errors"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/test/linearizability"
)

const changesCheck = "one chain of changes per ref, all of it followed"

// followLimit is how long a follower may take to catch up once nobody writes any more.
const followLimit = opLimit + checkLimit/10

// follow starts to read all changes of the database, from the first on. Whoever did so before
// ends: the database has lost what that read.
func (sc *scenario) follow(ctx context.Context) error {
	db, err := sc.open(ctx)
	if err != nil {
		return err
	}
	sc.closers = append(sc.closers, db.Close)
	if sc.endFollower != nil {
		sc.endFollower()
	}
	ctx, sc.endFollower = context.WithCancel(ctx)
	sc.follower = linearizability.Follow(ctx, db, refdb.Cursor{})
	return nil
}

// checkChanges checks the history of all projects, once nobody writes any more, and returns how many changes
// it has. A follower that read a commit which nobody confirmed, and which a fail-over then lost, must have
// been told that the database went back; another one then reads everything anew.
func (sc *scenario) checkChanges(ctx context.Context) (looked int, rewound bool, found []violation, err error) {
	var projects []string
	err = sc.withDB(ctx, func(db *refdb.DB) error {
		for p, err := range db.Projects().Summaries(ctx) {
			if err != nil {
				return err
			}
			projects = append(projects, p.Name)
		}
		return nil
	})
	if err != nil {
		return 0, false, nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, followLimit)
	defer cancel()
	looked, fault := sc.follower.Check(ctx, projects)
	if rewound = sc.losesUnconfirmed && errors.Is(fault, refdb.ErrRewound); rewound {
		if err := sc.follow(ctx); err != nil {
			return 0, rewound, nil, err
		}
		looked, fault = sc.follower.Check(ctx, projects)
	}
	return looked, rewound, violationOf(fault), nil
}

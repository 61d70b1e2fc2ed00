package main

import (
	"database/sql"
	"errors"
	"time"

	"cirello.io/pglock"
	_ "github.com/lib/pq" // the driver that pglock's documentation uses
)

// openPglock returns a client on the database at url, and what closes it.
func openPglock(url string, lease time.Duration) (*pglock.Client, func() error, error) {
	db, err := sql.Open("postgres", url)
	if err != nil {
		return nil, nil, err
	}
	db.SetMaxOpenConns(int(poolSize()))
	db.SetMaxIdleConns(int(poolSize()))
	client, err := pglock.New(db, pglock.WithLeaseDuration(lease), pglock.WithHeartbeatFrequency(lease/4), pglock.WithOwner(owner))
	if err != nil {
		return nil, nil, errors.Join(err, db.Close())
	}
	return client, db.Close, nil
}

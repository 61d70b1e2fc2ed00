package refdb

import (
	"context"
	"errors"
	"time"
)

// schemaPoll is how often a DB checks whether the schema still fits.
const schemaPoll = 5 * time.Second

// A SchemaChecker is a Driver that can check the schema again after it opened the database:
// others may migrate it while this program runs.
type SchemaChecker interface {
	// CheckSchema returns an error wrapping ErrSchema if this program doesn't work with
	// the schema that the database has now.
	CheckSchema(ctx context.Context) error
}

// watchSchema checks the schema until the DB is closed. While it does not fit nothing new is
// begun: rows that this program writes might lack what a newer schema requires.
func (db *DB) watchSchema(c SchemaChecker) {
	for sleep(db.closing, schemaPoll); db.closing.Err() == nil; sleep(db.closing, schemaPoll) {
		ctx, cancel := db.attemptContext(db.closing)
		err := c.CheckSchema(ctx)
		cancel()
		switch unfit := errors.Is(err, ErrSchema); {
		case unfit:
			if db.schemaErr.Swap(&err) == nil {
				db.opts.Logger.Error("the schema was migrated, and does not fit any more: nothing is locked or written until it does", "reason", err.Error())
			}
		case err == nil:
			if db.schemaErr.Swap(nil) != nil {
				db.opts.Logger.Info("the schema fits again")
			}
		}
	}
}

// schemaError returns nil while the schema fits, else an error that wraps ErrSchema.
func (db *DB) schemaError() error {
	if err := db.schemaErr.Load(); err != nil {
		return *err
	}
	return nil
}

// Package refdb is a global ref database for Git served from several sites:
// one shared SQL database holds the value of every ref and the locks on them,
// so that two sites never both accept a different value for the same ref.
//
// A [DB] works on a [Driver]: packages refdb/postgres, refdb/spanner and
// refdb/sqlite.
//
//	driver, err := postgres.Open(ctx, "postgres://refdb@db.example.com/refdb")
//	…
//	db, err := refdb.New(driver, refdb.Options{Site: "eu-1"})
//	…
//	defer db.Close()
//
// # Refs
//
// A ref is named by its project and its full name, and holds a [Value]: an
// object ID, a symbolic ref or any other string. [DB.Update] moves any number
// of refs of a project, all or none, each from the value that the caller
// expects; [DB.CompareAndPut] does so for one. A ref that was deleted keeps a
// row with a zero ID.
//
// # Locks
//
// [DB.Lock] and [DB.TryLock] lock any number of refs of a project, all or none,
// and return a [Lock]. A lock is a lease: the process renews all of its locks
// with one statement per heartbeat (2 s), and one that was not renewed for
// stale-after (30 s) may be taken over. Age is judged by the database's clock alone.
//
// A holder learns that it lost its lock from [Lock.Context], [Lock.Done] and
// [Lock.Err], before anybody can take it over, even if it can't reach the
// database. What it writes through [Lock.Update] is fenced: it is let through only
// if the lock still stands, in the same transaction, so that even a process
// that was frozen can't write late. Other writers are refused while a lock is
// fresh, unless they ask for [Advisory].
//
// # Errors
//
// Errors wrap sentinels such as [ErrLocked] and carry details in types such as
// [LockedError]. [ClassOf] says what a caller can do about one. A lost reply is never
// taken for a failure, nor for a success: it is resolved, or the error is
// [ErrOutcomeUnknown].
package refdb

// Package refdb is a global ref database for Git served from several sites:
// one shared SQL database holds the value of every ref and the locks on them,
// so that two sites never both accept a different value for the same ref.
//
// A [DB] works on a [Driver]: packages refdb/postgres, refdb/spanner and
// refdb/sqlite have one each. Only this module's databases are drivers: their contract, in
// package driver, is closed.
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
// expects; [DB.CompareAndPut] does so for one. Writing a zero ID, [Deleted],
// deletes a ref: its row stays and holds the zero ID. An empty value is refused.
//
// # Locks
//
// [DB.Lock] and [DB.TryLock] lock any number of refs of a project, all or none,
// and return a [Lock]; [DB.WithLock] runs a function under one. A lock is a
// lease: the process renews all of its locks with one request to its driver per
// heartbeat (2 s). Others may take over a lock that was not renewed for stale-after
// (30 s). Its age is judged by the database's clock alone.
//
// A holder learns from [Lock.Context], [Lock.Done] and [Lock.Err] that it lost
// its lock, before anybody can take it over, even if it can't reach the database.
// [Lock.Update] writes the locked refs, and is fenced: the transaction that
// writes also checks that the lock still stands. So even a process that was
// frozen can't write late. Other writers are refused while a lock is fresh,
// unless they ask for [Advisory].
//
// # Handles
//
// An application opens a DB, reads, locks and updates refs, and watches their changes. What other
// programs do, such as site daemons and refdbctl, is in packages of its own, which are reached
// through handles: [DB.Intents], [DB.Packs], [DB.Projects], [DB.Followers], [DB.Recovery],
// [DB.Audit], [DB.Grants] and [DB.Operator].
//
// # Errors
//
// Errors wrap sentinels such as [ErrLocked] and carry details in types such as
// [LockedError]. [ClassOf] says what a caller can do about an error. A lost reply
// is never taken for a failure, nor for a success: the package finds out what
// happened, or returns [ErrOutcomeUnknown].
//
// # Stability
//
// Before v1.0.0 a minor version may change this API; CHANGELOG.md names each
// change, and a patch version makes none. The meaning of what is stored is stable
// already: a newer version migrates the tables of any older release, and never
// gives a value, a lock or a token another meaning. After v1.0.0 nothing exported
// is removed or changed. Only package driver changes without notice; what this package has an
// alias of keeps its fields and methods.
package refdb

package postgres

// guard is part of the first statement of each round trip that writes. A
// session's settings may change at any time: by ALTER SYSTEM, or by whoever had
// the connection behind a pooler before. So each transaction makes sure of
// those that the promises rest on:
//
//   - It must be read committed, or what waits for a key decides on what was
//     there before the wait. Else it fails, with the code divisionByZero, which no
//     statement of ours has otherwise, and which ends the transaction.
//   - Its commit is durable, whatever the default is.
const guard = `(1 / (current_setting('transaction_isolation') = 'read committed')::int = 1
  AND CASE WHEN current_setting('synchronous_commit') IN ('on', 'remote_apply') THEN true ELSE set_config('synchronous_commit', 'on', true) = 'on' END)`

// guard adds it as a statement of its own.
func (t roundTrip) guard() roundTrip { return t.then(`SELECT `+guard, nil) }

package roundtrip

// ReadCommitted is the isolation level that the statements are made for.
const ReadCommitted = "read committed"

// Guard is part of the first statement of each round trip that writes. A
// session's settings may change at any time: by ALTER SYSTEM, or by whoever had
// the connection behind a pooler before. So each transaction checks or sets those that
// the promises rely on:
//
//   - It must be read committed, or a request that waits for a key decides on data
//     from before the wait. Else it fails with the code divisionByZero, which no
//     statement of ours causes otherwise, and which ends the transaction.
//   - Its commit is durable, whatever the default is.
const Guard = `(1 / (current_setting('transaction_isolation') = 'read committed')::int = 1
  AND CASE WHEN current_setting('synchronous_commit') IN ('on', 'remote_apply') THEN true ELSE set_config('synchronous_commit', 'on', true) = 'on' END)`

// GuardStatement is Guard as a statement of its own.
func GuardStatement() Statement { return Exec(`SELECT ` + Guard) }

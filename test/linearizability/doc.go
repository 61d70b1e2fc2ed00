// Package linearizability records what processes do with a refdb.DB, and checks
// afterwards that it is linearizable: that there is an order of all calls, true to
// the time of each, in which every answer is right.
//
// # Recording
//
// Each process opens its databases with [Open] instead of refdb.New, and works
// through the [Client]. A [Recorder] appends a line of JSON for every call and
// another for every return, so that a process which is killed leaves calls
// without a return. Times are those of a clock that all processes of the machine
// share (CLOCK_MONOTONIC): the history of several machines can't be checked.
//
// # Checking
//
// [Read] merges the files, [Check] looks for an order, one project at a time. How long
// that takes grows with the calls that overlap in a project more than with their number: a
// few hundred calls of a dozen goroutines take milliseconds. A long run therefore moves on
// to new projects every few seconds, and may check what it leaves behind; locks that
// are to become stale need a project that lasts longer than that. A [Workload] is a
// mix of calls to begin with.
//
// # The model
//
// All that an answer says has to be right at one moment between the call and the return:
// values read, and those that come with a lock or a mismatch, unknown or
// deleted; the holders that a refusal names, all of them, with owner, token and
// stale-after, and that one of them is fresh; the locks reclaimed; which refs
// of a lock are lost. Tokens of a ref only grow. An update is all or nothing,
// heeds locks that are not its own, ends stale ones, and needs every row of its fence.
// Rows beaten are calls too. What is refused or "unavailable" changes nothing.
//
// Which lock is stale is told by the recorded beats: its age can't exceed the time since
// the call of the last one that succeeded. So a fresh lock that is taken over is found.
// [Recorder.ClockStepped] turns that off from then on.
//
// What became of a call of unknown outcome is told by its traces, as far as
// possible: the values that it alone wrote, the token and owner that others came upon. A
// workload does well to write each value only once. Only the rest is tried
// both ways, which takes time exponential in the number of such calls: do not
// delete refs or lose replies too often in one project.
//
// What the checker does not look at: listings, RemoveProject and purges, which must not be
// used on the projects of a history; the ages of locks beyond whether they can be
// true; and whether a lock's holder knows of its loss in time.
package linearizability

/*
 * What a guarded Gerrit promises, as assertions. -DPROMISE=n checks Jn alone, so that a
 * seeded mistake demonstrably breaks the promise that it declares; 0 checks all.
 */
#ifndef PROMISE
#define PROMISE 0
#endif
#define checked(n) (PROMISE == 0 || PROMISE == n)

#define J1(x) assert(!checked(1) || (x)) /* no ref moves here without an intent in the database that allows it, or to the database's value */
#define J2(x) assert(!checked(2) || (x)) /* when all is quiet and every process lives, nothing is pending, and the refs have the database's values */
#define J3(x) assert(!checked(3) || (x)) /* an acknowledged move is neither lost nor undone: each move replaces the value that its caller had read */
#define J4(x) assert(!checked(4) || (x)) /* a move reported to the caller as failed was not made, and never will be */
#define J5(x) assert(!checked(5) || (x)) /* no transaction is settled wrongly, or while it may still move; no alarm */
#define J6(x) assert(!checked(6) || (x)) /* when all is quiet, Gerrit's indexes have what its refs have */

/* Events that must be possible. With -DEVENT=n the first one is an error. */
#ifndef EVENT
#define EVENT 0
#endif
#define event(n) assert(n != EVENT)

#define REPORTED_MOVE   1 /* a move is settled by its report */
#define DEAD_MOVED      2 /* a move of a Gerrit that died is completed */
#define DEAD_UNMOVED    3 /* an OK of a Gerrit that died is revoked */
#define KEPT            4 /* a restarted daemon keeps transactions that had their OK */
#define ENDED_APART     5 /* a move that ended without a session is settled by the next list */
#define ANSWERED_LATE   6 /* a late OK is answered */
#define BROKEN_OK       7 /* an OK of a session that has broken is taken */
#define WORK_ENDED      8 /* a new session ends the daemon's work for an earlier one */
#define HOOK_REFUSED    9 /* a hook is refused because of a session's claim */
#define STALE_OLD      10 /* a transaction is refused because the ref has moved since its caller read it */
#define WAITED         11 /* a transaction waits for the follower */
#define THREW          12 /* Gerrit throws after the move */
#define TOLD_ALONE     13 /* the caller is told of a move without the daemon's answer */
#define LOCK_REMOVED   14 /* the lock file of a Gerrit that died is removed */
#define ORPHAN_MOVED   15 /* a follower's git moves a ref after its daemon has died */
#define RESTED         16 /* everything has ended */
#define HEEDED         17 /* a decision against a move is applied */
#define SUCCEEDED      18 /* a Gerrit begins a session while the remains of the previous one still stand */
#define INDEXED        19 /* the list of moves brings an index up to date */
#define PARTLY         20 /* a Gerrit died between two renames: the move of one ref is completed, the other not */
#define LATE_INTENT    21 /* an intent is recorded after the daemon has ended its work for it */
#define LOCK_HELD      22 /* a follower finds a lock file, or another value, and gives up its claim */

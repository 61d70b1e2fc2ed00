/*
 * What Git sites promise, as assertions. -DPROMISE=n checks Sn alone, so that a
 * seeded mistake demonstrably breaks the promise that it declares; 0 checks all.
 */
#ifndef PROMISE
#define PROMISE 0
#endif
#define checked(n) (PROMISE == 0 || PROMISE == n)

#define S1(x) assert(!checked(1) || (x)) /* two sites never accept different values: the global values are a single line of real moves */
#define S2(x) assert(!checked(2) || (x)) /* a push's move is undone only by a decision, or by a later push from its value */
#define S3(x) assert(!checked(3) || (x)) /* no process moves a ref while another process's intent is pending */
#define S4(x) assert(!checked(4) || (x)) /* no intent is ended while its pusher may still move the ref */
#define S5(x) assert(!checked(5) || (x)) /* everything ends without an operator: no alarm, nothing pending, no decision lost */

/* Events that must be possible. With -DEVENT=n the first one is an error. */
#ifndef EVENT
#define EVENT 0
#endif
#define event(n) assert(n != EVENT)

#define BEHIND       1 /* a push is refused because its site is behind */
#define DIED_AFTER   2 /* a push whose process died after git's move is completed */
#define DIED_BETWEEN 3 /* a process died between two renames: the move of one ref is completed, the other not */
#define LATE_PREPARE 4 /* a prepare takes effect although the daemon gave it up */
#define LATE_FINISH  5 /* so does a finish */
#define RESTARTED    6 /* a daemon restarted in between ends the intent on git's report */
#define PHANTOM      7 /* git reports as committed what it rejected */
#define REUSED       8 /* a transaction within another uses its intent */
#define UNRECORDED   9 /* a push is acknowledged before the database has it */
#define CAUGHT_UP   10 /* replication moves a ref */
#define OVERTAKEN   11 /* git refuses a replication that others overtook */
#define HEEDED      12 /* a decision that undoes git's move is heeded */
#define SETTLED     13 /* without further trouble all ends */
#define ASKED_ANEW  14 /* a prepare without an answer is revoked and made again */
#define UNDER_OTHERS 15 /* replication moves a ref on which an intent of the other site stands */
#define ORPHAN_MOVED 16 /* a git that its daemon has left replicates */

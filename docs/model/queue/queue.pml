/*
 * The queue of a lock (docs/PROTOCOL.md, Q), for Spin: which waiter gets a lock next.
 * ../README.md says what is modelled. run.sh checks this model, and that it catches
 * seeded mistakes.
 *
 * Everything that is one transaction is one d_step. A run may be of any length.
 */
#define REFS 2
#ifndef WAITERS
#define WAITERS 4 /* 0 wants the first ref, 1 the second, 2 and 3 want both, 4 the first */
#endif
#ifndef N
#define N 1       /* times that a waiter may be passed */
#endif
#ifndef MORTAL
#define MORTAL WAITERS /* the waiter that may die: none */
#endif
#ifndef SLOW
#define SLOW WAITERS   /* the waiter that may come after its turn: none */
#endif
#ifndef POLLS
#define POLLS WAITERS  /* the waiter that nobody can wake: none */
#endif
#define both(w)     ((w) == 2 || (w) == 3)
#define wants(w, r) (both(w) || (w) % REFS == (r))

/*
 * What queues promise, as assertions, and W3 also as the claim below. -DPROMISE=n
 * checks Wn alone, so that a seeded mistake is known to break the one it is said to
 * break; 0 checks all.
 */
#ifndef PROMISE
#define PROMISE 0
#endif
#define checked(n) (PROMISE == 0 || PROMISE == n)

#define W1(x) assert(!checked(1) || (x)) /* a reservation is never a lock: at most one holds a ref, and by its lock */
#define W2(x) assert(!checked(2) || (x)) /* at most N later ones pass a place whose waiter comes when it is its turn */
#define W3(x) assert(!checked(3) || (x)) /* a reservation is not passed around forever while no waiter gets a lock */
#define W4(x) assert(!checked(4) || (x)) /* a turn is lost only by a waiter that died, or was late, and once for each place */

/* Events that must be possible. With -DEVENT=n the first one is an error. */
#ifndef EVENT
#define EVENT 0
#endif
#define event(n) assert(n != EVENT)

#define TURN       1 /* a waiter takes its reserved lock */
#define PREFERRED  2 /* a release prefers a waiter of its own process */
#define LIMITED    3 /* it may not, because a waiter was passed N times */
#define YIELDED    4 /* a waiter for both refs hands its reservation on */
#define LEFT       5 /* it yields, and there is no other waiter */
#define KEPT       6 /* it keeps its reservation */
#define PREEMPTED  7 /* a waiter takes a lock reserved for a later one */
#define CROSSED    8 /* each of two waiters for both refs has one reserved, and the earlier takes both */
#define LOST_TURN  9 /* a stale reservation is handed on */
#define ABANDONED 10 /* the row of a stale reservation without other waiters is taken */
#define STEPPED_BACK 11 /* a waiter yields because of an intent */
#define RESUMED   12 /* it gets its locks after the intent has ended */
#define PASSED    13 /* a waiter takes its lock after it was passed N times */
#define HANDED    14 /* a waiter that gives up hands on its reservation */
#define OPENED    15 /* a lock ends and is kept for no waiter */
#define PASSED_BY 16 /* an update passes a row with waiters in its queue */

#include "state.pml"
#include "database.pml"
#include "waiter.pml"

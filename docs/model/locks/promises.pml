/*
 * The promises of docs/PROTOCOL.md as assertions. -DPROMISE=n checks
 * that one alone, so that a seeded mistake demonstrably breaks the promise it is
 * said to break. The default, 0, checks all of them.
 */
#ifndef PROMISE
#define PROMISE 0
#endif
#define checked(n) (PROMISE == 0 || PROMISE == n)

#define P1(x) assert(!checked(1) || (x)) /* critical sections never overlap */
#define P2(x) assert(!checked(2) || (x)) /* a stale token is never accepted again */
#define P4(x) assert(!checked(4) || (x)) /* a running holder learns of its loss before any other process takes over */
#define P5(x) assert(!checked(5) || (x)) /* exactly one contender takes a stale lock over */
#define P7(x) assert(!checked(7) || (x)) /* unknown is not lost, and no retry acts twice */

/*
 * Conversely: events that must be possible, lest a promise hold
 * because nothing ever happens. With -DEVENT=n the first one is an error.
 */
#ifndef EVENT
#define EVENT 0
#endif
#define event(n) assert(n != EVENT)

#define RECLAIM       1 /* a stale lock is taken over */
#define ADOPTION      2 /* an acquire finds the rows of its own lost reply */
#define REFUSED_WRITE 3 /* a frozen holder's fenced update is refused */
#define PASSED_LOCK   4 /* an unfenced update ends a stale lock */
#define LOST_BY_BEAT  5 /* a beat finds its lock gone: only after an operator deleted it */
#define EXPIRY        6 /* a holder that can't reach the database stops in time */
#define LATE_REQUEST  7 /* a request that was given up on takes effect */
#define RESENT_WRITE  8 /* a fenced update was sent twice, and happened once */
#define CERTAIN_END   9 /* a release is known to have succeeded although its reply was lost */
#define REFUSED_BEAT 10 /* a late beat finds another process's lock */

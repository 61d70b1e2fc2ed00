/*
 * What history promises, as assertions. -DPROMISE=n checks Hn alone, so that a
 * seeded mistake demonstrably breaks the promise that it declares; 0 checks all.
 */
#ifndef PROMISE
#define PROMISE 0
#endif
#define checked(n) (PROMISE == 0 || PROMISE == n)

#define H1(x) assert(!checked(1) || (x)) /* a follower receives every committed change exactly once, in order of (position, ref) */
#define H2(x) assert(!checked(2) || (x)) /* the rows of a ref are one chain, old to new, that ends in its value, each in its epoch */
#define H3(x) assert(!checked(3) || (x)) /* what the refs held at a position below the watermark never changes */

/* Events that must be possible. With -DEVENT=n the first one is an error. */
#ifndef EVENT
#define EVENT 0
#endif
#define event(n) assert(n != EVENT)

#define HELD_BACK 1 /* a committed change waits for an earlier transaction that changes no ref */
#define REORDERED 2 /* a change is delivered before one that was committed earlier */
#define DIVIDED   3 /* the rows of one transaction are delivered by two reads */
#define MOVED     4 /* a change is delivered whose transaction began before the offset was changed */
#define PAST      5 /* the answer for the past is what a later change says it replaced */
#define CAUGHT_UP 6 /* a follower has everything, after a change of the offset */
#define REUSED    7 /* a change is delivered whose ID was assigned before, to a transaction that a crash undid */

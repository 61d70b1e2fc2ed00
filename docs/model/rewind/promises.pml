/*
 * What holds when a database goes back in time, as assertions. -DPROMISE=n checks Vn
 * alone, so that a seeded mistake demonstrably breaks the promise it declares; 0
 * checks all.
 */
#ifndef PROMISE
#define PROMISE 0
#endif
#define checked(n) (PROMISE == 0 || PROMISE == n)

#define V1(x) assert(!checked(1) || (x)) /* no site accepts a push while an acknowledged push, known to a site that can be heard, is missing and undecided */
#define V2(x) assert(!checked(2) || (x)) /* a follower has received exactly the history up to its cursor, or gets an error */
#define V3(x) assert(!checked(3) || (x)) /* recover neither loses an acknowledged push nor moves a ref back without listing it */
#define V4(x) assert(!checked(4) || (x)) /* after recover no stale token passes a fence */
#define V5(x) assert(!checked(5) || (x)) /* only recover ends a halt, and a change of a site's row is not taken for another */
#define V6(x) assert(!checked(6) || (x)) /* a site that knows of a loss reports it before it accepts a push */
#define V7(x) assert(!checked(7) || (x)) /* no halt without an undecided loss */

/* Events that must be possible. With -DEVENT=n the first one is an error. */
#ifndef EVENT
#define EVENT 0
#endif
#define event(n) assert(n != EVENT)

#define RESUMED     1 /* nothing is missing, and another server is admitted without a recover */
#define NOTICED     2 /* a site finds that a known change is missing */
#define LOST_INTENT 3 /* it misses only an intent */
#define REAPPLIED   4 /* recover writes a lost change again */
#define OPPOSED     5 /* recover lists a change that another one contradicts */
#define RETURNED    6 /* a site that recover left out lists its known changes */
#define HALT_AGAIN  7 /* a decision that a second rewind undid is requested again */
#define REVIVED     8 /* an intent that had ended stands again, and is ended by recover */
#define WENT_ON     9 /* a push is finished after recover */
#define UNAWARE    10 /* a push is accepted although a push is lost that no site that can be heard knows */
#define STALE_PASS 11 /* before recover a stale token passes a fence */
#define TOLD       12 /* a follower learns that the database went back */
#define HALF_DONE  13 /* a recover in progress is lost with its database */
#define TAKEN_ALONG 14 /* a site is awaited although the database has it as stopped, or left out */
#define TESTIFIED  15 /* a site is away because another one testified */
#define REESTABLISHED 16 /* a testimony that a rewind undid is given again */
#define CARRIED_LOST 17 /* a site misses an intent that it carries for another one */
#define CAME_BACK  18 /* a site comes back that others testified about */
#define NOTED_BY_TWO 23 /* a testimony is given that two sites have noted */
#define MISSED_MORE 22 /* and misses something that the testimony did not cover */
#define LATER_THAN 19 /* it misses what it was acknowledged after it had come back */
#define GOES_ON    20 /* after a rewind to before a testimony a server is admitted, and that site is silent */
#define GOES_ON_ALONE 21 /* two sites are silent, of which one had testified about the other */

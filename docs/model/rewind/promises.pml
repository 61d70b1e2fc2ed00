/*
 * What holds when a database goes back in time, as assertions. -DPROMISE=n checks Vn
 * alone, so that a seeded mistake is known to break the one it is said to break; 0
 * checks all.
 */
#ifndef PROMISE
#define PROMISE 0
#endif
#define checked(n) (PROMISE == 0 || PROMISE == n)

#define V1(x) assert(!checked(1) || (x)) /* no site lets a push through while an acknowledged one is missing and undecided that a site knows of which can be heard */
#define V2(x) assert(!checked(2) || (x)) /* what a follower was given is what history has up to its cursor, or it is told */
#define V3(x) assert(!checked(3) || (x)) /* recover loses no acknowledged push in silence, and no ref is moved back without a word */
#define V4(x) assert(!checked(4) || (x)) /* after recover no stale token passes a fence */
#define V5(x) assert(!checked(5) || (x)) /* only recover ends a halt, and a change of a site's row is not taken for another */
#define V6(x) assert(!checked(6) || (x)) /* a site that knows of a loss says so before it lets a push through */
#define V7(x) assert(!checked(7) || (x)) /* nobody halts if nothing was lost that is undecided */

/* Events that must be possible. With -DEVENT=n the first one is an error. */
#ifndef EVENT
#define EVENT 0
#endif
#define event(n) assert(n != EVENT)

#define RESUMED     1 /* all is there, and another server is admitted without a recover */
#define NOTICED     2 /* a site finds that a change it knows of is missing */
#define LOST_INTENT 3 /* it misses an intent alone */
#define REAPPLIED   4 /* recover writes a lost change again */
#define OPPOSED     5 /* recover lists one that another change is in the way of */
#define RETURNED    6 /* a site that recover went without lists what it knows */
#define HALT_AGAIN  7 /* a decision that a second rewind took along is asked for again */
#define REVIVED     8 /* an intent that had ended stands again, and is ended by recover */
#define WENT_ON     9 /* a push is finished after recover */
#define UNAWARE    10 /* a push is let through though one is lost of which nobody knows who can be heard */
#define STALE_PASS 11 /* before recover a stale token passes a fence */
#define TOLD       12 /* a follower is told that the database went back */
#define HALF_DONE  13 /* a recover under way is lost with its database */
#define TAKEN_ALONG 14 /* a site is waited for though the database has it as stopped, or gone without */

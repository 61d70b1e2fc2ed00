/*
 * What holds when a database goes back in time, as assertions. -DPROMISE=n checks Vn
 * alone, so that a seeded mistake is known to break the one it is said to break; 0
 * checks all.
 */
#ifndef PROMISE
#define PROMISE 0
#endif
#define checked(n) (PROMISE == 0 || PROMISE == n)

#define V1(x) assert(!checked(1) || (x)) /* before recover, no site lets a push through that knows of a loss, or of a halt */
#define V2(x) assert(!checked(2) || (x)) /* what a follower was given is what history has up to its cursor, or it is told */
#define V3(x) assert(!checked(3) || (x)) /* recover loses no acknowledged push in silence, and no ref is moved back without a word */
#define V4(x) assert(!checked(4) || (x)) /* after recover no stale token passes a fence */
#define V5(x) assert(!checked(5) || (x)) /* nobody takes a recovery for another */
#define V6(x) assert(!checked(6) || (x)) /* after recover, a site that knows of a loss says so before it lets a push through */
#define V7(x) assert(!checked(7) || (x)) /* nobody halts if nothing was lost */

/* Events that must be possible. With -DEVENT=n the first one is an error. */
#ifndef EVENT
#define EVENT 0
#endif
#define event(n) assert(n != EVENT)

#define RESUMED     1 /* a server starts anew, all is there, and a site goes on */
#define NOTICED     2 /* a site finds that a change it knows of is missing */
#define LOST_INTENT 3 /* a finish finds nothing, though its move was made */
#define REAPPLIED   4 /* recover writes a lost change again */
#define OPPOSED     5 /* recover lists one that another change is in the way of */
#define RETURNED    6 /* a site that recover went without lists what it knows */
#define HALT_AGAIN  7 /* a halt that a second rewind took along is written again */
#define REVIVED     8 /* an intent that had ended stands again, and is ended by recover */
#define WENT_ON     9 /* a push is finished after recover */
#define UNAWARE    10 /* a site that cannot know lets a push through on a database that lost one */
#define STALE_PASS 11 /* before recover a stale token passes a fence */
#define TOLD       12 /* a follower is told that the database went back */
#define HALF_DONE  13 /* a recover under way is lost with its database */

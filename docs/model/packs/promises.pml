/*
 * What packs promise, as assertions. -DPROMISE=n checks Cn alone, so that a seeded
 * mistake demonstrably breaks the promise that it declares; 0 checks all.
 */
#ifndef PROMISE
#define PROMISE 0
#endif
#define checked(n) (PROMISE == 0 || PROMISE == n)

#define C1(x) assert(!checked(1) || (x)) /* every ref of every repository is whole: all objects that it reaches are there */
#define C2(x) assert(!checked(2) || (x)) /* the database, or in transit two sites, have all objects of its values, and of acknowledged pushes */
#define C3(x) assert(!checked(3) || (x)) /* a follower moves no ref under an intent of its own site, over a push, or to a value that the database did not hold when it checked */
#define C4(x) assert(!checked(4) || (x)) /* once trouble stops, every running site gets the database's values */

/* Events that must be possible. With -DEVENT=n the first one is an error. */
#ifndef EVENT
#define EVENT 0
#endif
#define event(n) assert(n != EVENT)

#define FOLLOWED      1 /* a site follows a move, after it has unpacked its objects */
#define UNDER_OTHERS  2 /* it does so while another site's intent stands on the ref */
#define OVERTAKEN     3 /* a move is given up that others overtook */
#define CAME_LATE     4 /* a pack is unpacked after one of a larger position */
#define NO_PACK       5 /* a preparation finds that its pack was dropped */
#define BUILDS_ON_OLD 6 /* a used pack builds on a value that no ref has any more */
#define WITHOUT_PACK  7 /* a push brings nothing that the database lacks */
#define PRUNED        8 /* maintenance deletes objects */
#define KEPT          9 /* it keeps objects that no ref reaches */
#define KILLED       10 /* it is killed before it has deleted all */
#define SUPERSEDED   11 /* packs are deleted */
#define FROM_BASE    12 /* a site unpacks a base */
#define CLONED       13 /* a site that has lost its disk has the database's values */
#define ALARM        14 /* a pack is refused by a follower */
#define ORPHANED     15 /* a preparation takes effect after its process has died */
#define RESTED       16 /* everything has ended */
#define TRIMMED      17 /* packs in transit are deleted */
#define AWAY         18 /* a site was away for longer, and needs a base */
#define BASE_MOVED   19 /* a carried pack builds on a value that the database does not hold */

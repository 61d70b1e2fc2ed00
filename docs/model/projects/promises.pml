/*
 * What names of projects promise, as assertions. -DPROMISE=n checks Fn alone, so that a
 * seeded mistake demonstrably breaks the promise that it declares; 0 checks all.
 */
#ifndef PROMISE
#define PROMISE 0
#endif
#define checked(n) (PROMISE == 0 || PROMISE == n)

#define F1(x) assert(!checked(1) || (x)) /* no push goes into the refs of another project than the one of its path and its directory */
#define F2(x) assert(!checked(2) || (x)) /* a project has one directory at a site, which ends at the project's visible name, with the database's values */
#define F3(x) assert(!checked(3) || (x)) /* no directory goes whose project is not removed, and no project is removed whose directory is only elsewhere, or away */
#define F4(x) assert(!checked(4) || (x)) /* "moved to NEW" is said of a former name alone, and NEW is no other project's */
#define F5(x) assert(!checked(5) || (x)) /* whatever its name, a project's values are a single line of real moves, no move is forgotten, and none fails because of a directory that the daemon moves */
#define F6(x) assert(!checked(6) || (x)) /* a name is one project's, and a command acts on what it has read or on nothing */

/* Events that must be possible. With -DEVENT=n the first one is an error. */
#ifndef EVENT
#define EVENT 0
#endif
#define event(n) assert(n != EVENT)

#define PLACED      1 /* a directory arrives at its project's new name */
#define SWAPPED     2 /* two directories have changed places */
#define RESUMED     3 /* a daemon finds a directory that an earlier one had begun to move */
#define OLD_PATH    4 /* a push is accepted under a name that the project has left */
#define CUT_OFF     5 /* a site that may not know all names refuses a push */
#define MOVED_UNDER 6 /* git fails: its directory was moved under its lock file */
#define OVERTAKEN   7 /* a command finds that another one was faster */
#define TAKEN_AGAIN 8 /* a name that was another project's is taken */
#define TOO_SOON    9 /* it is refused for a while */
#define ASTRAY     10 /* a directory stands where a person has moved it */
#define CONFIRMED  11 /* a rename makes that its name */
#define FOLLOWED   12 /* the daemon does so, having seen both halves of the rename */
#define LOST_FOLLOW 13 /* another rename was faster than that */
#define GONE       14 /* a project is removed because its directory was deleted */
#define BACK       15 /* a directory comes back in time */
#define RESTORED   16 /* a removed project is brought back */
#define ANSWERED   17 /* "moved to NEW" */
#define CLONED     18 /* a site gets its copy after the project was renamed */
#define OBSTRUCTED 19 /* something is in the way of a directory */
#define SETTLED_ELSEWHERE 20 /* an intent is settled by a directory that has moved since */
#define RESTED     21 /* everything has ended */
#define SWEPT      22 /* a lock file is removed that git left in a directory that was moved */
#define ASIDE_GONE 23 /* the directory of a removed project is moved aside */
#define MISSED_ALL 24 /* a site reads at once that two projects have changed names */

/*
 * Names of projects as data, for Spin: a visible name is a row that leads to a project's key;
 * sites move their directories after it. ../README.md says what is modelled, and which rules
 * this would add to docs/PROTOCOL.md. run.sh checks this model, and that it catches seeded
 * mistakes.
 *
 * Everything that is one transaction, one step of git or one of a daemon is one d_step.
 */
#ifndef SITES
#define SITES 1
#endif
#ifndef KEYS
#define KEYS 2     /* projects */
#endif
#ifndef NAMES
#define NAMES 3
#endif
#ifndef COMMANDS
#define COMMANDS 1 /* at a time */
#endif
#ifndef PUSHERS
#define PUSHERS 0  /* sites, as bits: that push */
#endif
#ifndef PUSHED
#define PUSHED 1   /* projects, as bits: that are pushed to */
#endif
#ifndef TROUBLED
#define TROUBLED 0 /* sites, as bits: whose daemon may be cut off, and die, and whose disk may be away */
#endif
#ifndef HANDY
#define HANDY 1    /* sites, as bits: on whose disks persons move directories, HANDS times in a run */
#endif
/* -DRENAMES=n: n commands in a run; else any number. */

#include "promises.pml"
#include "state.pml"
#include "end.pml"
#include "database.pml"
#include "push.pml"
#include "place.pml"
#include "disk.pml"

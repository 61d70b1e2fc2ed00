/*
 * Pushes to Git sites with intents (docs/PROTOCOL.md, I and D; docs/GIT.md), for Spin.
 * ../README.md says what is modelled. run.sh checks this model,
 * and that it catches seeded mistakes.
 *
 * Everything that is one transaction of the database, one step of git or one of a
 * daemon is one d_step. A run may be of any length.
 */
#define SITES 2
#ifndef SLOTS
#define SLOTS 2  /* processes of git that push: 0 at site 0 (and 1, if 3), the last at site 1 */
#endif
#ifndef REFS
#define REFS 1   /* in each push */
#endif
#ifndef VALUES
#define VALUES 3 /* of a ref; 0: it does not exist */
#endif
#define DEAD SLOTS         /* any process that has ended */
#define at(i) ((i) >> (SLOTS - 2)) /* the site of process i */

#include "promises.pml"
#include "state.pml"
#include "database.pml"
#include "daemon.pml"
#include "git.pml"
#include "background.pml"

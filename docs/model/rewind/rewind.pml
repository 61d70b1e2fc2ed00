/*
 * A database that went back in time (docs/PROTOCOL.md, V), for Spin: a promotion that
 * lost the log's tail, or a backup that was put back; the comparison that admits its
 * server; recover. ../README.md says what is modelled. run.sh checks this
 * model, and that it catches seeded mistakes.
 *
 * Everything that is one transaction, one step of git or one of a daemon is one d_step.
 * A restart without a loss is a server that went back to its latest state.
 */
#ifndef SITES
#define SITES 2
#endif
#ifndef OPS
#define OPS 2     /* pushes in a run, from 1 */
#endif
#ifndef REWINDS
#define REWINDS 1 /* servers after the first */
#endif
#ifndef EPOCHS
#define EPOCHS REWINDS /* recoveries */
#endif
#ifndef CHANGES
#define CHANGES 2 /* of a site: it stops, or comes back */
#endif

#include "promises.pml"
#include "state.pml"
#include "database.pml"
#ifdef TESTIFY
#include "testify.pml"
#else
#define is_closing(s) false
#define is_barred(s) false
#define is_testified(s) false
#define no_longer_vouched(s, op) false
#define may_go(s) true
#define seen_moved(s) 255
#define falsely(op) false
#endif
#include "site.pml"
#include "compare.pml"
#include "recover.pml"
#ifdef LOCKS
#include "locks.pml"
#endif
#ifdef FOLLOWER
#include "follower.pml"
#endif

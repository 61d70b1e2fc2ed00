/*
 * Objects that travel through the database as packs, for Spin: pushes that store them,
 * sites that follow, maintenance that prunes, base packs. ../README.md says
 * what is modelled. run.sh checks this model, and that it catches seeded mistakes.
 *
 * Everything that is one transaction, one step of git or one of a daemon is one d_step.
 */
#ifndef SITES
#define SITES 2
#endif
#ifndef LAST
#define LAST 4        /* positions in a run: packs that were used, and the first base at 1 */
#endif
#define REFS 2        /* a push moves one of them */
#ifndef PUSHERS
#define PUSHERS 1     /* sites, as bits: that push */
#endif
#ifndef CAREFUL
#define CAREFUL 0     /* sites, as bits: of which the model has each step */
#endif
#ifndef SLOW
#define SLOW 0        /* sites, as bits: whose preparations may be open for long */
#endif
#ifndef MORTAL
#define MORTAL 0      /* sites, as bits: whose daemon and processes of git may die */
#endif
#ifndef MAINTAINERS
#define MAINTAINERS 0 /* sites, as bits: that maintain, if there are PRUNES or BASES */
#endif
#ifndef BASES
#define BASES 0       /* base packs in a run */
#endif
/* -DTRANSIT=n: the bases have no objects, and are made once n other sites have what comes before. */
#ifndef DAYS
#define DAYS 0        /* times in a run that 14 days pass */
#endif

#include "promises.pml"
#include "state.pml"
#include "database.pml"
#include "push.pml"
#include "follow.pml"
#include "trouble.pml"
#if defined(PRUNES) || BASES > 0
#include "maintain.pml"
#endif
#if DAYS > 0 || defined(FOREIGN) || defined(CALM)
#include "end.pml"
#endif

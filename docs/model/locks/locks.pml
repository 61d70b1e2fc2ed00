/*
 * The lock protocol of docs/PROTOCOL.md, L, U and R, for Spin.
 * ../README.md says what is modelled and how to read a
 * counterexample. run.sh checks this model, and that it catches seeded mistakes.
 *
 * Everything that is one transaction, or one step of a process, is one d_step.
 * Nothing but the sizes below bounds a run: it may go on for ever, with any
 * number of ticks, acquisitions, faults and retries.
 */
#ifndef SITES
#define SITES 3 /* processes, each of its own site */
#endif
#define STALE  3 /* ticks: a lock of this age is fresh, an older one stale */
#define MARGIN 1 /* ticks: covers one that a slow clock misses */
#ifdef NO_MARGIN
#define WINDOW STALE
#else
#define WINDOW (STALE - MARGIN) /* how long a lease lasts after its beat was sent */
#endif
#define NOBODY SITES

#include "promises.pml"
#include "state.pml"
#include "database.pml"
#include "network.pml"
#include "clock.pml"
#include "site.pml"

/* The sites are the processes 0 to SITES - 1. */
active proctype Surroundings() {
end:	do
	:: d_step { on_time; tick(NOBODY) }
	:: d_step { late.kind != NONE; late_arrives() }
	:: d_step { late.kind != NONE; printf("network: a late request is lost\n"); drop_late() }
#ifdef OPERATOR
	/* An operator deletes the lock by force, which voids all promises but P2. */
	:: d_step { lock.token != 0; printf("an operator deletes the lock\n"); delete_lock() }
#endif
	od
}

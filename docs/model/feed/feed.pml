/*
 * The change feed (docs/PROTOCOL.md, H), for Spin: positions, the watermark below which
 * nothing can appear any more, and the refs of the past. PostgreSQL's rules: a transaction
 * gets its ID at its first write, stays open for any time, and commits in any order.
 * ../README.md says what is modelled. run.sh checks this model, and that
 * it catches seeded mistakes.
 *
 * Everything that is one statement, or the end of a transaction, is one d_step.
 */
#define REFS 2
#ifndef IDS
#define IDS 4 /* 3 or 4 transactions in a run, from 1; a change of the offset is one, too */
#endif

#include "promises.pml"
#include "state.pml"
#include "database.pml"
#include "reader.pml"

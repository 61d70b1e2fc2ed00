/*
 * Sessions of a guarded Gerrit with its site's daemon, for Spin. ../README.md says what is
 * modelled. It goes on from the model of pushes (push/push.pml): late requests, lost answers and values that
 * return are searched there step by step.
 *
 * The rules, which this model needs as they are:
 *
 * Who
 *  1. A guard is one run of a process: boot, PID namespace, process ID, start time, and a random ID. A guard
 *     is dead if its boot is over, or if a daemon in its PID namespace sees that its process is gone.
 *     Nothing else proves a death: no broken session, no silence. Transactions with an OK wait for a living guard.
 * Transactions
 *  2. A transaction has an ID that is never used again. A retry is a new transaction.
 *  3. A thread moves refs only after an OK. One compare-and-set decides between taking the OK and giving up
 *     (timeout, broken session). A transaction that was given up never moves.
 *  4. An OK that comes too late is reported as ended in its session.
 *  5. When JGit has returned or thrown, the thread reads its refs, and reports. The daemon settles by the
 *     repository, and its answer counts for refs that the thread could not read; for others the thread's reading counts.
 *  6. A thread that ends while there is no session reports that to its caller, and is on no list.
 * Sessions
 *  7. Before a guard begins a session, no transaction is waiting for an answer in an earlier one.
 *  8. A session begins with a number, larger than all before it, and a list: the transactions that have taken
 *     their OK, and have neither reported nor ended (6). Each of them is to report in this session.
 *  9. Nothing is announced in a session before its list.
 * 10. The daemon hears no session with a smaller number than one that it has heard. It first ends its work for
 *     earlier sessions of that guard: it reads nothing more from them, drops waiting requests, and revokes
 *     (I7) preparations in progress. Then listed transactions with an intent continue, and all others of that guard
 *     are settled according to the repository.
 * 11. Transactions of a living guard are settled only by a report or a list.
 * Claims
 * 12. A transaction claims all its refs at once. It is claimed from before the repository is read until the
 *     preparation is answered or revoked. From then on its intent is the claim, also for a later daemon.
 * 13. With the claim, the old value that was announced is compared with the repository, and the preparation
 *     compares the same value with the database. If the repository differs, the answer is no. If the site is
 *     behind, the transaction waits for the follower, without a claim.
 * 14. A hook's git has the lock file that JGit needs: it is refused if a ref is claimed. Only the follower's claim it
 *     waits for: the follower's git does not wait for a lock file. The follower itself waits for no claim, but tries again.
 * 15. The follower claims a ref before it reads it, here and then in the database, until its git has ended, whether
 *     or not its daemon lives: a daemon that starts first waits for the git of the one before it. Its git runs no
 *     hook, and moves the ref only from the value that was read.
 * 16. An operator's decision is a claim until it is heeded: when its transaction has reported, is on no list,
 *     was revoked, or its guard is dead.
 * Lock files
 * 17. No lock file is removed while a git runs in the repository, or it has an intent of a living guard.
 *     Only one process at a time checks and removes in a repository, including an operator's command.
 * 18. While an intent of a dead guard stands in a repository, nothing is prepared there for sessions. The lock
 *     files of its refs and packed-refs.lock are removed, then it is settled.
 * The list of moves
 * 19. A settled move is on the list before the database is told, a follower's before its git is started, a
 *     decision's before it is heeded.
 * 20. An entry is given out only while no intent, no decision and no git of a follower stands on its ref.
 * 21. The guard saves its place after it has indexed.
 */
#ifndef SLOTS
#define SLOTS 2  /* transactions remembered at a time */
#endif
#ifndef GUARDS
#define GUARDS 1 /* 2: each with one of the transactions */
#endif
#ifndef REFS
#define REFS 1   /* 2: with BATCHES, each transaction moves both; else one each */
#endif
#ifndef VALUES
#define VALUES 3 /* of a ref */
#endif
#ifdef PACKED
#define FILES 1  /* both refs are in packed-refs */
#define file(r) 0
#else
#define FILES REFS
#define file(r) (r)
#endif
#define GIT_REF (REFS - 1) /* git pushes to it */

#include "promises.pml"
#include "state.pml"
#include "database.pml"
#include "guard.pml"
#include "thread.pml"
#include "daemon.pml"
#include "git.pml"
#include "trouble.pml"

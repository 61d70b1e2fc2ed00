/*
 * Waiters and holders. A waiter may ask at any time, woken or polling.
 * A holder releases eventually; an intent may stand forever.
 */
#define me _pid

/* Idle waiters for both refs are alike, unless one of them may die. */
#if MORTAL == 2 || MORTAL == 3
#define may_start(w) (waiter[w].phase == IDLE)
#else
#define may_start(w) (waiter[w].phase == IDLE && ((w) != 3 || waiter[2].phase != IDLE))
#endif
#define may_be_next(j) (holds(me) && (j) != me && (waiter[j].phase == WAITING || may_start(j)) && (both(j) || both(me) || (j) % REFS == me % REFS))
#define holds(w) (waiter[w].phase == HOLDING && !((w) == 1 && row[1].intent))

#ifdef FOREVER
/* W3: the waiter FOREVER gets its locks, or gives up. */
ltl claim { [] <> (waiter[FOREVER].phase != WAITING) }
byte given_up; /* giving up forever is no progress */
#define may_give_up (given_up == 0)
#define give_up given_up = 1
#else
#define may_give_up true
#define give_up skip
#endif

active [WAITERS] proctype Waiter() {
end:	do
	:: d_step { may_start(me); acquire(me, true) }
	:: d_step { may_start(me); acquire(me, false) }
#ifdef FOREVER
	:: waiter[me].phase == IDLE -> skip
#endif
	:: d_step { waiter[me].phase == WAITING; acquire(me, true) }
	:: d_step { waiter[me].phase == WAITING && may_give_up; withdraw(me); give_up }
#if MORTAL < WAITERS
	:: d_step { me == MORTAL && waiter[me].phase == WAITING; printf("waiter %d: dies\n", me); waiter[me].phase = DEAD }
	/* Another takes its part once nothing remembers it. */
	:: d_step { waiter[me].phase == DEAD && !is_place(me, 0) && !is_place(me, 1); drop_ticket(me); waiter[me].phase = IDLE }
#endif
#ifdef ACTS_ON_RESERVATION
	:: d_step { !both(me) && reserved(me, me % REFS); drop_ticket(me); waiter[me].phase = HOLDING }
#endif
	:: d_step { holds(me); release(me, NOBODY) }
	:: d_step { may_be_next(0); release(me, 0) }
	:: d_step { may_be_next(1); release(me, 1) }
	:: d_step { may_be_next(2); release(me, 2) }
	:: d_step { may_be_next(3); release(me, 3) }
#if WAITERS == 5
	:: d_step { may_be_next(4); release(me, 4) }
#endif
#ifdef UPDATES
	/* Its holder is gone, the lock is stale, and an update is the first to find it. */
	:: d_step { holds(me) && !both(me); waiter[me].phase = IDLE; pass_row(me % REFS); wander = 0 }
#endif
#ifdef INTENTS
	:: d_step { me == 1 && holds(1); printf("waiter 1: its lock stands for an intent\n"); row[1].intent = 1; wander = 0 }
	:: me == 1 && waiter[1].phase == HOLDING && row[1].intent -> skip
	:: d_step { me == 1 && waiter[1].phase == HOLDING && row[1].intent; row[1].intent = 0; release(me, NOBODY) }
#endif
	od
}

#define absent(r)   (row[r].state == RESERVED && !row[r].stale && (waiter[row[r].whose].phase != WAITING || row[r].whose == SLOW))

inline end_turn(r) {
	printf("the turn of waiter %d is over\n", row[r].whose);
	W4(waiter[row[r].whose].phase == DEAD || row[r].whose == SLOW);
	W4(row[r].whose == SLOW || !waiter[row[r].whose].lost[r]);
	if
	:: row[r].whose == SLOW -> waiter[SLOW].late = 1
	:: else
	fi;
	waiter[row[r].whose].lost[r] = 1;
	row[r].stale = 1
}

#ifdef NEVER_STALE
#define may_end(r) false
#else
#define may_end(r) absent(r)
#endif
#define purgeable(r) (row[r].state == RESERVED && row[r].stale)
#define passable(r)  (row[r].state == OPEN || row[r].state == RESERVED && row[r].stale)

/* A purge of a stale lock: the lock is handed on as if a requester had taken it over. */
inline purge(r) {
	printf("ref %d: its stale reservation is purged\n", r);
#ifdef PURGE_QUEUES
	for (x : 0 .. WAITERS - 1) {
		forget_place(x, r)
	}
	x = 0;
	delete_row(r)
#else
	hand_on_stale(r)
#endif
}

active proctype Surroundings() {
end:	do
	:: d_step { may_end(0); end_turn(0) }
	:: d_step { may_end(1); end_turn(1) }
#ifdef PURGE
	:: d_step { purgeable(0); purge(0) }
	:: d_step { purgeable(1); purge(1) }
#endif
#ifdef UPDATES
	:: d_step { passable(0); pass_row(0) }
	:: d_step { passable(1); pass_row(1) }
#endif
	od
}

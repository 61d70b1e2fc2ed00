/*
 * The site's daemon: its work for the transactions of sessions. Another daemon knows nothing of it. What an
 * #ifdef changes is a seeded mistake, but for CLAIMED_UNTIL_SETTLED.
 */
#ifdef CLAIMED_UNTIL_SETTLED
#define claims(i, r) (moves(i, r) && t[i].work != NONE && t[i].work != WAITS)
#elif defined(CLAIMED_AT_PREPARE)
#define claims(i, r) (moves(i, r) && t[i].work == REVOKING)
#elif defined(ONE_BY_ONE)
#define claims(i, r) (t[i].work == CLAIMED || t[i].work == REVOKING || (half[i] && (r) == (i)))
#else
#define claims(i, r) (moves(i, r) && (t[i].work == CLAIMED || t[i].work == REVOKING))
#endif
#if SLOTS == 2
#define claimed(r) (claims(0, r) || claims(1, r))
#define claimed_beside(i, r) claims(1 - (i), r)
#else
#define claimed(r) (claims(0, r) || claims(1, r) || claims(2, r))
#define claimed_beside(i, r) (((i) != 0 && claims(0, r)) || ((i) != 1 && claims(1, r)) || ((i) != 2 && claims(2, r)))
#endif

/* The follower's claim ends with its git, which may outlive the daemon: the next one waits for it. */
#ifdef FOLLOWER_UNCLAIMED
#define followed(r) false
#elif defined(ORPHAN_IGNORED)
#define followed(r) (follower != NONE && follower_ref == (r) && !orphan)
#else
#define followed(r) (follower != NONE && follower_ref == (r))
#endif

/* Intents and decisions of this site are claims that outlive the daemon. */
#ifdef DECISION_UNCLAIMED
#define left_by_any(r) db[r].pending
#else
#define left_by_any(r) (db[r].pending || db[r].decided)
#endif
#define claimable(i, r) (!moves(i, r) || (!claimed_beside(i, r) && !followed(r) && !left_by_any(r)))

/* An operator's decision is applied once its agent can't move the ref any more. */
inline heed(r) {
	printf("site: heeds a decision: ref %d from %d to %d\n", r, here[r], db[r].value);
	if
	:: here[r] != db[r].value -> event(HEEDED)
	:: else
	fi;
	note(r);
	here[r] = db[r].value;
	current[r] = 1;
	end_intent(r)
}

/* Its git needs the lock file. */
#define heedable(i, r) (!decision(i, r) || lock[file(r)] == FREE)

/* The old value to announce to the database. */
#ifdef OLD_OF_DISK
#define old_of(i, r) here[r]
#else
#define old_of(i, r) t[i].old[r]
#endif
#if defined(OLD_OF_DISK) || defined(DISK_UNCOMPARED)
#define disk_as_read(i) true
#else
#define disk_as_read(i) every(as_read, i)
#endif
#ifdef DATABASE_UNCOMPARED
#define database_as_read(i, r) true
#else
#define database_as_read(i, r) (!moves(i, r) || db[r].value == old_of(i, r))
#endif
#define taken(i, r) (moves(i, r) && left_by_any(r))

#ifdef EARLIER_WORK
#define unstray(i) (!stray[i])
#else
#define unstray(i) true
#endif

inline answer(i, what) {
	if
	:: !t[i].dead && in_session(i) && unstray(i) -> t[i].reply = what
	:: else
	fi
}

/* With the claim, the repository is read. */
inline read(i) {
	if
	:: disk_as_read(i) -> t[i].work = CLAIMED
	:: else -> say("has another old value:", i); event(STALE_OLD); t[i].work = NONE; answer(i, NO); tidy(i)
	fi
}

inline record_all(i) {
	for (x : 0 .. REFS - 1) {
		if
		:: moves(i, x) -> record(i, x, old_of(i, x), t[i].new)
		:: else
		fi
	}
	x = 0;
	say("is recorded:", i)
}

inline prepare(i) {
	if
	:: any(taken, i) -> t[i].work = NONE; answer(i, NO); tidy(i)
	/* The site is behind. The transaction waits until the ref has another value here. */
	:: !any(taken, i) && !every(database_as_read, i) -> t[i].work = WAITS; event(WAITED)
	:: else -> J2(t[i].dead || !any(lock_dead, i)); record_all(i); t[i].work = PREPARED
	fi
}

inline late_arrives(i) {
	late = 0;
	if
	:: any(taken, i) || !every(database_as_read, i) -> skip
	:: else -> record_all(i);
		if
		:: t[i].work != REVOKING -> event(LATE_INTENT)
		:: else
		fi
	fi;
	tidy(i)
}

/* Its request was not recorded, and will not be (I7). */
inline revoke(i) {
	say("is revoked:", i);
	late = 0;
	for (x : 0 .. REFS - 1) {
		if
		:: intent(i, x) -> J5(!db[x].moved && !may_move(i)); end_intent(x)
		:: else
		fi
	}
	x = 0;
#ifdef REVOKED_UNHEEDED
	t[i].work = NONE;
#else
	t[i].work = (meant(i) -> ENDING : NONE); /* an operator was faster */
#endif
	answer(i, NO);
	tidy(i)
}

/* The remains of a transaction are settled according to the repository. */
inline settle(i, reported) {
	say("is settled:", i);
	J5(!reported || meant(i));
	if
	:: reported && t[i].moved -> event(REPORTED_MOVE)
	:: t[i].dead && t[i].moved -> event(DEAD_MOVED)
	:: t[i].dead && !t[i].moved && meant(i) -> event(DEAD_UNMOVED)
	:: !t[i].dead && !reported && t[i].moved -> event(ENDED_APART)
	:: else
	fi;
	b = every(is_new, i);
	if
	:: REFS == 2 && intent(i, 0) && intent(i, REFS - 1) && here[0] == db[0].new && here[REFS - 1] == db[REFS - 1].old -> event(PARTLY)
	:: else
	fi;
	for (y : 0 .. REFS - 1) {
		if
		:: intent(i, y) ->
			J5(!may_move(i));
#ifdef REPORTED_UNLISTED
			if
			:: !reported -> note(y)
			:: else
			fi;
#elif defined(SETTLED_UNLISTED)
			skip;
#elif defined(NOTED_AFTER)
			unnoted[y] = 1;
#else
			note(y);
#endif
			finish(y)
		:: decision(i, y) -> heed(y)
		:: else
		fi
	}
	y = 0;
	t[i].work = NONE;
	if
	:: reported && b -> answer(i, MADE)
	:: reported && !b -> answer(i, UNMADE)
	:: else
	fi;
	b = 0;
	tidy(i)
}

/* A list: its transactions continue, all others of that guard are settled. */
#ifdef PID_ALONE
#define concerns(g, i) (!t[i].dead)
#elif defined(SAME_IDENTITY)
#define concerns(g, i) true
#else
#define concerns(g, i) (!t[i].dead && guard(i) == g)
#endif
inline hear_list(g) {
	say("list of guard", g);
	if
	:: one_of(dead_left) -> event(SUCCEEDED)
	:: else
	fi;
	for (y : 0 .. SLOTS - 1) {
		if
		:: concerns(g, y) ->
			if
			:: (t[y].work == WAITS || t[y].work == REVOKING || t[y].work == CLAIMED || t[y].work == PREPARED) -> event(WORK_ENDED)
			:: else
			fi;
			if
			:: t[y].listed && guard(y) == g ->
#ifdef OK_SETTLED
				t[y].work = (meant(y) -> ENDING : NONE)
#else
				if
				:: t[y].work == NONE && meant(y) -> event(KEPT)
				:: else
				fi;
				t[y].work = (meant(y) -> GRANTED : NONE)
#endif
			:: else ->
#ifndef UNREVOKED
				if
				:: late == 1 + y -> late = 0
				:: else
				fi;
#endif
#ifdef EARLIER_WORK
				stray[y] = (t[y].flight != NONE || t[y].work != NONE);
#else
				t[y].flight = NONE;
#endif
				if
#ifdef UNLISTED_KEPT
				:: meant(y) -> t[y].work = GRANTED
#else
				:: meant(y) -> t[y].work = ENDING
#endif
#ifdef EARLIER_WORK
				:: !meant(y) -> skip
#else
				:: else -> t[y].work = NONE
#endif
				fi
			fi;
			if
			:: guard(y) == g -> t[y].listed = 0
			:: else
			fi;
			tidy(y)
		:: else
		fi
	}
	y = 0;
	hello[g] = 0;
	if
	:: session[g] == HELLO -> session[g] = OPEN
	:: else
	fi
}

#ifdef UNNUMBERED
inline hear_old_list() {
	printf("an earlier session is heard\n");
	old_hello = 0;
	for (y : 0 .. SLOTS - 1) {
		if
		:: !t[y].dead && !old_listed[y] ->
			t[y].flight = NONE;
			late = (late == 1 + y -> 0 : late);
			t[y].work = (meant(y) -> ENDING : NONE);
			tidy(y)
		:: else
		fi;
		old_listed[y] = 0
	}
	y = 0
}
#endif

/* The proof that a transaction's process has ended. */
#if defined(DEAD_UNSEEN) || defined(SAME_IDENTITY)
#define ended(i) false
#elif defined(BROKEN_IS_DEAD)
#define ended(i) (t[i].dead || session[guard(i)] == NONE)
#elif defined(SILENT_IS_DEAD)
#define ended(i) true
#else
#define ended(i) t[i].dead
#endif

/*
 * A lock file is removed only while no process lives that may have created it: no git runs in the
 * repository, and no transaction of a living guard has its OK there.
 */
#ifdef LOCK_OF_GIT
#define no_git true
#else
#define no_git (git == NONE && (follower == NONE || follower == CLAIMED))
#endif
#if defined(LOCK_OF_LIVING)
#define nobody_lives no_git
#else
#define nobody_lives (no_git && !one_of(living_left))
#endif
#ifdef OK_BEFORE_REMOVAL
#define clean true
#else
#define clean (!one_of(dead_left))
#endif
#if defined(LOCK_LEFT) || defined(SAME_IDENTITY)
#define unlocked(i) true
#else
#define unlocked(i) (every(lock_free, i))
#endif

inline remove(i) {
	for (x : 0 .. REFS - 1) {
		if
		:: moves(i, x) && lock[file(x)] != FREE -> say("site: removes a lock file of", i); event(LOCK_REMOVED); lock[file(x)] = FREE
		:: else
		fi
	}
	x = 0
}

#ifdef WAITS_CLAIMED
#define prepares(i) (every(database_as_read, i) || any(taken, i))
#else
#define prepares(i) true
#endif

#undef me
#define me (_pid - SLOTS - GUARDS)
#define my_guard guard(me)
#define up (!down)
active [SLOTS] proctype Work() {
end:	do
	:: d_step { up && t[me].flight == ANNOUNCE && t[me].work == NONE; t[me].flight = NONE; t[me].work = WAITS }
#ifdef ONE_BY_ONE
	:: d_step { up && t[me].work == WAITS && !half[me] && claimable(me, me); half[me] = 1 }
	:: d_step { up && t[me].work == WAITS && half[me] && claimable(me, 1 - me); half[me] = 0; read(me) }
#else
	:: d_step { up && t[me].work == WAITS && every(claimable, me); read(me) }
#endif
	:: d_step { up && t[me].work == CLAIMED && clean && prepares(me); prepare(me) }
	:: d_step { up && t[me].work == PREPARED; t[me].work = GRANTED; answer(me, OK) }
	:: d_step { up && t[me].work == CLAIMED && clean && trouble && late == 0; say("has no answer:", me); late = 1 + me; t[me].work = REVOKING }
	:: d_step { up && t[me].work == REVOKING; revoke(me) }
	:: d_step { late == 1 + me; late_arrives(me) }
	:: d_step { up && t[me].flight == REPORT && !hello[my_guard] && (t[me].work == GRANTED || t[me].work == NONE) && every(heedable, me);
		t[me].flight = NONE; settle(me, t[me].phase == REPORTED) }
	:: d_step { up && t[me].work == ENDING && !t[me].dead && every(heedable, me); settle(me, 0) }
#ifdef HEED_LIVING
	:: d_step { up && decision(me, 0) && heedable(me, 0); heed(0) }
#endif
	/* Its guard is dead. */
	:: d_step { up && t[me].dead && (t[me].work == WAITS || t[me].work == CLAIMED); t[me].work = NONE; tidy(me) }
	:: d_step { up && ended(me) && (t[me].work == NONE || t[me].work == GRANTED) && meant(me); t[me].work = ENDING }
#ifdef LOOKS_FIRST
	:: d_step { up && t[me].work == ENDING && t[me].dead && !unlocked(me) && nobody_lives && !looked[me]; looked[me] = 1 }
	:: d_step { up && looked[me]; looked[me] = 0; remove(me) }
#else
	:: d_step { up && t[me].work == ENDING && t[me].dead && !unlocked(me) && nobody_lives; remove(me) }
#endif
	:: d_step { up && t[me].work == ENDING && t[me].dead && unlocked(me) && every(heedable, me); settle(me, 0) }
	od
}

#undef me
#define me (_pid - 2 * SLOTS - GUARDS)
active [GUARDS] proctype Session() {
end:	do
	:: d_step { up && hello[me]; hear_list(me) }
#ifdef UNNUMBERED
	:: d_step { up && old_hello; hear_old_list() }
#endif
	od
}

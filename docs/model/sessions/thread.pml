/*
 * A thread of a guard, with its transaction, and JGit. What an #ifdef changes is a seeded mistake,
 * but for UNPINNED and UNWAITED.
 */
#define lock_free(i, r)  (!moves(i, r) || lock[file(r)] == FREE)
#define lock_dead(i, r)  (moves(i, r) && lock[file(r)] == BY_DEAD)
#define as_read(i, r)    (!moves(i, r) || here[r] == t[i].old[r])
#define is_new(i, r)     (!moves(i, r) || here[r] == t[i].new)
#define other_than(v, r) (here[r] != (v))
#ifdef UNPINNED
#define pinned(i) true
#else
#define pinned(i) every(as_read, i)
#endif

/* A thread reads its refs, computes, and announces. */
inline begin(i, v) {
	printf("transaction %d: to %d\n", i, v);
	for (x : 0 .. REFS - 1) {
		if
		:: moves(i, x) -> t[i].old[x] = here[x]
		:: else
		fi
	}
	x = 0;
	t[i].new = v;
	t[i].refused = 0;
	t[i].phase = SENT;
	t[i].flight = ANNOUNCE
}

/* The result for Gerrit, which indexes the moved refs. */
inline tell(i, yes) {
	t[i].phase = NONE;
	if
	:: yes ->
		J4(t[i].moved);
#ifdef INDEXES
		for (x : 0 .. REFS - 1) {
			if
			:: moves(i, x) -> index[x] = here[x]
			:: else
			fi
		}
		x = 0;
#endif
	:: else -> J4(!t[i].moved); t[i].refused = 1
	fi;
	tidy(i)
}

/* Without an answer of the daemon: the values that the thread has read. */
inline tell_alone(i) {
	if
	:: t[i].believed -> event(TOLD_ALONE)
	:: else
	fi;
	tell(i, t[i].believed)
}

inline unlock(i) {
	t[i].phase = ENDED;
	t[i].overtaken = 0;
	for (x : 0 .. REFS - 1) {
		if
		:: moves(i, x) && lock[file(x)] == by(i) -> lock[file(x)] = FREE
		:: else
		fi
	}
	x = 0
}

inline take(i) {
	for (x : 0 .. REFS - 1) {
		if
		:: moves(i, x) -> lock[file(x)] = by(i)
		:: else
		fi
	}
	x = 0
}

/* JGit has the lock file, and compares: it renames, or fails. */
inline rename(i, last) {
	for (x : 0 .. last) {
		if
		:: moves(i, x) ->
			printf("transaction %d: ref %d moves from %d to %d\n", i, x, here[x], t[i].new);
			J1(decision(i, x) || (intent(i, x) && db[x].old == here[x] && db[x].new == t[i].new && db[x].value == here[x]));
			J3(here[x] == t[i].old[x] && !t[i].overtaken);
			if
			:: intent(i, x) -> db[x].moved = 1; current[x] = 1
			:: else -> current[x] = 0
			fi;
			here[x] = t[i].new
		:: else
		fi
	}
	x = 0;
	J4(!t[i].refused);
	t[i].moved = 1;
	unlock(i);
	write_file(file(0))
}

/* The thread reads its refs, whatever was thrown, before it reports: until then no other process moves them. */
inline believe(i, thrown) {
#ifdef JGIT_BELIEVED
	t[i].believed = !thrown && t[i].moved
#else
	t[i].believed = every(is_new, i)
#endif
}

inline jgit_ends(i, may_move, thrown) {
	if
	:: may_move && pinned(i) -> rename(i, REFS - 1)
	:: else -> unlock(i)
	fi;
	believe(i, thrown);
	if
	:: thrown -> event(THREW)
	:: else
	fi
}

#ifdef ENDED_UNREPORTED
#define may_report(i) (session[guard(i)] == OPEN)
#else
#define may_report(i) true
#endif

/* The report, in any session that there is. If there is none the next list is without it. */
inline report(i) {
	if
	:: connected(i) && may_report(i) -> t[i].flight = REPORT;
#ifdef UNWAITED
		tell(i, t[i].believed)
#else
		t[i].phase = REPORTED
#endif
	:: else -> tell_alone(i)
	fi
}

/* A message from the daemon, in the session that is open or in one that has broken. */
inline hear(i) {
	if
	:: t[i].phase == SENT && t[i].reply == OK -> t[i].phase = MAY;
		if
		:: !connected(i) -> event(BROKEN_OK)
		:: else
		fi
	:: t[i].phase == SENT && t[i].reply == NO -> t[i].reply = NONE; tell(i, 0)
	:: t[i].phase == REPORTED && t[i].reply == MADE -> t[i].reply = NONE; tell(i, 1)
	:: t[i].phase == REPORTED && t[i].reply == UNMADE -> t[i].reply = NONE; tell(i, 0)
	/* The thread has given up. */
#ifdef LATE_OK_TAKEN
	:: t[i].phase == NONE && t[i].reply == OK -> t[i].phase = MAY
#endif
	:: t[i].phase == NONE && t[i].reply == OK && session[guard(i)] == OPEN ->
#ifndef LATE_OK_UNANSWERED
		t[i].flight = REPORT;
#endif
		event(ANSWERED_LATE)
	:: else
	fi;
	t[i].reply = NONE;
	tidy(i)
}

#ifdef SENT_AGAIN
#define retries(i) (t[i].phase == NONE && t[i].refused && t[i].flight == NONE)
#else
#define retries(i) false
#endif
#ifdef ANNOUNCED_EARLY
#define in_session(i) connected(i)
#else
#define in_session(i) (session[guard(i)] == OPEN)
#endif
#define may_begin(i, v) (trouble && in_session(i) && (forgotten(i) || retries(i)) && !t[i].dead && every_other(i, v))
#if REFS == 1
#define every_other(i, v) other_than(v, 0)
#elif defined(BATCHES)
#define every_other(i, v) (other_than(v, 0) && other_than(v, 1))
#else
#define every_other(i, v) other_than(v, i)
#endif

#undef me
#define me (_pid - GUARDS)
active [SLOTS] proctype Thread() {
end:	do
	:: d_step { may_begin(me, 0); begin(me, 0) }
	:: d_step { may_begin(me, 1); begin(me, 1) }
#if VALUES > 2
	:: d_step { may_begin(me, 2); begin(me, 2) }
#endif
	:: d_step { t[me].reply != NONE; hear(me) }
	/* The time is over, or the session has broken: an OK comes too late from now on. */
	:: d_step { t[me].phase == SENT && (trouble || !connected(me)); say("gives up", me); tell(me, 0) }
	:: d_step { t[me].phase == MAY && every(lock_free, me); t[me].phase = LOCKED; take(me) }
	:: d_step { t[me].phase == MAY && (trouble || any(lock_dead, me)); say("finds a lock file", me); jgit_ends(me, 0, 0) }
	:: d_step { t[me].phase == LOCKED; jgit_ends(me, 1, 0) }
	:: d_step { t[me].phase == LOCKED && trouble; say("has an I/O error", me); jgit_ends(me, 0, 1) }
	:: d_step { t[me].phase == LOCKED && trouble; say("throws after the move", me); jgit_ends(me, 1, 1);
#ifdef THROWS_SILENTLY
		t[me].phase = NONE
#endif
		}
#ifdef BATCHES
	:: d_step { t[me].phase == LOCKED && trouble && pinned(me); say("dies between two renames", me); rename(me, 0); t[me].phase = LOCKED; take(me); die(0) }
#endif
	:: d_step { t[me].phase == ENDED; report(me) }
	:: d_step { t[me].phase == REPORTED && !connected(me); tell_alone(me) }
	od
}

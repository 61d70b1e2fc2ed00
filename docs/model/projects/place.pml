/*
 * The daemon and the directories: it takes one out of its path to a reserved place, has it
 * record the new name there, and gives it its new path. It moves only what stands where it
 * placed it, and nothing that a person has moved.
 */
#define wanted(s, k) dir(s, k).shown
#define stands_right(s, k) (dir(s, k).at == dir(s, k).recorded)
#define moves_out(s, k) (stands_right(s, k) && wanted(s, k) != NO_NAME && wanted(s, k) != dir(s, k).at && dir(s, k).at < NAMES)
/* Its new path is free, or the name at which it stands is another project's by now. */
#ifdef WAITS_FOR_PLACE
#define has_to_leave(s, k) false
#else
#define has_to_leave(s, k) anothers(s, k, dir(s, k).at)
#endif
#define has_place(s, k) (is_free(s, wanted(s, k)) || has_to_leave(s, k))
#ifdef HAND_UNDONE
#define may_leave(s, k) (wanted(s, k) != NO_NAME && wanted(s, k) != dir(s, k).at && dir(s, k).at < NAMES && has_place(s, k))
#else
#define may_leave(s, k) (moves_out(s, k) && has_place(s, k))
#endif

/* No git that was accepted may move the ref still. */
#ifdef MOVES_AMID
#define no_push(s, k) true
#else
#define no_push(s, k) (git(s, k).phase != TOLD)
#endif

/* A git that began earlier has a lock file at this path, or believes so: its directory was there. */
#ifdef PATH_TAKEN
#define no_git_of(s, p, k) true
#elif KEYS == 2
#define no_git_of(s, p, k) !((git(s, other(k)).phase == LOCKED || git(s, other(k)).phase == TOLD) && git(s, other(k)).path == (p))
#else
#define no_git_of(s, p, k) true
#endif

inline rest(s) {
	site[s].doing = NONE;
	site[s].key = 0
}

inline take_out(s, k) {
	printf("site %d: takes project %d out of %d\n", s, k, dir(s, k).at);
	F2(stands_right(s, k));
	dir(s, k).at = STAGE
}

#define is_staged(s, k) (dir(s, k).at == STAGE)
#define may_arrive(s, k) (is_staged(s, k) && wanted(s, k) != NO_NAME && dir(s, k).recorded == wanted(s, k) && \
	is_free(s, wanted(s, k)) && no_git_of(s, wanted(s, k), k))

inline arrive(s, k) {
	printf("site %d: project %d arrives at %d\n", s, k, wanted(s, k));
	event(PLACED);
	if
	:: site[s].doing == NONE -> event(RESUMED)
	:: else
	fi;
	dir(s, k).at = wanted(s, k);
#if KEYS == 2
	if
	:: dir(s, 0).at == 1 && dir(s, 1).at == 0 -> event(SWAPPED)
	:: else
	fi;
#endif
	if
	:: site[s].doing != NONE && site[s].key == k -> rest(s)
	:: else
	fi
}

/* What a person has put in the right place counts as placed. */
#define may_record(s, k) ((is_staged(s, k) || dir(s, k).at == wanted(s, k)) && wanted(s, k) != NO_NAME && dir(s, k).recorded != wanted(s, k))

inline record(s, k) {
	dir(s, k).recorded = wanted(s, k);
	dir(s, k).astray = 0
}

/* The database's rows, in one request. */
#if KEYS == 2
#define is_fresh(s) (site[s].valid && dir(s, 0).shown == db[0].shown && dir(s, 1).shown == db[1].shown)
#else
#define is_fresh(s) (site[s].valid && dir(s, 0).shown == db[0].shown)
#endif
inline refresh(s) {
#if KEYS == 2
	if
	:: dir(s, 0).shown == 0 && dir(s, 1).shown == 1 && db[0].shown == 1 && db[1].shown == 0 -> event(MISSED_ALL)
	:: else
	fi;
#endif
	for (x : 0 .. KEYS - 1) {
		dir(s, x).shown = db[x].shown
	}
	x = 0;
	site[s].valid = 1
}

/* A project without any directory here, that the site did not follow. */
#ifdef CLONED_BY_NAME
#define has_none(s, k) (is_free(s, wanted(s, k)))
#elif defined(STAGE_UNSEEN)
#define has_none(s, k) (dir(s, k).at >= STAGE)
#else
#define has_none(s, k) (dir(s, k).at > STAGE && !dir(s, k).known)
#endif
#define may_clone(s, k) (works(s) && site[s].valid && wanted(s, k) != NO_NAME && has_none(s, k) && site[s].doing == NONE && \
	!is_pending(s, k) && git(s, k).phase == NONE)
inline clone(s, k) {
	printf("site %d: clones project %d\n", s, k);
	F2(dir(s, k).at > STAGE);
	event(CLONED);
	dir(s, k).at = STAGE;
	dir(s, k).recorded = wanted(s, k);
	dir(s, k).here = db[k].value;
	dir(s, k).locked = 0;
	dir(s, k).known = 1
}

/* The directory of a removed project: nothing of this site is pending, and the row is read once more. */
#define may_go(s, k) (wanted(s, k) == NO_NAME && in_root(s, k) && (stands_right(s, k) || is_staged(s, k)) && git(s, k).phase == NONE && !is_pending(s, k))
inline put_aside(s, k) {
	printf("site %d: moves project %d aside\n", s, k);
	F3(db[k].shown == NO_NAME);
	event(ASIDE_GONE);
	dir(s, k).at = ASIDE;
	dir(s, k).recorded = 0;
	dir(s, k).here = 0;
	dir(s, k).locked = 0;
	dir(s, k).known = 0;
	dir(s, k).lost = 0;
	dir(s, k).astray = 0;
	rest(s)
}

inline crash(s) {
	say("crashes", s);
	site[s].down = 1;
	site[s].valid = 0;
	site[s].seen = 0;
	rest(s)
}

/* Who asks for a former name is told the new one, while the cache is valid. */
#ifdef ANSWERS_INVALID
#define may_answer(s) (!site[s].down)
#else
#define may_answer(s) (!site[s].down && site[s].valid)
#endif

#define former_of(n) (name[n].former - 1)
#define is_former(s, n) (name[n].former != 0 && dir(s, former_of(n)).shown != (n) && dir(s, former_of(n)).shown != NO_NAME)
inline answer_moved(s, n) {
	event(ANSWERED);
	F4(!is_another(former_of(n), dir(s, former_of(n)).shown))
}

#undef me
#define me (_pid - COMMANDS - 1 - SITES * KEYS)
#define ready (works(me) && site[me].doing == NONE)
#define doing_is(d) (works(me) && site[me].doing == d)
active [SITES] proctype Daemon() provided (begun) {
end:	do
	:: d_step { !site[me].down && !is_fresh(me); refresh(me) }
	:: d_step { may_trouble(me) && site[me].valid; site[me].valid = 0 }
	:: d_step { may_trouble(me) && !site[me].down; crash(me) }
	:: d_step { site[me].down; say("starts", me); site[me].down = 0 }

#ifdef UNSTAGED
	/* At once to its new path; it records the name there. */
	:: d_step { ready && stands_right(me, 0) && moves_out(me, 0) && is_free(me, wanted(me, 0)) && no_push(me, 0); dir(me, 0).at = wanted(me, 0); site[me].doing = LEAVES }
	:: d_step { doing_is(LEAVES); dir(me, 0).recorded = dir(me, 0).at; rest(me) }
#else
	:: d_step { ready && may_leave(me, 0); site[me].doing = EXCLUSIVE; site[me].key = 0 }
	:: d_step { doing_is(EXCLUSIVE) && site[me].key == 0 && !may_leave(me, 0); rest(me) }
	:: d_step { doing_is(EXCLUSIVE) && site[me].key == 0 && may_leave(me, 0) && no_push(me, 0); site[me].doing = LEAVES; take_out(me, 0) }
	:: d_step { works(me) && is_staged(me, 0) && may_arrive(me, 0); arrive(me, 0) }
#if KEYS == 2
	:: d_step { ready && may_leave(me, 1); site[me].doing = EXCLUSIVE; site[me].key = 1 }
	:: d_step { doing_is(EXCLUSIVE) && site[me].key == 1 && !may_leave(me, 1); rest(me) }
	:: d_step { doing_is(EXCLUSIVE) && site[me].key == 1 && may_leave(me, 1) && no_push(me, 1); site[me].doing = LEAVES; take_out(me, 1) }
	:: d_step { works(me) && is_staged(me, 1) && may_arrive(me, 1); arrive(me, 1) }
#endif
	/* What is staged does not hold up the next one. */
	:: d_step { doing_is(LEAVES) && !may_arrive(me, site[me].key); rest(me) }
#endif
	:: d_step { works(me) && may_record(me, 0); record(me, 0) }
#if KEYS == 2
	:: d_step { works(me) && may_record(me, 1); record(me, 1) }
#endif
#ifdef CLONES
	:: d_step { may_clone(me, 0); clone(me, 0) }
#if KEYS == 2
	:: d_step { may_clone(me, 1); clone(me, 1) }
#endif
#endif
#if defined(REMOVES) || defined(ON_DELETE)
#ifdef ASIDE_UNCHECKED
	:: d_step { ready && may_go(me, 0); put_aside(me, 0) }
#else
	:: d_step { ready && may_go(me, 0) && site[me].valid && db[0].shown == NO_NAME; site[me].doing = CHECKED; site[me].key = 0 }
	:: d_step { doing_is(CHECKED); if
		:: may_go(me, 0) -> put_aside(me, 0)
		:: else -> rest(me)
		fi }
#endif
#endif
#ifdef ANSWERS
	:: d_step { may_answer(me) && is_former(me, 0); answer_moved(me, 0) }
	:: d_step { may_answer(me) && is_former(me, 1); answer_moved(me, 1) }
	:: d_step { may_answer(me) && is_former(me, NAMES - 1); answer_moved(me, NAMES - 1) }
#endif
	od
}

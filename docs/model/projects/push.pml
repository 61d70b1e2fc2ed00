/*
 * A push at a site: git, the daemon's answer to its hook, the end of its intent.
 *
 * Git begins in a directory and stays there when the directory is moved. Its lock file is a path,
 * of the time when it was made: when git moves the ref, or gives up, it renames or deletes what
 * stands there then.
 */
#define at_path(s, k) (dir(s, k).at == git(s, k).path)

/* The lock file of another git stands there. */
#if KEYS == 2
#define others_lock(s, k) (git(s, k).path < NAMES && dir(s, other(k)).at == git(s, k).path && dir(s, other(k)).locked)
#else
#define others_lock(s, k) false
#endif

inline lock_ref(s, k) {
	dir(s, k).locked = 1;
	git(s, k).phase = LOCKED;
	git(s, k).path = dir(s, k).at
}

/* Its lock file goes, if it is still there. */
inline unlock_ref(s, k) {
	F1(!others_lock(s, k));
	if
	:: at_path(s, k) -> dir(s, k).locked = 0
	:: else
	fi
}

inline end_push(s, k) {
	git(s, k).phase = NONE;
	git(s, k).path = 0
}

inline commit(s, k) {
	F1(!others_lock(s, k));
	if
	:: at_path(s, k) && dir(s, k).locked ->
		printf("site %d: git moves the ref of project %d\n", s, k);
		F5(is_pending(s, k) && dir(s, k).here == db[k].value);
		dir(s, k).here = 1 - dir(s, k).here;
		dir(s, k).locked = 0;
		db[k].moved = 1;
		git(s, k).phase = MOVED
	:: else ->
		event(MOVED_UNDER);
		F5(hands > 0);
		git(s, k).phase = FAILED
	fi
}

inline die(s, k) {
	printf("site %d: git of project %d is killed\n", s, k);
	if
	:: is_pending(s, k) -> db[k].living = 0
	:: else
	fi;
	end_push(s, k)
}

/* The daemon's answer: by the cache, the path is the project's, and nobody moves the directory. */
#ifdef INVALID_COUNTS
#define is_valid(s) true
#else
#define is_valid(s) (site[s].valid)
#endif
#if KEYS == 2
#define anothers(s, k, n) (dir(s, other(k)).shown == (n))
#else
#define anothers(s, k, n) false
#endif
#ifdef RECORD_COUNTS
#define is_right(s, k) (dir(s, k).shown != NO_NAME && (dir(s, k).shown == dir(s, k).at || (dir(s, k).recorded == dir(s, k).at && !anothers(s, k, dir(s, k).at))))
#elif defined(PATH_UNCHECKED)
#define is_right(s, k) (dir(s, k).shown != NO_NAME && dir(s, k).at < NAMES)
#else
#define is_right(s, k) (dir(s, k).shown == dir(s, k).at && dir(s, k).at < NAMES)
#endif
#ifdef KEY_RENAMED
/* Rows have the name as their key: under an earlier name there is nothing to compare with. */
#define matches(s, k) (dir(s, k).shown != db[k].shown || (!db[k].pending && db[k].value == dir(s, k).here))
#else
#define matches(s, k) (!db[k].pending && db[k].value == dir(s, k).here)
#endif

/* It has begun since the directory was moved here. */
#ifdef EARLIER_GIT
#define is_of_now(s, k) true
#else
#define is_of_now(s, k) at_path(s, k)
#endif

inline answer_push(s, k) {
	if
	:: is_valid(s) && is_right(s, k) && !is_moving(s, k) && is_of_now(s, k) && matches(s, k) ->
		printf("site %d: a push to project %d is accepted, under the name %d\n", s, k, dir(s, k).at);
		F1(!is_another(k, dir(s, k).at));
		if
		:: db[k].shown != dir(s, k).at -> event(OLD_PATH)
		:: else
		fi;
		db[k].pending = 1;
		db[k].owner = s;
		db[k].living = 1;
		git(s, k).phase = TOLD
	:: else ->
		printf("site %d: a push to project %d is refused\n", s, k);
		if
		:: !site[s].valid && is_right(s, k) -> event(CUT_OFF)
		:: else
		fi;
		unlock_ref(s, k);
		end_push(s, k)
	fi
}

/* The end of an intent, by the directory that records the project, wherever it is below the root. */
#ifdef SETTLES_BY_PATH
/* By the one at the project's path; if nothing is there, nothing was moved. */
#define ends_at(s, k) true
#if KEYS == 2
#define was_moved(s, k) (dir(s, k).at == dir(s, k).shown -> dir(s, k).here != db[k].value : (dir(s, other(k)).at == dir(s, k).shown -> dir(s, other(k)).here != db[k].value : 0))
#else
#define was_moved(s, k) (dir(s, k).at == dir(s, k).shown -> dir(s, k).here != db[k].value : 0)
#endif
#else
#define ends_at(s, k) in_root(s, k)
#define was_moved(s, k) (dir(s, k).here != db[k].value)
#endif
#define may_settle(s, k) (is_pending(s, k) && works(s) && ends_at(s, k) && \
	(git(s, k).phase == MOVED || git(s, k).phase == FAILED || !db[k].living))

inline settle(s, k) {
	printf("site %d: the intent on project %d ends\n", s, k);
	F5(was_moved(s, k) == db[k].moved);
	if
	:: dir(s, k).at != dir(s, k).recorded -> event(SETTLED_ELSEWHERE)
	:: else
	fi;
	if
	:: db[k].moved -> db[k].value = 1 - db[k].value
	:: else
	fi;
	db[k].pending = 0;
	db[k].owner = 0;
	db[k].living = 0;
	db[k].moved = 0;
	if
	:: git(s, k).phase == MOVED || git(s, k).phase == FAILED -> end_push(s, k)
	:: else
	fi
}

/* A lock file that a git has left: no git runs there. */
#define is_left(s, k) (works(s) && in_root(s, k) && dir(s, k).locked && git(s, k).phase == NONE)
inline sweep(s, k) {
	printf("site %d: removes a lock file of project %d\n", s, k);
	if
	:: dir(s, k).at < NAMES -> event(SWEPT)
	:: else
	fi;
	dir(s, k).locked = 0
}

/* The follower: no intent of this site stands on the ref, and no git has its lock file. */
#define is_behind(s, k) (works(s) && in_root(s, k) && dir(s, k).known && dir(s, k).shown != NO_NAME && dir(s, k).here != db[k].value && \
	!is_pending(s, k) && !dir(s, k).locked)

#undef me
#define me ((_pid - COMMANDS - 1) / KEYS)
#define it ((_pid - COMMANDS - 1) % KEYS)
#define pushes (trouble && (PUSHERS & (1 << me)) && (PUSHED & (1 << it)))
#define phase_is(p) (git(me, it).phase == p)
active [SITES * KEYS] proctype Git() provided (begun) {
end:	do
	/* A client's path leads to it; it may begin again in the same directory. */
	:: d_step { pushes && phase_is(NONE) && dir(me, it).at < NAMES && !site[me].away; git(me, it).phase = OPEN }
	:: d_step { phase_is(OPEN) && in_root(me, it) && !dir(me, it).locked && !site[me].away; lock_ref(me, it) }
	:: d_step { phase_is(LOCKED) && !site[me].down; answer_push(me, it) }
	:: d_step { phase_is(LOCKED) && site[me].down; unlock_ref(me, it); end_push(me, it) }
	:: d_step { phase_is(TOLD); commit(me, it) }
	:: d_step { may_settle(me, it); settle(me, it) }
	:: d_step { (phase_is(MOVED) || phase_is(FAILED)) && !is_pending(me, it); end_push(me, it) }
	:: d_step { phase_is(OPEN) && !pushes; end_push(me, it) }
#ifdef KILLS
	:: d_step { trouble && !phase_is(NONE); die(me, it) }
#endif
	:: d_step { is_left(me, it); sweep(me, it) }
	:: d_step { is_behind(me, it); printf("site %d: follows project %d\n", me, it); dir(me, it).here = db[it].value }
	od
}

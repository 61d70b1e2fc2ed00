/*
 * The two other processes that move refs here: a push over git, with its hook, and the follower's git.
 */
#define git_left       (db[GIT_REF].agent == BY_GIT && (db[GIT_REF].pending || db[GIT_REF].decided))
#define git_free       (lock[file(GIT_REF)] == FREE)

inline git_unlocks() {
	if
	:: lock[file(GIT_REF)] == BY_GIT_LOCK -> lock[file(GIT_REF)] = FREE
	:: else
	fi;
	git = NONE;
	git_new = 0;
	git_overtaken = 0
}

inline git_starts(v) {
	printf("git: a push to %d\n", v);
	git = ASKING;
	git_new = v;
	lock[file(GIT_REF)] = BY_GIT_LOCK
}

/*
 * It has git's lock file, which JGit needs, too: so it waits for no claim but the follower's, whose git does not wait
 * for a lock file. From the intent on it has one.
 */
#ifdef HOOK_UNCLAIMED
#define hook_waits false
#define in_the_way(r) left_by_any(r)
#elif defined(HOOK_WAITS)
#define hook_waits (followed(GIT_REF) || claimed(GIT_REF) || (db[GIT_REF].pending && db[GIT_REF].agent != BY_GIT))
#define in_the_way(r) left_by_any(r)
#else
#define hook_waits followed(GIT_REF)
#define in_the_way(r) (claimed(r) || left_by_any(r))
#endif

inline prepared() {
	if
	:: in_the_way(GIT_REF) || db[GIT_REF].value != here[GIT_REF] ->
		printf("hook: refused\n");
		if
		:: claimed(GIT_REF) -> event(HOOK_REFUSED)
		:: else
		fi;
		git_unlocks()
	:: else -> record(BY_GIT, GIT_REF, here[GIT_REF], git_new); git = TOLD
	fi
}

inline git_renames() {
	printf("git: ref %d moves from %d to %d\n", GIT_REF, here[GIT_REF], git_new);
	J1(decision(BY_GIT, GIT_REF) || (intent(BY_GIT, GIT_REF) && db[GIT_REF].old == here[GIT_REF] && db[GIT_REF].new == git_new));
	J3(!git_overtaken);
	if
	:: intent(BY_GIT, GIT_REF) -> db[GIT_REF].moved = 1; current[GIT_REF] = 1
	:: else -> current[GIT_REF] = 0
	fi;
	here[GIT_REF] = git_new;
	git_unlocks();
	write_file(file(GIT_REF))
}

#define git_may_start(v) (trouble && git == NONE && git_free && here[GIT_REF] != (v))

active proctype Git() {
end:	do
	:: d_step { git_may_start(0); git_starts(0) }
	:: d_step { git_may_start(1); git_starts(1) }
#if VALUES > 2
	:: d_step { git_may_start(2); git_starts(2) }
#endif
	:: d_step { git == ASKING && !down && !hook_waits; prepared() }
	:: d_step { git == ASKING && (down || trouble); printf("git: gives up\n"); git_unlocks() }
	:: d_step { git == TOLD; git_renames() }
	:: d_step { git == TOLD && trouble; printf("git: is killed\n"); git_unlocks() }
	/* committed, aborted, or the process has ended. */
	:: d_step { git != TOLD && git_left && !down && heedable(BY_GIT, GIT_REF);
		if
		:: db[GIT_REF].decided -> heed(GIT_REF)
		:: else -> note(GIT_REF); finish(GIT_REF)
		fi }
	od
}

/*
 * The daemon claims the ref, reads it here, then in the database, notes the move, and starts git, which runs no hook.
 * It has the claim until git has ended.
 */
#ifdef FOLLOWER_HEEDLESS
#define held_back(r) left_by_any(r)
#else
#define held_back(r) (claimed(r) || left_by_any(r))
#endif
#define follows(r) (!down && follower == NONE && here[r] != db[r].value && !held_back(r))

inline follow(r) {
	follower = CLAIMED;
	follower_ref = r;
	follower_old = here[r]
}

inline start_git() {
	if
	:: follower_old == db[follower_ref].value -> follower_ends()
	:: else ->
		printf("follower: is to move ref %d to %d\n", follower_ref, db[follower_ref].value);
		follower = TOLD;
		follower_new = db[follower_ref].value;
		latest = 1
#if !defined(FOLLOWER_NOTED_AFTER) && !defined(FOLLOWER_UNNOTED)
		; note(follower_ref)
#endif
	fi
}

/* Git does not wait for a lock file, and moves the ref only from the value that was read. */
#ifdef FOLLOWER_WAITS
#define git_tries (lock[file(follower_ref)] == FREE)
#else
#define git_tries true
#endif
#ifdef OLD_UNCOMPARED
#define found_again true
#else
#define found_again (here[follower_ref] == follower_old)
#endif
inline git_locks() {
	if
	:: lock[file(follower_ref)] == FREE && found_again -> follower = LOCKED; lock[file(follower_ref)] = BY_FOLLOWER
	:: else -> printf("follower: gives up its claim\n"); event(LOCK_HELD); follower_ends()
	fi
}

inline follower_ends() {
	if
	:: lock[file(follower_ref)] == BY_FOLLOWER -> lock[file(follower_ref)] = FREE
	:: else
	fi;
	follower = NONE;
	follower_ref = 0;
	follower_old = 0;
	follower_new = 0;
	latest = 0;
	orphan = 0;
	follower_overtaken = 0
}

inline swap() {
	printf("follower: ref %d moves from %d to %d\n", follower_ref, here[follower_ref], follower_new);
	J1(!db[follower_ref].pending);
	J3(!follower_overtaken && (!current[follower_ref] || latest));
	if
	:: orphan -> event(ORPHAN_MOVED)
	:: else
	fi;
#ifdef FOLLOWER_NOTED_AFTER
	if
	:: !orphan -> note(follower_ref)
	:: else
	fi;
#endif
	here[follower_ref] = follower_new;
	current[follower_ref] = latest;
	x = file(follower_ref);
	follower_ends();
	write_file(x);
	x = 0
}

active proctype Follower() {
end:	do
	:: d_step { follows(0); follow(0) }
#if REFS == 2
	:: d_step { follows(1); follow(1) }
#endif
	:: d_step { follower == CLAIMED; start_git() }
	:: d_step { follower == TOLD && git_tries; git_locks() }
	:: d_step { follower == LOCKED; swap() }
	:: d_step { (follower == TOLD || follower == LOCKED) && trouble; printf("follower: its git is killed\n"); follower_ends() }
	od
}

/*
 * Replication at a site: the follower, `site sync`, and the daemon that applies an operator's decision.
 * It claims the ref, reads the repository, then the database, and lets git swap from the value read, without
 * hooks. Git's lock is not waited for. The claim ends with git, even if the daemon has died before: the next
 * one waits for that git. Only an intent of its own site holds a ref back: another site's may stand for long.
 */
#ifdef OWN_IGNORED
#define held_back(s, r) false
#else
#define held_back(s, r) (db[r].pending && db[r].owner == (s))
#endif

/* An operator's decision whose process has ended. */
#ifdef HEED_LIVING
#define to_heed(s, r) (decided(s, r).stands)
#else
#define to_heed(s, r) (decided(s, r).stands && decided(s, r).agent == DEAD)
#endif

inline look(s, r) {
	repl[s].ref = r;
	repl[s].dead = to_heed(s, r);
#ifdef GLOBAL_FIRST
	if
	:: !held_back(s, r) -> repl[s].phase = LOOKED; repl[s].global = db[r].value; repl[s].latest = 1
	:: else -> repl_rest(s)
	fi
#else
	repl[s].phase = LOOKED;
	repl[s].found = copy[s].here[r]
#endif
}

inline compare(s, r) {
#ifdef GLOBAL_FIRST
	repl[s].found = copy[s].here[r];
	if
	:: repl[s].found != repl[s].global -> repl[s].phase = COMPARED
	:: else -> repl_rest(s)
	fi
#else
	if
	:: repl[s].dead && decided(s, r).stands && !copy[s].down && (repl[s].found == db[r].value || FORGET_BLINDLY) ->
		S5(!copy[s].astray[r] || copy[s].here[r] == db[r].value);
		say("has heeded a decision", s);
		decided(s, r).stands = 0;
		decided(s, r).agent = 0;
		repl_rest(s)
	:: else ->
		if
		:: !held_back(s, r) && repl[s].found != db[r].value ->
			repl[s].phase = COMPARED;
			repl[s].dead = 0;
			repl[s].global = db[r].value;
			repl[s].latest = 1
		:: else -> repl_rest(s)
		fi
	fi
#endif
}

/* Git is started, with the value read here as the old one. */
inline start_git(s) {
	repl[s].phase = SWAPPING;
	repl[s].dead = 0
}

/* All of it at once, up to the start of git. */
inline replicate(s, r) {
	look(s, r);
	if
	:: repl[s].phase == LOOKED -> compare(s, r)
	:: else
	fi;
	if
	:: repl[s].phase == COMPARED -> start_git(s)
	:: else
	fi
}

/* Git locks the ref, compares, and renames; or finds that another process was faster. */
#ifdef OLD_UNCOMPARED
#define as_found(s, r) true
#else
#define as_found(s, r) (copy[s].here[r] == repl[s].found)
#endif
inline git_swaps(s, r) {
	if
	:: !pushing(s, r) && as_found(s, r) -> swap(s, r)
	:: else -> event(OVERTAKEN); repl_rest(s)
	fi
}

inline swap(s, r) {
	printf("site %d: replication moves ref %d from %d to %d\n", s, r, copy[s].here[r], repl[s].global);
	S2(!copy[s].current[r] || repl[s].latest);
	S3(!(db[r].pending && db[r].owner == s && (db[r].moved || may_move(db[r].agent, r))));
	event(CAUGHT_UP);
	if
	:: repl[s].orphan -> event(ORPHAN_MOVED)
	:: else
	fi;
	if
	:: db[r].pending -> event(UNDER_OTHERS)
	:: else
	fi;
	if
	:: copy[s].astray[r] -> event(HEEDED)
	:: else
	fi;
	copy[s].here[r] = repl[s].global;
	copy[s].current[r] = repl[s].latest;
	copy[s].astray[r] = 0;
	repl_rest(s)
}

#undef me
#define me (_pid - 2 * SLOTS)
#define ready(r) (repl[me].phase == REST && behind(r) && !copy[me].down && !copy[me].doubtful && (decided(me, r).stands || !held_back(me, r)) && !latched(me, r))
#define behind(r) (copy[me].here[r] != db[r].value || decided(me, r).stands)
#define g (GRAVES + me)
#define op_may(r) (trouble && db[r].pending && !plain(db[r].owner) && !decided(db[r].owner, r).stands)

active [SITES] proctype Site() {
end:	do
	/* The remains of git processes that have ended. */
#ifndef UNBURIED
	:: d_step { !copy[me].down && mem[g].phase == REST && any(buried_mine); bury(me) }
#endif
	:: d_step { mem[g].phase == FINISHING; finish_arrives(g) }
	:: d_step { trouble && mem[g].phase == FINISHING; say("gives up a request", me); give_up(g) }
	:: d_step { trouble && mem[g].phase == FINISHING; receive(g); serve_finish();
		printf("database, to site %d: finish: %e, and the answer is lost\n", me, answer); served(); give_up(g) }
	:: d_step { trouble && may_be_late(g); say("gives up a request, which stays under way", me); postpone(g); give_up(g) }
	:: d_step { trouble && may_be_late(g); say("crashes, and a request stays under way", me); postpone(g); crash(me) }

	:: d_step { copy[me].doubtful; say("takes its presence anew", me); renew(me) }
	:: d_step { trouble && !plain(me) && !copy[me].down; say("crashes", me); crash(me) }
	:: d_step { copy[me].down; say("starts", me); copy[me].down = 0; renew(me) }

#ifndef BOTH
	:: d_step { ready(0) && plain(me); replicate(me, 0); git_swaps(me, 0) }
#if REFS == 2
	:: d_step { ready(1) && plain(me); replicate(me, 1); git_swaps(me, 1) }
#endif
#endif
#ifndef REPLICATION
	/* Replication, up to the start of git, in one step; variants with -DREPLICATION have all. */
	:: d_step { ready(0) && !plain(me); replicate(me, 0) }
#if REFS == 2
	:: d_step { ready(1) && !plain(me); replicate(me, 1) }
#endif
#else
	:: d_step { repl[me].phase == REST && !plain(me) && !copy[me].down && !copy[me].doubtful && !latched(me, 0) && (trouble || behind(0)); look(me, 0) }
#if REFS == 2
	:: d_step { repl[me].phase == REST && !plain(me) && !copy[me].down && !copy[me].doubtful && !latched(me, 1) && (trouble || behind(1)); look(me, 1) }
#endif
	:: d_step { repl[me].phase == LOOKED && repl[me].ref == 0; compare(me, 0) }
	:: d_step { repl[me].phase == COMPARED && repl[me].ref == 0; start_git(me) }
#if REFS == 2
	:: d_step { repl[me].phase == LOOKED && repl[me].ref == 1; compare(me, 1) }
	:: d_step { repl[me].phase == COMPARED && repl[me].ref == 1; start_git(me) }
#endif
#endif
	:: d_step { repl[me].phase == SWAPPING && repl[me].ref == 0; git_swaps(me, 0) }
#if REFS == 2
	:: d_step { repl[me].phase == SWAPPING && repl[me].ref == 1; git_swaps(me, 1) }
#endif
	:: d_step { trouble && repl[me].phase != REST; repl_rest(me) }
	od
}

#define alike(r)   (copy[0].here[r] == db[r].value && copy[1].here[r] == db[r].value)
#define free_db(r) (!db[r].pending && !decided(0, r).stands && !decided(1, r).stands)
#define over(i)    (push[i].phase == NONE)
#define settled    (every(alike) && every(free_db) && over(0) && over(1) && over(SLOTS - 1))

active proctype Surroundings() {
end:	do
	:: d_step { late.kind != NONE; late_arrives() }
	:: d_step { late.kind != NONE; drop_late() }
#ifdef CALM
	:: d_step { !calm; calm = 1 }
	:: d_step { timeout; event(SETTLED); S5(settled) }
#endif
#ifdef TWO_DAEMONS
	:: d_step { db[0].pending && db[0].owner == 0; printf("site 0's double: finishes\n"); bury_elsewhere(0) }
#endif
#ifdef OPERATOR
	:: d_step { op_may(0); printf("operator: keep-old\n"); serve_resolve(0, 0) }
	:: d_step { op_may(0); printf("operator: take-new\n"); serve_resolve(0, 1) }
#if REFS == 2
	:: d_step { op_may(1); printf("operator: keep-old, ref 1\n"); serve_resolve(1, 0) }
	:: d_step { op_may(1); printf("operator: take-new, ref 1\n"); serve_resolve(1, 1) }
#endif
#endif
	od
}

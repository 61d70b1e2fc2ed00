/*
 * A process of git that moves refs, such as receive-pack, and the hook that it runs. It
 * holds git's own locks from before "prepared" until it renames, or gives up.
 */
/* At a site without trouble. */
inline prepare_now(i) {
	push[i].heard = 1;
	hear_prepared(i, 0);
	prepare_arrives(i);
	if
	:: mem[i].phase == GRANTED -> rest(i); let_through(i)
	:: else -> die(i)
	fi
}

inline finish_now(i) {
	if
	:: push[i].phase == TOLD -> push[i].phase = ABORTED
	:: else
	fi;
	start_finish(i, 0);
	finish_arrives(i);
	die(i)
}

#undef me
#define me (_pid - SLOTS)
#define me_done(r) push[me].done[r]

inline start(i, a, b, refused_by_git) {
	push[i].phase = ASKING;
	push[i].heard = 0;
	push[i].rejected = refused_by_git;
	push[i].new[0] = a;
#if REFS == 2
	push[i].new[1] = b;
#endif
	printf("git %d: a push to %d %d\n", i, a, b)
}

inline go_on(i, next) {
	push[i].phase = next;
	push[i].heard = 0;
	for (x : 0 .. REFS - 1) {
		push[i].done[x] = 0
	}
	x = 0;
	if
	:: next == THROUGH -> push[i].rejected = 0;
		for (x : 0 .. REFS - 1) {
			push[i].new[x] = 0;
			push[i].decided[x] = 0
		}
		x = 0
	:: else
	fi
}

/* The intent that allows it to move the ref. */
#define mine(i, r) (db[r].pending && db[r].owner == at(i) && db[r].agent == (i))

inline rename(i, r) {
	if
	:: moves_it(i, r) ->
		printf("git %d: ref %d moves from %d to %d\n", i, r, copy[at(i)].here[r], push[i].new[r]);
		S1(push[i].decided[r] || (mine(i, r) && db[r].old == copy[at(i)].here[r] && db[r].new == push[i].new[r] && db[r].value == db[r].old));
		S3(push[i].decided[r] || !db[r].pending || mine(i, r));
		if
		:: mine(i, r) -> db[r].moved = 1; copy[at(i)].current[r] = 1
		:: else -> S5(decided(at(i), r).stands); copy[at(i)].current[r] = 0; copy[at(i)].astray[r] = 1
		fi;
		copy[at(i)].here[r] = push[i].new[r]
		:: else
	fi;
	push[i].done[r] = 1;
	if
	:: every(me_done) -> go_on(i, COMMITTED)
	:: else
	fi
}

inline die(i) {
	printf("git %d: ends\n", i);
	go_on(i, THROUGH);
	push[i].phase = NONE;
	for (x : 0 .. REFS - 1) {
		if
		:: db[x].pending && db[x].agent == i -> db[x].agent = DEAD
		:: else
		fi;
		if
		:: decided(at(i), x).agent == i && decided(at(i), x).stands -> decided(at(i), x).agent = DEAD
		:: else
		fi
	}
	x = 0;
	if
	:: late.kind != NONE && late.agent == i -> late.agent = DEAD
	:: else
	fi;
	if
	:: mem[i].phase == REST || mem[i].phase == GRANTED -> forget_intents(i); rest(i)
	:: else -> mem[i].ended = 1
	fi
}

#define me_free(r) unlocked(at(me), r)
#ifdef AGAIN
#define idle(i) (push[i].phase == NONE || push[i].phase == THROUGH)
#else
#define idle(i) (push[i].phase == NONE)
#endif
#define plain_start(v) (plain(at(me)) && push[me].phase == NONE && trouble && every(me_free) && differ(v, 0) && plain_alike && !any(me_taken))
#define plain_alike every(me_alike)
#define me_alike(r) (copy[at(me)].here[r] == db[r].value)
#define me_taken(r) db[r].pending
#define may_start (idle(me) && !mem[me].ended && trouble && !plain(at(me)))
#define full      (trouble && !plain(at(me)))
#define differ(a, b) (a != copy[at(me)].here[0] || (REFS == 2 && b != copy[at(me)].here[REFS - 1]))
#define none_done (!any(me_done))

active [SLOTS] proctype Git() {
end:	do
	:: d_step { may_start && every(me_free) && differ(0, 0); start(me, 0, 0, 0) }
	:: d_step { may_start && every(me_free) && differ(1, 0); start(me, 1, 0, 0) }
#if VALUES > 2
	:: d_step { may_start && every(me_free) && differ(2, 0); start(me, 2, 0, 0) }
#endif
#if REFS == 2
	:: d_step { may_start && every(me_free) && differ(0, 1); start(me, 0, 1, 0) }
	:: d_step { may_start && every(me_free) && differ(1, 1); start(me, 1, 1, 0) }
#endif
#ifdef REJECTED
	:: d_step { may_start && every(me_free) && differ(0, 0); start(me, 0, 0, 1) }
	:: d_step { may_start && every(me_free) && differ(1, 0); start(me, 1, 0, 1) }
#if VALUES > 2
	:: d_step { may_start && every(me_free) && differ(2, 0); start(me, 2, 0, 1) }
#endif
#endif
	/* The hook gives up, or is killed: git treats that as a refusal. */
	:: d_step { push[me].phase == ASKING && (full || (push[me].heard && mem[me].phase == REST)); go_on(me, ABORTED) }

	:: d_step { push[me].phase == TOLD && !push[me].rejected && !push[me].done[0]; rename(me, 0) }
#if REFS == 2
	:: d_step { push[me].phase == TOLD && !push[me].rejected && push[me].done[0] && !push[me].done[1]; rename(me, 1) }
#endif
	:: d_step { push[me].phase == TOLD && push[me].rejected; go_on(me, COMMITTED) }
	:: d_step { full && push[me].phase == TOLD && none_done; go_on(me, ABORTED) }
	:: d_step { full && push[me].phase == TOLD; printf("git %d: has an I/O error\n", me); go_on(me, THROUGH);
#ifndef AGAIN
		die(me)
#endif
		}
	/* Git deletes in a transaction within the transaction. */
#ifdef AGAIN
	:: d_step { full && push[me].phase == TOLD && none_done && push[me].new[0] == 0 && push[me].new[REFS - 1] == 0; push[me].phase = ASKING }
#endif

	/* The hook returns, or is killed: git goes on. */
	:: d_step { (push[me].phase == COMMITTED || push[me].phase == ABORTED) && (full || push[me].heard || !any(matches));
		if
		:: push[me].phase == COMMITTED && !push[me].rejected ->
			printf("git %d: the push is acknowledged\n", me);
			if
			:: db[0].pending && db[0].agent == me -> event(UNRECORDED)
			:: else
			fi
		:: else
		fi;
#ifdef STRAYS_HEARD
		stray[me] = !push[me].heard;
#endif
		go_on(me, THROUGH);
#ifndef AGAIN
		die(me)
#endif
		}
	:: d_step { push[me].phase == THROUGH; die(me) }
	:: d_step { full && push[me].phase != NONE && push[me].phase != THROUGH; printf("git %d: is killed\n", me); die(me) }
#ifndef BOTH
	/* A site without trouble: its requests are answered at once. */
	:: d_step { plain_start(0); start(me, 0, 0, 0); prepare_now(me) }
	:: d_step { plain_start(1); start(me, 1, 0, 0); prepare_now(me) }
#if VALUES > 2
	:: d_step { plain_start(2); start(me, 2, 0, 0); prepare_now(me) }
#endif
	:: d_step { plain(at(me)) && (push[me].phase == COMMITTED || (push[me].phase == TOLD && none_done && trouble)); finish_now(me) }
#endif
	od
}

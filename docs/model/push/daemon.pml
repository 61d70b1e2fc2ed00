/*
 * A site's daemon: its answers to the hook, and its own actions. Memory m is
 * that of process m of git, or the one for processes that have ended.
 */
#define say(what, s) printf("site %d: ", s); printf(what); printf("\n")

#define known(m, r)    (mem[m].has[r] && mem[m].ours[r])
#define moves_it(i, r) (push[i].new[r] != copy[at(i)].here[r])

/* The move of ref r is announced already, and the intent still stands. */
#define pair(i, r)     (db[r].old == copy[at(i)].here[r] && db[r].new == push[i].new[r])
#ifdef REUSE_UNCHECKED
#define announced(i, r) (!moves_it(i, r) || (mem[i].has[r] && (!mem[i].ours[r] || pair(i, r))))
#else
#define announced(i, r) (!moves_it(i, r) || (known(i, r) && pair(i, r)))
#endif
#ifdef REUSE_OVER
#define usable(i) true
#else
#define usable(i) (!mem[i].over && !mem[i].adopted)
#endif

#define unanswered(m) (mem[m].phase == PREPARING || mem[m].phase == REVOKING)

/* A Prepare on the ref is in flight: no other move is allowed. */
#define preparing(m, s, r) (at(m) == (s) && unanswered(m) && mem[m].what[r] != NONE)
#ifdef NO_LATCH
#define latched(s, r) false
#else
#if SLOTS == 3
#define latched(s, r) (preparing(0, s, r) || preparing(1, s, r) || preparing(2, s, r))
#else
#define latched(s, r) (preparing(0, s, r) || preparing(1, s, r))
#endif
#endif

/* A replication has claimed the ref: a hook waits. Git does not outlive the claim. */
#ifdef FOLLOWER_UNCLAIMED
#define replicating(s, r) false
#elif defined(ORPHAN_IGNORED)
#define replicating(s, r) (repl[s].phase != REST && repl[s].ref == (r) && !repl[s].orphan)
#else
#define replicating(s, r) (repl[s].phase != REST && repl[s].ref == (r))
#endif

/* What git's hook is told: no. */
inline refuse(m) {
	if
	:: m < SLOTS && !mem[m].ended && push[m].phase == ASKING && push[m].heard ->
		push[m].phase = ABORTED;
		push[m].heard = 0
	:: else
	fi
}

inline let_through(i) {
	push[i].phase = TOLD;
	push[i].heard = 0
}

/* "prepared", from an unknown process. The refs' values are read now. */
inline hear_prepared(i, trusting) {
	push[i].heard = 1;
	for (x : 0 .. REFS - 1) {
		if
		:: moves_it(i, x) ->
			mem[i].old[x] = (trusting -> 0 : copy[at(i)].here[x]);
			mem[i].new[x] = push[i].new[x];
			mem[i].what[x] = DONE;
			mem[i].phase = PREPARING
		:: else
		fi
	}
	x = 0;
	if
	:: mem[i].phase == REST -> let_through(i)
	:: else -> say("prepares", at(i))
	fi
}

inline prepare_arrives(m) {
	receive(m);
	serve_prepare();
	printf("database, to site %d: prepare: %e\n", of(m), answer);
	if
	:: answer == DONE && m < SLOTS && !mem[m].ended ->
		forget_intents(m);
		for (x : 0 .. REFS - 1) {
			if
			:: wanted(x) -> mem[m].has[x] = 1; mem[m].ours[x] = 1; db[x].unconfirmed = 0
			:: else
			fi
		}
		x = 0;
		rest(m);
		mem[m].phase = GRANTED
	:: answer == DONE && (m >= SLOTS || mem[m].ended) -> rest(m)
	:: else ->
		if
		:: answer == MISMATCH -> event(BEHIND)
		:: else
		fi;
		refuse(m);
		rest(m)
	fi;
	served()
}

/* Carried out or not, the request has no effect from now on: it is made again. */
inline revoke_arrives(m) {
	serve_revoke(m);
	printf("database, to site %d: revoked\n", of(m));
	if
	:: mem[m].ended -> rest(m)
	:: else -> mem[m].phase = PREPARING; event(ASKED_ANEW)
	fi
}

/* The repository is read, and the database told. unread is a mistake. */
inline start_finish(m, unread) {
	for (x : 0 .. REFS - 1) {
		if
		:: mem[m].has[x] ->
			if
			:: !mem[m].ours[x] -> mem[m].what[x] = DROPPED; mem[m].phase = FINISHING /* it will learn that the intent has ended */
			:: mem[m].ours[x] && (unread || copy[of(m)].here[x] == db[x].new) -> mem[m].what[x] = DONE; mem[m].phase = FINISHING
			:: mem[m].ours[x] && !unread && copy[of(m)].here[x] == db[x].old -> mem[m].what[x] = DROPPED; mem[m].phase = FINISHING
			:: else -> say("raises an alarm", of(m)); S5(false)
			fi
		:: else
		fi
	}
	x = 0;
	if
	:: m >= SLOTS && REFS == 2 && mem[m].what[0] == DONE && mem[m].what[REFS - 1] == DROPPED -> event(DIED_BETWEEN)
	:: else
	fi;
	say("reads the repository and finishes", of(m))
}

inline finish_arrives(m) {
	receive(m);
	if
	:: m >= SLOTS && q.ours[0] && q.what[0] == DONE -> event(DIED_AFTER)
	:: m < SLOTS && mem[m].adopted && q.ours[0] && q.what[0] == DONE && push[m].phase == COMMITTED -> event(RESTARTED)
	:: m < SLOTS && q.ours[0] && q.what[0] == DROPPED && push[m].phase == COMMITTED -> event(PHANTOM)
	:: else
	fi;
	serve_finish();
	printf("database, to site %d: finish: %e\n", of(m), answer);
	for (x : 0 .. REFS - 1) {
		if
		:: wanted(x) && (answer == DONE || !q.ours[x]) -> mem[m].has[x] = 0; mem[m].ours[x] = 0
		:: else
		fi
	}
	x = 0;
	served();
	end_turn(m)
}

inline end_turn(m) {
	rest(m);
	for (x : 0 .. REFS - 1) {
		y = y + mem[m].has[x]
	}
	x = 0;
	if
	:: y == 0 || m >= SLOTS -> forget_intents(m) /* the intents of ended processes are read from the database again */
	:: else
	fi;
	y = 0
}

/* The sender of the request does not know its outcome. */
inline give_up(m) {
	if
	:: unanswered(m) ->
#ifndef PREPARE_UNFENCED
		copy[of(m)].doubtful = 1;
#endif
		refuse(m);
		rest(m)
	:: else -> end_turn(m)
	fi
}

inline postpone(m) {
	late.kind = mem[m].phase;
	late.site = of(m);
	late.agent = (m < SLOTS && !mem[m].ended -> m : DEAD);
	for (x : 0 .. REFS - 1) {
		late.old[x] = mem[m].old[x];
		late.new[x] = mem[m].new[x];
		late.ours[x] = mem[m].ours[x] && late.kind == FINISHING;
		late.what[x] = mem[m].what[x]
	}
	x = 0
}

/* It takes its presence anew: the database refuses preparations under the earlier one. */
inline renew(s) {
#ifdef PREPARE_UNFENCED
	skip
#else
	copy[s].doubtful = 0;
	for (y : 0 .. SLOTS - 1) {
		if
		:: at(y) == s && unanswered(y) -> refuse(y); rest(y)
		:: else
		fi
	}
	y = 0;
	for (x : 0 .. REFS - 1) {
		if
		:: db[x].owner == s -> db[x].unconfirmed = 0 /* later requesters did not make this request */
		:: else
		fi
	}
	x = 0;
	if
	:: late.kind == PREPARING && late.site == s -> drop_late()
	:: else
	fi
#endif
}

inline repl_rest(s) {
	repl[s].phase = REST;
	repl[s].ref = 0;
	repl[s].found = 0;
	repl[s].global = 0;
	repl[s].latest = 0;
	repl[s].dead = 0;
	repl[s].orphan = 0
}

/* What its follower does ends, but for git. */
inline crash(s) {
	copy[s].down = 1;
	copy[s].doubtful = 0;
	for (y : 0 .. MEMORIES - 1) {
		if
		:: of(y) == s -> mem[y].ended = 0; rest(y); forget_intents(y)
		:: else
		fi
	}
	y = 0;
	if
	:: repl[s].phase == SWAPPING -> repl[s].orphan = 1
	:: else -> repl_rest(s)
	fi
}

/* Intents of a running process that this daemon does not know of. */
#define unknown(i, r) (db[r].pending && db[r].agent == (i) && !known(i, r))
#define unknown_to(r) unknown(me, r)
inline adopt(i) {
	forget_intents(i);
	mem[i].adopted = 1;
	for (x : 0 .. REFS - 1) {
		if
		:: db[x].pending && db[x].agent == i -> mem[i].has[x] = 1; mem[i].ours[x] = 1
		:: else
		fi
	}
	x = 0;
	say("takes on the intents of a running process", at(i))
}

#ifdef LIVING_BURIED
#define buried(r, s) (db[r].pending && db[r].owner == s)
#else
#define buried(r, s) (db[r].pending && db[r].owner == s && db[r].agent == DEAD)
#endif
#define buried_mine(r) buried(r, me)

inline bury(s) {
	for (x : 0 .. REFS - 1) {
		if
		:: buried(x, s) -> mem[GRAVES + s].has[x] = 1; mem[GRAVES + s].ours[x] = 1
		:: else
		fi
	}
	x = 0;
	start_finish(GRAVES + s, 0);
	if
	:: mem[GRAVES + s].phase == REST -> forget_intents(GRAVES + s)
	:: else
	fi
}

#ifdef TWO_DAEMONS
/* A daemon of the same name on the other site's machine buries intents according to that machine's disk. */
inline bury_elsewhere(r) {
	q.ours[r] = 1;
	q.what[r] = (copy[1].here[r] == db[r].new -> DONE : DROPPED);
	serve_finish();
	served()
}
#endif

#define up(i) (!copy[at(i)].down)
#define resting(m) (mem[m].phase == REST && !mem[m].ended)
#define has(r) mem[me].has[r]
#define knows(r) known(me, r)
#define already(r) announced(me, r)
#define matches(r) (mem[me].has[r] && (!mem[me].ours[r] || db[r].new == push[me].new[r]))
#define under_way(m) (mem[m].phase == PREPARING || mem[m].phase == FINISHING)

#define me _pid
#define in_the_way(r) (moves_it(me, r) && (latched(at(me), r) || replicating(at(me), r)))
#define hears(i) (up(i) && resting(i) && !plain(at(i)))
#define asks(i)  (push[i].phase == ASKING && !push[i].heard && hears(i))
#define admits(i) (asks(i) && !copy[at(i)].doubtful && !any(in_the_way))
/* For the process of git of the same number. */
active [SLOTS] proctype Daemon() {
end:	do
	/* prepared */
	:: d_step { admits(me) && !any(has); hear_prepared(me, 0) }
#ifdef LINES_TRUSTED
	:: d_step { admits(me) && !any(has); hear_prepared(me, 1) }
#endif
	:: d_step { admits(me) && any(has) && every(already) && usable(me);
		say("uses the intents that stand", at(me)); event(REUSED); let_through(me) }
	:: d_step { asks(me) && any(has) && !(every(already) && usable(me));
		mem[me].over = 1; start_finish(me, 0) }
	:: d_step { mem[me].phase == PREPARING; prepare_arrives(me) }
	:: d_step { mem[me].phase == GRANTED; rest(me);
		if
		:: push[me].phase == ASKING && push[me].heard -> let_through(me)
		:: else
		fi }

	/* committed, aborted */
	:: d_step { (push[me].phase == COMMITTED || push[me].phase == ABORTED) && !push[me].heard && hears(me) && any(matches);
		push[me].heard = 1; mem[me].over = 1;
#ifdef COMMITTED_UNREAD
		if
		:: push[me].phase == COMMITTED -> start_finish(me, 1)
		:: else -> start_finish(me, 0)
		fi
#else
		start_finish(me, 0)
#endif
		}
#ifdef ZERO_LINES
	:: d_step { push[me].phase == TOLD && push[me].new[0] == 0 && !push[me].done[0] && hears(me) && any(matches);
		say("hears an inner committed", at(me)); mem[me].over = 1; start_finish(me, 0) }
#endif
#ifdef STRAYS_HEARD
	:: d_step { stray[me] && (push[me].phase == ASKING || push[me].phase == TOLD) && hears(me) && any(matches);
		say("hears of an earlier transaction", at(me)); stray[me] = 0; mem[me].over = 1; start_finish(me, 0) }
#endif
	:: d_step { mem[me].phase == FINISHING; finish_arrives(me) }
	/* In the background. */
	:: d_step { mem[me].over && hears(me) && any(has); start_finish(me, 0) }
	:: d_step { push[me].phase != NONE && hears(me) && any(unknown_to) && !any(knows); adopt(me) }

	/* A request or its answer is lost, or it is late. */
	:: d_step { trouble && under_way(me); say("gives up a request", at(me)); give_up(me) }
	:: d_step { trouble && mem[me].phase == PREPARING; receive(me); serve_prepare();
		printf("database, to site %d: prepare: %e, and the answer is lost\n", at(me), answer); served(); give_up(me) }
	:: d_step { trouble && mem[me].phase == PREPARING; receive(me); serve_prepare();
		printf("database, to site %d: prepare: %e, and the answer is lost; it will be revoked\n", at(me), answer); served(); mem[me].phase = REVOKING }
	:: d_step { trouble && mem[me].phase == PREPARING && may_be_late(me); say("has no answer to a request, which stays under way and will be revoked", at(me)); postpone(me); mem[me].phase = REVOKING }
	:: d_step { mem[me].phase == REVOKING; revoke_arrives(me) }
	:: d_step { trouble && mem[me].phase == REVOKING; say("gives up a revocation", at(me)); give_up(me) }
	:: d_step { trouble && mem[me].phase == FINISHING; receive(me); serve_finish();
		printf("database, to site %d: finish: %e, and the answer is lost\n", at(me), answer); served(); give_up(me) }
	:: d_step { trouble && may_be_late(me); say("gives up a request, which stays under way", at(me)); postpone(me); give_up(me) }
	:: d_step { trouble && may_be_late(me); say("crashes, and a request stays under way", at(me)); postpone(me); crash(at(me)) }
	od
}

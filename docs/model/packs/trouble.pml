/* Events that affect all of them. */

/* The daemon of a site dies, and forgets; git and pruning go on. */
inline crash(s) {
	say("its daemon dies", s);
	site[s].down = 1;
	site[s].have = 0;
	site[s].stuck = 0;
	repl_rest(s);
	if
	:: push[s].phase == MADE || push[s].phase == STORED -> forget_pack(s); push[s].phase = SENT
	:: push[s].phase == OPEN -> push[s].phase = ORPHAN
	:: else
	fi;
	if
	:: job[s].phase == BASING -> job[s].phase = REST; job[s].set = 0; job[s].at = 0
	:: else
	fi
}

/* All of a repository is gone. An operator takes the new values of the site's intents. */
inline lose_disk(s) {
	say("its disk is lost", s);
	disk_lost = 1;
	site[s].objects = 0;
	site[s].here[0] = 0;
	site[s].here[1] = 0;
	site[s].own = 0;
	site[s].mark = 0;
	site[s].have = 0;
	site[s].stuck = 0;
	repl_rest(s);
	job[s].phase = REST;
	job[s].set = 0;
	job[s].at = 0;
	if
	:: push[s].phase == TOLD || push[s].phase == MOVED ->
		set_value(push[s].ref, intent[push[s].ref].new);
		end_intent(push[s].ref);
		end_push(s)
	:: push[s].phase == UNMOVED -> end_intent(push[s].ref); end_push(s)
	:: push[s].phase == OPEN -> push[s].phase = ORPHAN
	:: push[s].phase == SENT || push[s].phase == MADE || push[s].phase == STORED -> end_push(s)
	:: else
	fi;
	unstick()
}

/* A push's reads are old, and earlier entries of the history are not considered any more. */
#ifdef HOUR_IGNORED
#define ages(s) false
#else
#define ages(s) (push[s].phase == MADE || (push[s].phase == STORED && push[s].has == 0))
#endif
inline pass_days() {
	printf("--- 14 days pass\n");
	days++;
	recent = 0;
	for (x : 0 .. SITES - 1) {
		push[x].aged = (ages(x) -> 1 : push[x].aged)
	}
	x = 0
}

#define at_rest(s) (site[s].down || (value[0] == site[s].here[0] && value[1] == site[s].here[1] && push[s].phase == NONE && repl[s].phase == REST && !own_intent(s, 0) && !own_intent(s, 1)))

#ifndef STAYS_DOWN
#define STAYS_DOWN 0 /* sites, as bits: whose daemon need not start again */
#endif
#ifdef DISK
#define may_lose(s) ((s) == DISK && trouble && !disk_lost)
#else
#define may_lose(s) false
#endif

#define me (_pid - 1 - 2 * SITES)
active [SITES] proctype Troubles() {
end:	do
	:: d_step { in(me, MORTAL) && trouble && !site[me].down; crash(me) }
	:: d_step { site[me].down && !(calm && in(me, STAYS_DOWN)); say("its daemon starts", me); site[me].down = 0 }
	:: d_step { may_lose(me); lose_disk(me) }
#ifdef LOCAL
	:: d_step { trouble && me == 0 && site[me].own == 0; say("somebody fetches 2 by hand", me); site[me].own = 2; site[me].objects = site[me].objects | all(2) }
#endif
#ifdef BY_HAND
	:: d_step { trouble && me == 0 && site[me].own == 0 && keys_free(BY_HAND) && !ref_locked(me, BY_HAND); printf("site %d: somebody moves ref %d to 2 by hand\n", me, BY_HAND); site[me].own = 1; site[me].here[BY_HAND] = 2; site[me].objects = site[me].objects | all(2) }
#endif
	od
}
#undef me

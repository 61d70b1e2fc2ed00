/*
 * A site that follows: it reads a ref, here and then in the database, unpacks all packs
 * that it does not have, claims the ref, compares all again, and lets git move the ref.
 */
inline repl_rest(s) {
	repl[s].phase = REST;
	repl[s].ref = 0;
	repl[s].found = 0;
	repl[s].global = 0;
	repl[s].after = 0;
	repl[s].upto = 0
}

#define own_intent(s, r) (intent[r].pending && intent[r].owner == (s))
#ifdef HELD_BY_OTHERS
#define held_back(s, r) intent[r].pending
#elif defined(OWN_IGNORED)
#define held_back(s, r) false
#else
#define held_back(s, r) own_intent(s, r)
#endif

inline look(s, r, v, g) {
	repl[s].phase = LISTING;
	repl[s].ref = r;
	repl[s].found = v;
	repl[s].global = g;
	repl[s].after = site[s].mark;
	repl[s].upto = UNKNOWN
}

/* The end of a listing. */
inline mark_on(s) {
	u = repl[s].upto;
#ifdef RESUMES_AT_LAST
	for (x : 2 .. LAST) {
		if
		:: pack[x].there && x > u -> u = x
		:: else
		fi
	}
	x = 0;
#endif
	if
	:: u > site[s].mark ->
		site[s].mark = u;
		for (x : 1 .. LAST) {
			if
			:: x <= u -> site[s].have = site[s].have & ~(1 << x)
			:: else
			fi
		}
		if
		:: base <= u -> site[s].have = site[s].have & ~1
		:: else
		fi;
		x = 0
	:: else
	fi
}

inline give_up(s) {
	say("can't go on", s);
	site[s].stuck = 1;
	repl_rest(s)
}

inline alarm(s) {
	event(ALARM);
	C4(false);
	give_up(s)
}

/* It needs a base with objects: a site stores one, or it fetches from another site. */
inline away_too_long(s) {
	event(AWAY);
	C4(false);
	give_up(s)
}

#ifdef BASES_UNCHECKED
#define can_unpack(s, i) true
#else
#define can_unpack(s, i) within(reach(pack[i].bases), site[s].objects)
#endif
#ifdef TIPS_UNCHECKED
#define complete(s, i) true
#else
#define complete(s, i) within(reach(pack[i].tips), site[s].objects)
#endif

/* A page of one pack, and how far packs are complete: one snapshot. Then the pack is unpacked. */
inline page(s) {
	read_upto();
	y = (repl[s].upto == UNKNOWN); /* the first page */
#ifdef UPTO_OF_LAST
	repl[s].upto = u;
#else
	repl[s].upto = (y -> u : repl[s].upto);
#endif
	next_pack(s, repl[s].after);
	u = 0;
	if
	:: z == 0 ->
		mark_on(s);
		printf("site %d: has all packs up to %d\n", s, site[s].mark);
		if
		:: repl[s].ref == REFS -> repl_rest(s)
		:: else -> repl[s].phase = READY; repl[s].after = 0; repl[s].upto = 0
		fi
#ifdef TRANSIT
	:: z == LAST + 1 && !within(reach(base_needs), site[s].objects) -> away_too_long(s)
	:: z == LAST + 1 && within(reach(base_needs), site[s].objects) ->
#else
	:: z == LAST + 1 ->
#endif
		printf("site %d: unpacks the base of %d\n", s, base);
		event(FROM_BASE);
		site[s].objects = site[s].objects | base_has;
		site[s].have = site[s].have | 1;
		unstick()
	:: z != 0 && z <= LAST && !can_unpack(s, z) && y -> alarm(s)
	:: z != 0 && z <= LAST && !can_unpack(s, z) && !y -> say("begins again", s); repl_rest(s)
#ifdef MARK_FIRST
	:: z != 0 && z <= LAST && can_unpack(s, z) && repl[s].phase == LISTING && z == site[s].mark + 1 && z <= repl[s].upto ->
		printf("site %d: marks the pack of %d\n", s, z);
		site[s].mark = z;
		repl[s].after = z;
		repl[s].phase = UNPACKING
#endif
	:: else ->
		printf("site %d: unpacks the pack of %d\n", s, z);
		if
		:: (site[s].have >> (z + 1)) != 0 && !pushes(s) -> event(CAME_LATE)
		:: else
		fi;
		site[s].objects = site[s].objects | pack[z].has;
		if
		:: complete(s, z) -> site[s].have = site[s].have | (1 << z); repl[s].after = z; unstick()
		:: else -> alarm(s)
		fi
	fi;
	u = 0;
	y = 0;
	z = 0
}

/* With the claim, the ref is compared with what was found, here and in the database. Then git is started. */
#ifdef LOCAL_UNCOMPARED
#define as_found(s, r) true
#else
#define as_found(s, r) (site[s].here[r] == repl[s].found)
#endif
#define as_global(s, r) (value[r] == repl[s].global)
inline ask(s, r) {
#ifdef PACKS_FIRST
	repl[s].global = value[r];
#endif
	if
	:: !as_found(s, r) || held_back(s, r) || !as_global(s, r) -> event(OVERTAKEN); repl_rest(s)
	:: as_found(s, r) && !held_back(s, r) && as_global(s, r) && !within(one(repl[s].global), site[s].objects) -> give_up(s)
	:: else -> repl[s].phase = SWAPPING
	fi
}

inline swap(s, r) {
	printf("site %d: follows with ref %d from %d to %d\n", s, r, site[s].here[r], repl[s].global);
	C3(!own_intent(s, r));
	C3(site[s].here[r] == repl[s].found);
	if
	:: repl[s].global != 0 -> event(FOLLOWED)
	:: else
	fi;
	if
	:: intent[r].pending -> event(UNDER_OTHERS)
	:: else
	fi;
	if
	:: disk_lost && value[0] != 0 && value[1] != 0 && site[s].here[1 - r] == value[1 - r] && value[r] == repl[s].global -> event(CLONED)
	:: else
	fi;
	site[s].here[r] = repl[s].global;
	repl_rest(s);
	unstick()
}

inline swap_soon(s, r) {
	if
	:: repl[s].phase == SWAPPING && !careful(s) -> swap(s, r)
	:: else
	fi
}

#ifdef FOLLOWS_MEANWHILE
#define pruned_now(s) false
#else
#define pruned_now(s) pruning(s)
#endif
#define idle(s)      (repl[s].phase == REST && !site[s].down && !pruned_now(s) && !site[s].stuck)
#define behind(s, r) (site[s].here[r] != value[r] && !held_back(s, r))
#if LAST == 3
#define unseen(s) (missed(s, 2) || missed(s, 3) || (base > site[s].mark && !has_base(s)))
#elif LAST == 4
#define unseen(s) (missed(s, 2) || missed(s, 3) || missed(s, 4) || (base > site[s].mark && !has_base(s)))
#elif LAST == 5
#define unseen(s) (missed(s, 2) || missed(s, 3) || missed(s, 4) || missed(s, 5) || (base > site[s].mark && !has_base(s)))
#endif
#define missed(s, i) (pack[i].there && (i) > base && !here_too(s, i))

#define me (_pid - 1 - SITES)
active [SITES] proctype Follows() {
end:	do
	:: d_step { idle(me) && behind(me, 0); say("looks at ref 0", me); look(me, 0, site[me].here[0], value[0]) }
	:: d_step { idle(me) && behind(me, 1); say("looks at ref 1", me); look(me, 1, site[me].here[1], value[1]) }
	:: d_step { idle(me) && unseen(me) && !behind(me, 0) && !behind(me, 1); say("looks for packs", me); look(me, REFS, 0, 0) }
	:: d_step { idle(me) && site[me].have != 0 && !unseen(me) && trouble; read_upto(); repl[me].upto = u; mark_on(me); repl_rest(me); u = 0 }
	:: d_step { repl[me].phase == LISTING; page(me) }
#ifdef MARK_FIRST
	:: d_step { repl[me].phase == UNPACKING; site[me].objects = site[me].objects | pack[repl[me].after].has; repl[me].phase = LISTING }
#endif
	:: d_step { repl[me].phase == READY && repl[me].ref == 0 && !ref_locked(me, 0); ask(me, 0); swap_soon(me, 0) }
	:: d_step { repl[me].phase == READY && repl[me].ref == 1 && !ref_locked(me, 1); ask(me, 1); swap_soon(me, 1) }
	:: d_step { repl[me].phase == SWAPPING && repl[me].ref == 0; swap(me, 0) }
	:: d_step { repl[me].phase == SWAPPING && repl[me].ref == 1; swap(me, 1) }
	od
}
#undef me

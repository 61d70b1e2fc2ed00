/*
 * Maintenance of a repository: it prunes, and it makes base packs. Pruning is a process of
 * its own, which holds a lock that others detect even after its daemon has died.
 */
#define quiet(s) (push[s].phase == NONE || push[s].phase == SENT || push[s].phase == ORPHAN)
#ifdef DURING_PUSHES
#define shared(s) false
#else
#define shared(s) (!quiet(s))
#endif
#ifdef LAGGING
#define lags(s) false
#else
#define lags(s) unseen(s)
#endif
#ifdef FOLLOWS_MEANWHILE
#define follows(s) false
#else
#define follows(s) (repl[s].phase != REST)
#endif

/* One snapshot of the database says that all packs are here, and what to keep. */
inline read(s) {
#ifndef GRACE_ONLY
	read_kept();
#ifndef VALUES_UNKEPT
	z = z | one(value[0]) | one(value[1]);
#endif
#ifndef MARK_UNKEPT
	for (x : 2 .. LAST) {
		if
		:: x > site[s].mark && pack[x].there -> z = z | pack[x].bases | pack[x].tips
		:: else
		fi
	}
	x = 0;
#endif
#endif
	job[s].phase = READ;
	job[s].set = z;
	z = 0
}

#define by_refs(s) (all(site[s].here[0]) | all(site[s].here[1]) | all(site[s].own))
inline walk(s) {
	z = site[s].objects & ~by_refs(s);
	if
	:: (z & reach(job[s].set)) != 0 -> event(KEPT)
	:: else
	fi;
	job[s].phase = DELETING;
	job[s].set = z & ~reach(job[s].set);
	z = 0;
	if
	:: job[s].set == 0 -> job[s].phase = REST
	:: else -> printf("site %d: prunes %d\n", s, job[s].set)
	fi
}

inline delete(s, b) {
	site[s].objects = site[s].objects & ~(b);
	job[s].set = job[s].set & ~(b);
	if
	:: job[s].set == 0 -> event(PRUNED); job[s].phase = REST
	:: else
	fi
}

/* Those of the commits z that are whole here, with all that they reach: left in z. */
#define if_whole(s, v) ((z & one(v)) && within(all(v), site[s].objects) -> all(v) : 0)
inline reach_whole(s) {
	z = if_whole(s, 1) | if_whole(s, 2) | if_whole(s, 3) | if_whole(s, 4)
}

/* A base of everything that is complete in a snapshot of the database. */
inline begin_base(s) {
	read_upto();
#ifndef BASE_UNKEPT
	read_kept();
#endif
#ifdef BASE_OF_LOCAL_REFS
	z = z | one(site[s].here[0]) | one(site[s].here[1]);
#else
	z = z | one(value[0]) | one(value[1]);
#endif
	job[s].at = 0;
	for (x : 2 .. LAST) {
		if
#ifndef BASE_LAGS
		:: x <= u && missed(s, x) -> job[s].at = UNKNOWN
#endif
#ifndef BASE_AGED
		:: x > u && pack[x].there -> z = z | pack[x].bases
#endif
		:: else
		fi
	}
	x = 0;
	reach_whole(s);
	if
	:: base < u && job[s].at != UNKNOWN && (base <= site[s].mark || in(0, site[s].have)) ->
		printf("site %d: makes a base of %d, of all up to %d\n", s, z, u);
		bases++;
		job[s].phase = BASING;
		job[s].set = z;
		job[s].at = u
	:: else -> job[s].at = 0
	fi;
	u = 0;
	z = 0
}

inline drop_packs(p) {
	for (x : 2 .. LAST) {
		if
		:: x <= p && pack[x].there ->
			event(SUPERSEDED);
			pack[x].there = 0;
			pack[x].has = 0;
			pack[x].bases = 0;
			pack[x].tips = 0;
			pack[x].owner = 0
		:: else
		fi
	}
	x = 0
}

/* A base without objects, of a project in transit: what refs hold, once this site and others have everything that it replaces. */
#define passed_it(s, o) ((o) != (s) && site[o].mark >= u)
#if SITES == 3
#define others_passed(s) ((passed_it(s, 0) -> 1 : 0) + (passed_it(s, 1) -> 1 : 0) + (passed_it(s, 2) -> 1 : 0))
#else
#define others_passed(s) ((passed_it(s, 0) -> 1 : 0) + (passed_it(s, 1) -> 1 : 0))
#endif
inline begin_bound(s) {
	read_upto();
	if
	:: base < u && site[s].mark >= u && others_passed(s) >= TRANSIT ->
		printf("site %d: ends what is in transit up to %d\n", s, u);
		bases++;
		job[s].phase = BASING;
		job[s].set = one(value[0]) | one(value[1]);
		job[s].at = u
	:: else
	fi;
	u = 0
}

inline complete_base(s) {
	printf("database: the base of site %d is complete\n", s);
	base = job[s].at;
#ifdef TRANSIT
	base_has = 0;
	base_needs = job[s].set;
	event(TRIMMED);
#else
	base_has = job[s].set;
#endif
	for (x : 0 .. SITES - 1) {
		site[x].have = site[x].have & ~1;
	}
	x = 0;
	site[s].have = site[s].have | (base > site[s].mark -> 1 : 0);
	job[s].phase = REST;
	job[s].set = 0;
	job[s].at = 0;
	unstick()
}

#if LAST == 3
#define superseded(p) ((p >= 2 && pack[2].there) || (p >= 3 && pack[3].there))
#elif LAST == 4
#define superseded(p) ((p >= 2 && pack[2].there) || (p >= 3 && pack[3].there) || (p >= 4 && pack[4].there))
#elif LAST == 5
#define superseded(p) ((p >= 2 && pack[2].there) || (p >= 3 && pack[3].there) || (p >= 4 && pack[4].there) || (p >= 5 && pack[5].there))
#endif

#define me (_pid - 1 - 3 * SITES)
#define maintains (in(me, MAINTAINERS) && trouble && job[me].phase == REST && !site[me].down)
active [SITES] proctype Maintains() {
end:	do
#ifdef PRUNES
	:: d_step { maintains && !shared(me) && !follows(me) && !lags(me); read(me) }
	:: d_step { job[me].phase == READ; walk(me) }
	:: d_step { job[me].phase == DELETING && (job[me].set & 1); delete(me, 1) }
	:: d_step { job[me].phase == DELETING && (job[me].set & 2); delete(me, 2) }
	:: d_step { job[me].phase == DELETING && (job[me].set & 4); delete(me, 4) }
	:: d_step { job[me].phase == DELETING && (job[me].set & 8); delete(me, 8) }
	:: d_step { job[me].phase == DELETING && trouble; event(KILLED); job[me].phase = REST; job[me].set = 0 }
#endif
#if BASES > 0
#ifdef TRANSIT
	:: d_step { maintains && bases < BASES; begin_bound(me) }
#else
	:: d_step { maintains && bases < BASES; begin_base(me) }
#endif
	:: d_step { job[me].phase == BASING && !site[me].down; complete_base(me) }
#ifdef DROPS_EARLY
	:: d_step { job[me].phase == BASING && superseded(job[me].at); drop_packs(job[me].at) }
#endif
	:: d_step { superseded(base) && me == 0; say("drops the packs before the base", me); drop_packs(base) }
#endif
	od
}
#undef me

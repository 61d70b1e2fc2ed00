/* The database: the content of a snapshot, and its transactions. */

#define running(s) ((push[s].phase == OPEN || push[s].phase == ORPHAN) && push[s].at != 0)
#define stored(s)  (push[s].phase == STORED || push[s].phase == OPEN || push[s].phase == ORPHAN)
#define unused(s)  (stored(s) && push[s].has != 0 && !push[s].carried && !push[s].dropped)

/* The last position that is complete: left in u. */
inline read_upto() {
	u = (foreign != 0 -> foreign : next);
	for (x : 0 .. SITES - 1) {
		if
		:: running(x) && push[x].at < u -> u = push[x].at
		:: else
		fi
	}
	x = 0;
	u--
}

/* The first used pack after a position that site s does not have: left in z; 0 is none, LAST + 1 the base. */
#ifdef OWN_SKIPPED
#define here_too(s, p) ((p) <= site[s].mark || in(p, site[s].have) || pack[p].owner == (s))
#else
#define here_too(s, p) ((p) <= site[s].mark || in(p, site[s].have))
#endif
#define has_base(s)    (base <= site[s].mark || in(0, site[s].have))
#if defined(LISTS_COMPLETE)
#define listed(p) ((p) <= u && (p) > base)
#elif defined(BEFORE_BASE)
#define listed(p) true
#else
#define listed(p) ((p) > base)
#endif
inline next_pack(s, p) {
	z = 0;
	for (x : 2 .. LAST) {
		if
		:: z == 0 && x > p && pack[x].there && !here_too(s, x) && listed(x) -> z = x
		:: else
		fi
	}
	if
	:: base > p && !has_base(s) && (z == 0 || base <= z) -> z = LAST + 1
	:: else
	fi;
	x = 0
}

/* Commits on which a preparation may still build, regardless of the refs: added to z. */
inline read_kept() {
	z = z | recent;
	for (x : 0 .. REFS - 1) {
		if
		:: intent[x].pending -> z = z | one(intent[x].old) | one(intent[x].new)
		:: else
		fi
	}
#ifndef UNUSED_UNKEPT
	for (x : 0 .. SITES - 1) {
		if
		:: unused(x) -> z = z | push[x].bases | one(push[x].new)
		:: else
		fi
	}
#endif
	x = 0
}

#define end_intent(r) intent[r].pending = 0; intent[r].owner = 0; intent[r].old = 0; intent[r].new = 0; intent[r].moved = 0

inline end_push(s) {
	push[s].phase = NONE;
	push[s].ref = 0;
	push[s].new = 0;
	forget_pack(s)
}

inline forget_pack(s) {
	push[s].old = 0;
	push[s].bases = 0;
	push[s].has = 0;
	push[s].carried = 0;
	push[s].dropped = 0;
	push[s].aged = 0;
	push[s].at = 0
}

#define taken(s) (push[s].phase == OPEN || push[s].phase == ORPHAN)
#define key_taken(s, r) (taken(s) && push[s].ref == (r))
#if SITES == 3
#define keys_free(r) (!intent[r].pending && !key_taken(0, r) && !key_taken(1, r) && !key_taken(2, r))
#else
#define keys_free(r) (!intent[r].pending && !key_taken(0, r) && !key_taken(1, r))
#endif

/* A preparation begins: it has its keys, compares, looks for its pack, and gets its position. */
#ifdef PACK_UNCHECKED
#define no_pack(s) false
#else
#define no_pack(s) push[s].dropped
#endif
#ifdef HOUR_IGNORED
#define too_old(s) false
#else
#define too_old(s) (push[s].aged && push[s].has == 0)
#endif
#ifdef OLD_UNCOMPARED
#define same(s, r) (value[r] == site[s].here[r])
#else
#define same(s, r) (site[s].here[r] == push[s].old && value[r] == push[s].old)
#endif
/* Apart from the old value, refs now hold everything that a carried pack builds on. */
#ifdef BASES_UNCOMPARED
#define bases_held(s) true
#else
#define bases_held(s) (!push[s].carried || within(push[s].bases & ~one(push[s].old), one(value[1 - push[s].ref])))
#endif
inline begin_prepare(s) {
	if
	:: push[s].dropped -> event(NO_PACK)
	:: else
	fi;
	if
	:: same(s, push[s].ref) && !bases_held(s) -> event(BASE_MOVED); say("its pack builds on what the database lacks", s); end_push(s)
	:: else
	fi;
	if
	:: push[s].phase != STORED
	:: push[s].phase == STORED && (!same(s, push[s].ref) || no_pack(s) || too_old(s)) -> say("its preparation is refused", s); end_push(s)
	:: else ->
		push[s].phase = OPEN;
		if
		:: push[s].has != 0 ->
			push[s].at = next;
			next++;
			printf("database, to site %d: a preparation begins at %d\n", s, push[s].at)
		:: else
		fi
	fi
}

inline commit_prepare(s) {
	printf("database: the preparation of site %d is committed: ref %d, from %d to %d, with a pack at %d\n", s, push[s].ref, site[s].here[push[s].ref], push[s].new, push[s].at);
	intent[push[s].ref].pending = 1;
	intent[push[s].ref].owner = s;
	intent[push[s].ref].old = value[push[s].ref];
	intent[push[s].ref].new = push[s].new;
	if
	:: push[s].at != 0 ->
		pack[push[s].at].there = !push[s].dropped;
		pack[push[s].at].has = push[s].has;
		pack[push[s].at].bases = push[s].bases;
		pack[push[s].at].tips = one(push[s].new);
#ifdef OWN_SKIPPED
		pack[push[s].at].owner = s;
#endif
		remember(push[s].bases | one(push[s].new));
		if
		:: push[s].phase == OPEN -> site[s].have = site[s].have | (1 << push[s].at) /* it was made here */
		:: else
		fi;
		for (x : 0 .. REFS - 1) {
			u = u | all(value[x])
		}
		x = 0;
		if
		:: !within(push[s].bases, u) -> event(BUILDS_ON_OLD)
		:: else
		fi;
		u = 0
	:: push[s].at == 0 && push[s].new != 0 -> event(WITHOUT_PACK)
	:: else
	fi;
	if
	:: push[s].phase == OPEN -> push[s].phase = TOLD
	:: else -> event(ORPHANED); push[s].phase = UNMOVED
	fi;
	forget_pack(s);
	push[s].new = 0;
	unstick()
}

#define set_value(r, v) remember(one(value[r]) | one(v)); value[r] = v

/* The end of an intent: its site has read its repository. */
inline finish(s) {
	printf("database, to site %d: finished: %d\n", s, push[s].phase == MOVED);
	if
	:: push[s].phase == MOVED -> set_value(push[s].ref, intent[push[s].ref].new)
	:: else
	fi;
	end_intent(push[s].ref);
	end_push(s);
	unstick()
}

/* Everything that the database can give to a site without objects. */
#define of_pack(i) (pack[i].there -> pack[i].has : 0)
#if LAST == 3
#define held (base_has | of_pack(2) | of_pack(3))
#elif LAST == 4
#define held (base_has | of_pack(2) | of_pack(3) | of_pack(4))
#elif LAST == 5
#define held (base_has | of_pack(2) | of_pack(3) | of_pack(4) | of_pack(5))
#endif
#ifdef TRANSIT
/* Or two sites have it, of which one may lose its disk. */
#if SITES == 3
#define held_twice ((site[0].objects & site[1].objects) | (site[0].objects & site[2].objects) | (site[1].objects & site[2].objects))
#else
#define held_twice (site[0].objects & site[1].objects)
#endif
#define kept (held | held_twice)
#else
#define kept held
#endif
#define carried(r) (within(all(value[r]), kept) && (!intent[r].moved || within(all(intent[r].new), kept)))
#define whole(s)   (within(all(site[s].here[0]), site[s].objects) && within(all(site[s].here[1]), site[s].objects))
#define broken(s)  (!whole(s))

active proctype Watch() {
end:	do
	:: d_step { checked(1) && any_site(broken); C1(false) }
	:: d_step { checked(2) && !(carried(0) && carried(1)); C2(false) }
	od
}

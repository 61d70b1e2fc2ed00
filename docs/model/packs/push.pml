/*
 * A push: a process of git, and its daemon's work for it. Maintenance is excluded from
 * before the pack is made until the push is committed.
 */
#define pushes(s)  in(s, PUSHERS)
#define careful(s) in(s, CAREFUL)

/* The client sends the objects that it believes to be missing, and git verifies completeness. */
inline send(s, r, v) {
	printf("site %d: a push of ref %d, from %d to %d\n", s, r, site[s].here[r], v);
	push[s].phase = SENT;
	push[s].ref = r;
	push[s].new = v;
	site[s].objects = site[s].objects | all(v)
}

/* A value that the database and the repository both have, as States says, and that the new one builds on. */
#define certified(s, r) (site[s].here[r] == value[r] && within(one(value[r]), all(push[s].new)) -> one(value[r]) : 0)
/* The same, without reading the database. */
#define likely(s, r) (within(one(site[s].here[r]), all(push[s].new)) -> one(site[s].here[r]) : 0)
#ifdef NEGATES_LOCAL
#define local_refs(s) (one(site[s].own) | one(site[s].here[0]) | one(site[s].here[1]))
#else
#define local_refs(s) 0
#endif
#ifdef LACKS
#define packed(s) one(push[s].new)
#else
#define packed(s) (all(push[s].new) & ~reach(push[s].bases))
#endif

/* The pack proves that all objects are there: it can't be made otherwise. */
inline make(s) {
	push[s].old = site[s].here[push[s].ref];
	if
	:: push[s].new != 0 ->
#ifdef CARRIED
		push[s].bases = one(push[s].old) | likely(s, 1 - push[s].ref);
		push[s].has = packed(s);
		push[s].carried = (push[s].has != 0);
#endif
		if
		:: !push[s].carried ->
			push[s].bases = one(push[s].old) | certified(s, 1 - push[s].ref) | local_refs(s);
			push[s].has = packed(s)
		:: else
		fi;
		if
		:: push[s].has == 0 -> push[s].bases = 0
		:: else
		fi
	:: else
	fi;
	if
	:: within(push[s].has, site[s].objects) ->
		push[s].phase = MADE;
		printf("site %d: makes a pack of %d, over %d\n", s, push[s].has, push[s].bases)
	:: else -> say("can't make a pack", s); end_push(s)
	fi
}

inline store(s) {
	if
#ifndef HOUR_IGNORED
	:: push[s].aged -> end_push(s)
#endif
	:: else -> say("stores its pack", s); push[s].phase = STORED
	fi
}

inline rename(s) {
	printf("site %d: git moves ref %d from %d to %d, and its user is told\n", s, push[s].ref, site[s].here[push[s].ref], intent[push[s].ref].new);
	site[s].here[push[s].ref] = intent[push[s].ref].new;
	intent[push[s].ref].moved = 1;
	push[s].phase = MOVED
}

inline quick(s, r, v) {
	send(s, r, v);
	make(s);
	if
	:: push[s].phase == MADE -> store(s)
	:: else
	fi
}

#ifdef PRUNE_OUTLIVES
#define pruning(s) (job[s].phase == READ) /* a mistake: only the daemon knows, and it was restarted */
#else
#define pruning(s) (job[s].phase == READ || job[s].phase == DELETING)
#endif
#ifdef DURING_PUSHES
#define kept_out(s) false
#else
#define kept_out(s) pruning(s)
#endif
#define ref_locked(s, r) (((push[s].phase == OPEN || push[s].phase == TOLD) && push[s].ref == (r)) || (repl[s].phase == SWAPPING && repl[s].ref == (r)))
#ifdef DIVIDED
#define task(s, v) (((v) == 4) == ((s) == 1)) /* fewer runs: site 1 pushes 4 alone, site 0 all others */
#else
#define task(s, v) true
#endif
#define may_push(s, r, v) (task(s, v) && trouble && pushes(s) && !site[s].down && push[s].phase == NONE && site[s].here[r] != (v))
#define starts(r, v)  (careful(me) && may_push(me, r, v))
#define at_once(r, v) (!careful(me) && may_push(me, r, v) && !kept_out(me))
#define may_prepare   (now == STORED && !site[me].down && !ref_locked(me, push[me].ref) && keys_free(push[me].ref) && (push[me].has == 0 || next <= LAST))
#define now push[me].phase

#define me (_pid - 1)
active [SITES] proctype Git() {
end:	do
	:: d_step { starts(0, 2); send(me, 0, 2) }
	:: d_step { starts(0, 4); send(me, 0, 4) }
	:: d_step { starts(1, 2); send(me, 1, 2) }
	:: d_step { starts(1, 3); send(me, 1, 3) }
	:: d_step { at_once(0, 2); quick(me, 0, 2) }
	:: d_step { at_once(0, 4); quick(me, 0, 4) }
	:: d_step { at_once(1, 2); quick(me, 1, 2) }
	:: d_step { at_once(1, 3); quick(me, 1, 3) }
#ifdef DELETES
	:: d_step { starts(1, 0); send(me, 1, 0) }
	:: d_step { at_once(1, 0); quick(me, 1, 0) }
#endif

	:: d_step { now == SENT && !site[me].down && !kept_out(me); make(me) }
	:: d_step { now == MADE && !site[me].down; store(me) }
#ifdef ABANDONS
	:: d_step { now == STORED && push[me].has != 0 && !push[me].carried && !push[me].dropped && trouble; say("its pack is dropped", me); push[me].dropped = 1 }
#endif
	:: d_step { may_prepare && (careful(me) || in(me, SLOW)); begin_prepare(me) }
	:: d_step { may_prepare && !(careful(me) || in(me, SLOW)); begin_prepare(me);
		if
		:: now == OPEN -> commit_prepare(me)
		:: else
		fi }
	:: d_step { now == OPEN || now == ORPHAN; commit_prepare(me) }
	:: d_step { now == TOLD && careful(me); rename(me) }
	:: d_step { now == TOLD && !careful(me) && !site[me].down; rename(me); finish(me) }
	:: d_step { (now == MOVED || now == UNMOVED) && !site[me].down; finish(me) }

	/* The client or git gives up, or is killed. */
	:: d_step { (now == SENT || now == MADE || now == STORED) && (in(me, MORTAL) || calm || next > LAST || !keys_free(push[me].ref)); end_push(me) }
	:: d_step { in(me, MORTAL) && trouble && (now == OPEN || now == ORPHAN); say("its preparation is rolled back", me); end_push(me); unstick() }
	:: d_step { in(me, MORTAL) && trouble && now == TOLD; say("git is killed", me); now = UNMOVED }
	od
}
#undef me

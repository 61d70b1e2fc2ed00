/* A server that is not the one it was: witnesses are looked up, and all halt if one is missing. */

/* What was pruned is taken for there only up to where the database itself says that the site has looked. */
#if defined(PRUNED_IS_LOST)
#define was_there(s, op) false
#elif defined(PRUNED_IS_THERE)
#define was_there(s, op) (at[op] <= db.pruned)
#else
#define was_there(s, op) (at[op] <= db.pruned && at[op] <= db.seen[s])
#endif
#define found(op)     ((db.has & bits(op)) && at[op] > db.pruned)
#define misses(s, op) ((site[s].witness & bits(op)) && !found(op) && !was_there(s, op))

#define unknown_intent(s) (site[s].pending != 0 && db.intent != site[s].pending && !(db.has & bits(site[s].pending)))
#if defined(FINISH_ENDED)
#define lost_intent(s) false
#elif defined(MOVED_ONLY)
#define lost_intent(s) (unknown_intent(s) && site[s].here == site[s].pending)
#else
#define lost_intent(s) unknown_intent(s) /* whether git has moved the ref, or still may */
#endif

inline look_up(s) {
	x = 0;
	for (y : 1 .. OPS) {
		if
		:: misses(s, y) -> x = 1
		:: else
		fi
	}
	y = 0;
	if
	:: lost_intent(s) -> x = 1
	:: else
	fi;
	V5(older(s) || site[s].epoch == db.incarnation);
	if
	:: older(s) || x ->
		printf("site %d: this database lost what it had\n", s);
		event(NOTICED);
		if
		:: lost_intent(s) && (site[s].witness & ~db.has & ~1) == 0 -> event(LOST_INTENT)
		:: else
		fi;
		V7(older(s) || (site[s].witness & ~db.has & ~1) != 0 || lost_intent(s) || (db.without & (1 << s))); /* the last: it had come back */
		stop(s)
	:: else ->
		printf("site %d: all that it knows of is there\n", s);
#ifdef ADOPTED_LATER
		site[s].looked = 1;
#else
		site[s].current = 1;
#endif
		confirm(1 << s);
		if
		:: site[s].witness != 0 && dirty -> event(RESUMED)
		:: else
		fi
	fi;
	x = 0
}

/* Who knows of the halt writes it again. */
inline write_halt(s) {
	printf("site %d: writes the halt row\n", s);
	if
	:: rewinds == 2 && !site[s].current && (site[s].witness & ~db.has & ~1) == 0 && !lost_intent(s) -> event(HALT_AGAIN)
	:: else
	fi;
	db.halt = 1
}

inline hear_halt(s) {
	printf("site %d: hears of the halt\n", s);
	stop(s)
}

active [SITES] proctype Site() {
	byte i = _pid - 1;
end:	do
	:: d_step { pushes && ops < OPS && rests(i) && may_prepare(i) && db.intent == 0 && site[i].here == value(db); prepare(i, 1) }
	:: d_step { pushes && ops < OPS && rests(i) && may_prepare(i) && db.intent == 0 && site[i].here == value(db); prepare(i, 0) }
	:: d_step { pushes && may_prepare(i); printf("site %d: lets a push of another ref through\n", i); let_through(i) }
	:: d_step { site[i].git; move(i) }
	:: d_step { site[i].git; printf("site %d: git gives up\n", i); site[i].git = 0 }
	:: d_step { site[i].pending != 0 && !site[i].git && may_write(i); finish(i, 1) }
	:: d_step { site[i].pending != 0 && !site[i].git && may_write(i) && db.intent == site[i].pending && site[i].here == site[i].pending; finish(i, 0) }
	:: d_step { rests(i) && stray(i) && may_settle(i); settle(i) }
	:: d_step { rests(i) && !stray(i) && may_sync(i) && behind(i); sync(i) }
	:: d_step { serves(i) && !site[i].current && !db.halt; look_up(i) }
	:: d_step { older(i) && !site[i].halted; look_up(i) }
	:: d_step { site[i].halted && !newer(i) && !db.halt; write_halt(i) }
	:: d_step { !site[i].halted && !newer(i) && db.halt && !site[i].saw_halt; hear_halt(i) }
	:: d_step { site[i].current && !site[i].halted; printf("site %d: its daemon is started anew\n", i); site[i].current = 0;
#ifdef INTENT_FORGOTTEN
		site[i].pending = 0;
		site[i].git = 0
#endif
		}
#ifdef PRUNING
	:: d_step { may_write(i) && db.seen[i] != db.n; printf("site %d: has looked up to %d\n", i, db.n); db.seen[i] = db.n }
#endif
#ifdef ADOPTED_LATER
	:: d_step { site[i].looked && !site[i].current; site[i].looked = 0; site[i].current = 1 }
#endif
#ifdef IDENTITY_EARLIER
	:: d_step { may_write(i) && !site[i].looked; site[i].looked = 1 }
#endif
	od
}

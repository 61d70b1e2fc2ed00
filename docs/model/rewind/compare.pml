/* Which server accepts writes: each site checks which known changes are missing, and reports them. */

/* A pruned change counts as present only up to the position at which, according to the database itself, the site has checked. */
#if defined(PRUNED_IS_LOST)
#define was_there(s, op) false
#elif defined(PRUNED_IS_THERE)
#define was_there(s, op) (at[op] <= db.pruned)
#else
#define was_there(s, op) (at[op] <= db.pruned && at[op] <= db.seen[s])
#endif
#ifdef DECIDED_UNKNOWN
#define is_decided(op) 0
#else
#define is_decided(op) (db.decided & bits(op))
#endif
#ifdef BY_REPOSITORY_ALONE
#define found(op) (((db.has & bits(op)) && at[op] > db.pruned) || is_decided(op) || db.intent == op)
#else
#define found(op) (((db.has & bits(op)) && at[op] > db.pruned) || is_decided(op))
#endif
#define misses(s, op) ((site[s].known & bits(op)) && !found(op) && !was_there(s, op))

#define unknown_intent(s) (site[s].pending != 0 && db.intent != site[s].pending && !(db.has & bits(site[s].pending)) && !is_decided(site[s].pending))
#if defined(INTENT_UNKNOWN)
#define lost_intent(s) false
#elif defined(MOVED_ONLY)
#define lost_intent(s) (unknown_intent(s) && site[s].here == site[s].pending)
#else
#define lost_intent(s) unknown_intent(s) /* whether git has moved the ref, or still may */
#endif

#define reported_here(s) (db.compared == server && (db.reported & of(s)))
#define moved_later(s) (site[s].pending != 0 && site[s].here == site[s].pending && (db.lost & ~db.moved & bits(site[s].pending)))
#define knows_others(s) (site[s].since[0] == db.since[0] && site[s].since[SITES / 2] == db.since[SITES / 2] && site[s].since[SITES - 1] == db.since[SITES - 1])
#ifdef PRUNING
#define seen_all(s) (db.seen[s] == db.n)
#else
#define seen_all(s) true
#endif
/* Only if that makes a difference. */
#define may_look(s) (site[s].looked != server && (!reported_here(s) || is_closing(s) || moved_later(s) || (db.admission == server && (!knows_others(s) || !seen_all(s)))) && \
	((db.live & of(s)) || changes < CHANGES || rewinds > 0))

inline look(s) {
	site[s].missing = 0;
	for (y : 1 .. OPS) {
		if
		:: misses(s, y) -> site[s].missing = site[s].missing | bits(y)
		:: else
		fi
	}
	y = 0;
	if
	:: lost_intent(s) -> site[s].missing = site[s].missing | bits(site[s].pending)
	:: else
	fi;
#ifdef TESTIFY
	for (y : 0 .. SITES - 1) {
		if
		:: lost_carried(s, y) -> event(CARRIED_LOST); site[s].missing = site[s].missing | bits(site[s].carried[y])
		:: else
		fi
	}
	y = 0;
#endif
	printf("site %d: looks; these are missing (bits): %d\n", s, site[s].missing);
	site[s].looked = server
}

#ifdef REPORT_UNNAMED
#define may_report(s) (site[s].looked != 0)
#else
#define may_report(s) (site[s].looked == server)
#endif
#ifdef ADMITS_EARLY
#define all_have_reported true
#else
#define all_have_reported ((db.live & ~db.reported) == 0)
#endif
#ifdef REPORT_ENDS_HALT
#define may_admit (db.lost == 0)
#else
#define may_admit (db.admission != HALTED)
#endif
#ifdef RETURNS_LATE
#define is_late(s) ((db.left & of(s)) || is_testified(s))
#else
#define is_late(s) (db.left & of(s))
#endif

#ifdef REPORT_BELIEVED
#define still_found(op) is_decided(op)
#else
#define still_found(op) found(op)
#endif

/* A rewind undid a change of s that w knows of: s is awaited. */
#if defined(LIVE_IGNORED)
#define taken_along(w, s) false
#elif defined(LIVE_NAMES)
#define taken_along(w, s) (site[w].live & of(s) & ~db.left)
#else
#define taken_along(w, s) (db.since[s] < site[w].since[s])
#endif

#ifdef TESTIFY
/* A row that is older than what s has read of it went back. Its site is live as far as s knows, and awaited. */
inline went_back(s, w) {
	if
	:: taken_along(s, w) -> printf("site %d: the row of site %d went back\n", s, w);
		if
		:: !(db.live & of(w)) -> event(TAKEN_ALONG)
		:: else
		fi;
		if
		:: s == w && is_testified(w) && site[s].missing != 0 -> event(LATER_THAN)
		:: else
		fi;
		db.live = db.live | of(w);
		db.left = db.left & ~of(w);
		db.word[w] = 0;
#ifdef FRESH
		change(w)
#else
		if
		:: has_spoken(w) -> change(w)
		:: else -> db.since[w] = site[s].since[w]
		fi
#endif
	:: else
	fi
}
/* Its row says more than it has read: somebody has put it back. */
#ifdef RETURN_UNSAID
#define was_put_back(s) false
#else
#define was_put_back(s) (site[s].since[s] < db.since[s])
#endif
#endif

inline report(s) {
#ifdef TESTIFY
	for (y : 0 .. SITES - 1) {
		if
		:: return_unread(y) && !(unheard & of(y)) -> unread = unread | of(y)
		:: else
		fi
	}
	y = 0;
	unheard = unheard | unread;
#endif
	if
	:: db.compared != server -> db.compared = server; db.reported = 0
	:: else
	fi;
	for (y : 0 .. SITES - 1) {
#ifdef CHANGES_COUNTED
		V5((db.since[y] < site[s].since[y]) == (db.time[y] < site[s].time[y]));
#endif
		if
		:: db.since[y] < site[s].since[y] -> heard = heard | of(y)
		:: else
		fi;
#ifdef TESTIFY
		went_back(s, y)
#else
		if
		:: taken_along(s, y) && !(db.live & of(y)) -> printf("site %d: site %d was live\n", s, y);
			event(TAKEN_ALONG);
			db.live = db.live | of(y); db.left = db.left & ~of(y); change(y)
		:: else
		fi
#endif
	}
	y = 0;
#ifdef TESTIFY
	for (y : 0 .. SITES - 1) { reestablish(s, y) }
	y = 0;
#endif
	for (y : 1 .. OPS) { /* it may have been written, or decided, since the check */
		if
		:: (site[s].missing & ~db.lost & bits(y)) && !still_found(y) && !no_longer_vouched(s, y) -> x = x | bits(y)
		:: else
		fi
	}
	y = 0;
	db.reported = db.reported | of(s);
#ifdef TESTIFY
	if
	:: is_testified(s) -> event(CAME_BACK);
		if
		:: x != 0 -> event(MISSED_MORE)
		:: else
		fi
	:: else
	fi;
#endif
	if
	:: is_late(s) -> printf("site %d: comes late; these were missing (bits): %d\n", s, x);
		for (y : 0 .. SITES - 1) { V3(y == s || (unheard & of(y)) || gone(x & site[y].saw) == 0) }
		y = 0;
		if
		:: x != 0 -> event(RETURNED)
		:: else
		fi;
		db.decided = db.decided | x;
		listed = listed | x
	:: !is_late(s) && x != 0 -> printf("site %d: reports that these are lost (bits): %d\n", s, x);
		event(NOTICED);
#ifdef TESTIFY
		V7((x & ~db.has & ~db.decided & ~falsely(s)) != 0);
#else
		V7((x & ~db.has & ~db.decided) != 0 || (db.freed & of(s)));
#endif
		if
		:: x == bits(site[s].pending) -> event(LOST_INTENT)
		:: else
		fi;
		if
		:: rewinds == 2 && (x & listed) -> event(HALT_AGAIN)
		:: else
		fi;
		db.lost = db.lost | x;
		db.admission = HALTED
	:: else -> printf("site %d: reports that all is there\n", s)
	fi;
	db.moved = db.moved | (db.lost & site[s].missing & seen_moved(s) & ~(site[s].here == site[s].pending -> 0 : bits(site[s].pending)));
#ifdef TESTIFY
	unheard = unheard & ~unread;
	unread = 0;
#endif
	unheard = unheard & ~heard & ~of(s);
	heard = 0;
	db.freed = db.freed & ~of(s);
	if
	:: !(db.live & of(s)) -> changes++; db.live = db.live | of(s); db.left = db.left & ~of(s); change(s)
#ifdef TESTIFY
	:: (db.live & of(s)) && was_put_back(s) -> change(s)
#endif
	:: else
	fi;
#ifdef TESTIFY
	db.word[s] = 0;
	silent = silent & ~of(s);
#endif
	if
	:: may_admit && all_have_reported ->
		V5(db.admission != HALTED);
		if
		:: db.admission != server && db.has != 0 -> event(RESUMED)
		:: else
		fi;
		db.admission = server;
#ifdef TESTIFY
		if
		:: silent != 0 && !dirty -> skip /* a recover went without it */
		:: silent != 0 && dirty -> event(GOES_ON);
			if
			:: silent == 6 || silent == 5 || silent == 3 -> event(GOES_ON_ALONE)
			:: else
			fi
		:: else
		fi
#endif
#ifndef STAYS_ADMITTED
	:: may_admit && !all_have_reported -> db.admission = COMPARING
#endif
	:: else
	fi;
	if
	:: db.admission == server ->
		for (y : 0 .. SITES - 1) {
			site[s].since[y] = db.since[y];
#ifdef TESTIFY
			learn(s, y);
#endif
#ifdef CHANGES_COUNTED
			site[s].time[y] = db.time[y]
#endif
		}
		y = 0;
#ifdef LIVE_NAMES
		site[s].live = db.live;
#endif
	:: else
	fi;
#ifdef PRUNING
	db.seen[s] = db.n; /* everything it knows is present, or in lost */
#endif
	site[s].looked = 0;
	site[s].missing = 0;
	x = 0;
	served(s)
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
	:: d_step { may_stop(i); go_away(i) }
#ifdef TESTIFY
	:: d_step { may_close(i, 0); close(i, 0) }
	:: d_step { may_close(i, 1); close(i, 1) }
	:: d_step { may_take_part(i, 0); take_part(i, 0) }
	:: d_step { may_give(i, 0); give(i, 0, 1) }
	:: d_step { may_give(i, 0); give(i, 0, 0) }
	:: d_step { may_take_part(i, 1); take_part(i, 1) }
	:: d_step { may_give(i, 1); give(i, 1, 1) }
	:: d_step { may_give(i, 1); give(i, 1, 0) }
	:: d_step { may_join(i, 0); join(i, 0) }
	:: d_step { may_join(i, 1); join(i, 1) }
#if SITES == 3
	:: d_step { may_close(i, 2); close(i, 2) }
	:: d_step { may_take_part(i, 2); take_part(i, 2) }
	:: d_step { may_give(i, 2); give(i, 2, 1) }
	:: d_step { may_give(i, 2); give(i, 2, 0) }
	:: d_step { may_join(i, 2); join(i, 2) }
#endif
#ifdef CARRIED_DROPPED
	:: d_step { site[i].carried[0] != 0; printf("site %d: its journal is full, and drops what it carries\n", i); site[i].carried[0] = 0 }
	:: d_step { site[i].carried[1] != 0; printf("site %d: its journal is full, and drops what it carries\n", i); site[i].carried[1] = 0 }
#endif
#ifndef PROMPT
	:: d_step { pushes && ops < OPS && rests(i) && may_prepare(i) && db.intent == 0 && site[i].here == value(db) && site[i].begun == NOTHING;
		printf("site %d: begins to prepare\n", i); let_through(i); site[i].begun = PREPARE }
	:: d_step { site[i].begun == PREPARE && ops < OPS && rests(i) && db.intent == 0 && site[i].here == value(db); record(i, 1); site[i].begun = NOTHING }
	:: d_step { site[i].pending != 0 && !site[i].git && may_write(i) && db.intent == site[i].pending && site[i].here != site[i].pending && site[i].begun == NOTHING;
		printf("site %d: begins to drop its intent\n", i); site[i].begun = DROP }
	:: d_step { site[i].begun == DROP && db.intent == site[i].pending && site[i].here != site[i].pending; drop(i); site[i].begun = NOTHING }
	:: d_step { site[i].begun != NOTHING; site[i].begun = NOTHING }
#endif
#endif
	:: d_step { may_look(i); look(i) }
	:: d_step { may_report(i); report(i) }
#ifdef INTENT_FORGOTTEN
	:: d_step { site[i].pending != 0; printf("site %d: its daemon is started anew\n", i); site[i].pending = 0; site[i].git = 0 }
#endif
#if defined(SERVER_EARLIER) || defined(SYNC_CHECKED_BEFORE)
	:: d_step { may_write(i) && !site[i].before; site[i].before = 1 }
#endif
	od
}

/* A site in normal operation: each statement that writes has the same conditions. */

#ifdef NO_SERVER
#define admitted (db.admission != HALTED)
#define here_too true
#else
#define admitted (db.admission == server)
#define here_too (db.compared == server)
#endif
#ifdef LATE_SERVES
#define has_reported(s) true
#else
#define has_reported(s) (here_too && (db.reported & of(s)))
#endif
#define may_write(s) (admitted && has_reported(s) && !is_barred(s))
#ifdef SERVER_EARLIER
#define may_prepare(s) site[s].before
#else
#define may_prepare(s) may_write(s)
#endif

inline let_through(s) {
	none_is_gone();
	V1(x == 0);
	x = 0;
	V6(gone(site[s].saw) == 0);
	if
	:: dirty && gone(acknowledged) != 0 -> event(UNAWARE)
	:: else
	fi;
	site[s].before = 0
}

#ifdef TESTIFY
inline served(s) {
	latest[s] = db.since[s];
	for (x : 0 .. SITES - 1) {
		if
		:: x != s && site[x].given[s] && db.since[s] < site[x].noted[s] && (db.left & of(x)) -> beyond = beyond | of(s)
		:: else
		fi
	}
	x = 0
}
#define not_moved(op) dropped = dropped | bits(op)
#else
#define served(s) skip
#define not_moved(op) skip
#endif

/* A push, from the value that both have. told: the answer arrives, and git may move the ref. */
inline prepare(s, told) {
	let_through(s);
	record(s, told)
}

inline record(s, told) {
	ops++;
	printf("site %d: prepares %d, over %d; it is told: %d\n", s, ops, value(db), told);
	served(s);
#ifdef TESTIFY
	when[ops] = db.since[s];
#endif
	who[ops] = s;
	old[ops] = value(db);
	db.intent = ops;
	if
	:: told -> site[s].pending = ops; site[s].git = 1
	:: else
	fi
}

inline move(s) {
	printf("site %d: git moves the ref to %d, and its user is told\n", s, site[s].pending);
	site[s].git = 0;
	site[s].here = site[s].pending;
	acknowledged = acknowledged | bits(site[s].pending);
	site[s].saw = site[s].saw | bits(site[s].pending)
}

inline written(s, op) {
	site[s].known = site[s].known | bits(op);
	site[s].saw = site[s].saw | bits(op);
	if
	:: site[s].pending == op -> site[s].pending = 0
	:: else
	fi
}

inline drop(s) {
	served(s);
	not_moved(db.intent);
	db.intent = 0;
	site[s].pending = 0
}

inline finish(s, told) {
	printf("site %d: finishes %d; it is told: %d\n", s, site[s].pending, told);
	if
	:: db.intent == site[s].pending && site[s].here == site[s].pending ->
		served(s);
		append(site[s].pending);
		if
		:: !dirty && rewinds > 0 -> event(WENT_ON)
		:: else
		fi;
		if
		:: told -> written(s, site[s].pending)
		:: else
		fi
	:: db.intent == site[s].pending && site[s].here != site[s].pending ->
		drop(s)
	:: db.intent != site[s].pending && (db.has & bits(site[s].pending)) ->
		written(s, site[s].pending)
	:: else -> /* decided */
		V3(gone(acknowledged & bits(site[s].pending)) == 0);
		site[s].pending = 0
	fi
}

/* An intent of this site that it doesn't know as pending: its answer was lost, or it stands again. */
#define stray(s) (db.intent != 0 && who[db.intent] == s && db.intent != site[s].pending)
inline settle(s) {
	printf("site %d: settles the intent %d by its repository, which has %d\n", s, db.intent, site[s].here);
	if
	:: site[s].here == db.intent -> served(s); written(s, db.intent); append(db.intent)
	:: else ->
		V3(!(acknowledged & standing) || (listed & standing));
		served(s);
		not_moved(db.intent);
		db.intent = 0
	fi
}
#ifdef SETTLE_FIRST
#define may_settle(s) true
#else
#define may_settle(s) may_write(s)
#endif

/* Replication, from a read of the history and the ref. */
#if defined(SYNC_UNCHECKED)
#define may_sync(s) true
#elif defined(SYNC_CHECKED_BEFORE)
#define may_sync(s) site[s].before
#else
#define may_sync(s) may_write(s)
#endif
#define behind(s) (site[s].here != value(db) || (site[s].saw | db.has) != site[s].saw)
inline sync(s) {
	printf("site %d: sees the history, and follows from %d to %d\n", s, site[s].here, value(db));
	V3(gone(bits(site[s].here)) == 0);
	site[s].here = value(db);
#ifndef OWN_ONLY
	site[s].known = site[s].known | db.has;
#endif
	site[s].saw = site[s].saw | db.has;
	served(s);
	site[s].before = 0
}

/* A clean stop: nothing is pending. The site is started again whenever it reports. */
#define may_stop(s) (may_go(s) && changes < CHANGES && rests(s) && may_write(s) && (db.live & of(s)) && !(db.intent != 0 && who[db.intent] == s))
inline go_away(s) {
	printf("site %d: stops\n", s);
	changes++;
	db.live = db.live & ~of(s);
	db.reported = db.reported & ~of(s);
	change(s)
}

#define rests(s) (site[s].pending == 0 && !site[s].git)
#ifdef LOCKS
#define pushes false
#else
#define pushes true
#endif

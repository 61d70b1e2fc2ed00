/* What a site does while all is well: each statement that writes has the same conditions. */

#ifdef NO_IDENTITY
#define as_known(s) true
#else
#define as_known(s) (site[s].current)
#endif
#ifdef EPOCH_UNCHECKED
#define serves(s)    (!site[s].halted)
#else
#define serves(s)    (!site[s].halted && same(s))
#endif
#define may_write(s) (serves(s) && as_known(s) && !db.halt)
#ifdef HALT_UNCHECKED
#define may_prepare(s) (serves(s) && as_known(s))
#elif defined(IDENTITY_EARLIER)
#define may_prepare(s) (serves(s) && site[s].looked && !db.halt)
#elif defined(CONFIRMED)
#define may_prepare(s) (may_write(s) && confirmed == all_sites)
#else
#define may_prepare(s) may_write(s)
#endif

inline let_through(s) {
	V5(site[s].epoch == db.incarnation);
	V1(!db.halt && !site[s].saw_halt);
	V1(!dirty || gone(site[s].saw) == 0);
	V6(dirty || gone(site[s].saw) == 0);
#ifdef STRICT
	V1(!dirty || gone(acknowledged) == 0);
#endif
	if
	:: dirty && gone(acknowledged) != 0 -> event(UNAWARE)
	:: else
	fi
}

/* A push, from the value that both have. told: the answer arrives, and git may move the ref. */
inline prepare(s, told) {
	ops++;
	printf("site %d: prepares %d, over %d; it is told: %d\n", s, ops, value(db), told);
	let_through(s);
	who[ops] = s;
	old[ops] = value(db);
	db.intent = ops;
	if
	:: told -> site[s].pending = ops; site[s].git = 1
	:: else
	fi;
	site[s].looked = 0
}

inline move(s) {
	printf("site %d: git moves the ref to %d, and its user is told\n", s, site[s].pending);
	site[s].git = 0;
	site[s].here = site[s].pending;
	acknowledged = acknowledged | bits(site[s].pending);
	site[s].saw = site[s].saw | bits(site[s].pending)
}

inline written(s, op) {
	site[s].witness = site[s].witness | bits(op);
	site[s].saw = site[s].saw | bits(op);
	if
	:: site[s].pending == op -> site[s].pending = 0
	:: else
	fi
}

inline stop(s) {
#ifdef HALT_IN_DATABASE
	db.halt = 1;
#else
	site[s].halted = 1;
#endif
	site[s].saw_halt = 1
}

inline finish(s, told) {
	printf("site %d: finishes %d; it is told: %d\n", s, site[s].pending, told);
	if
	:: db.intent == site[s].pending && site[s].here == site[s].pending ->
		append(site[s].pending);
		if
		:: !dirty && db.number > 0 -> event(WENT_ON)
		:: else
		fi;
		if
		:: told -> written(s, site[s].pending)
		:: else
		fi
	:: db.intent == site[s].pending && site[s].here != site[s].pending ->
		end_intent();
		site[s].pending = 0
	:: db.intent != site[s].pending && (db.has & bits(site[s].pending)) ->
		written(s, site[s].pending)
	:: else ->
		if
		:: site[s].here == site[s].pending ->
			printf("site %d: its intent is lost\n", s);
#if defined(FINISH_ENDED) || defined(FINISH_ONLY)
			site[s].pending = 0
#else
			stop(s)
#endif
		:: else -> site[s].pending = 0
		fi
	fi
}

/* An intent of this site that it doesn't know as pending: its answer was lost, or it stands again. */
#define stray(s) (db.intent != 0 && who[db.intent] == s && db.intent != site[s].pending)
inline settle(s) {
	printf("site %d: settles the intent %d by its repository, which has %d\n", s, db.intent, site[s].here);
	if
	:: site[s].here == db.intent -> written(s, db.intent); append(db.intent)
	:: else ->
#ifndef BY_REPOSITORY_ALONE
		if
		:: db.revived -> printf("an operator resolves it\n"); listed = listed | standing
		:: else
		fi;
#endif
		V3(!(acknowledged & standing) || (listed & standing));
		end_intent()
	fi
}
#ifdef SETTLE_FIRST
#define may_settle(s) (serves(s) && !db.halt)
#else
#define may_settle(s) may_write(s)
#endif

/* Replication, from a read of the history and the ref. */
#ifdef SYNC_UNCHECKED
#define may_sync(s) (serves(s))
#else
#define may_sync(s) (serves(s) && as_known(s))
#endif
#define behind(s) (site[s].here != value(db) || (site[s].saw | db.has) != site[s].saw)
inline sync(s) {
	printf("site %d: sees the history, and follows from %d to %d\n", s, site[s].here, value(db));
	V3(gone(bits(site[s].here)) == 0);
	site[s].here = value(db);
#ifndef OWN_ONLY
	site[s].witness = site[s].witness | db.has;
#endif
	site[s].saw = site[s].saw | db.has
}

#define rests(s) (site[s].pending == 0 && !site[s].git)
#define me _pid
#ifdef LOCKS
#define pushes false
#else
#define pushes true
#endif

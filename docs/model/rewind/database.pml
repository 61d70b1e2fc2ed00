/* History, and the server's past. */

inline append(op) {
	db.n++;
	db.row[db.n] = op;
	db.has = db.has | bits(op);
#ifdef PRUNING
	at[op] = db.n;
#else
	at[op] = 1;
#endif
	if
	:: db.intent == op -> db.intent = 0
	:: else
	fi
}

inline copy(to, from) {
	to.n = from.n;
	for (x : 1 .. OPS) { to.row[x] = from.row[x] }
	for (x : 0 .. SITES - 1) {
		to.since[x] = from.since[x];
#ifdef CHANGES_COUNTED
		to.time[x] = from.time[x];
#endif
#ifdef TESTIFY
		to.word[x] = from.word[x];
#endif
		to.seen[x] = from.seen[x]
	}
	x = 0;
	to.has = from.has;
	to.intent = from.intent;
	to.admission = from.admission;
	to.compared = from.compared;
	to.reported = from.reported;
	to.live = from.live;
	to.left = from.left;
	to.lost = from.lost;
	to.moved = from.moved;
	to.decided = from.decided;
	to.pruned = from.pruned;
	to.freed = from.freed;
	to.holder = from.holder;
	to.token = from.token;
	to.tokens = from.tokens
}

/* Fewer states: an earlier server's name is only compared with the present server's. */
inline forget_server(d) {
#if !defined(NO_SERVER) && !defined(RECOVER_GOES_ON) && !defined(REPORT_UNNAMED)
	d.compared = 0;
	d.reported = 0;
	if
	:: d.admission != HALTED -> d.admission = COMPARING
	:: else
	fi;
#endif
	skip
}

/* The state of a site changes. */
inline change(s) {
	stamps++;
#ifdef CHANGES_COUNTED
	db.since[s]++;
	db.time[s] = stamps
#else
	db.since[s] = stamps
#endif
}

inline rewind() {
	printf("--- the server is another, with %d rows instead of %d\n", backup.n, db.n);
	if
	:: db.lost != 0 && db.decided != 0 && backup.lost == 0 && backup.decided == 0 -> event(HALF_DONE)
	:: else
	fi;
	for (x : 0 .. SITES - 1) {
		if
		:: backup.live & of(x) -> unheard = unheard & ~of(x)
#ifndef TESTIFY
		:: !(backup.live & of(x)) && backup.since[x] != db.since[x] -> unheard = unheard | of(x)
#endif
		:: else
		fi
	}
	copy(db, backup);
	forget_server(db);
#ifdef TESTIFY
	silent = db.live;
	dropped = dropped & ~standing;
	forgotten = 0;
	if
	:: db.left != 0 -> beyond = 0 /* the recover is not undone */
	:: else
	fi;
	for (x : 0 .. SITES - 1) {
		site[x].begun = NOTHING;
		if
		:: db.since[x] < latest[x] -> forgotten = forgotten | of(x)
		:: else
		fi
	}
	x = 0;
#endif
#ifndef REPORT_UNNAMED
	for (x : 0 .. SITES - 1) { site[x].looked = 0; site[x].missing = 0 } /* its report would be refused */
	x = 0;
#endif
	rewinds++;
	dirty = 1
}

#ifdef PRUNES_FREELY
#define not_needed(s) true
#else
#define not_needed(s) (db.pruned < db.seen[s] || (db.left & of(s)))
#endif

active proctype Server() {
end:	do
	:: d_step { rewinds < REWINDS; printf("--- this is what will be left\n"); copy(backup, db); forget_server(backup) }
	:: d_step { rewinds < REWINDS; rewind();
		if
		:: rewinds == REWINDS -> copy(backup, empty) /* no other is to come */
		:: else
		fi }
#ifdef PRUNING
	:: d_step { db.pruned < db.n && db.admission == server && not_needed(0) && not_needed(1); db.pruned++; db.freed = db.freed | db.left; printf("database: prunes the row at %d\n", db.pruned) }
#endif
	od
}

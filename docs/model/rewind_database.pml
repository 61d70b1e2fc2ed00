/* History, and the server's past. */

inline end_intent() {
	db.intent = 0;
	db.revived = 0
}

inline append(op) {
	db.n++;
	db.row[db.n] = op;
	db.has = db.has | bits(op);
	at[op] = db.n;
	if
	:: db.intent == op -> end_intent()
	:: else
	fi
}

inline copy(to, from) {
	to.n = from.n;
	for (x : 1 .. OPS) { to.row[x] = from.row[x] }
	x = 0;
	to.has = from.has;
	to.intent = from.intent;
	to.revived = from.revived;
	to.halt = from.halt;
	to.recovering = from.recovering;
	to.server = from.server;
	to.incarnation = from.incarnation;
	to.number = from.number;
	to.reported = from.reported;
	to.without = from.without;
	to.lost = from.lost;
	to.pruned = from.pruned;
	to.seen[0] = from.seen[0];
	to.seen[1] = from.seen[1];
	to.holder = from.holder;
	to.token = from.token;
	to.tokens = from.tokens
}

inline rewind() {
	printf("--- the server is another, with %d rows instead of %d\n", backup.n, db.n);
	if
	:: db.recovering && !backup.recovering && db.incarnation != backup.incarnation -> event(HALF_DONE)
	:: else
	fi;
	copy(db, backup);
	rewinds++;
	dirty = 1;
#ifdef CONFIRMED
	confirmed = 0;
#endif
	for (x : 0 .. SITES - 1) { site[x].current = 0 }
	x = 0
}

#ifdef PRUNES_FREELY
#define not_needed(s) true
#else
#define not_needed(s) (db.pruned < db.seen[s] || (db.without & (1 << (s))))
#endif

active proctype Server() {
end:	do
	:: d_step { rewinds < REWINDS; printf("--- this is what will be left\n"); copy(backup, db) }
	:: d_step { rewinds < REWINDS; rewind();
		if
		:: rewinds == REWINDS -> /* no other is to come */
			backup.n = 0; backup.has = 0; backup.intent = 0; backup.revived = 0; backup.server = 0; backup.halt = 0; backup.recovering = 0;
			backup.incarnation = 0; backup.number = 0; backup.reported = 0; backup.without = 0; backup.lost = 0;
			backup.pruned = 0; backup.seen[0] = 0; backup.seen[1] = 0; backup.holder = 0; backup.token = 0; backup.tokens = 0;
			for (x : 1 .. OPS) { backup.row[x] = 0 }
			x = 0
		:: else
		fi }
#ifdef PRUNING
	:: d_step { db.pruned < db.n && !db.halt && not_needed(0) && not_needed(1); db.pruned++; printf("database: prunes the row at %d\n", db.pruned) }
#endif
	od
}

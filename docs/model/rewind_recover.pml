/*
 * recover. Each step goes by what the database says, so it makes no difference whether
 * one operator takes them, or two, or one who was interrupted and begins again.
 */
#ifdef RECOVER_GOES_ON
#define under_way (db.recovering)
#else
#define under_way (db.recovering && db.server == rewinds) /* what was reported to another server says nothing of this one */
#endif
#ifdef WITHOUT_SILENTLY
#define all_are_in true
#else
#define all_are_in ((db.reported | db.without) == all_sites)
#endif

inline begin_recover() {
	printf("recover: begins, over %d rows\n", db.n);
	incarnations++;
	db.incarnation = incarnations;
	db.number++;
	db.halt = 1;
	db.recovering = 1;
	db.server = rewinds;
	db.revived = (db.intent != 0);
	db.reported = 0;
	db.without = 0;
	db.lost = 0;
#ifndef KEEPS_LOCKS
	db.holder = 0;
	db.token = 0;
#endif
#ifndef TOKENS_AGAIN
	db.tokens = highest;
#endif
	for (x : 0 .. SITES - 1) { site[x].valid = 0 }
	x = 0
}

inline go_without(s) {
	printf("recover: goes without site %d\n", s);
	db.without = db.without | (1 << s)
}

/* What a site knows of and the database doesn't have: x. */
inline compare(s) {
	x = 0;
	for (y : 1 .. OPS) {
		if
		:: !(standing & bits(y)) && misses(s, y) -> x = x | bits(y)
		:: else
		fi
	}
	y = 0;
	if
	:: unknown_intent(s) && site[s].here == site[s].pending -> x = x | bits(site[s].pending)
	:: else
	fi
}

/* Its processes of git have ended, so that it knows what was moved. */
#define may_report(s) (newer(s) && under_way && !site[s].git && !((db.reported | db.without) & (1 << (s))))
inline report(s) {
	compare(s);
	x = x | (site[s].witness & standing & ~1); /* its intent stands again */
	printf("site %d: reports that these are lost (bits): %d\n", s, x);
	db.lost = db.lost | x;
	db.reported = db.reported | (1 << s);
#ifdef FORGETS_AT_REPORT
	site[s].witness = site[s].witness & db.has;
#endif
	x = 0
}

#define lost(op)       (db.lost & bits(op))
#define applicable(op) (lost(op) && old[op] == value(db) && (db.intent == 0 || db.intent == op))
#if OPS == 2
#define any_applicable (applicable(1) || applicable(2))
#elif OPS == 3
#define any_applicable (applicable(1) || applicable(2) || applicable(3))
#endif

inline apply(op) {
	printf("recover: writes %d again\n", op);
	event(REAPPLIED);
	if
	:: db.intent == op -> event(REVIVED)
	:: else
	fi;
	append(op);
	db.lost = db.lost & ~bits(op)
}

inline list(op) {
	printf("recover: lists %d\n", op);
	event(OPPOSED);
	listed = listed | bits(op);
	db.lost = db.lost & ~bits(op);
	if
	:: db.intent == op -> end_intent() /* an operator resolves it */
	:: else
	fi
}

inline lift() {
	printf("recover: ends\n");
	db.halt = 0;
	db.recovering = 0;
	dirty = 0;
	confirm(db.without);
	for (x : 1 .. OPS) {
		V3(!(gone(acknowledged) & bits(x)) || (db.without & (1 << who[x])))
	}
	x = 0
}

/* A site comes to an epoch that it doesn't know: it lists what is missing, and serves. */
#define may_enter(s) (newer(s) && !db.halt && !site[s].git)
inline enter(s) {
	compare(s);
	printf("site %d: goes on in the epoch %d, without these (bits): %d\n", s, db.number, x);
	if
	:: (x & ~listed) != 0 -> event(RETURNED)
	:: else
	fi;
#ifndef LATE_SERVES
	listed = listed | x;
#endif
	x = 0;
	db.without = db.without & ~(1 << s);
#ifdef PRUNING
	db.seen[s] = db.n;
#endif
	site[s].witness = site[s].witness & db.has;
	site[s].epoch = db.incarnation;
	site[s].epochs = site[s].epochs | bits(db.incarnation);
	site[s].number = db.number;
	site[s].halted = 0;
	site[s].saw_halt = 0;
	site[s].current = 1;
	confirm(1 << s);
	if
	:: db.has & bits(site[s].pending) & ~1 -> written(s, site[s].pending)
	:: site[s].pending != 0 && !(db.has & bits(site[s].pending)) && db.intent != site[s].pending -> site[s].pending = 0
	:: else
	fi
}

active proctype Recover() {
	byte op = 1;
#ifdef LIFT_LATER
	bit decided; /* a mistake: to end, and is about to do so unconditionally */
#endif
end:	do
	:: d_step { incarnations < EPOCHS && !under_way && (db.halt || dirty); begin_recover() }
	:: d_step { may_report(0); report(0) }
	:: d_step { may_report(1); report(1) }
	:: d_step { under_way && !((db.reported | db.without) & 1); go_without(0) }
	:: d_step { under_way && !((db.reported | db.without) & 2); go_without(1) }
	:: d_step { under_way && all_are_in && applicable(1); apply(1) }
	:: d_step { under_way && all_are_in && applicable(2); apply(2) }
#if OPS == 3
	:: d_step { under_way && all_are_in && applicable(3); apply(3) }
#endif
	:: d_step { under_way && all_are_in && db.lost != 0 && !any_applicable;
		do
		:: lost(op) -> break
		:: else -> op++
		od;
		list(op); op = 1 }
#ifdef LIFT_LATER
	:: d_step { under_way && all_are_in && db.lost == 0; decided = 1 }
	:: d_step { decided; decided = 0; lift() }
#else
	:: d_step { under_way && all_are_in && db.lost == 0; lift() }
#endif
	:: d_step { may_enter(0); enter(0) }
	:: d_step { may_enter(1); enter(1) }
	od
}

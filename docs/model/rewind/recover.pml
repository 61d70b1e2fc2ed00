/*
 * recover. Each step is a transaction based on the database's state, so it makes no
 * difference whether the steps are taken by one operator, two, or one who was interrupted and begins
 * again. An operator may have said --without about any site that has not reported.
 */
#ifdef RECOVER_GOES_ON
#define are_in db.reported
#else
#define are_in (db.compared == server -> db.reported : 0) /* reports for another server don't count */
#endif
#define under_way (recoveries < EPOCHS && db.admission != server)

#define lost(op)       (db.lost & bits(op))
#define applicable(op) (lost(op) && (db.moved & bits(op)) && old[op] == value(db) && (db.intent == 0 || db.intent == op))
#if OPS == 1
#define any_applicable applicable(1)
#elif OPS == 2
#define any_applicable (applicable(1) || applicable(2))
#elif OPS == 3
#define any_applicable (applicable(1) || applicable(2) || applicable(3))
#endif

inline decide(op) {
	db.lost = db.lost & ~bits(op);
	db.moved = db.moved & ~bits(op);
	db.decided = db.decided | bits(op)
}

inline apply(op) {
	printf("recover: writes %d again\n", op);
	event(REAPPLIED);
	if
	:: db.intent == op -> event(REVIVED)
	:: else
	fi;
	append(op);
	decide(op)
}

inline list(op) {
	printf("recover: lists %d\n", op);
	event(OPPOSED);
#ifdef UNMOVED_DROPPED
	if
	:: db.moved & bits(op) -> listed = listed | bits(op)
	:: else
	fi;
#else
	listed = listed | bits(op);
#endif
	decide(op);
	if
	:: db.intent == op -> db.intent = 0
	:: else
	fi
}

inline lift() {
	printf("recover: ends, without the sites (bits) %d\n", without);
	for (x : 0 .. SITES - 1) {
		if
		:: without & of(x) -> change(x);
#ifdef TESTIFY
			db.word[x] = 0
#endif
		:: else
		fi;
		site[x].valid = 0
	}
	x = 0;
	recoveries++;
	dirty = 0;
	db.left = db.left | without;
	db.live = db.live & ~without;
	unheard = unheard | without;
	none_is_gone();
	V3(x == 0);
	x = 0;
	if
	:: db.compared != server -> db.compared = server; db.reported = 0
	:: else
	fi;
	db.admission = server;
	without = 0;
#ifndef KEEPS_LOCKS
	db.holder = 0;
	db.token = 0;
#endif
#ifndef TOKENS_AGAIN
	db.tokens = highest;
#endif
}

active proctype Recover() {
	byte op = 1;
	byte without; /* sites, as bits */
#ifdef LIFT_LATER
	bit decided; /* a mistake: to end, and is about to do so unconditionally */
#endif
end:	do
	:: d_step { under_way && applicable(1); apply(1) }
#if OPS >= 2
	:: d_step { under_way && applicable(2); apply(2) }
#endif
#if OPS == 3
	:: d_step { under_way && applicable(3); apply(3) }
#endif
	:: d_step { under_way && db.lost != 0 && !any_applicable;
		do
		:: lost(op) -> break
		:: else -> op++
		od;
		list(op); op = 1 }
#if defined(LIFT_LATER)
	:: d_step { under_way && db.lost == 0; decided = 1; without = db.live & ~are_in }
	:: d_step { decided; decided = 0; lift() }
#elif defined(WITHOUT_SILENTLY)
	:: d_step { under_way && db.lost == 0; lift() }
#else
	:: d_step { under_way && db.lost == 0; without = db.live & ~are_in; lift() }
#endif
	od
}

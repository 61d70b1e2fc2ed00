/* A follower of the feed, and its cursor: a position, and the operation of the row there. */
byte cursor;
byte cursor_op;
bit follows;
byte given;              /* only for V2: operations, as bits, that it received, or that its first state had */

#if defined(CURSOR_WITHOUT_OP)
#define stands_in_history (cursor <= db.n)
#elif defined(NOW_WITHOUT_OP)
#define stands_in_history (cursor <= db.n && (cursor_op == 0 || db.row[cursor] == cursor_op))
#else
#define stands_in_history (cursor <= db.n && db.row[cursor] == cursor_op)
#endif

inline start_at_now() {
	printf("follower: starts, after %d rows\n", db.n);
	follows = 1;
	cursor = db.n;
#ifndef NOW_WITHOUT_OP
	cursor_op = value(db);
#endif
	given = db.has
}

inline follow() {
	x = 0;
	for (y : 1 .. cursor) { x = x | bits(db.row[y]) }
	y = 0;
	V2(x == given);
	x = 0;
	if
	:: cursor < db.n ->
		cursor++;
		cursor_op = db.row[cursor];
		given = given | bits(cursor_op);
		printf("follower: %d, at %d\n", cursor_op, cursor)
	:: else
	fi
}

inline give_up() {
	printf("follower: the database went back\n");
	event(TOLD);
	follows = 0;
	cursor = 0;
	cursor_op = 0;
	given = 0
}

active proctype Follower() {
end:	do
	:: d_step { !follows && admitted; start_at_now() }
	:: d_step { follows && admitted && stands_in_history; follow() }
	:: d_step { follows && admitted && !stands_in_history; give_up() }
	od
}

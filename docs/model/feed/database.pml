/* Transactions. Keys are taken before the first write, so the ID comes after them. */

#define every(p) (p(1) && p(2) && p(3) && p(IDS))
#define no_key_0(i)  (!tx[i].key[0])
#define no_key_1(i)  (!tx[i].key[1])
#define free_key(r)  ((r) == 0 && every(no_key_0) || (r) == 1 && every(no_key_1))
#define not_locked(i) (tx[i].phase != LOCKED)
#define unlocked      every(not_locked)
#define wrote_none(i) (tx[i].phase != OPEN || !tx[i].row[0] && !tx[i].row[1])
#define no_writer     every(wrote_none)

/* Gets an ID under the keys of the refs that it may change: none (a beat), one or both. */
inline begin(a, b) {
	printf("transaction %d: begins, with key 0: %d, key 1: %d\n", next, a, b);
	tx[next].phase = OPEN;
	tx[next].key[0] = a;
	tx[next].key[1] = b;
#if defined(OFFSET_READ_FIRST) || defined(SECOND_NUMBER)
	tx[next].offset = offset;
#endif
	next++
}

/* The trigger's row. Its position is read under the lock that an INSERT takes on the table. */
inline write(i, r) {
	tx[i].row[r] = 1;
	tx[i].old[r] = value[r];
#if defined(OFFSET_READ_FIRST) || defined(SECOND_NUMBER)
	tx[i].at[r] = tx[i].offset + i;
#else
	tx[i].at[r] = position(i);
#endif
	printf("transaction %d: moves ref %d from %d, at %d\n", i, r, value[r], tx[i].at[r]);
	H2(tx[i].at[r] >= first);
	for (x : 1 .. IDS) {
		H2(!visible(x, r) || tx[x].at[r] < tx[i].at[r])
	}
	x = 0
}

inline forget(i) {
	tx[i].key[0] = 0;
	tx[i].key[1] = 0;
	tx[i].offset = 0;
	tx[i].first = 0;
	for (y : 0 .. REFS - 1) {
		if
		:: tx[i].phase == ABORTED || !tx[i].row[y] -> tx[i].row[y] = 0; tx[i].old[y] = 0; tx[i].at[y] = 0
		:: else
		fi
	}
	y = 0
}

/* The row of a ref that is the first after a position: z, or 0. */
inline first_after(r, p) {
	z = 0;
	for (x : 1 .. IDS) {
		if
		:: visible(x, r) && tx[x].at[r] > p && (z == 0 || tx[x].at[r] < tx[z].at[r]) -> z = x
		:: else
		fi
	}
	x = 0
}

#define was(r) (z != 0 -> tx[z].old[r] : value[r])

/* Flushing a commit also flushes everything committed before it. */
inline flush(i) {
	for (x : 1 .. IDS) {
		if
		:: x == i || (tx[x].phase == COMMITTED && tx[x].unflushed) -> tx[x].unflushed = 0; flushed = (x > flushed -> x : flushed)
		:: else
		fi
	}
	x = 0
}

inline commit(i) {
	printf("transaction %d: commits\n", i);
	tx[i].phase = COMMITTED;
	if
	:: tx[i].moves -> offset = tx[i].offset; first = tx[i].first
	:: else
	fi;
	for (y : 0 .. REFS - 1) {
		if
		:: tx[i].row[y] ->
			H2(tx[i].old[y] == value[y]);
			value[y] = i;
			H1(!selected(y) || tx[i].at[y] > cursor.at || (tx[i].at[y] == cursor.at && y + 1 > cursor.ref))
		:: else
		fi
	}
	y = 0;
	if
	:: (tx[i].row[0] || tx[i].row[1] || tx[i].moves) && !tx[i].unflushed -> flush(i)
	:: else /* nothing waits for a transaction without changes */
	fi;
#if EVENT == 2
	for (x : 1 .. IDS) { commits[i] = commits[i] + (tx[x].phase == COMMITTED) }
	x = 0;
#endif
	forget(i);
	if
	:: asked -> first_after(asked_ref, asked_at); H3(told == was(asked_ref)); z = 0
	:: else
	fi
}

/* recover, or a move to another server: a new epoch, whose positions are beyond all old ones. */
inline begin_move() {
	printf("transaction %d: begins to change the offset\n", next);
	tx[next].phase = OPEN;
	tx[next].moves = 1;
	next++
}

#define may_lock(i) (tx[i].phase == OPEN && tx[i].moves && tx[i].offset == 0 && no_writer && unlocked)
inline lock_history(i) {
	read_xmin();
	tx[i].phase = LOCKED;
	tx[i].first = offset + next;
#ifdef OFFSET_OVER_OWN_ID
	tx[i].offset = offset + next - i;
#else
	tx[i].offset = offset + next - xmin; /* transactions with an ID but no row yet get a new position, too */
#endif
	printf("transaction %d: keeps writers out, new offset %d\n", i, tx[i].offset);
	xmin = 0
}

/* A seeded mistake: the offset, or a second number like it, is raised beside writers. */
inline move_unlocked(i) {
	tx[i].offset = offset + IDS;
	tx[i].first = 1;
	printf("transaction %d: new offset %d, without a lock\n", i, tx[i].offset)
}

#ifdef KEY_AFTER_ID
#define may_write(i, r) (tx[i].phase == OPEN && !tx[i].moves && !tx[i].row[r] && unlocked && (tx[i].key[r] || free_key(r)))
#else
#define may_write(i, r) (tx[i].phase == OPEN && !tx[i].moves && !tx[i].row[r] && unlocked && tx[i].key[r])
#endif
#if defined(OFFSET_UNLOCKED) || defined(SECOND_NUMBER)
#define unlocked_mistake true
#define may_end(i) (running(i) && (!tx[i].moves || tx[i].offset != 0))
#else
#define unlocked_mistake false
#define may_end(i) (tx[i].phase == LOCKED || (tx[i].phase == OPEN && !tx[i].moves))
#endif

active [IDS] proctype Client() {
	byte me = _pid + 1;
end:	do
	:: atomic { me == next && next <= IDS ->
		if
#ifdef KEY_AFTER_ID
		:: d_step { true; begin(0, 0) }
#else
		:: d_step { true; begin(0, 0) }
		:: d_step { free_key(0); begin(1, 0) }
		:: d_step { free_key(1); begin(0, 1) }
		:: d_step { free_key(0) && free_key(1); begin(1, 1) }
#endif
		:: d_step { true; begin_move() }
		fi }
	:: d_step { may_write(me, 0); tx[me].key[0] = 1; write(me, 0) }
	:: d_step { may_write(me, 1); tx[me].key[1] = 1; write(me, 1) }
	:: d_step { !unlocked_mistake && may_lock(me); lock_history(me) }
	:: d_step { unlocked_mistake && tx[me].phase == OPEN && tx[me].moves && tx[me].offset == 0; move_unlocked(me) }
	:: d_step { may_end(me); commit(me) }
#ifdef ASYNCHRONOUS
	/* a mistake: readers see a change that a crash may undo */
	:: d_step { may_end(me) && !tx[me].moves && !crashed; tx[me].unflushed = 1; commit(me) }
#endif
	:: d_step { running(me); printf("transaction %d: is rolled back\n", me); tx[me].phase = ABORTED; forget(me) }
	od
}

#ifdef CRASH
/* The effect of a crash: z is the first lost change of a ref, whose old value is restored. */
inline lose(r) {
	z = 0;
	for (x : 1 .. IDS) {
		if
		:: visible(x, r) && tx[x].unflushed && (z == 0 || tx[x].at[r] < tx[z].at[r]) -> z = x
		:: else
		fi
	}
	x = 0;
	if
	:: z != 0 -> value[r] = tx[z].old[r]
	:: else
	fi;
	z = 0
}

/* A follower that has read a lost change gets an error, and begins again. */
inline crash(first_id) {
	printf("the server crashes: the next transaction is %d\n", first_id);
	crashed = 1;
	lose(0);
	lose(1);
	for (x : 1 .. IDS) {
		if
		:: (delivered[x * REFS] || delivered[x * REFS + 1]) && tx[x].unflushed -> z = 1
		:: else
		fi
	}
	for (x : 1 .. IDS) {
		if
		:: z == 1 -> delivered[x * REFS] = 0; delivered[x * REFS + 1] = 0
		:: else
		fi;
		if
		:: running(x) || tx[x].unflushed -> tx[x].phase = ABORTED
		:: else
		fi;
		if
		:: tx[x].phase == ABORTED || x >= first_id -> forget(x)
		:: else
		fi;
		if
		:: x >= first_id -> tx[x].phase = NONE; tx[x].moves = 0
		:: else
		fi;
		tx[x].unflushed = 0
	}
	x = 0;
	if
	:: z == 1 -> cursor.at = 0; cursor.ref = 0; z = 0
	:: else
	fi;
	reused = first_id;
	reused_end = next;
	next = first_id
}

active proctype Server() {
	byte n = 0;
end:	do
	:: atomic { !crashed && next > 1 -> n = next;
		do
		:: n > flushed + 1 -> n--
		:: break
		od;
		d_step { crash(n); n = 0 } }
	od
}
#endif

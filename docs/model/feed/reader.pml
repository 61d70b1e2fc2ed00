/* A follower, whose page is one row, and a reader of the past. */

byte seen_row;           /* what the follower read in a separate statement */
byte seen_ref;
byte seen_mark;

#ifdef BY_POSITION
#define after_cursor(i, r) (tx[i].at[r] > cursor.at)
#else
#define after_cursor(i, r) (tx[i].at[r] > cursor.at || (tx[i].at[r] == cursor.at && (r) + 1 > cursor.ref))
#endif

/* The first row after the cursor and below p: transaction z, ref y. */
inline read_row(p) {
	z = 0;
	y = 0;
	for (x : 1 .. IDS) {
		if
		:: sees(x, 0) && after_cursor(x, 0) && tx[x].at[0] < p && (z == 0 || tx[x].at[0] <= tx[z].at[y]) -> z = x; y = 0
		:: else
		fi;
		if
		:: sees(x, 1) && after_cursor(x, 1) && tx[x].at[1] < p && (z == 0 || tx[x].at[1] < tx[z].at[y]) -> z = x; y = 1
		:: else
		fi
	}
	x = 0
}

inline deliver(i, r) {
	printf("follower: ref %d from %d to %d, at %d\n", r, tx[i].old[r], i, tx[i].at[r]);
	H1(!delivered[i * REFS + r]);
	for (x : 1 .. IDS) {
		H1(!sees(x, 0) || delivered[x * REFS] || tx[x].at[0] > tx[i].at[r] || (tx[x].at[0] == tx[i].at[r] && 0 >= r));
		H1(!sees(x, 1) || delivered[x * REFS + 1] || tx[x].at[1] > tx[i].at[r] || (tx[x].at[1] == tx[i].at[r] && 1 >= r));
#if EVENT == 2
		if
		:: (delivered[x * REFS] || delivered[x * REFS + 1]) && x != i && commits[x] > commits[i] -> event(REORDERED)
		:: else
		fi
#endif
	}
	x = 0;
	if
	:: r == 1 && delivered[i * REFS] -> event(DIVIDED)
	:: else
	fi;
	if
	:: i < IDS && tx[i + 1].moves && tx[i].at[r] >= first && first > 1 -> event(MOVED)
	:: else
	fi;
	if
	:: reused > 0 && i >= reused && i < reused_end -> event(REUSED)
	:: else
	fi;
	delivered[i * REFS + r] = 1;
	cursor.at = tx[i].at[r];
	cursor.ref = r + 1
}

/* There are no more rows: the cursor advances to where nothing can appear any more. */
inline move_on() {
#if defined(MARK_AT_XMIN)
	upto = watermark - 1;
#elif defined(MARK_AT_LAST)
	upto = 0; /* an older program's cursor: not its mark counts, but the last row delivered */
#else
	read_upto();
#endif
	if
	:: upto > cursor.at -> cursor.at = upto; cursor.ref = REFS
	:: else
	fi;
	upto = 0
}

inline read_feed() {
	read_xmin();
	read_row(watermark);
	if
	:: z != 0 -> deliver(z, y)
	:: else ->
		move_on();
		if
		:: xmin == next ->
			for (x : 1 .. IDS) {
				H1(!sees(x, 0) || delivered[x * REFS]);
				H1(!sees(x, 1) || delivered[x * REFS + 1]);
			}
			x = 0;
			if
			:: first > 1 && cursor.at >= first -> event(CAUGHT_UP)
			:: else
			fi
		:: else ->
			read_row(255);
			if
			:: z != 0 && !tx[xmin].key[0] && !tx[xmin].key[1] && !tx[xmin].moves -> event(HELD_BACK)
			:: else
			fi
		fi
	fi;
	y = 0;
	z = 0;
	xmin = 0
}

active proctype Follower() {
#ifdef CRASH
	if
	:: one_ref = 1
	:: skip
	fi;
#endif
end:	do
#if defined(ROWS_FIRST)
	/* a mistake: rows committed between the two statements are skipped */
	:: d_step { seen_row == 0; read_row(255); seen_row = z; seen_ref = y; z = 0; y = 0 }
	:: d_step { seen_row != 0; read_xmin();
		if
		:: tx[seen_row].at[seen_ref] < watermark -> deliver(seen_row, seen_ref)
		:: else
		fi;
		xmin = 0; seen_row = 0; seen_ref = 0 }
#elif defined(WATERMARK_FIRST)
	/* not a mistake: two statements, in the right order */
	:: d_step { seen_mark == 0; read_xmin(); seen_mark = watermark; xmin = 0 }
	:: d_step { seen_mark != 0; read_row(seen_mark);
		if
		:: z != 0 -> deliver(z, y)
		:: else
		fi;
		z = 0; y = 0; seen_mark = 0 }
#else
	:: d_step { true; read_feed() }
#endif
	od
}

byte part; /* of an answer that takes two statements: 1 + the ref */

inline ask(r, p) {
	asked_at = p;
	asked_ref = r;
	first_after(r, p);
	told = was(r);
	printf("refs at %d: ref %d is %d\n", p, r, told);
#ifdef APART
	if
	:: z == 0 -> part = 1 + r
	:: else -> asked = 1
	fi;
#else
	asked = 1;
#endif
	if
	:: z != 0 -> event(PAST)
	:: else
	fi;
	z = 0
}

#if defined(ABOVE_WATERMARK)
#define answerable (next + offset)
#elif defined(PAST_AT_XMIN)
#define answerable watermark
#else
#define answerable (upto + 1)
#endif

active proctype Reader() {
	byte p = 0;
end:	do
	:: atomic { !asked && part == 0 -> read_xmin(); read_upto();
		do
		:: p + 1 < answerable -> p++
		:: break
		od;
		if
		:: d_step { p < answerable; ask(0, p) }
		:: d_step { p < answerable; ask(1, p) }
		fi;
		p = 0;
		upto = 0;
		xmin = 0 }
	/* a mistake: the value is read in a later statement than the rows */
	:: d_step { part != 0; told = value[part - 1]; part = 0; asked = 1;
		first_after(asked_ref, asked_at); H3(told == was(asked_ref)); z = 0 }
	od
}

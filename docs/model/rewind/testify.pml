/*
 * Testimony: a site is taken for away, after another one has noted all that it may know. It may
 * be dead, cut off, or merely slow: nothing here depends on that, so any site may be testified
 * about at any time, and may come back at any step.
 */
#ifndef TESTIMONIES
#define TESTIMONIES 1 /* in a run */
#endif

#define is_closing(s)   ((db.live & of(s)) && db.word[s] != 0)
#define is_testified(s) (!(db.live & of(s)) && db.word[s] != 0)
#ifdef WRITES_ON
#define is_barred(s) false
#else
#define is_barred(s) is_closing(s)
#endif

/* s holds a testimony about w that was given. */
#define holds(s, w) (site[s].noted[w] != 0 && site[s].given[w])
/* The row of w is the one that the testimony of s stands for, or an older one. */
#ifdef CARRIED_ALWAYS
#define vouches(s, w) holds(s, w)
#else
#define vouches(s, w) (holds(s, w) && db.since[w] <= site[s].noted[w])
#endif
/* It was given, by another site or with a lost reply. */
#define unlearned(s, w) (is_testified(w) && site[s].noted[w] == db.since[w])
#ifdef CARRIED_UNKNOWN
#define lost_carried(s, w) false
#else
#define lost_carried(s, w) (site[s].carried[w] != 0 && vouches(s, w) && \
	db.intent != site[s].carried[w] && !(db.has & bits(site[s].carried[w])) && !is_decided(site[s].carried[w]))
#endif
/* Whether the move of an intent was made that it carries, s can't say. */
#ifdef CARRIED_MADE
#define seen_moved(s) 255
#else
#define seen_moved(s) (site[s].known | bits(site[s].pending))
#endif
/* What s misses only on behalf of another site, which may have spoken for itself since the look. */
#ifdef LOOK_ONLY
#define no_longer_vouched(s, op) false
#else
#define no_longer_vouched(s, op) (who[op] != s && site[s].carried[who[op]] == op && !(site[s].known & bits(op)) && !vouches(s, who[op]))
#endif

/* A site that is barred, or that others testify about, is no witness of another. */
#ifdef TESTIFIER_UNCHECKED
#define may_testify(t) (admitted)
#else
#define may_testify(t) (may_write(t) && (db.live & of(t)))
#endif
/* Transactions of w that were checked before are waited for. */
#if defined(NO_WAIT)
#define none_begun(w) true
#elif defined(WAITS_FOR_PREPARES)
#define none_begun(w) (site[w].begun != PREPARE)
#else
#define none_begun(w) (site[w].begun == NOTHING)
#endif
/* Fewer states, with three sites. */
#if defined(IN_TURN)
#define pair(t, w) (w == t + 1)
#elif defined(BY_ONE)
#define pair(t, w) (t == 0 && w != 0)
#elif defined(ABOUT_ONE)
#define pair(t, w) (t != 2 && w == 2)
#else
#define pair(t, w) (t != w)
#endif
#ifdef IN_TURN
#define next(w) (w == 2 - testimonies) /* first site 1 about 2, then site 0 about 1 */
#else
#define next(w) true
#endif
/* A testimony is begun once: a closing row never gets a second word. */
#define may_close(t, w) (testimonies < TESTIMONIES && pair(t, w) && next(w) && may_testify(t) && (db.live & of(w)) && \
	db.word[w] == 0 && has_reported(w) && none_begun(w))

inline close(t, w) {
	testimonies++;
	stamps++;
	printf("site %d: begins a testimony about site %d, which may not write any more\n", t, w);
	db.word[w] = stamps
}

/* All that w may know, from one snapshot: history, its intents, and the marks. */
inline take_note(t, w) {
	site[t].known = site[t].known | db.has;
	site[t].saw = site[t].saw | db.has;
	site[t].carried[w] = (db.intent != 0 && who[db.intent] == w -> db.intent : 0);
#ifndef MARKS_UNNOTED
	for (y : 0 .. SITES - 1) { site[t].since[y] = db.since[y] }
	y = 0
#endif
}

/* Whoever sees the word may take part, and notes: the site that began, also with another daemon, and others. */
#define may_take_part(t, w) (pair(t, w) && may_write(t) && is_closing(w) && site[t].noted[w] != db.word[w])
inline take_part(t, w) {
	printf("site %d: takes part in a testimony about site %d, and notes what that may know\n", t, w);
	take_note(t, w);
	site[t].noted[w] = db.word[w];
	site[t].given[w] = 0
}

/* Whoever has noted may give it, once. */
#if defined(UNNOTED)
#define has_noted(t, w) pair(t, w)
#define noted_word(t, w) db.word[w]
#elif defined(EARLIER_NOTE)
#define has_noted(t, w) (site[t].noted[w] != 0)
#define noted_word(t, w) db.word[w]
#else
#define has_noted(t, w) (site[t].noted[w] != 0 && !site[t].given[w])
#define noted_word(t, w) site[t].noted[w]
#endif
#if defined(CLOSING_UNCHECKED)
#define still_closing(t, w) (db.live & of(w))
#elif defined(WORD_IGNORED)
#define still_closing(t, w) is_closing(w)
#else
#define still_closing(t, w) (is_closing(w) && db.word[w] == noted_word(t, w))
#endif
#define may_give(t, w) (may_testify(t) && has_noted(t, w) && still_closing(t, w))
#define noted_too(s, t, w) (s != t && site[s].noted[w] == noted_word(t, w))
inline give(t, w, told) {
	printf("site %d: testifies that site %d is away; it is told: %d\n", t, w, told);
	event(TESTIFIED);
	if
	:: noted_too(0, t, w) || noted_too(SITES - 1, t, w) || noted_too(SITES / 2, t, w) -> event(NOTED_BY_TWO)
	:: else
	fi;
	site[t].noted[w] = noted_word(t, w);
	db.live = db.live & ~of(w);
	db.reported = db.reported & ~of(w);
	db.word[w] = site[t].noted[w];
	db.since[w] = site[t].noted[w];
	if
	:: told -> site[t].given[w] = 1; site[t].since[w] = db.since[w]
	:: else
	fi
}

/* A site that reads of a testimony makes it its own. */
#ifdef JOINS_NOT
#define may_join(t, w) false
#else
#define may_join(t, w) (t != w && may_testify(t) && is_testified(w) && !(holds(t, w) && site[t].noted[w] == db.since[w]))
#endif
inline join(t, w) {
	printf("site %d: joins the testimony about site %d\n", t, w);
	take_note(t, w);
	site[t].noted[w] = db.since[w];
	site[t].given[w] = 1
}

/*
 * A rewind to before it: nobody waits for that site, unless it has spoken for itself since. But a
 * site that is not awaited itself decides about no other one.
 */
#ifdef LATE_TESTIFIES
#define counts(t) true
#else
#define counts(t) (db.live & of(t))
#endif
#ifdef MARKS_IGNORED
#define not_newer(t, w) true
#else
#define not_newer(t, w) (db.since[w] <= site[t].noted[w])
#endif
#ifdef SPOKEN_IGNORED
#define has_spoken(w) false
#else
#define has_spoken(w) (db.compared == server && (db.reported & of(w)))
#endif
inline reestablish(t, w) {
	if
	:: counts(t) && holds(t, w) && not_newer(t, w) && (db.live & of(w)) && !has_spoken(w) ->
		printf("site %d: testifies again that site %d is away\n", t, w);
		event(REESTABLISHED);
		db.live = db.live & ~of(w);
		db.reported = db.reported & ~of(w);
		db.since[w] = site[t].noted[w];
		db.word[w] = site[t].noted[w]
	:: else
	fi
}

/* Intents that were dropped, and not after a return that s can't know of. */
#define dropped_here(s, w) (site[s].carried[w] != 0 && (dropped & bits(site[s].carried[w])) && !(db.since[w] < latest[w] && site[s].since[w] < latest[w]) -> bits(site[s].carried[w]) : 0)
#if SITES == 3
#define falsely(s) (dropped_here(s, 0) | dropped_here(s, 1) | dropped_here(s, 2))
#else
#define falsely(s) (dropped_here(s, 0) | dropped_here(s, 1))
#endif

/* At an admitted server, a testimony is what the row says, whoever gave it, or it is over. */
inline learn(t, w) {
	if
	:: site[t].noted[w] == 0
	:: site[t].noted[w] != 0 && unlearned(t, w) -> site[t].given[w] = 1
	:: site[t].noted[w] != 0 && db.word[w] != site[t].noted[w] ->
		beyond = beyond & ~of(w);
		site[t].noted[w] = 0; site[t].given[w] = 0; site[t].carried[w] = 0
	:: else
	fi
}

/* One that goes away has ended all that it began. */
#ifdef STAYING
#define may_go(s) false
#else
#define may_go(s) (site[s].begun == NOTHING)
#endif

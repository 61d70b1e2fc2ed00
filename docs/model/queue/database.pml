/*
 * The database: the changes of rows in one transaction. What an #ifdef changes
 * is a seeded mistake, unless it says otherwise.
 */

#ifdef NO_PREEMPTION
#define stops(w, r) true
#else
#define stops(w, r) earlier(row[r].whose, w)
#endif
#ifdef BARGING
#define heeds(w) (waiter[w].ticket != 0)
#else
#define heeds(w) true
#endif
#define in_the_way(w, r) (row[r].state == LOCKED || \
	(row[r].state == RESERVED && row[r].whose != (w) && !row[r].stale && stops(w, r) && heeds(w)))

inline reserve(w, r) {
	leave_queue(w, r);
	row[r].state = RESERVED;
	row[r].whose = w;
	row[r].intent = 0;
	row[r].stale = 0;
	row[r].owed[w] = 1
}

/* The next requester takes the lock: the first in the queue polls. */
inline open_row(r) {
	event(OPENED);
	row[r].state = OPEN;
	row[r].whose = 0;
	row[r].intent = 0;
	row[r].stale = 0
}

/* A waiter with a place was passed N times. */
#ifdef NEXT_UNLIMITED
#define limits_next(r) false
#else
#define shortchanged(v, r) (row[r].place[v] && row[r].passed[v] >= N)
#if WAITERS == 5
#define limits_next(r) (shortchanged(0, r) || shortchanged(1, r) || shortchanged(2, r) || shortchanged(3, r) || shortchanged(4, r))
#else
#define limits_next(r) (shortchanged(0, r) || shortchanged(1, r) || shortchanged(2, r) || shortchanged(3, r))
#endif
#endif

/* There is no lock on the ref any more. */
inline hand_on(r, next) {
	find_first(r);
	if
	:: found == NOBODY -> delete_row(r)
	:: found != NOBODY && next != NOBODY && wants(next, r) && !limits_next(r) ->
		if
		:: next != found -> event(PREFERRED)
		:: else
		fi;
		reserve(next, r)
	:: else ->
		if
		:: next != NOBODY && wants(next, r) && found != next -> event(LIMITED); put_place(next, r)
		:: else
		fi;
		if
		:: found == POLLS && !limits_next(r) -> open_row(r)
		:: else -> reserve(found, r)
		fi
	fi;
	found = 0
}

/* A stale reservation: the waiter has lost its place. The first in the queue gets its turn. */
inline hand_on_stale(r) {
	if
	:: row[r].state == RESERVED && row[r].stale ->
		find_first(r);
		if
		:: found != NOBODY -> event(LOST_TURN)
		:: else -> event(ABANDONED)
		fi;
		other = row[r].whose;
#ifdef STALE_PLACE_KEPT
		if
		:: found != NOBODY -> hand_on(r, NOBODY); put_place(other, r)
		:: else -> forget_place(other, r); delete_row(r)
		fi;
#else
		forget_place(other, r);
		hand_on(r, NOBODY);
#endif
		other = 0
	:: else
	fi
}

/* An update that no lock fences passes a stale lock, a turn that is over, or a row that is kept for no waiter. */
inline pass_row(r) {
	printf("ref %d: an update passes its row\n", r);
	find_first(r);
	if
	:: found != NOBODY -> event(PASSED_BY)
	:: else
	fi;
	found = 0;
	if
#ifdef UPDATE_QUEUES
	:: row[r].state == UPDATE_QUEUES ->
		for (x : 0 .. WAITERS - 1) {
			leave_queue(x, r);
			row[r].passed[x] = 0
		}
		x = 0;
		delete_row(r)
	:: row[r].state != UPDATE_QUEUES && row[r].state == LOCKED -> hand_on(r, NOBODY)
#else
	:: row[r].state == LOCKED -> hand_on(r, NOBODY)
#endif
	:: else -> hand_on_stale(r)
	fi
}

inline take_row(w, r) {
	for (y : 0 .. WAITERS - 1) {
		W1(waiter[y].phase != HOLDING || !wants(y, r));
		if
		:: y != w && row[r].place[y] && earlier(y, w) -> row[r].passed[y] = more(row[r].passed[y])
		:: else
		fi;
		if
		:: y != w && row[r].owed[y] && earlier(y, w) ->
			row[r].over[y]++;
			W2(row[r].over[y] <= N || waiter[y].late || waiter[y].phase != WAITING);
			if
			:: row[r].over[y] > N -> row[r].over[y] = N + 1
			:: else
			fi
		:: else
		fi
	}
	y = 0;
	other = row[r].whose;
	if
	:: reserved(w, r) -> event(TURN)
	:: row[r].state == RESERVED && other != w && !row[r].stale -> event(PREEMPTED); put_place(other, r)
	:: row[r].state == RESERVED && other != w && row[r].stale -> forget_place(other, r)
	:: else
	fi;
	other = 0;
	forget_place(w, r);
	row[r].state = LOCKED;
	row[r].whose = w;
	row[r].stale = 0
}

inline take(w) {
	if
	:: both(w) && both(row[0].whose) && both(row[1].whose) && row[0].state == RESERVED && row[1].state == RESERVED && !row[0].stale && !row[1].stale && row[0].whose != row[1].whose && (row[0].whose == w || row[1].whose == w) -> event(CROSSED)
	:: else
	fi;
	if
	:: waiter[w].back -> event(RESUMED)
	:: waiter[w].passed == N -> event(PASSED)
	:: else
	fi;
	if
	:: wants(w, 0) -> take_row(w, 0)
	:: else
	fi;
	if
	:: wants(w, 1) -> take_row(w, 1)
	:: else
	fi;
	drop_ticket(w);
	waiter[w].phase = HOLDING;
	wander = 0
}

#ifdef NEVER_KEEPS
#define keeps(w) false
#else
#ifdef KEEPS_FOR_INTENT
#define keeps(w) (waiter[w].passed >= N)
#else
#define keeps(w) (waiter[w].passed >= N && !intent_blocks)
#endif
#endif

/* It can't use its reservation yet. */
inline yield(w, r) {
	if
	:: keeps(w) -> event(KEPT); row[r].stale = 0
	:: else ->
#ifndef YIELD_FIRST /* the first later one, if any; the first of all would do, too */
		found = NOBODY;
		for (y : 0 .. WAITERS - 1) {
			if
			:: row[r].place[y] && earlier(w, y) && (found == NOBODY || earlier(y, found)) -> found = y
			:: else
			fi
		}
		y = 0;
		if
		:: found == NOBODY -> find_first(r)
		:: else
		fi;
#else
		find_first(r);
#endif
		if
		:: intent_blocks -> event(STEPPED_BACK); waiter[w].back = 1
		:: else ->
#ifndef YIELD_UNCOUNTED
			waiter[w].passed = more(waiter[w].passed)
#endif
		fi;
		if
		:: found == NOBODY -> event(LEFT); forget_place(w, r); delete_row(r)
		:: else ->
			event(YIELDED);
			reserve(found, r);
			put_place(w, r);
			wander++;
			W3(wander <= WANDER);
			if
			:: wander > WANDER -> wander = WANDER + 1
			:: else
			fi
		fi;
		found = 0
	fi
}

inline note_passed(w, r) {
	if
	:: is_place(w, r) && row[r].passed[w] > waiter[w].passed -> waiter[w].passed = row[r].passed[w]
	:: else
	fi
}

inline refuse_row(w, r) {
	if
	:: !wants(w, r)
	:: wants(w, r) && in_the_way(w, r) -> put_place(w, r)
	:: wants(w, r) && !in_the_way(w, r) && reserved(w, r) -> yield(w, r)
	:: else
	fi
}

inline write_passed(w, r) {
	if
	:: is_place(w, r) -> row[r].passed[w] = waiter[w].passed
	:: else
	fi
}

#ifndef INTENT_PLACES
/* No waiter waits for a waiter of an intent, whose only place is there. */
inline step_back(w, r) {
	if
	:: row[r].place[w] && !(row[r].state == LOCKED && row[r].intent) -> forget_place(w, r); waiter[w].back = 1
	:: else
	fi
}
#endif

inline refuse(w) {
	get_ticket(w);
	note_passed(w, 0);
	note_passed(w, 1);
	intent_blocks = (wants(w, 0) && row[0].state == LOCKED && row[0].intent) || (wants(w, 1) && row[1].state == LOCKED && row[1].intent);
	refuse_row(w, 0);
	refuse_row(w, 1);
#ifndef INTENT_PLACES
	if
	:: intent_blocks -> step_back(w, 0); step_back(w, 1)
	:: else
	fi;
#endif
	write_passed(w, 0);
	write_passed(w, 1);
	intent_blocks = 0
}

/* Acquire: all of its refs, or a place in the queues. */
inline acquire(w, waits) {
#ifndef STALE_FOR_ALL
	if
	:: wants(w, 0) -> hand_on_stale(0)
	:: else
	fi;
	if
	:: wants(w, 1) -> hand_on_stale(1)
	:: else
	fi;
#endif
	blocked = (wants(w, 0) && in_the_way(w, 0)) || (wants(w, 1) && in_the_way(w, 1));
	if
	:: !blocked -> printf("waiter %d: gets its locks\n", w); take(w)
	:: blocked && waits -> printf("waiter %d: is refused\n", w); refuse(w)
	:: else
	fi;
	blocked = 0
}

inline release_row(w, r, next) {
	if
	:: wants(w, r) -> W1(row[r].state == LOCKED && row[r].whose == w); hand_on(r, next)
	:: else
	fi
}

/* next: a waiter of its own process. It may not have asked the database yet. */
inline release(w, next) {
	printf("waiter %d: releases, next %d\n", w, next);
	waiter[w].phase = IDLE;
	if
	:: next != NOBODY -> get_ticket(next)
	:: else
	fi;
	release_row(w, 0, next);
	release_row(w, 1, next);
	wander = 0
}

inline withdraw_row(w, r) {
	if
	:: reserved(w, r) ->
#ifndef WITHDRAW_KEEPS
		event(HANDED);
		forget_place(w, r);
		hand_on(r, NOBODY)
#endif
	:: else ->
		forget_place(w, r);
		find_first(r);
		if
		:: row[r].state == OPEN && found == NOBODY -> delete_row(r)
		:: else
		fi;
		found = 0
	fi
}

inline withdraw(w) {
	printf("waiter %d: gives up\n", w);
	withdraw_row(w, 0);
	withdraw_row(w, 1);
	drop_ticket(w);
	waiter[w].phase = IDLE;
	wander = 0
}

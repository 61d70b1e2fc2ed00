/* What all begins with is 0. */
#define FREE 0
#define IDLE 0
mtype = { LOCKED, RESERVED, OPEN }; /* a row, or FREE: there is none. OPEN: kept for no waiter */
mtype = { WAITING, HOLDING, DEAD }; /* what a waiter does, or IDLE */

typedef Row {            /* of the table of locks */
	mtype state;
	byte whose;
	bit intent;          /* the lock stands for one */
	bit stale;           /* the turn of the waiter that it is reserved for is over */
	bit place[WAITERS];  /* the queue, in the order of tickets */
	byte passed[WAITERS]; /* of a place, and of the one that it is reserved for; N stands for all above */
#ifdef BY_ARRIVAL
	byte arrival[WAITERS];
#endif
	bit owed[WAITERS];   /* only for W2: it got a place, and has neither left nor lost its turn */
	byte over[WAITERS]   /* only for W2: those later ones that really got the lock past it since */
};

typedef Contender {
	mtype phase;
	byte ticket;         /* 1: the earliest of those there are; 0: none */
	byte passed;         /* by the last answer */
	bit late;            /* only for W2: a turn of it was over before it came */
	bit back;            /* only for an event: it yielded because of an intent */
	bit lost[REFS]       /* only for W4: its place here cost a turn */
};

Row row[REFS];
Contender waiter[WAITERS];
byte wander;             /* only for W3: number of yields since the last other event */
#define WANDER (2 * N)   /* N by each waiter for both refs */

/* Scratch, 0 between steps. */
byte x;
byte y;
byte found;
byte other;
bit blocked;
bit intent_blocks;

#define NOBODY WAITERS
#define more(n) ((n) < N -> (n) + 1 : N)
#define is_place(w, r)   (row[r].place[w] || (row[r].state == RESERVED && row[r].whose == (w)))
#define reserved(w, r)   (row[r].state == RESERVED && row[r].whose == (w))
#define earlier(v, w)    (waiter[v].ticket != 0 && (waiter[w].ticket == 0 || waiter[v].ticket < waiter[w].ticket))

inline get_ticket(w) {
	waiter[w].phase = WAITING;
	if
	:: waiter[w].ticket == 0 ->
		waiter[w].ticket = 1;
		for (x : 0 .. WAITERS - 1) {
			if
			:: x != w && waiter[x].ticket >= waiter[w].ticket -> waiter[w].ticket = waiter[x].ticket + 1
			:: else
			fi
		}
		x = 0;
		wander = 0
	:: else
	fi
}

/* Only the order of tickets matters. */
inline drop_ticket(w) {
	for (x : 0 .. WAITERS - 1) {
		if
		:: waiter[w].ticket != 0 && waiter[x].ticket > waiter[w].ticket -> waiter[x].ticket--
		:: else
		fi
	}
	x = 0;
	waiter[w].ticket = 0;
	waiter[w].passed = 0;
	waiter[w].late = 0;
	waiter[w].back = 0;
	waiter[w].lost[0] = 0;
	waiter[w].lost[1] = 0
}

#ifdef BY_ARRIVAL
#define before(v, w, r) (row[r].arrival[v] < row[r].arrival[w])
#else
#define before(v, w, r) (waiter[v].ticket < waiter[w].ticket)
#endif

/* found: the first in the queue, or NOBODY. */
inline find_first(r) {
	found = NOBODY;
	for (y : 0 .. WAITERS - 1) {
		if
		:: row[r].place[y] && (found == NOBODY || before(y, found, r)) -> found = y
		:: else
		fi
	}
	y = 0
}

inline put_place(w, r) {
#ifdef BY_ARRIVAL
	if
	:: !row[r].place[w] ->
		row[r].arrival[w] = 1;
		for (y : 0 .. WAITERS - 1) {
			if
			:: y != w && row[r].place[y] && row[r].arrival[y] >= row[r].arrival[w] -> row[r].arrival[w] = row[r].arrival[y] + 1
			:: else
			fi
		}
		y = 0
	:: else
	fi;
#endif
	row[r].place[w] = 1;
	row[r].owed[w] = 1
}

inline leave_queue(w, r) {
#ifdef BY_ARRIVAL
	for (y : 0 .. WAITERS - 1) {
		if
		:: row[r].place[w] && row[r].place[y] && row[r].arrival[y] > row[r].arrival[w] -> row[r].arrival[y]--
		:: else
		fi
	}
	y = 0;
	row[r].arrival[w] = 0;
#endif
	row[r].place[w] = 0
}

/* Its place, or what is reserved for it, is gone. */
inline forget_place(w, r) {
	leave_queue(w, r);
	row[r].passed[w] = 0;
	row[r].owed[w] = 0;
	row[r].over[w] = 0
}

inline delete_row(r) {
	row[r].state = FREE;
	row[r].whose = 0;
	row[r].intent = 0;
	row[r].stale = 0
}

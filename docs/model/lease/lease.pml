/*
 * Leases that are shared or exclusive (docs/PROTOCOL.md, L17 to L22), for Spin: a turn, a
 * row of each process's own, and a listing of earlier requests.
 *
 * A run may be of any length. Every step that asks the database is one transaction;
 * a process may be frozen before and after each. What an #ifdef changes is a seeded
 * mistake.
 */
#ifndef N
#define N 3
#endif
#define shared(i)       ((EXCLUSIVE >> (i)) % 2 == 0)
#ifndef EXCLUSIVE
#define EXCLUSIVE 3     /* processes 0 and 1 request the exclusive lease, 2 the shared one */
#endif
#define conflict(i, j)  (!shared(i) || !shared(j))
#define NOBODY N

/* -DPROMISE=n checks An alone; 0 checks all. */
#ifndef PROMISE
#define PROMISE 0
#endif
#define checked(n) (PROMISE == 0 || PROMISE == n)
#define A1(x) assert(!checked(1) || (x)) /* no two running processes hold conflicting leases */
#define A2(x) assert(!checked(2) || (x)) /* no two processes wait for each other */
#define A3(x) assert(!checked(3) || (x)) /* no process gets a lease whose row was gone when it last checked */

/* Events that must be possible. With -DEVENT=n the first one is an error. */
#ifndef EVENT
#define EVENT 0
#endif
#define event(n) assert(n != EVENT)

#define TOGETHER 1 /* two processes hold the lease together */
#define WAITED   2 /* a waiter gets the lease */
#define REMOVED  3 /* a stale row is removed by a process that checks */
#define AGAIN    4 /* a process that lost its row begins again */
#define TURNED   5 /* a stale turn is taken over */
#define IN_ORDER 6 /* a shared request waits for a waiting exclusive one */

mtype = { IDLE, HAS_TURN, LOOKS, WAITS, HOLDS
#if defined(ROW_AFTER_TURN) || defined(LOOKS_FIRST)
	, NO_ROW
#endif
};

typedef Process {
	mtype at;
	byte ticket;      /* order among the tickets, from 1; 0: none */
	bit row;          /* its row stands */
	bit stale;        /* and was not renewed for so long that others may remove it */
	bit frozen;
	bit seen;         /* its own row existed at its last check */
	byte awaited;     /* the set of processes that it waits for, as of its last check */
	byte left         /* those of them whose rows are gone since */
};
Process p[N];
byte turn = NOBODY;   /* whose row the turn is */
bit stale_turn;
byte x, y;            /* scratch, 0 between steps */

/* Tickets are renumbered when one is removed: only their order matters. */
inline drop_ticket(i) {
	for (x : 0 .. N - 1) {
		if
		:: p[i].ticket > 0 && p[x].ticket > p[i].ticket -> p[x].ticket--
		:: else
		fi
	}
	p[i].ticket = 0;
	x = 0
}

inline new_ticket(i) {
	for (x : 0 .. N - 1) {
		if
		:: p[x].ticket > y -> y = p[x].ticket
		:: else
		fi
	}
	p[i].ticket = y + 1;
	x = 0;
	y = 0
}

inline note_gone(i) {
	for (y : 0 .. N - 1) {
		p[y].left = p[y].left | (p[y].awaited & (1 << i))
	}
	y = 0
}

/* It removes everything that is still its own. */
inline let_go(i) {
	drop_ticket(i);
	note_gone(i);
	if
	:: turn == i -> turn = NOBODY; stale_turn = 0
	:: else
	fi;
	p[i].row = 0;
	p[i].stale = 0;
	p[i].seen = 0;
	p[i].awaited = 0;
	p[i].left = 0;
	p[i].at = IDLE
}

#define turn_is_free (turn == NOBODY || stale_turn)

inline take_turn(i) {
	printf("process %d: takes the turn\n", i);
	if
	:: turn != NOBODY -> event(TURNED)
	:: else
	fi;
	turn = i;
	stale_turn = 0;
	new_ticket(i)
}

/* Conflicting processes with an earlier request; ANY_TICKET: or a later one. */
#ifdef ANY_TICKET
#define before(j, i) true
#else
#define before(j, i) (p[j].ticket < p[i].ticket)
#endif

inline look(i) {
	printf("process %d: looks\n", i);
	p[i].awaited = 0;
	p[i].left = 0;
	p[i].seen = p[i].row;
	for (x : 0 .. N - 1) {
		if
		:: x != i && p[x].row && p[x].stale ->
			event(REMOVED);
			note_gone(x);
			p[x].row = 0;
			p[x].stale = 0
		:: x != i && p[x].row && !p[x].stale && conflict(i, x) && before(x, i) ->
			p[i].awaited = p[i].awaited | (1 << x);
			if
			:: shared(i) && p[x].at == WAITS -> event(IN_ORDER)
			:: else
			fi
		:: else
		fi
	}
	x = 0
}

/* Its lease counts as lost by its own clock before another process may remove its row (P4). */
#ifdef OWN_UNSEEN
#define lost(i) false
#else
#define lost(i) (!p[i].seen || !p[i].row || p[i].stale)
#endif

inline enter(i) {
	printf("process %d: holds the lease\n", i);
	A3(p[i].row);
	for (x : 0 .. N - 1) {
		if
		:: x != i && p[x].at == HOLDS && !p[x].frozen ->
			A1(!conflict(i, x));
			event(TOGETHER)
		:: else
		fi
	}
	x = 0;
	if
	:: p[i].at == WAITS -> event(WAITED)
	:: else
	fi;
	p[i].at = HOLDS;
	p[i].awaited = 0
}

/* It will check again, but as far as it knows it waits for the other's row. */
#define waits_for(i, j) (p[i].at == WAITS && (((p[i].awaited & ~p[i].left) >> j) & 1) == 1)

inline decide(i) {
	if
	:: lost(i) ->
		printf("process %d: begins again\n", i);
		event(AGAIN);
		let_go(i)
	:: !lost(i) && p[i].awaited == 0 -> enter(i)
	:: !lost(i) && p[i].awaited != 0 ->
		p[i].at = WAITS;
		for (x : 0 .. N - 1) {
			A2(!waits_for(i, x) || !waits_for(x, i))
		}
		x = 0
	fi
}

#define me _pid
#define runs (!p[me].frozen)
active [N] proctype Asks() {
	bit looked; /* and has not acted on it */
	d_step { p[me].at = IDLE };
end:	do
#ifdef LOOKS_FIRST
	:: d_step { runs && p[me].at == IDLE; look(me); p[me].at = NO_ROW }
	:: d_step { runs && p[me].at == NO_ROW && turn_is_free; take_turn(me); p[me].row = 1; p[me].seen = 1; p[me].at = HAS_TURN }
	:: d_step { runs && p[me].at == HAS_TURN; turn = (turn == me -> NOBODY : turn); looked = 1; p[me].at = LOOKS }
#else
#ifdef ROW_AFTER_TURN
	:: d_step { runs && p[me].at == IDLE && turn_is_free; take_turn(me); p[me].at = HAS_TURN }
	:: d_step { runs && p[me].at == HAS_TURN; turn = (turn == me -> NOBODY : turn); p[me].at = NO_ROW }
	:: d_step { runs && p[me].at == NO_ROW; p[me].row = 1; p[me].at = LOOKS }
#else
	:: d_step { runs && p[me].at == IDLE && turn_is_free; take_turn(me); p[me].row = 1; p[me].at = HAS_TURN }
	/* If another process, or none, has the turn, the lock is lost. */
	:: d_step { runs && p[me].at == HAS_TURN && turn == me; turn = NOBODY; stale_turn = 0; p[me].at = LOOKS }
	:: d_step { runs && p[me].at == HAS_TURN && turn != me; event(AGAIN); let_go(me) }
#endif
#endif
	:: d_step { runs && (p[me].at == LOOKS || p[me].at == WAITS) && !looked; look(me); looked = 1 }
	:: d_step { runs && looked; looked = 0; decide(me) }
	/* It gives up, or has done its work. */
	:: d_step { runs && p[me].at != IDLE; printf("process %d: lets go\n", me); looked = 0; let_go(me) }
	/* A holder that resumes first checks its clock. */
	:: d_step { p[me].frozen; printf("process %d: goes on\n", me);
		p[me].frozen = 0;
		if
		:: p[me].at == HOLDS && (!p[me].row || p[me].stale) -> let_go(me)
		:: else
		fi }
	od
}

active proctype Surroundings() {
	byte i;
end:	do
	:: d_step { i < N - 1; i++ }
	:: d_step { i > 0; i = 0 }
	:: d_step { !p[i].frozen && p[i].at != IDLE; printf("process %d: is frozen\n", i); p[i].frozen = 1 }
	/* The rows of a frozen process are not renewed. */
	:: d_step { p[i].frozen && ((p[i].row && !p[i].stale) || (turn == i && !stale_turn));
		printf("process %d: its rows are stale\n", i);
		p[i].stale = p[i].row;
		stale_turn = (turn == i -> 1 : stale_turn) }
	od
}

/*
 * A change of a project's rules (docs/PROTOCOL.md, G4), for Spin: pushes
 * of refs that no rule guards are not announced to the database, so old rules end
 * by time before new ones begin.
 *
 * A run may be of any length. What an #ifdef changes is a seeded mistake, unless
 * it says otherwise.
 */
#ifndef SITES
#define SITES 2
#endif
#define VALID  2 /* ticks from when a daemon asked */
#define HOOK   1 /* accepted pushes are over by then */
#ifdef SETTLE_SHORT
#define SETTLE (VALID + HOOK - 1)
#else
#define SETTLE (VALID + HOOK + 2) /* by the row's age; 2: a margin for clocks, one tick of which is used up */
#endif
#define UNKNOWN 3
#define OLDEST  2 /* stands for all earlier ones, too */

/* -DPROMISE=n checks Rn alone; 0 checks all. */
#ifndef PROMISE
#define PROMISE 0
#endif
#define R1(x) assert(!(PROMISE == 0 || PROMISE == 1) || (x)) /* pushes under old rules are over before new rules accept any */

/* Events that must be possible. With -DEVENT=n the first one is an error. */
#ifndef EVENT
#define EVENT 0
#endif
#define event(n) assert(n != EVENT)

#define CHANGED    1 /* a push is accepted under new rules */
#define CUT_OFF    2 /* a site without an answer for too long refuses a push */
#define WAITED     3 /* a newly started daemon refuses a push until the row is old enough */
#define AGAIN      4 /* a second change is learned while the first settles */
#define UNAWARE    5 /* a site accepts a push under old rules while another refuses pushes */

mtype = { ASKED, ANSWERED }; /* a request for the row; 0: none */

/* Revisions are counted back from the row's: 0 is the row's own. */
typedef Daemon {
	mtype request;
	byte since;      /* ticks since it asked */
	byte read;       /* the revision in the answer */
	byte read_age;   /* and the age that the row had */

	byte known;      /* the revision in effect, or UNKNOWN */
	byte age;        /* ticks since it asked for that; VALID + 1 stands for all above */
	byte settling;   /* ticks until it may decide on a push */
	bit deviated;    /* its clock has missed a tick of age, or counted one too many of settling */
	bit young;       /* only for an event: it has not decided on a push since its start */

	bit push;        /* a push was accepted, and may not be over */
	byte by;         /* under that revision */
	byte left        /* ticks until it is over */
};
Daemon site[SITES];
byte row_age = SETTLE; /* SETTLE stands for all above */
byte latest;           /* the latest revision under which a push was accepted */
byte x;                /* scratch, 0 between steps */

#define older(r) ((r) < OLDEST -> (r) + 1 : (r))

inline change() {
	printf("database: the rules are changed\n");
	row_age = 0;
	latest = older(latest);
	for (x : 0 .. SITES - 1) {
		site[x].known = (site[x].known == UNKNOWN -> UNKNOWN : older(site[x].known));
		if
		:: site[x].request == ANSWERED -> site[x].read = older(site[x].read)
		:: else
		fi;
		if
		:: site[x].push -> site[x].by = older(site[x].by)
		:: else
		fi
	}
	x = 0
}

inline forget_request(i) {
	site[i].request = 0;
	site[i].since = 0;
	site[i].read = 0;
	site[i].read_age = 0
}

inline hear(i) {
	printf("site %d: hears of the revision %d before the row's, then of age %d\n", i, site[i].read, site[i].read_age);
	if
	:: site[i].read != site[i].known ->
		if
		:: site[i].known != UNKNOWN && site[i].settling > 0 -> event(AGAIN)
		:: else
		fi;
#ifdef SETTLES_ONCE
		if
		:: site[i].known != UNKNOWN && site[i].settling > 0
		:: else -> site[i].settling = SETTLE - site[i].read_age
		fi;
#else
#ifdef STARTS_AT_ONCE
		site[i].settling = (site[i].known == UNKNOWN -> 0 : SETTLE - site[i].read_age);
#else
		site[i].settling = SETTLE - site[i].read_age;
#endif
#endif
		site[i].known = site[i].read
	:: else
	fi;
#ifdef VALID_FROM_ANSWER
	site[i].age = 0;
#else
	site[i].age = site[i].since;
#endif
	site[i].deviated = 0;
	forget_request(i)
}

#define valid(i)   (site[i].known != UNKNOWN && site[i].age <= VALID)
#define settled(i) (site[i].settling == 0)

inline let_through(i) {
	printf("site %d: lets a push through by the revision %d before the row's\n", i, site[i].known);
	for (x : 0 .. SITES - 1) {
		R1(!site[x].push || site[x].by == site[i].known);
		if
		:: x != i && valid(x) && !settled(x) && site[i].known != 0 -> event(UNAWARE)
		:: else
		fi
	}
	x = 0;
	R1(site[i].known <= latest);
	if
	:: site[i].known < latest -> event(CHANGED)
	:: else
	fi;
	latest = site[i].known;
	site[i].young = 0;
	site[i].push = 1;
	site[i].by = site[i].known;
	site[i].left = HOOK
}

/* git has moved the ref, or never will. */
inline end_push(i) {
	printf("site %d: a push is over\n", i);
	site[i].push = 0;
	site[i].by = 0;
	site[i].left = 0
}

/* An accepted push continues without the daemon. */
inline restart(i) {
	printf("site %d: its daemon is started anew\n", i);
	forget_request(i);
	site[i].known = UNKNOWN;
	site[i].age = VALID + 1;
	site[i].settling = 0;
	site[i].deviated = 0;
#if EVENT == 3
	site[i].young = 1
#endif
}

#define me _pid
active [SITES] proctype Site() {
	d_step { site[me].known = UNKNOWN; site[me].age = VALID + 1 };
end:	do
	:: d_step { site[me].request == 0; printf("site %d: asks\n", me); site[me].request = ASKED }
	:: d_step { site[me].request == ASKED; printf("database, to site %d: the row\n", me);
		site[me].request = ANSWERED; site[me].read = 0; site[me].read_age = row_age }
	:: d_step { site[me].request == ANSWERED; hear(me) }
	:: d_step { site[me].request != 0; printf("site %d: gives up a request\n", me); forget_request(me) }
	:: d_step { valid(me) && settled(me); let_through(me) }
#if EVENT != 0
	:: d_step { site[me].known != UNKNOWN && !valid(me); event(CUT_OFF); skip }
	:: d_step { valid(me) && !settled(me) && site[me].young; event(WAITED); skip }
#endif
	:: d_step { site[me].push; end_push(me) }
	:: d_step { true; restart(me) }
	od
}

/* Only git has to act in time: a frozen or disconnected daemon does nothing. */
#ifdef FROZEN_GIT
#define overdue(i) false
#else
#define overdue(i) (site[i].push && site[i].left == 0)
#endif
#if SITES == 2
#define on_time (!overdue(0) && !overdue(1))
#else
#define on_time (!overdue(0) && !overdue(1) && !overdue(2))
#endif
#define count_down(n) n = (n > 0 -> n - 1 : 0)

/* slow: its clock misses this tick; fast: it counts two. Once for each answer; fast, once for each settling. */
inline pass(i, slow, fast) {
	if
	:: slow || fast -> site[i].deviated = 1
	:: else
	fi;
	if
	:: !slow && site[i].age <= VALID -> site[i].age++
	:: else
	fi;
	if
	:: fast && site[i].age <= VALID -> site[i].age++
	:: else
	fi;
	if
	:: !slow -> count_down(site[i].settling)
	:: else
	fi;
	if
	:: fast -> count_down(site[i].settling)
	:: else
	fi;
	count_down(site[i].left);
	if
	:: site[i].request != 0 -> site[i].since++
	:: else
	fi;
	if
	:: site[i].since > VALID -> forget_request(i) /* too late to be useful: it is given up */
	:: else
	fi
}

inline tick(slow, fast) {
	printf("--- tick\n");
	if
	:: row_age < SETTLE -> row_age++
	:: else
	fi;
	for (x : 0 .. SITES - 1) {
		pass(x, (x == slow), (x == fast))
	}
	x = 0
}

active proctype Surroundings() {
end:	do
	:: d_step { true; change() }
	:: d_step { on_time; tick(SITES, SITES) }
	:: d_step { on_time && !site[0].deviated; printf("site 0 has a clock that misses this tick\n"); tick(0, SITES) }
	od
}

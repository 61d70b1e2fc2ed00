/*
 * Clients at several sites that push to one branch and, when a push is refused as stale,
 * fetch and push again, for Spin: how often others are accepted meanwhile. ../README.md says
 * what is modelled. run.sh checks this model.
 *
 * WAIT says what the database keeps for a site that has to wait:
 * NOTHING  the site asks again (as pushes do)
 * PLACE    a place in the queue of the lock, for the push that waits
 * TURN     such a place for the site: it has the ref to itself until its next push is accepted,
 *          and gets a place, too, when a push of it is refused as stale
 */
#define NOTHING 0
#define PLACE   1
#define TURN    2
#ifndef WAIT
#define WAIT NOTHING
#endif
#ifndef SITES
#define SITES 2
#endif
#ifndef N
#define N 2 /* times that others may be accepted before a site that came back in time */
#endif
#ifndef MORTAL
#define MORTAL SITES /* the site whose client may stop for ever: none */
#endif
#ifndef PROMISE
#define PROMISE 0
#endif
#define checked(n) (PROMISE == 0 || PROMISE == n)

#define T1(x) assert(!checked(1) || (x)) /* at most N others pass a site whose push was refused as stale, or waits */
#define T2(x) assert(!checked(2) || (x)) /* a site that does not come back costs the others one turn for each refusal */

#ifndef EVENT
#define EVENT 0
#endif
#define event(n) assert(n != EVENT)
#define ACCEPTED_IN_TURN 1 /* a push is accepted in its site's turn */
#define WAITED_IN_VAIN   2 /* a push gets the lock that it waited for, and its value is stale */
#define LOST_TURN        3 /* a turn ends without its site */

mtype = { FETCHES, PUSHES, WAITS, MOVES, STOPPED };
mtype phase[SITES] = FETCHES;
bit copied[SITES] = 1; /* the site's copy has the database's value */
bit based[SITES];      /* so has the commit that the client pushes */
bit claims[SITES];     /* it waits, or its last push was stale: others pass it */
byte passed[SITES];    /* how often, up to N + 1 */
bit lost[SITES];       /* its turn for this refusal was lost */

#define NOBODY SITES
byte holder = NOBODY;   /* of the ref's lock */
byte reserved = NOBODY; /* the site for which the ref is kept */
byte queue[SITES];      /* in the order of arrival; 0: nobody, otherwise a site + 1 */
byte x; byte y;

inline enter(s) {
	x = 0;
	do
	:: x < SITES && queue[x] != 0 && queue[x] != s + 1 -> x++
	:: else -> break
	od;
	if
	:: x < SITES -> queue[x] = s + 1
	:: else
	fi;
	x = 0
}

inline leave(s) {
	for (x : 0 .. SITES - 1) {
		if
		:: queue[x] == s + 1 ->
			for (y : x .. SITES - 2) {
				queue[y] = queue[y + 1]
			}
			queue[SITES - 1] = 0;
			y = 0;
			break
		:: else
		fi
	}
	x = 0
}

/* The lock, or a turn, ends. */
inline hand_over() {
	holder = NOBODY; reserved = NOBODY;
	if
	:: queue[0] != 0 ->
		reserved = queue[0] - 1;
		leave(reserved)
	:: else
	fi
}

inline stale(s) {
	printf("site %d: its push is stale\n", s);
	phase[s] = FETCHES; claims[s] = 1; lost[s] = 0;
	if
	:: reserved == s ->
		event(WAITED_IN_VAIN);
		if
		:: WAIT == PLACE -> hand_over() /* a place is of one push */
		:: else
		fi
	:: else ->
		if
		:: WAIT == TURN -> enter(s)
		:: else
		fi;
		if
		:: holder == NOBODY && reserved == NOBODY -> hand_over()
		:: else
		fi
	fi
}

inline accept(s) {
	printf("site %d: its push is accepted\n", s);
	if
	:: reserved == s -> event(ACCEPTED_IN_TURN)
	:: else
	fi;
	for (x : 0 .. SITES - 1) {
		if
		:: x != s ->
			copied[x] = 0; based[x] = 0;
			if
			:: claims[x] && !lost[x] && phase[x] != STOPPED && passed[x] <= N -> passed[x]++
			:: else
			fi
		:: else
		fi
	}
	x = 0;
	copied[s] = 1; based[s] = 1; claims[s] = 0; passed[s] = 0; lost[s] = 0;
	leave(s);
	phase[s] = PUSHES;
	hand_over()
}

#define free(s) (holder == NOBODY && (reserved == NOBODY || reserved == s))

active [SITES] proctype Site() {
	byte me = _pid;
end:	do
	/* The copy may be behind when the client fetches. */
	:: d_step { phase[me] == FETCHES; based[me] = copied[me]; phase[me] = PUSHES }
	/* The hook looks before it waits. */
	:: d_step { phase[me] == PUSHES && free(me) && based[me]; holder = me; phase[me] = MOVES }
	:: d_step { phase[me] == PUSHES && !based[me]; stale(me) }
	:: d_step { phase[me] == PUSHES && based[me] && !free(me); phase[me] = WAITS; claims[me] = 1;
		if
		:: WAIT != NOTHING -> enter(me)
		:: else
		fi }
	:: d_step { phase[me] == WAITS && free(me) && based[me]; holder = me; phase[me] = MOVES }
	:: d_step { phase[me] == WAITS && free(me) && !based[me]; stale(me) }
	:: d_step { phase[me] == MOVES; accept(me); T1(passed[0] <= N && passed[1] <= N && (SITES < 3 || passed[SITES - 1] <= N)) }
	:: d_step { !copied[me]; copied[me] = 1 }
	:: d_step { me == MORTAL && (phase[me] == FETCHES || phase[me] == PUSHES); phase[me] = STOPPED }
	:: d_step { phase[me] == STOPPED; phase[me] = FETCHES; claims[me] = 0; passed[me] = 0 }
	od
}

/* A turn ends: with TURN it is longer than a client that retries at once needs. */
active proctype Turns() {
end:	do
	:: d_step { holder == NOBODY && reserved != NOBODY && phase[reserved] == STOPPED;
		event(LOST_TURN);
		T2(!lost[reserved]);
		lost[reserved] = 1;
		hand_over() }
	od
}

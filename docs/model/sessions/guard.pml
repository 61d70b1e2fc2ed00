/*
 * A guard, which is one run of a Gerrit's JVM: its sessions, its death, and its indexes. Another one
 * runs as soon as it has died.
 */
/* Transactions whose threads wait for the daemon in an earlier session. */
#define waits_still(i) (t[i].phase == SENT || t[i].phase == REPORTED)
#ifdef LIST_WAITS
#define all_given_up(g) true
#elif GUARDS == 2
#define all_given_up(g) !waits_still(g)
#elif SLOTS == 2
#define all_given_up(g) (!waits_still(0) && !waits_still(1))
#else
#define all_given_up(g) (!waits_still(0) && !waits_still(1) && !waits_still(2))
#endif
#define may_move(i) (t[i].phase == MAY || t[i].phase == LOCKED)
#ifdef LISTED_BEFORE_JGIT
#define lists(i) (t[i].phase == MAY)
#elif defined(ENDED_UNLISTED)
#define lists(i) may_move(i)
#else
#define lists(i) (may_move(i) || t[i].phase == ENDED)
#endif

/* A session begins with the list of moves that may still happen. */
inline connect(g) {
	session[g] = HELLO;
#ifdef UNNUMBERED
	if
	:: hello[g] && !old_hello ->
		old_hello = 1;
		for (x : 0 .. SLOTS - 1) {
			old_listed[x] = t[x].listed
		}
		x = 0
	:: else
	fi;
#endif
	hello[g] = 1;
	for (x : 0 .. SLOTS - 1) {
		if
		:: guard(x) == g && !t[x].dead -> t[x].listed = lists(x);
			if
			:: t[x].phase == NONE -> t[x].reply = NONE; tidy(x)
			:: else
			fi
		:: else
		fi
	}
	x = 0
}

/* Moves with an OK stay, and so do their lock files. */
inline die(g) {
	printf("guard %d dies\n", g);
	session[g] = NONE;
	hello[g] = 0;
#ifdef UNNUMBERED
	old_hello = 0;
	old_listed[0] = 0;
	old_listed[SLOTS - 1] = 0;
#endif
	for (y : 0 .. SLOTS - 1) {
		if
		:: guard(y) == g && !t[y].dead ->
			if
			:: t[y].phase == LOCKED ->
				for (x : 0 .. REFS - 1) {
					if
					:: moves(y, x) && lock[file(x)] == by(y) -> lock[file(x)] = BY_DEAD
					:: else
					fi
				}
				x = 0
			:: else
			fi;
			t[y].phase = NONE;
			t[y].reply = NONE;
			t[y].flight = NONE;
			t[y].listed = 0;
			t[y].overtaken = 0;
			t[y].believed = 0;
			t[y].dead = 1;
			tidy(y)
		:: else
		fi
	}
	y = 0;
#ifdef INDEXES
	for (x : 0 .. REFS - 1) {
		if
		:: pulled[x] -> pulled[x] = 0;
#ifndef SAVED_FIRST
			noted[x] = 1
#endif
		:: else
		fi
	}
	x = 0
#endif
}


/* Given out only when no process can still make the recorded move. */
#ifdef GIVEN_EARLY
#define on_list(r) noted[r]
#else
#define on_list(r) (noted[r] && !db[r].pending && !db[r].decided && !(follower != NONE && follower_ref == (r)))
#endif

#define me _pid
#ifdef SILENT
#define speaks trouble
#elif defined(GONE)
#define speaks (trouble || one_of(living_left)) /* a dead guard may not be started again */
#else
#define speaks true
#endif
active [GUARDS] proctype Guard() {
end:	do
	:: d_step { session[me] == NONE && !down && all_given_up(me) && speaks; say("begins a session:", me); connect(me) }
	:: d_step { trouble && session[me] != NONE; say("session breaks:", me); session[me] = NONE }
	:: d_step { trouble; die(me) }
#ifdef INDEXES
	:: d_step { !down && on_list(0) && !pulled[0]; noted[0] = 0; pulled[0] = 1 }
	:: d_step { pulled[0]; pulled[0] = 0;
		if
		:: index[0] != here[0] -> event(INDEXED)
		:: else
		fi;
		index[0] = here[0] }
#endif
	od
}

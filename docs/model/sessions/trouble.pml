/*
 * The other site, daemons that crash, an operator; and the end of all trouble.
 */
inline crash() {
	printf("daemon: crashes\n");
	down = 1;
	for (y : 0 .. SLOTS - 1) {
		t[y].work = NONE;
		t[y].flight = NONE;
		t[y].listed = 0;
#ifdef EARLIER_WORK
		stray[y] = 0;
#endif
#ifdef ONE_BY_ONE
		half[y] = 0;
#endif
#ifdef LOOKS_FIRST
		looked[y] = 0;
#endif
		tidy(y)
	}
	y = 0;
	for (y : 0 .. GUARDS - 1) {
		hello[y] = 0;
		session[y] = NONE
	}
	y = 0;
#ifdef UNNUMBERED
	old_hello = 0;
	old_listed[0] = 0;
	old_listed[SLOTS - 1] = 0;
#endif
#ifdef NOTED_AFTER
	unnoted[0] = 0;
#endif
	if
	:: follower == CLAIMED -> follower_ends()
	:: else -> orphan = (follower != NONE)
	fi
}

/* Requests of an earlier daemon no longer count (I8). */
inline start() {
	y = late;
	late = 0;
	if
	:: y != 0 -> tidy(y - 1)
	:: else
	fi;
	y = 0
}

#define other_may(r, v) (trouble && !db[r].pending && db[r].value != (v))
#define is_at_rest(r) (here[r] == db[r].value && !db[r].pending && !db[r].decided && lock[file(r)] == FREE)
#if GUARDS == 2
#define sessions_open (session[0] == OPEN && session[1] == OPEN)
#else
#define sessions_open (session[0] == OPEN)
#endif
#if defined(GONE) || defined(SILENT)
#undef sessions_open
#define sessions_open true
#endif
#define busy(i) (!forgotten(i))
#if REFS == 2
#define refs_rest (is_at_rest(0) && is_at_rest(1))
#else
#define refs_rest is_at_rest(0)
#endif

active proctype Surroundings() {
end:	do
	:: d_step { other_may(0, 0); printf("other site: ref 0 to 0\n"); step_to(0, 0, 0) }
	:: d_step { other_may(0, 1); printf("other site: ref 0 to 1\n"); step_to(0, 1, 0) }
#if VALUES > 2
	:: d_step { other_may(0, 2); printf("other site: ref 0 to 2\n"); step_to(0, 2, 0) }
#endif
	:: d_step { trouble && !down; crash() }
	:: d_step { down; printf("daemon: starts, with its presence taken anew\n"); down = 0; start() }
#ifdef REPAIRS_LIVING
	:: d_step { lock[0] != FREE && no_git; printf("site check --repair: removes a lock file\n"); lock[0] = FREE }
#endif
#ifdef NOTED_AFTER
	:: d_step { unnoted[0]; unnoted[0] = 0; note(0) }
#endif
#ifdef OPERATOR
	:: d_step { trouble && db[0].pending; printf("operator: keep-old\n"); resolve(0, 0) }
	:: d_step { trouble && db[0].pending; printf("operator: take-new\n"); resolve(0, 1) }
#endif
#ifdef CALM
	:: d_step { !calm; calm = 1 }
	:: d_step { timeout; event(RESTED);
		J2(refs_rest && sessions_open && git == NONE && !one_of(busy));
#ifdef INDEXES
		J6(index[0] == here[0])
#endif
		}
#endif
	od
}

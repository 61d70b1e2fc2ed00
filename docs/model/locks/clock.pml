/*
 * Time. The clocks of the database and of the sites advance together, but a slow
 * one may miss one tick per lock. No comparison mixes two clocks.
 *
 * A process that runs does what its clock demands before the next tick: it
 * stops when its lease has expired. One that is frozen then does nothing while
 * time passes, and goes on where it was: it may act before it looks at its
 * clock. Any process may do nothing for a while as long as its lease
 * stands, so that being frozen matters only when the lease has expired.
 */
#define tardy(i) (site[i].phase == HOLDING && site[i].running == RUNNING && site[i].left == 0)
#define on_time  none(tardy)

inline pass(i, missed) {
	if
	:: missed -> site[i].slow = 1; printf("site %d has a clock that misses this tick\n", i)
	:: else ->
		if
#ifndef NO_DEADLINE
		:: site[i].left > 0 -> site[i].left--
#endif
		:: else
		fi;
		if
		:: site[i].left == 0 -> site[i].slow = 0
		:: else
		fi;
		if
		:: site[i].renewal > 0 -> site[i].renewal--
		:: else
		fi
	fi
}

inline tick(slow_one) {
	printf("--- tick\n");
	if
	:: lock.token != 0 && !stale -> lock.age++
	:: else
	fi;
	for (x : 0 .. SITES - 1) {
		pass(x, (x == slow_one))
	}
	x = 0
}

/* Its requests in flight are lost, or late. */
inline freeze(i) {
	site[i].running = FROZEN;
	site[i].beat = NONE;
	site[i].renewal = 0
}

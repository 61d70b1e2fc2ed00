/*
 * A process that uses the library: it locks the ref, works in a critical section
 * and releases; with -DUPDATES it also writes, through the lock or without one.
 * It may take any step late, within the limits of clock.pml.
 */
#define say(i, what) printf("site %d ", i); printf(what); printf("\n")

#define holds(i)   (site[i].phase == HOLDING)
#define unended(i) (site[i].left > 0 || site[i].running == FROZEN) /* Lock.Err() == nil, or it has not looked since its freeze */

inline start_lease(i) {
	site[i].left = WINDOW
}

inline ask(i) {
	site[i].phase = ASKING;
	new_nonce(i);
	start_lease(i); /* from before the first request, whichever request takes effect */
	site[i].call = SENT;
	say(i, "asks for the lock")
}

/* The answer says that it has the lock. */
inline hold(i) {
	site[i].call = NONE;
	site[i].doubt = 0;
	if
	:: site[i].left > 0 ->
		site[i].phase = HOLDING;
		site[i].nonce = 0;
		tidy();
		say(i, "enters its critical section");
		P1(sections <= 1)
	:: else -> /* too late to be kept */
		say(i, "was given the lock too late");
		give_back(i)
	fi
}

/* DB.abandon: in the background, possibly without success. */
inline give_back(i) {
	if
	:: late.kind == NONE && may_fail(i) -> postpone(ABANDON, i)
	:: else
	fi;
	forget(i)
}

inline settle_beat(i) {
	if
	:: site[i].left == 0 -> skip /* expired: nothing revives it */
#ifdef DEADLINE_FROM_REPLY
	:: else -> start_lease(i)
#else
	:: else -> site[i].left = site[i].renewal
#endif
	fi;
	site[i].beat = NONE;
	site[i].renewal = 0
}

/* An answer says that the lock is gone, or another's. */
inline lose(i) {
	say(i, "has lost the lock");
	P7(lock.token != site[i].token);
	forget(i)
}

inline expire(i) {
	say(i, "stops: its lease has expired");
	if
	:: site[i].running == RUNNING && site[i].token == lock.token -> event(EXPIRY)
	:: else
	fi;
	forget(i)
}

inline start_release(i) {
	say(i, "leaves its critical section and releases the lock");
	site[i].phase = RELEASING;
	site[i].running = RUNNING;
	site[i].beat = NONE; /* its answer is ignored from now on */
	site[i].renewal = 0;
	site[i].call = SENT
}

/*
 * After a lost reply a missing row proves something only while the lease
 * stands: no other process can have deleted or replaced it.
 */
#ifdef RELEASE_ABSENCE_LATE
#define proves_release(i) true
#else
#define proves_release(i) (site[i].left > 0)
#endif
#ifdef UPDATE_ABSENCE_LATE
#define proves_refusal(i) true
#else
#define proves_refusal(i) (site[i].left > 0)
#endif

/* Lock.judge: what Release reports. */
inline judge(i) {
	if
	:: site[i].call == DONE ->
		say(i, "released the lock");
		P7(site[i].released)
	:: site[i].call == GONE && !site[i].doubt ->
		say(i, "reports the lock lost on its release");
		P7(!site[i].released)
	:: site[i].call == GONE && site[i].doubt && proves_release(i) ->
		say(i, "knows that a release whose reply was lost happened");
		event(CERTAIN_END);
		P7(site[i].released)
	:: else -> say(i, "reports the release's outcome as unknown")
	fi;
	forget(i)
}

inline start_update(i) {
	new_op(i);
	site[i].call = SENT;
	say(i, "sends an update")
}

/* It reports the update as written, or as refused. */
inline report_update(i) {
	if
	:: site[i].call == DONE -> P7(applied[site[i].op])
	:: else -> P7(!applied[site[i].op])
	fi
}

#define found(i) (writer == site[i].op) /* DB.carriedOut: the row carries the operation's ID */

/* If its success is unknown, the lock is not lost: it is retried. */
inline fail_beat(i) {
	site[i].beat = NONE;
	site[i].renewal = 0;
#ifdef FAILED_BEAT_IS_LOSS
	lose(i)
#endif
}

/* After an update its caller knows the value again. */
inline reread(i) {
	site[i].current = 1
}

#define me _pid

active [SITES] proctype Site() {
end:	do
	/* Its request takes effect. */
	:: d_step { site[me].call == SENT || site[me].call == CHECKED; call_arrives(me) }
	:: d_step { site[me].beat == SENT; beat_arrives(me) }

	/* Acquire. */
	:: d_step { first_idle(me); ask(me) }
	:: d_step { site[me].phase == ASKING && site[me].call == NONE; site[me].call = SENT; say(me, "asks again") }
	:: d_step { site[me].phase == ASKING && site[me].call == NONE; say(me, "gives up"); give_back(me) }
	:: d_step { site[me].phase == ASKING && site[me].call == DONE; hold(me) }

#ifndef UPDATES
	/* Beat. */
	:: d_step { holds(me) && site[me].left > 0 && site[me].beat == NONE; site[me].beat = SENT; site[me].renewal = WINDOW; say(me, "beats") }
	:: d_step { holds(me) && site[me].beat == DONE; say(me, "learns that it has beaten"); settle_beat(me) }
#endif

	/* Loss. */
	:: d_step { holds(me) && site[me].left == 0; expire(me) }

	/* Release. */
	:: d_step { holds(me) && unended(me) && site[me].call == NONE && site[me].op == 0; start_release(me) }
	:: d_step { site[me].phase == RELEASING && site[me].call == NONE; site[me].call = SENT; say(me, "releases again") }
	:: d_step { site[me].phase == RELEASING && site[me].call == NONE; say(me, "gives up releasing"); forget(me) }
	:: d_step { site[me].phase == RELEASING && answered(site[me].call); judge(me) }

#ifdef UPDATES
	/* Update through the lock. */
	:: d_step { holds(me) && unended(me) && site[me].op == 0; start_update(me) }
	:: d_step { holds(me) && site[me].call == GONE;
		say(me, "is told that the lock is lost by its update");
		if
		:: !site[me].doubt -> report_update(me)
		:: else
		fi;
		lose(me) }
	:: d_step { holds(me) && (site[me].call == DONE || (site[me].call == MISMATCH && !site[me].doubt));
		report_update(me); reread(me); forget_op(me) }
	/* A reply was lost: look for the operation's ID, else send it again under the lock. */
	:: d_step { holds(me) && site[me].doubt && (site[me].call == NONE || site[me].call == MISMATCH) && found(me);
		say(me, "finds its update written");
		if
		:: site[me].call == MISMATCH -> event(RESENT_WRITE)
		:: else
		fi;
		site[me].call = DONE; report_update(me); reread(me); forget_op(me) }
	:: d_step { holds(me) && site[me].doubt && site[me].call == MISMATCH && !found(me) && proves_refusal(me);
		say(me, "reports the update refused"); report_update(me); reread(me); forget_op(me) }
	:: d_step { holds(me) && site[me].doubt && site[me].call == NONE && !found(me) && site[me].left > 0;
		say(me, "sends its update again"); site[me].call = SENT }
	:: d_step { holds(me) && site[me].doubt && (site[me].call == NONE || site[me].call == MISMATCH) && !found(me);
		say(me, "reports the update's outcome as unknown"); reread(me); forget_op(me) }

	/* Update without a lock. */
	:: d_step { first_idle(me); site[me].phase = PUTTING; site[me].current = 1; start_update(me) }
	:: d_step { site[me].phase == PUTTING && answered(site[me].call); report_update(me); forget(me) }
	:: d_step { site[me].phase == PUTTING && site[me].call == NONE && found(me);
		say(me, "finds its update written"); site[me].call = DONE; report_update(me); forget(me) }
	:: d_step { site[me].phase == PUTTING && site[me].call == NONE && !found(me);
		say(me, "reports the update's outcome as unknown"); forget(me) }
#endif

	/* It gives up on a call: the call or its answer is lost, or only late. */
	:: d_step { site[me].call != NONE && may_fail(me); say(me, "gives up on a call"); give_up(me) }
	:: d_step { site[me].call == SENT && may_fail(me) && late.kind == NONE;
		say(me, "gives up on a call, which stays under way");
		if
		:: site[me].phase == ASKING    -> postpone(ACQUIRE, me)
		:: site[me].phase == RELEASING -> postpone(RELEASE, me)
		:: site[me].phase == PUTTING   -> postpone(PUT, me)
		:: else                      -> postpone(UPDATE, me)
		fi;
		give_up(me) }
	:: d_step { site[me].beat != NONE; say(me, "gives up on a beat"); fail_beat(me) }
	:: d_step { site[me].beat == SENT && may_fail(me) && late.kind == NONE;
		say(me, "gives up on a beat, which stays under way"); postpone(BEAT, me); fail_beat(me) }

	/* It is frozen, and goes on. */
	:: d_step { holds(me) && site[me].running == RUNNING && site[me].left == 0 && may_fail(me); say(me, "is frozen"); freeze(me) }

	/* Its clock misses a tick. */
	:: d_step { on_time && may_miss(me); tick(me) }

	/* Its process dies; another is started. Its requests are lost, or late. */
	:: d_step { site[me].phase != IDLE; say(me, "crashes"); forget(me) }
	od
}

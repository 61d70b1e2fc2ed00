/*
 * The database: each inline is one atomic transaction, which serves the request r
 * and leaves its answer. What an #ifdef changes is a seeded mistake.
 */

inline delete_lock() {
	lock.token = 0;
	lock.nonce = 0;
	lock.owner = 0;
	lock.age = 0;
	lock.passed = 0
}

/* The lock is about to be ended because it is stale. */
inline overtake() {
	for (x : 0 .. SITES - 1) {
		/* A running holder has stopped; a frozen one will see the expiry by its clock. */
		P4(lock.token == 0 || site[x].phase != HOLDING || site[x].token != lock.token ||
			(site[x].running != RUNNING && site[x].left == 0))
	}
	x = 0
}

inline take() {
	overtake();
	P5(lock.token == 0 || stale);
	if
	:: lock.token != 0 -> event(RECLAIM)
	:: else
	fi;
	new_token(r.site);
	r.token = unused;
	lock.token = r.token;
	lock.nonce = r.nonce;
	lock.owner = r.site;
	lock.age = 0;
	lock.passed = 0
}

/* The answer DONE goes with the token. */
inline serve_acquire() {
	if
#ifndef ACQUIRE_WITHOUT_NONCE
	:: lock.token != 0 && lock.owner == r.site && lock.nonce == r.nonce ->
		event(ADOPTION);
		r.token = lock.token;
		answer = DONE
#endif
#ifdef RECLAIM_UNCHECKED
	:: !r.seen && lock.token != 0 && stale -> answer = CHECKED
	:: r.seen -> take(); answer = DONE
#endif
#ifdef RECLAIM_BY_DELETE
	:: !r.seen && lock.token != 0 && stale -> overtake(); delete_lock(); answer = CHECKED
	:: r.seen -> take(); answer = DONE
#endif
	:: else ->
		if
		:: fresh ->
			P7(!(lock.owner == r.site && lock.nonce == r.nonce));
			answer = LOCKED
		:: else ->
			take();
			answer = DONE
		fi
	fi
}

inline serve_beat() {
	if
#ifdef BEAT_UNCHECKED
	:: lock.token != 0 ->
#else
	:: lock.token == r.token ->
#endif
		P2(lock.token == r.token);
		lock.age = 0;
		answer = DONE
	:: else -> answer = GONE
	fi
}

inline serve_release() {
	if
#ifdef RELEASE_UNCHECKED
	:: lock.token != 0 ->
#else
	:: lock.token == r.token ->
#endif
		P2(lock.token == r.token);
		if
		:: site[r.site].token == r.token -> site[r.site].released = 1
		:: else
		fi;
		delete_lock();
		answer = DONE
	:: else -> answer = GONE
	fi
}

inline serve_abandon() {
	if
	:: lock.token != 0 && lock.owner == r.site && lock.nonce == r.nonce -> delete_lock()
	:: else
	fi
}

/*
 * Values are never repeated here: an Old matches if nothing was written since it
 * was read.
 */
inline write_ref() {
	P7(!applied[r.op]); /* no update happens twice */
	applied[r.op] = 1;
	for (x : 0 .. SITES - 1) {
		site[x].current = 0
	}
	x = 0;
	late.current = 0;
	writer = r.op
}

/* The fenced update. */
inline serve_update() {
	if
#ifdef FENCE_CHECKED_EARLIER
	:: !r.seen && lock.token == r.token -> answer = CHECKED
	:: !r.seen && lock.token != r.token -> answer = GONE
#else
	:: lock.token != r.token -> answer = GONE
#endif
	:: else ->
		if
#ifndef UPDATE_WITHOUT_COMPARE
		:: !r.current -> answer = MISMATCH
#endif
		:: else ->
			P2(lock.token == r.token && !lock.passed);
			write_ref();
			answer = DONE
		fi
	fi
}

/* The unfenced update: locks are mandatory. */
inline serve_put() {
	if
#ifndef PUT_HEEDLESS
	:: fresh -> answer = LOCKED
#endif
	:: else ->
		if
		:: !r.current -> answer = MISMATCH
		:: else ->
			P1(sections == 0);
			if
			:: lock.token != 0 && stale ->
				overtake();
				event(PASSED_LOCK);
#ifdef PUT_LEAVES_LOCK
				lock.passed = 1
#else
				delete_lock()
#endif
			:: else
			fi;
			write_ref();
			answer = DONE
		fi
	fi
}

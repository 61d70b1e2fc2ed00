/*
 * A lock beside the pushes, and fences. The owner of a site's lock is one process, in
 * which a thread may still act under a lost lock.
 */
#define TOKENS 3 /* in a run, from 1 */
#ifdef TOKEN_OF_SERVER
/* More than is promised: a process loses its locks as soon as the server changes. */
#define given        (db.tokens + (TOKENS + 1) * rewinds)
#define of_server(t) ((t) / (TOKENS + 1) == rewinds)
#else
#define given        db.tokens
#define of_server(t) true
#endif

inline acquire(s) {
	db.holder = 1 + s;
	db.tokens++;
	db.token = given;
	highest = (db.tokens > highest -> db.tokens : highest);
	printf("site %d: takes the lock, token %d\n", s, db.token);
	site[s].frozen = site[s].held;
	site[s].held = db.token;
	site[s].valid = 1;
	site[1 - s].valid = 0;
}

inline release(s) {
	printf("site %d: releases the lock, token %d\n", s, site[s].held);
	db.holder = 0;
	db.token = 0;
	site[s].held = 0;
	site[s].valid = 0
}

#define stands(s, t) ((t) != 0 && db.holder == 1 + (s) && db.token == (t) && of_server(t))

/* A fenced write passes: only under the latest lock. */
inline pass(s, good) {
	printf("site %d: writes under a lock that it believes to hold; it does: %d\n", s, good);
#ifdef TOKEN_OF_SERVER
	V4(good);
#else
	V4(dirty || good);
#endif
	if
	:: dirty && !good -> event(STALE_PASS)
	:: else
	fi
}

active [SITES] proctype Holder() {
	byte i = _pid - 2 - SITES;
end:	do
	:: d_step { admitted && db.tokens < TOKENS && db.holder != 1 + i; acquire(i) } /* another process's lock is stale */
	:: d_step { admitted && site[i].held != 0 && stands(i, site[i].held); release(i) }
	:: d_step { admitted && stands(i, site[i].held); pass(i, site[i].valid) }
	:: d_step { admitted && stands(i, site[i].frozen); pass(i, 0) }
	:: d_step { site[i].held != 0 && !site[i].valid; printf("site %d: finds that its lock is lost\n", i); site[i].held = 0 }
	:: d_step { site[i].frozen != 0; site[i].frozen = 0 }
	od
}

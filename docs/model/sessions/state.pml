/* What all begins with is 0. */
#define NONE 0
#define FREE 0
mtype = { SENT, MAY, LOCKED, ENDED, REPORTED };          /* a thread's transaction, or NONE */
mtype = { ANNOUNCE, REPORT };                            /* messages in flight to the daemon */
mtype = { OK, NO, MADE, UNMADE };                        /* messages in flight from it */
mtype = { WAITS, CLAIMED, REVOKING, PREPARED, GRANTED, ENDING }; /* the daemon's work for a transaction */
mtype = { HELLO, OPEN };                                 /* a session, as its guard sees it, or NONE: broken */
mtype = { ASKING, TOLD };                                /* a process of git, or NONE */

typedef Transaction {
	mtype phase;
	byte old[REFS]; /* what its caller had read */
	byte new;
	mtype flight;
	mtype reply;
	mtype work;
	bit dead;       /* its guard is */
	bit listed;     /* in the list in flight */
	bit moved;
	bit believed;   /* its thread believes that it moved */
	bit refused;    /* its caller was told that it failed */
	bit overtaken   /* another process wrote while it had the lock file */
};

typedef Ref {       /* in the database */
	byte value;
	bit pending;    /* an intent of this site. Another site's pushes are one step */
	bit decided;    /* an operator has resolved it, and the site has not applied that */
	byte agent;     /* a transaction, or BY_GIT */
	byte old;
	byte new;
	bit moved
};

#define BY_GIT      SLOTS       /* an agent */
#define by(i)       ((i) + 1)   /* the creator of a lock file */
#define BY_GIT_LOCK (SLOTS + 1)
#define BY_FOLLOWER (SLOTS + 2)
#define BY_DEAD     (SLOTS + 3)

Transaction t[SLOTS];
mtype session[GUARDS];
bit hello[GUARDS];   /* the list of a session is in flight */
Ref db[REFS];
byte here[REFS];     /* the repository */
byte lock[FILES];    /* its lock files */
bit current[REFS];   /* only for J3: it has what the last step of the global value, or a move under an intent, made of it */
bit down;            /* the daemon */
byte late;           /* 1 + a transaction whose prepare is in flight, without an answer */

mtype git;           /* a push over git's own receive-pack */
byte git_new;
bit git_overtaken;

mtype follower;      /* CLAIMED, TOLD: its git runs, LOCKED: with the lock file; or NONE */
byte follower_ref;
byte follower_old;
byte follower_new;
bit latest;          /* only for J3: that is still the latest step of the global value */
bit orphan;          /* its daemon has died */
bit follower_overtaken;

#ifdef INDEXES
byte index[REFS];
bit noted[REFS];     /* on the list of moves, after the place that was saved */
bit pulled[REFS];    /* Gerrit has it from there, and works on it */
#endif
#ifdef EARLIER_WORK
bit stray[SLOTS];    /* a mistake: the daemon works for a session that is over */
#endif
#ifdef UNNUMBERED
bit old_hello;       /* a mistake: the list of an earlier session may be heard after a later one's */
bit old_listed[SLOTS];
#endif
#ifdef ONE_BY_ONE
bit half[SLOTS];     /* a mistake: it has one of two claims */
#endif
#ifdef LOOKS_FIRST
bit looked[SLOTS];   /* a mistake: it has seen that no process lives, and will remove whatever is there by then */
#endif
#ifdef NOTED_AFTER
bit unnoted[REFS];
#endif

#ifndef CALM
#define trouble true
#else
bit calm;            /* no more trouble, and no new transactions */
#define trouble (!calm)
#endif

byte x; /* scratch, 0 between steps */
byte y;
byte z;
bit b;

#define say(what, i) printf(what); printf(" %d\n", i)

#if REFS == 2
#define any(p, i)   (p(i, 0) || p(i, 1))
#define every(p, i) (p(i, 0) && p(i, 1))
#else
#define any(p, i)   (p(i, 0))
#define every(p, i) (p(i, 0))
#endif

#define guard(i) (GUARDS == 2 -> (i) : 0)
#define connected(i) (session[guard(i)] != NONE)

/* The refs that transaction i moves. */
#if REFS == 1 || defined(BATCHES)
#define moves(i, r) true
#else
#define moves(i, r) ((r) == (i))
#endif

#define intent(i, r)   (db[r].pending && db[r].agent == (i))
#define decision(i, r) (db[r].decided && db[r].agent == (i))
#define left(i, r)     (intent(i, r) || decision(i, r))
#define meant(i)       any(left, i)

/* The transaction is no longer remembered: its number is free. */
#define forgotten(i) (t[i].phase == NONE && t[i].flight == NONE && t[i].reply == NONE && t[i].work == NONE && late != 1 + (i) && !meant(i))
inline tidy(i) {
	if
	:: forgotten(i) ->
		for (z : 0 .. REFS - 1) {
			t[i].old[z] = 0
		}
		z = 0;
		t[i].new = 0;
		t[i].dead = 0;
		t[i].moved = 0;
		t[i].believed = 0;
		t[i].refused = 0;
		t[i].overtaken = 0
#ifdef EARLIER_WORK
		; stray[i] = 0
#endif
	:: else
	fi
}

/* A ref was or may be moved by another than a thread that then indexes it. */
inline note(r) {
#ifdef INDEXES
	noted[r] = 1
#else
	skip
#endif
}

/* Lock file f is renamed: any other process that believes to have it is overtaken. */
inline write_file(f) {
	for (z : 0 .. SLOTS - 1) {
		if
		:: t[z].phase == LOCKED -> t[z].overtaken = 1
		:: else
		fi
	}
	z = 0;
	if
	:: git != NONE && file(GIT_REF) == f -> git_overtaken = 1
	:: else
	fi;
	if
	:: follower != NONE && file(follower_ref) == f -> follower_overtaken = 1
	:: else
	fi
}

#define dead_left(i)   (t[i].dead && meant(i))
#define living_left(i) (!t[i].dead && meant(i))
#if SLOTS == 2
#define one_of(p) (p(0) || p(1))
#else
#define one_of(p) (p(0) || p(1) || p(2))
#endif

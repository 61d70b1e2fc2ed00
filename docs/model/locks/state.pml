/* All initial values are 0. */
#define NONE    0
#define IDLE    0
#define RUNNING 0
mtype = { SENT, CHECKED, DONE, LOCKED, GONE, MISMATCH };    /* a call: NONE, in flight, or its answer */
mtype = { ACQUIRE, BEAT, RELEASE, ABANDON, UPDATE, PUT };   /* requests */
mtype = { ASKING, HOLDING, RELEASING, PUTTING };            /* what a site does, or IDLE */
mtype = { FROZEN };                                         /* or RUNNING; see clock.pml */

/*
 * Tokens, nonces and operation IDs are unique in reality. Here each site has a
 * few of each, and any that nothing remembers serves as a new one: only equality with
 * remembered ones matters. This keeps the search finite for runs of any length.
 */
#define TOKENS 3 /* in the row, with the site, in the late request */
#define ORPHAN (TOKENS * SITES + 1) /* any token that only the row remembers */
#define OPS    3

typedef Row {    /* of the table of locks; no row: token 0 */
	byte token;
	byte nonce;  /* with the owner, names the acquisition */
	byte owner;
	byte age;    /* the database's now - heartbeat; STALE + 1 stands for all above */
	bit passed   /* only for P2: an unfenced update passed it */
};

typedef Process {  /* of a site */
	mtype phase;
	mtype running;
	byte token;
	byte nonce;
	byte left;     /* ticks until the lease expires, by the site's own clock; 0: expired */
	bit slow;      /* its clock has missed a tick since it asked for the lock */
	mtype call;    /* acquire, release, update or put */
	bit doubt;     /* a reply to it was lost */
	mtype beat;
	byte renewal;  /* the next value of left if the beat in flight succeeds */
	byte op;       /* the update in progress */
	bit current;   /* the value it knows the ref to hold is still the ref's */
	bit released   /* only for P7: its own release deleted the row */
};

typedef Request {
	mtype kind;
	byte site;
	byte token;
	byte nonce;
	byte op;
	bit current;
	bit seen     /* it was checked in an earlier transaction: mistakes only */
};

Row lock;
Process site[SITES];
Request late;              /* its sender gave up on it, and it may still take effect */
byte writer;               /* the ref's row: the operation that last wrote it, 0 if irrelevant */
bit applied[SITES * OPS + 1]; /* only for P7: the operation was carried out */

/* Scratch, 0 between steps. */
Request r;                 /* what the database is doing */
mtype answer;
byte unused;
byte x;

#define stale       (lock.age > STALE)
#define fresh       (lock.token != 0 && !stale)
#define standing(i) (site[i].phase == HOLDING && site[i].running == RUNNING) /* in its critical section */
#define answered(c) (c != NONE && c != SENT && c != CHECKED)
#if SITES == 3
#define count(is) (is(0) + is(1) + is(2))
#else
#define count(is) (is(0) + is(1))
#endif
#define none(is) (count(is) == 0)
#define sections count(standing)

/*
 * The one bound, to keep the search small: trouble of any kind and number (a lost
 * call, a late one, a freeze, a slow clock) strikes one site at a time. A lost
 * beat and a crash leave no trace with the site, and are not limited.
 */
#define troubled(i) (site[i].doubt || site[i].slow || site[i].running == FROZEN || (late.kind != NONE && late.site == i))
#define may_fail(i) ((i == 0 || !troubled(0)) && (i == 1 || !troubled(1)) && (SITES == 2 || i == 2 || !troubled(SITES - 1)))
#ifdef UPDATES
#define may_miss(i) false
#else
#define may_miss(i) (site[i].left > 0 && !site[i].slow && may_fail(i))
#endif

/* Idle sites are alike, so only the first one starts an operation. */
#define first_idle(i) (site[i].phase == IDLE && (i == 0 || site[0].phase != IDLE) && (i < 2 || site[1].phase != IDLE))

inline new_token(i) {
	unused = TOKENS * i + 1;
	do
	:: unused == lock.token || unused == site[i].token || unused == late.token -> unused++
	:: else -> break
	od
}

inline new_nonce(i) {
	site[i].nonce = 1;
	do
	:: (lock.owner == i && site[i].nonce == lock.nonce) || (late.site == i && site[i].nonce == late.nonce) -> site[i].nonce++
	:: else -> break
	od
}

inline new_op(i) {
	site[i].op = OPS * i + 1;
	do
	:: site[i].op == writer || site[i].op == late.op -> site[i].op++
	:: else -> break
	od;
	applied[site[i].op] = 0
}

/* Values that will not be compared any more are cleared, to merge equivalent states. */
inline tidy() {
	if
	:: lock.token != 0 && lock.nonce != 0 && site[lock.owner].nonce != lock.nonce && !(late.site == lock.owner && late.nonce == lock.nonce) -> lock.nonce = 0
	:: else
	fi;
	if
	:: lock.token != 0 && lock.nonce == 0 && late.token != lock.token && site[lock.owner].token != lock.token -> lock.token = ORPHAN; lock.owner = 0
	:: else
	fi;
	if
	:: writer != 0 && site[(writer - 1) / OPS].op != writer && late.op != writer -> applied[writer] = 0; writer = 0
	:: else
	fi
}

inline forget_op(i) {
	if
	:: site[i].op != late.op && site[i].op != writer -> applied[site[i].op] = 0
	:: else
	fi;
	site[i].op = 0;
	site[i].call = NONE;
	site[i].doubt = 0;
	tidy()
}

inline forget(i) {
	site[i].phase = IDLE;
	site[i].running = RUNNING;
	site[i].token = 0;
	site[i].nonce = 0;
	site[i].left = 0;
	site[i].slow = 0;
	site[i].beat = NONE;
	site[i].renewal = 0;
	site[i].current = 0;
	site[i].released = 0;
	forget_op(i)
}

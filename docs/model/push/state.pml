/* What all begins with is 0. */
#define NONE 0
#define REST 0
mtype = { ASKING, TOLD, COMMITTED, ABORTED, THROUGH };  /* a process of git, or NONE */
mtype = { PREPARING, REVOKING, GRANTED, FINISHING };    /* what the daemon does for it, or REST */
mtype = { LOOKED, COMPARED, SWAPPING };                 /* a replication, which has its claim, or REST */
mtype = { DONE, DROPPED, GONE, BUSY, MISMATCH, LOST };  /* what becomes of intents, and answers */

typedef Ref {       /* in the database */
	byte value;
	bit pending;    /* locked, by the intent old -> new */
	byte owner;     /* the site */
	byte agent;     /* the process of git */
	byte old;
	byte new;
	bit unconfirmed; /* its daemon has no answer to the request that recorded it: the request's nonce tells */
	bit moved       /* only for S1, S2: git has carried it out */
};

typedef Decision {  /* of an operator, in the database: one per site and ref */
	bit stands;
	byte agent      /* whose intent it was */
};

typedef Push {      /* a process of git, in a transaction of all refs */
	mtype phase;
	bit heard;      /* the daemon has its request */
	bit rejected;   /* git has rejected it, but lists it to the hook */
	byte new[REFS];
	bit done[REFS]; /* renamed */
	bit decided[REFS] /* an operator resolved its intent */
};

typedef Memory {    /* of a daemon, of a push; the last ones are of those that have ended */
	mtype phase;    /* except in REST, some process has the turn */
	bit ended;      /* its process has */
	bit adopted;    /* its intents were found in the database */
	bit over;       /* git is finished with them */
	bit has[REFS];
	bit ours[REFS]; /* the intent meant is the one that stands in the database */
	byte old[REFS]; /* in the request */
	byte new[REFS];
	mtype what[REFS] /* to be made of the intent */
};

typedef Late {      /* a request that its daemon gave up on, and that may still take effect */
	mtype kind;
	byte site;
	byte agent;
	byte old[REFS];
	byte new[REFS];
	bit ours[REFS];
	mtype what[REFS]
};

typedef Copy {      /* a site's repository and daemon */
	bit down;       /* the daemon */
	bit doubtful;   /* a prepare's outcome is unknown: nothing is admitted before presence is taken anew */
	byte here[REFS];
	bit current[REFS]; /* only for S2: local is what the last step of the global value, or git's move under an intent, made of it */
	bit astray[REFS]   /* only for S5: git made a move that an operator decided against */
};

typedef Replication {
	mtype phase;
	byte ref;
	byte found;     /* read first */
	byte global;
	bit dead;       /* there was a decision to heed, whose process had ended */
	bit latest;     /* only for S2: global still is that step */
	bit orphan      /* its daemon has died: git is left */
};

#define GRAVES SLOTS             /* memory of site s for processes that have ended: GRAVES + s */
#define MEMORIES (SLOTS + SITES)
#define of(m) (m < SLOTS -> at(m) : m - GRAVES) /* the site of a memory */

Ref db[REFS];
Decision decision[SITES * REFS];
Push push[SLOTS];
Memory mem[MEMORIES];
Late late;
Copy copy[SITES];
Replication repl[SITES];
#define decided(s, r) decision[(s) * REFS + (r)]

#ifdef STRAYS_HEARD
bit stray[SLOTS]; /* a mistake: the daemon may still serve a hook that has gone */
#endif
#ifndef FORGET_BLINDLY
#define FORGET_BLINDLY false
#endif
#ifdef BOTH
#define plain(s) false
#else
#define plain(s) ((s) == 1) /* its steps are fewer and it has no trouble: see git.pml */
#endif
#ifndef CALM
#define trouble true
#else
bit calm; /* no more trouble, and no new pushes */
#define trouble (!calm)
#endif
#ifdef PUNCTUAL
#define may_be_late(m) false
#else
#define may_be_late(m) (late.kind == NONE && (mem[m].phase == PREPARING || mem[m].phase == FINISHING))
#endif

/* Scratch, 0 between steps. */
Late q;
mtype answer;
byte x;
byte y;

#if REFS == 2
#define any(p)   (p(0) || p(1))
#define every(p) (p(0) && p(1))
#else
#define any(p)   (p(0))
#define every(p) (p(0))
#endif

/* The holder of git's lock on a ref of a site. */
#define locks(i, s, r) (at(i) == (s) && (push[i].phase == ASKING || push[i].phase == TOLD) && !push[i].done[r])
#if SLOTS == 3
#define pushing(s, r) (locks(0, s, r) || locks(1, s, r) || locks(2, s, r))
#else
#define pushing(s, r) (locks(0, s, r) || locks(1, s, r))
#endif
#define unlocked(s, r) (!pushing(s, r))

/* The push that may still move a ref under its intent. */
#define may_move(a, r) ((a) < SLOTS && push[a].phase == TOLD && !push[a].rejected && !push[a].done[r] && push[a].new[r] != copy[at(a)].here[r])

inline forget_intents(m) {
	for (x : 0 .. REFS - 1) {
		mem[m].has[x] = 0;
		mem[m].ours[x] = 0;
	}
	x = 0;
	mem[m].adopted = 0;
	mem[m].over = 0
}

inline rest(m) {
	mem[m].phase = REST;
	for (x : 0 .. REFS - 1) {
		mem[m].old[x] = 0;
		mem[m].new[x] = 0;
		mem[m].what[x] = NONE;
	}
	x = 0;
	if
	:: mem[m].ended -> forget_intents(m); mem[m].ended = 0
	:: else
	fi
}

inline drop_late() {
	late.kind = NONE;
	late.site = 0;
	late.agent = 0;
	for (x : 0 .. REFS - 1) {
		late.old[x] = 0;
		late.new[x] = 0;
		late.ours[x] = 0;
		late.what[x] = NONE;
	}
	x = 0
}

/* The intent on a ref has ended: references to it become void. */
inline end_intent(r) {
	db[r].pending = 0;
	db[r].owner = 0;
	db[r].agent = 0;
	db[r].old = 0;
	db[r].new = 0;
	db[r].unconfirmed = 0;
	db[r].moved = 0;
	for (y : 0 .. MEMORIES - 1) {
		mem[y].ours[r] = 0;
	}
	y = 0;
	late.ours[r] = 0
}

/* A step of the global value by site s, whose own copy is at it if so. */
inline step(s, r, v, so) {
	db[r].value = v;
	for (y : 0 .. SITES - 1) {
		copy[y].current[r] = (y == s && so);
		if
		:: repl[y].ref == r -> repl[y].latest = 0
		:: else
		fi;
	}
	y = 0
}

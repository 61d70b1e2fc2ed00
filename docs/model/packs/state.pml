/*
 * Four commits, each with its objects: 2 and 4 are children of 1, and 3 is a child of 2.
 * Sets of commits and of sites are bits. A ref at 0 does not exist.
 */
#define NONE 0
#define REST 0
mtype = { SENT, MADE, STORED, OPEN, ORPHAN, TOLD, MOVED, UNMOVED }; /* a push, or NONE */
mtype = { LISTING, UNPACKING, READY, SWAPPING };                    /* a follower, or REST */
mtype = { READ, DELETING, BASING };                                 /* maintenance, or REST */

#define one(v)   ((v) == 0 -> 0 : 1 << ((v) - 1))
#define all(v)   ((v) == 0 -> 0 : ((v) == 1 -> 1 : ((v) == 2 -> 3 : ((v) == 3 -> 7 : 9)))) /* the commits that it reaches */
#define reach(c) (((c) & 1) | ((c) & 2 -> 3 : 0) | ((c) & 4 -> 7 : 0) | ((c) & 8 -> 9 : 0))
#define within(c, d) (((c) & ~(d)) == 0)
#define in(n, set) (((set) >> (n)) & 1)

typedef Pack {      /* that was used */
	bit there;      /* it is visible in the database */
	byte has;       /* objects */
	byte bases;
	byte tips;
	byte owner      /* only for a mistake */
};
Pack pack[LAST + 1]; /* by position */
byte base = 1;      /* the position of the latest base; it comes before a pack of that position */
byte base_has = 1;
#ifdef TRANSIT
byte base_needs;    /* commits that a base without objects builds on */
#endif
byte next = 2;      /* position */
byte foreign;       /* the position of another site's open transaction; 0: none is */
#if defined(PRUNES) || BASES > 0
#define remember(set) recent = recent | (set)
#else
#define remember(set) skip
#endif
byte recent;        /* commits: values, tips and bases of the last 14 days */

byte value[REFS] = 1;

typedef Intent {
	bit pending;
	byte owner;     /* the site */
	byte old;
	byte new;
	bit moved       /* only for C2: git has moved the ref, and acknowledged it to its user */
};
Intent intent[REFS];

typedef Push {      /* a process of git, and its daemon's knowledge of it */
	mtype phase;
	byte ref;
	byte old;
	byte new;
	byte bases;     /* of its pack */
	byte has;       /* objects of its pack; 0: it needs none */
	bit carried;    /* its pack is not stored before the preparation, which carries it */
	bit dropped;    /* its pack was stored, and then deleted */
	bit aged;       /* more than an hour has passed since it checked the database's objects */
	byte at         /* position */
};

typedef Follower {
	mtype phase;
	byte ref;       /* REFS: none */
	byte found;     /* here, before anything else */
	byte global;    /* in the database, then */
	byte after;     /* the last pack that was listed */
	byte upto       /* complete at the first page; UNKNOWN before it */
};
#define UNKNOWN 255

typedef Maintenance {
	mtype phase;
	byte set;       /* commits: to keep, then to delete; or objects of a base */
	byte at         /* the position of a base */
};

typedef Site {
	/* the repository */
	byte objects = 1;
	byte here[REFS] = 1;
	byte own;       /* a ref that the database ignores */
	byte mark = 1;  /* all packs up to this position are here */
	/* of the daemon */
	bit down;
	byte have;      /* positions, as bits: later packs that are here, too; 0: the latest base */
	bit stuck       /* another attempt would fail; only so that a run may come to rest */
};
Site site[SITES];
Push push[SITES];
Follower repl[SITES];
Maintenance job[SITES];

byte days;
byte bases;
bit disk_lost;
bit calm;           /* no more trouble, and no new pushes */
#define trouble (!calm)

/* Scratch, 0 between steps. */
byte x;
byte y;
byte z;
byte u;

#define say(what, s) printf("site %d: ", s); printf(what); printf("\n")

#if SITES == 3
#define any_site(p) (p(0) || p(1) || p(2))
#else
#define any_site(p) (p(0) || p(1))
#endif

inline unstick() {
	for (x : 0 .. SITES - 1) {
		site[x].stuck = 0
	}
	x = 0
}

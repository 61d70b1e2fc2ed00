/* What all begins with is 0. A value of the ref is the operation that wrote it; 0: none. */
#define bits(op) (1 << (op))
#define all_sites ((1 << SITES) - 1)

typedef Database {
	byte n;             /* rows of history */
	byte row[OPS + 1];  /* by position, from 1 */
	byte has;           /* their operations, as bits */
	byte intent;        /* the operation whose intent is pending */
	bit revived;        /* it stood already when recover began */
	bit halt;
	bit recovering;     /* recover has begun: halt stands */
	byte server;        /* on which it did */
	byte incarnation;   /* of the epoch: random, so never given again */
	byte number;        /* of the epoch */
	byte reported;      /* sites, as bits: to this recover */
	byte without;       /* sites, as bits: that it goes without */
	byte lost;          /* operations, as bits: reported, and not dealt with */
	byte pruned;        /* no row up to this position can be read */
	byte seen[SITES];   /* the position up to which a site has looked */
	byte holder;        /* of the lock: 1 + the site */
	byte token;
	byte tokens         /* the largest that was given */
};
Database store[2];
#define db     store[0]
#define backup store[1] /* a state of the past, to which the database may go back */
#define value(d) d.row[d.n]

/* What an operation is never changes. */
byte ops;
byte who[OPS + 1];
byte old[OPS + 1];
byte at[OPS + 1];      /* the position that it was last written at */

typedef Daemon {
	/* lasts */
	byte here;          /* the ref in the repository */
	byte witness;       /* operations, as bits: rows that it wrote and was told of, or saw */
	byte pending;       /* its operation whose intent it was told of, and of whose end it was not */
	byte epoch;         /* incarnation */
	byte epochs;        /* incarnations that it knows, as bits */
	byte number;        /* of the epoch */
	bit halted;
	/* lasts as long as git's process */
	bit git;            /* it may move the ref to pending */
	/* lasts as long as the daemon */
	bit current;        /* the server is the one that it looked its witnesses up at */
	bit looked;         /* only for mistakes */
	/* only for promises */
	byte saw;           /* operations, as bits */
	bit saw_halt;
#ifdef LOCKS
	byte held;          /* a token */
	byte frozen;        /* an earlier one, that somebody in the same process still has */
#endif
	bit valid           /* no other lock was given since held was, and no recover ended it */
};
Daemon site[SITES];

byte rewinds;
byte incarnations;
bit dirty;             /* the server is another, and there was no recover since */
byte acknowledged;     /* operations, as bits */
byte listed;           /* operations, as bits: somebody was told of their loss, by name */
byte highest;          /* token */
#ifdef CONFIRMED
byte confirmed;        /* sites, as bits, that found at this server all they know of; or that recover went without */
#define confirm(set) confirmed = confirmed | (set)
#else
#define confirm(set) skip
#endif

byte x;                /* scratch, 0 between steps */
byte y;

/* Who goes by what for the same recovery. */
#ifdef NUMBER_ONLY
#define same(s)  (site[s].number == db.number)
#define older(s) (db.number < site[s].number)
#else
#define same(s)  (site[s].epoch == db.incarnation)
#define older(s) (!same(s) && ((site[s].epochs | 1) & bits(db.incarnation)))
#endif
#define newer(s) (!same(s) && !older(s))

#define standing bits(db.intent)
#define gone(set) ((set) & ~(db.has | listed | standing) & ~1)

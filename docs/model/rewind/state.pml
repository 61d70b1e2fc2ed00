/* A value of the ref is the operation that wrote it; 0: none. */
#define bits(op) (1 << (op))
#define of(s)    (1 << (s))
#define all_sites ((1 << SITES) - 1)
#define server   (rewinds + 1)

#define HALTED    0   /* in admission: changes are lost, and only recover ends the halt */
#define COMPARING 255 /* in admission: a server that no longer exists */

typedef Database {
	byte n;             /* rows of history */
	byte row[OPS + 1];  /* by position, from 1 */
	byte has;           /* their operations, as bits */
	byte intent;        /* the operation whose intent is pending */
	byte admission = 1; /* the server that accepts writes */
	byte compared = 1;  /* the server for which the sites in reported have reported */
	byte reported = all_sites;
	byte live = all_sites; /* sites, as bits: registered, and neither away nor in left */
	byte left;          /* sites, as bits: that a recover left out, and that have not returned since */
	byte since[SITES];  /* when live and left changed for a site: a time, so never given again */
#ifdef CHANGES_COUNTED
	byte time[SITES];   /* the intended value of since */
#endif
	byte lost;          /* operations, as bits: reported, and undecided */
	byte moved;         /* operations, as bits: whose repository had the value when they were reported */
	byte decided;       /* operations, as bits: written again, opposed, or late */
	byte pruned;        /* no row up to this position can be read */
	byte seen[SITES];   /* the newest position at a site's last report */
#ifdef TESTIFY
	byte word[SITES];   /* the testimony about a site, a time: of a live one it was begun, of another one it was given; 0: none */
#endif
	byte freed;         /* only for V7: sites, as bits: without which rows were pruned, and that did not report since */
	byte holder;        /* of the lock: 1 + the site */
	byte token;
	byte tokens         /* the largest given */
};
Database store[3];
#define db     store[0]
#define backup store[1] /* a state of the past, to which the database may go back */
#define empty  store[2]
#define value(d) d.row[d.n]

/* The properties of an operation never change. */
byte ops;
byte who[OPS + 1];
byte old[OPS + 1];
byte at[OPS + 1];      /* the position that it was last written at */

typedef Daemon {
	/* lasts: the repository, and the journal */
	byte here;          /* the ref in the repository */
	byte known;         /* operations, as bits: rows that it wrote with an answer, or saw */
	byte pending;       /* its operation whose intent, but not whose end, was acknowledged to it */
	byte since[SITES];  /* as it last read them */
#ifdef CHANGES_COUNTED
	byte time[SITES];
#endif
#ifdef TESTIFY
	byte noted[SITES];  /* the testimony about a site that it noted last: a time; 0: none */
	bit given[SITES];   /* it knows that it was given */
	byte carried[SITES];/* the operation whose intent of that site was pending */
	/* lasts as long as the daemon */
	byte begun;         /* what a transaction does that was checked, and is not committed */
#endif
	/* lasts as long as git's process */
	bit git;            /* it may move the ref to pending */
	/* from a check to its report */
	byte looked;        /* the server; 0: there is nothing to report */
	byte missing;       /* operations, as bits */
	bit before;         /* only for mistakes: something was checked in a round trip before */
#ifdef LIVE_NAMES
	byte live;
#endif
	/* only for promises */
	byte saw;           /* operations, as bits */
#ifdef LOCKS
	byte held;          /* a token */
	byte frozen;        /* an earlier one, still held by a thread of the same process */
#endif
	bit valid           /* no other lock was given since held was, and no recover ended it */
};
Daemon site[SITES];

byte rewinds;
byte recoveries;
byte changes;
byte stamps;            /* the last assigned value of since */
#ifdef TESTIFY
byte testimonies;
#define NOTHING 0 /* in begun */
#define PREPARE 1
#define DROP    2
#endif

/* Only for promises. */
bit dirty;             /* the server has changed, and there was no recover since */
byte acknowledged;     /* operations, as bits */
byte listed;           /* operations, as bits: their loss was listed by name */
#ifdef TESTIFY
byte dropped;          /* operations, as bits: their site ended the intent, as git had not moved the ref */
byte when[OPS + 1];    /* since of its site's row when an operation was prepared */
byte latest[SITES];    /* since of a site's row when it last wrote or read */
byte beyond;           /* sites, as bits: that went on under a row from before a testimony whose holder a recover went without */
byte forgotten;        /* sites, as bits: whose last return the last rewind undid */
byte unread;           /* sites, as bits: scratch, those of return_unread */
byte silent;           /* sites, as bits: live where the last rewind went to, and silent since */
#endif
byte highest;          /* token */
byte unheard;          /* sites, as bits: that a recover went without, or of whose last change of live a rewind left no trace */

byte x;                /* scratch, 0 between steps */
byte y;
byte heard;

#define standing bits(db.intent)
#define gone(set) ((set) & ~(db.has | listed | standing) & ~1)

#ifdef TESTIFY
/* It came back and went on, and the database forgot that before anybody had read it whose knowledge counts. */
#define has_read(r, w) (r != w && ((db.live & of(r)) || (db.word[r] != 0 && !(forgotten & of(r)))) && site[r].since[w] >= latest[w])
#if SITES == 3
#define has_been_read(w) (has_read(0, w) || has_read(1, w) || has_read(2, w))
#else
#define has_been_read(w) (has_read(0, w) || has_read(1, w))
#endif
#define return_unread(w) (!(db.live & of(w)) && ((db.word[w] != 0 && (beyond & of(w))) || \
	((forgotten & of(w)) && db.since[w] < latest[w] && !has_been_read(w))))
#define can_be_heard(w) (!(unheard & of(w)) && !return_unread(w))
#else
#define can_be_heard(w) (!(unheard & of(w)))
#endif
/* No site that can be heard knows of an acknowledged push that is missing. Scratch: y. */
inline none_is_gone() {
	for (y : 0 .. SITES - 1) {
		if
		:: can_be_heard(y) -> x = x | gone(acknowledged & site[y].saw)
		:: else
		fi
	}
	y = 0
}

/* What all begins with is 0. A value of a ref is the transaction that wrote it. */
mtype = { OPEN, LOCKED, COMMITTED, ABORTED }; /* a transaction, or NONE; LOCKED: it keeps writers of history out */
#define NONE 0

typedef Transaction {
	mtype phase;
	bit moves;        /* it changes the offset, and no ref */
	bit key[REFS];    /* it holds the ref's key until it ends */
	bit row[REFS];    /* its row in history */
	byte old[REFS];   /* in the row */
	byte at[REFS];    /* the row's position */
	byte offset;      /* what it is about to commit, or has read */
	byte first        /* the first position of the epoch it is about to commit */
};

Transaction tx[IDS + 1]; /* by ID, from 1 */
byte next = 1;
byte offset;
byte first = 1;          /* position of the present epoch */
byte value[REFS];

typedef Cursor { byte at; byte ref };
Cursor cursor;           /* of the follower: the last row delivered; refs count from 1 here */
bit delivered[(IDS + 1) * REFS]; /* only for H1 */
byte newest;             /* only for an event: the last of those delivered, by order of commits */
byte commits[IDS + 1];   /* only for an event */

bit asked;               /* somebody was told what a ref held at a position */
byte asked_at;
byte asked_ref;
byte told;

/* Scratch, 0 between steps. */
byte x;
byte y;
byte z;
byte xmin;

#define position(i) (offset + (i))
#define running(i)  (tx[i].phase == OPEN || tx[i].phase == LOCKED)
#define visible(i, r) (tx[i].phase == COMMITTED && tx[i].row[r])

/* What a snapshot says: the smallest ID that is still running, whoever's. */
inline read_xmin() {
	xmin = next;
	for (x : 1 .. IDS) {
		if
		:: running(x) && x < xmin -> xmin = x
		:: else
		fi
	}
	x = 0
}

/* All initial values are 0. A value of a ref is the transaction that wrote it. */
mtype = { OPEN, LOCKED, COMMITTED, ABORTED }; /* a transaction, or NONE; LOCKED: it blocks writers of history */
#define NONE 0

typedef Transaction {
	mtype phase;
	bit moves;        /* it changes the offset, and no ref */
	bit key[REFS];    /* it holds the ref's key until it ends */
	bit row[REFS];    /* its row in history */
	byte old[REFS];   /* in the row */
	byte at[REFS];    /* the row's position */
	bit unflushed;    /* committed, visible, and not on the disk */
	byte offset;      /* what it is about to commit, or has read */
	byte first        /* the first position of the epoch it is about to commit */
};

Transaction tx[IDS + 1]; /* by ID, from 1 */
byte next = 1;
byte offset;
byte first = 1;          /* position of the present epoch */
byte value[REFS];
byte flushed;            /* the largest ID that is on the disk: later ones are assigned again after a crash */
bit crashed;
byte reused;             /* only for an event: IDs from this one to reused_end were assigned before the crash */
byte reused_end;

typedef Cursor { byte at; byte ref };
bit one_ref;             /* the follower reads ref 1 only */
Cursor cursor;           /* of the follower: all up to it was read; refs count from 1 here */
bit delivered[(IDS + 1) * REFS]; /* only for H1 */
byte newest;             /* only for an event: the last of those delivered, by order of commits */
byte commits[IDS + 1];   /* only for an event */

bit asked;               /* a reader was told a ref's value at a position */
byte asked_at;
byte asked_ref;
byte told;

/* Scratch, 0 between steps. */
byte x;
byte y;
byte z;
byte xmin;
byte upto;

#define position(i) (offset + (i))
#define running(i)  (tx[i].phase == OPEN || tx[i].phase == LOCKED)
#define visible(i, r) (tx[i].phase == COMMITTED && tx[i].row[r])
#define selected(r)   (!one_ref || (r) == 1)
#define sees(i, r)    (visible(i, r) && selected(r))

/* From a snapshot: the smallest ID that is still running, of any transaction. */
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

#ifdef WATERMARK_NEWEST
#define watermark 255
#else
#define watermark (offset + xmin)
#endif

/* The newest position that can be read, of any transaction: visible rows are on the disk, with all smaller IDs. */
inline read_upto() {
	upto = 0;
	for (x : 1 .. IDS) {
		if
		:: visible(x, 0) && tx[x].at[0] < watermark && tx[x].at[0] > upto -> upto = tx[x].at[0]
		:: else
		fi;
		if
		:: visible(x, 1) && tx[x].at[1] < watermark && tx[x].at[1] > upto -> upto = tx[x].at[1]
		:: else
		fi
	}
	x = 0
}

/* Names are paths: of a directory below the root of a site. Other places of a directory: */
#define STAGE    NAMES       /* the reserved place, one for each project, where no git begins */
#define ASIDE    (NAMES + 1) /* where directories of removed projects go */
#define NOWHERE  (NAMES + 2) /* deleted, or moved out of the root */
#define NO_NAME  NAMES       /* of a project: it is removed */

#define NONE 0
mtype = { OPEN, LOCKED, TOLD, MOVED, FAILED };           /* a process of git, or NONE */
mtype = { EXCLUSIVE, LEAVES, CHECKED };                  /* what the daemon does about a directory, or NONE */
mtype = { RENAME, REMOVE, RESTORE };                     /* a command, or NONE */

typedef Row {       /* in the database: a project, by its key */
	byte shown;     /* its visible name; NO_NAME: it is removed */
	bit value;      /* of its one ref */
	bit pending;    /* an intent: from the value to the other one */
	byte owner;     /* the site */
	bit living;     /* its git */
	bit moved;      /* only for F5: git has moved the ref */
	byte last       /* its latest name */
};

typedef Name {      /* in the database */
	byte former;    /* the project that left it, plus 1; 0: nobody, or it is forgotten */
	bit recent      /* so recently that not all sites know */
};

typedef Command {   /* an operator's, between its look and its transaction */
	mtype kind;
	byte key;
	byte name;      /* RENAME, RESTORE: to that */
	byte asked;     /* the name by which it was given the project */
	bit stands      /* the row is as it was read */
};

typedef Directory { /* of a project at a site: it records the project */
	byte at;
	byte recorded;  /* the name that it records: where the daemon placed it */
	bit here;       /* what the ref holds */
	bit locked;     /* there is git's lock file of the ref */
	bit known;      /* the site follows the project */
	bit lost;       /* it was looked for in vain */
	bit stands;     /* and the row is as it was then */
	bit astray;     /* only for F2: a person has moved it */
	byte shown      /* by the site's cache: the project's visible name */
};

typedef Push {      /* a process of git: it works in the directory in which it began, wherever that is now */
	mtype phase;
	byte path       /* of its lock file */
};

typedef Site {
	bit down;       /* its daemon */
	bit valid;      /* the cache: the database has answered in the last seconds */
	bit away;       /* its disk */
	bit junk;       /* something is in the way */
	byte junk_at;
	mtype doing;
	byte key;       /* with its directory */
	byte seen       /* the rename of the directory of that project, plus 1, was seen on disk */
};

Row db[KEYS];
Name name[NAMES];
Command command[COMMANDS];
Site site[SITES];
Directory directory[SITES * KEYS];
Push push[SITES * KEYS];
#define dir(s, k) directory[(s) * KEYS + (k)]
#define git(s, k) push[(s) * KEYS + (k)]

#ifdef CALM
bit calm; /* no more trouble, and nothing new begins */
#define trouble (!calm)
#else
#define trouble true
#endif
byte renames; /* so far, if there are RENAMES */
byte hands;   /* moves by a person */
bit begun;
byte y;
byte z;
byte x;       /* scratch, 0 between steps */

#define say(what, s) printf("site %d: ", s); printf(what); printf("\n")

#define other(k) (KEYS - 1 - (k))
#if KEYS == 2
#define is_at(s, p, k) (dir(s, k).at == (p))
#define any_at(s, p) (is_at(s, p, 0) || is_at(s, p, 1))
#define is_another(k, n) (db[other(k)].shown == (n))             /* the name is another project's */
#define owner_of(n) (db[0].shown == (n) -> 0 : (db[1].shown == (n) -> 1 : KEYS))
#else
#define any_at(s, p) (dir(s, 0).at == (p))
#define is_another(k, n) false
#define owner_of(n) (db[0].shown == (n) -> 0 : KEYS)
#endif
#define is_junk(s, p) (site[s].junk && site[s].junk_at == (p))
#define is_free(s, p) (!any_at(s, p) && !is_junk(s, p))
#define works(s)      (!site[s].down && !site[s].away)
#define in_root(s, k) (dir(s, k).at <= STAGE)
#define may_trouble(s) (trouble && (TROUBLED & (1 << (s))))
#define is_pending(s, k) (db[k].pending && db[k].owner == (s))
#define is_moving(s, k) (site[s].doing != NONE && site[s].key == (k))

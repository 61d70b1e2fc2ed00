/*
 * Names that exclude each other (docs/PROTOCOL.md, N7 to N9), for Spin: git holds no
 * refs/heads/t beside refs/heads/t/x. Sites create and delete both, on a database whose
 * statements see what was committed before they began, as PostgreSQL's do, and follow it.
 *
 * A run may be of any length. What an #ifdef changes is a seeded mistake, unless
 * it says otherwise.
 */
#ifndef SITES
#define SITES 2
#endif

/* -DPROMISE=n checks Nn alone; 0 checks all. */
#ifndef PROMISE
#define PROMISE 0
#endif
#define N1(x) assert(!(PROMISE == 0 || PROMISE == 1) || (x)) /* nothing is created beside a name that it excludes */
#define N2(x) assert(!(PROMISE == 0 || PROMISE == 2) || (x)) /* no two requests wait for each other */
#define N3(x) assert(!(PROMISE == 0 || PROMISE == 3) || (x)) /* each copy can get the database's values */
#define N4(x) assert(!(PROMISE == 0 || PROMISE == 4) || (x)) /* no request is refused because of a name that is gone, or that the request deletes */

/* Events that must be possible. With -DEVENT=n the first one is an error. */
#ifndef EVENT
#define EVENT 0
#endif
#define event(n) assert(n != EVENT)

#define LOCKED    1 /* a creation is refused because of a pending intent on the other name */
#define CONFLICT  2 /* a creation is refused because the other name holds a value */
#define AFTER     3 /* a name is created whose prefix was deleted */
#define REPLACED  4 /* a name is deleted, and the other created, in one request */
#define WAITED    5 /* two creators: one waits for the other's key */
#define FOLLOWED  6 /* a copy changes from one name to the other */
#define RESOLVED  7 /* one of an existing pair is deleted (PAIR) */

/* The keys in their order, which is that of their hashes. P is a proper prefix of both names, T of X. */
#define T 0 /* refs/heads/t */
#define P 1 /* refs/heads */
#define X 2 /* refs/heads/t/x */
#define KEYS 3
#define other(n) (X + T - (n))

/* The state of the database. */
bit holds[KEYS];     /* the ref has a value */
bit row[KEYS];       /* it has a row: a deleted ref keeps it */
byte intent[KEYS];   /* the site whose intent is pending, plus 1 */

/* The server's locks on keys, until the end of a transaction. */
typedef Key {
	bit exclusive[SITES];
	bit shared[SITES]
};
Key key[KEYS];
byte waits[SITES];   /* for this key, plus 1 */
bit waits_exclusive[SITES];

/* Each site's copy. */
typedef Copy {
	bit has[KEYS]
};
Copy copy[SITES];

/* A request's action, and its knowledge. NONE: no request. */
#define NONE   0
#define CREATE 1
#define DELETE 2
#define REPLACE 3 /* deletes the other name and creates this one */
typedef Request {
	byte kind;
	byte name;
	bit conflict;  /* by its snapshot */
	bit locked
};
Request request[SITES];

#define creation(i) (request[i].kind != DELETE)
#define replaces(i) (request[i].kind == REPLACE)

/* taken(k, i): whether another request has key k so that i can't have it. */
#if SITES == 2
#define taken(k, i, x) (key[k].exclusive[1 - i] || (x && key[k].shared[1 - i]))
#define in_circle(i) (waits[i] && waits[1 - i] && blocks(waits[i] - 1, 1 - i, waits_exclusive[i]) && blocks(waits[1 - i] - 1, i, waits_exclusive[1 - i]))
#else
#define taken(k, i, x) (key[k].exclusive[(i + 1) % 3] || key[k].exclusive[(i + 2) % 3] || (x && (key[k].shared[(i + 1) % 3] || key[k].shared[(i + 2) % 3])))
#define in_circle(i) false
#endif
#define blocks(k, i, x) (key[k].exclusive[i] || (x && key[k].shared[i]))

/* The creator of a ref holds the ref's key exclusively, and that of each proper prefix shared. */
#define exclusive_need(i, k) ((k) != P && ((k) == request[i].name || replaces(i)))
#ifdef PREFIX_UNLOCKED
#define shared_need(i, k) false
#else
#define shared_need(i, k) (creation(i) && ((k) == P || ((k) == T && request[i].name == X)))
#endif

inline take(i, k, x) {
	atomic {
		if
		:: taken(k, i, x) ->
			waits[i] = k + 1; waits_exclusive[i] = x;
			printf("site %d: waits for key %d\n", i, k);
			event(WAITED);
			N2(!in_circle(i))
		:: else
		fi
	};
	d_step {
		!taken(k, i, x);
		waits[i] = 0; waits_exclusive[i] = 0;
		if
		:: x -> key[k].exclusive[i] = 1
		:: else -> key[k].shared[i] = 1
		fi
	}
}

/* Each key once; exclusive if it is needed both exclusively and shared. */
inline take_key(i, k) {
#ifdef KEY_TWICE
	if
	:: shared_need(i, k) -> take(i, k, 0)
	:: else
	fi;
	if
	:: exclusive_need(i, k) -> take(i, k, 1)
	:: else
	fi
#else
	if
	:: exclusive_need(i, k) -> take(i, k, 1)
	:: !exclusive_need(i, k) && shared_need(i, k) -> take(i, k, 0)
	:: else
	fi
#endif
}

inline lock(i) {
#ifdef KEYS_UNSORTED
	/* that of the ref first, then those of its prefixes */
	if
	:: request[i].name == X -> take_key(i, X); take_key(i, T)
	:: else -> take_key(i, T); take_key(i, X)
	fi;
	take_key(i, P)
#else
	take_key(i, T); take_key(i, P); take_key(i, X)
#endif
}

/* The probes: of T as a prefix of X, of the range below T. */
#define o other(request[i].name)
#ifdef PREFIX_UNREAD
#define probed(i) (request[i].name == T)
#elif defined(RANGE_UNREAD)
#define probed(i) (request[i].name == X)
#else
#define probed(i) true
#endif
#ifdef DELETIONS_JUDGED
#define judged(i) true /* and so would be a change of the value */
#else
#define judged(i) creation(i)
#endif
#ifdef TOMBSTONES_COUNT
#define stands(n) row[n]
#else
#define stands(n) holds[n]
#endif
#ifdef OWN_DELETIONS_COUNT
#define goes(i) false
#else
#define goes(i) replaces(i)
#endif

inline read_refs(i) {
	request[i].conflict = (judged(i) && probed(i) && !goes(i) && stands(o));
	N4(!request[i].conflict || (creation(i) && !replaces(i) && holds[o]))
}

inline read_intents(i) {
#ifdef INTENTS_UNCOUNTED
	request[i].locked = 0
#else
	request[i].locked = (judged(i) && probed(i) && !goes(i) && intent[o] != 0);
	N4(!request[i].locked || creation(i))
#endif
}

inline look(i) {
#ifdef TABLES_APART
	d_step { read_refs(i) };
	d_step { read_intents(i) }
#else
	d_step { read_refs(i); read_intents(i) }
#endif
}

/* The rows of its own refs are under its keys: it compares them when it commits as well as before. */
#define fits(i) (intent[request[i].name] == 0 && holds[request[i].name] == (request[i].kind == DELETE) && (!replaces(i) || (intent[o] == 0 && holds[o])))

inline forget(i) {
	request[i].kind = NONE; request[i].name = 0; request[i].conflict = 0; request[i].locked = 0
}

/* Its writes become visible with the commit, which ends its locks. */
inline commit(i) {
	d_step {
		if
		:: !fits(i) ->
			printf("site %d: refused, for what the ref holds\n", i);
			forget(i)
		:: fits(i) && (request[i].locked || request[i].conflict) ->
			printf("site %d: name %d refused because of name %d\n", i, request[i].name, o);
			if
			:: request[i].locked -> event(LOCKED)
			:: else -> event(CONFLICT)
			fi;
			forget(i)
		:: else ->
			printf("site %d: an intent (%d) on name %d\n", i, request[i].kind, request[i].name);
			N1(!creation(i) || replaces(i) || (!holds[o] && intent[o] == 0));
			if
			:: creation(i) && !replaces(i) && row[o] -> event(AFTER)
			:: else
			fi;
			intent[request[i].name] = i + 1;
			if
			:: replaces(i) -> intent[o] = i + 1
			:: else
			fi
		fi;
		key[X].exclusive[i] = 0; key[X].shared[i] = 0;
		key[P].exclusive[i] = 0; key[P].shared[i] = 0;
		key[T].exclusive[i] = 0; key[T].shared[i] = 0
	}
}

/* The end of intents, under the keys of their refs. */
#define keys_free(i) (!taken(request[i].name, i, 1) && (!replaces(i) || !taken(other(request[i].name), i, 1)))
inline finish(i, moved) {
	printf("site %d: %d on name %d ends, moved: %d\n", i, request[i].kind, request[i].name, moved);
	if
	:: moved ->
		if
		:: !creation(i) && holds[o] -> event(RESOLVED)
		:: replaces(i) -> event(REPLACED)
		:: else
		fi;
		holds[request[i].name] = creation(i);
		row[request[i].name] = 1;
		if
		:: replaces(i) -> holds[o] = 0
		:: else
		fi
	:: else
	fi;
	intent[request[i].name] = 0;
	if
	:: replaces(i) -> intent[o] = 0
	:: else
	fi;
	moved = 0;
	forget(i)
}

inline begin(i, k, n) {
	printf("site %d: begins %d on name %d\n", i, k, n);
	request[i].kind = k; request[i].name = n
}

#define me _pid
active [SITES] proctype Site() {
	bit moved;
#ifdef PAIR
	d_step {
		holds[X] = 1; holds[T] = 1; row[X] = 1; row[T] = 1;
		copy[me].has[(me == 0 -> X : T)] = 1
	};
#endif
end:	do
	:: atomic {
		/* what git itself permits, in this copy */
		if
		:: !copy[me].has[X] && !copy[me].has[T] -> begin(me, CREATE, X)
		:: !copy[me].has[X] && !copy[me].has[T] -> begin(me, CREATE, T)
		:: copy[me].has[X] -> begin(me, DELETE, X)
		:: copy[me].has[T] -> begin(me, DELETE, T)
		:: copy[me].has[T] && !copy[me].has[X] -> begin(me, REPLACE, X)
		:: copy[me].has[X] && !copy[me].has[T] -> begin(me, REPLACE, T)
		fi
	   };
#ifdef SNAPSHOT_FIRST
	   look(me);
	   lock(me);
#else
	   lock(me);
	   look(me);
#endif
	   commit(me);
	   if
	   :: request[me].kind == NONE
	   :: request[me].kind != NONE ->
		if
		:: d_step {
			printf("site %d: git moves it\n", me);
			N3(!creation(me) || replaces(me) || !copy[me].has[other(request[me].name)]);
			moved = 1;
			copy[me].has[request[me].name] = creation(me);
			if
			:: replaces(me) -> copy[me].has[other(request[me].name)] = 0
			:: else
			fi
		   }
		:: true /* git dies, or gives up */
		fi;
		d_step { keys_free(me); finish(me, moved) }
	   fi
	od
}

/* A difference without an intent of this site. */
#define differs(n, i) (copy[i].has[n] != holds[n] && intent[n] != i + 1)
#define deletes(n, i) (differs(n, i) && !holds[n])
/* Not while a git process has the lock file of the other name, which would be in the way. */
#define makes(n, i)   (differs(n, i) && holds[n] && !(request[i].kind != NONE && creation(i) && request[i].name == other(n)))

inline follow_creation(i, n) {
	if
	:: makes(n, i) ->
		printf("site %d: follows, creates name %d\n", i, n);
		N3(!copy[i].has[other(n)] || (holds[X] && holds[T]));
		if
		:: !copy[i].has[other(n)] ->
			if
			:: row[other(n)] -> event(FOLLOWED)
			:: else
			fi;
			copy[i].has[n] = 1
		:: else
		fi
	:: else
	fi
}

inline follow_deletion(i, n) {
	if
	:: deletes(n, i) -> printf("site %d: follows, deletes name %d\n", i, n); copy[i].has[n] = 0
	:: else
	fi
}

#define s (_pid - SITES)
active [SITES] proctype Follower() {
end:	do
#ifdef FOLLOWS_AT_ONCE
	/* Git compares the names with those from before the transaction. */
	:: d_step { differs(X, s) || differs(T, s);
		follow_creation(s, X); follow_creation(s, T); follow_deletion(s, X); follow_deletion(s, T) }
#else
	:: d_step { deletes(X, s) || deletes(T, s); follow_deletion(s, X); follow_deletion(s, T) }
	:: d_step { !deletes(X, s) && !deletes(T, s) && (makes(X, s) || makes(T, s)); follow_creation(s, X); follow_creation(s, T) }
#endif
	od
}

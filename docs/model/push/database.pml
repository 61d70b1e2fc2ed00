/*
 * The database: each inline is one atomic transaction, which serves the request q
 * and leaves its answer. What an #ifdef changes is a seeded mistake.
 */
#define wanted(r) (q.what[r] != NONE)

inline receive(m) {
	q.site = of(m);
	q.agent = (m < SLOTS && !mem[m].ended -> m : DEAD);
	for (x : 0 .. REFS - 1) {
		q.old[x] = mem[m].old[x];
		q.new[x] = mem[m].new[x];
		q.ours[x] = mem[m].ours[x];
		q.what[x] = mem[m].what[x];
	}
	x = 0
}

inline served() {
	q.kind = NONE;
	q.site = 0;
	q.agent = 0;
	for (x : 0 .. REFS - 1) {
		q.old[x] = 0;
		q.new[x] = 0;
		q.ours[x] = 0;
		q.what[x] = NONE;
	}
	x = 0;
	answer = 0
}

#ifdef TIME_RECLAIM
#define blocked(r) (wanted(r) && db[r].pending && db[r].owner == q.site)
#else
#define blocked(r) (wanted(r) && db[r].pending)
#endif
#ifdef PREPARE_UNCOMPARED
#define differs(r) false
#else
#define differs(r) (wanted(r) && db[r].value != q.old[r])
#endif

/* DB.Intents().Prepare: all or none. */
inline serve_prepare() {
	if
	:: any(blocked) -> answer = BUSY
	:: !any(blocked) && any(differs) -> answer = MISMATCH
	:: else ->
		answer = DONE;
		for (x : 0 .. REFS - 1) {
			if
			:: wanted(x) ->
				S3(!db[x].pending);
				end_intent(x);
				db[x].pending = 1;
				db[x].owner = q.site;
				db[x].agent = q.agent;
				db[x].unconfirmed = 1;
				db[x].old = q.old[x];
				db[x].new = q.new[x]
			:: else
			fi;
		}
		x = 0
	fi
}

/* DB.Intents().Revoke: the request of m was not recorded, and will not be. */
inline serve_revoke(m) {
	for (x : 0 .. REFS - 1) {
		if
		:: mem[m].what[x] != NONE && db[x].unconfirmed && db[x].owner == of(m) ->
			S2(!db[x].moved);
			S4(!may_move(db[x].agent, x));
			end_intent(x)
		:: else
		fi
	}
	x = 0;
#ifndef ASKED_AGAIN
	if
	:: late.kind == PREPARING && late.site == of(m) -> drop_late()
	:: else
	fi
#endif
}

#ifdef FINISH_UNCHECKED
#define missing(r) false
#else
#define missing(r) (wanted(r) && !q.ours[r])
#endif

/* DB.Intents().Finish: all or none. */
inline serve_finish() {
	if
	:: any(missing) -> answer = GONE
	:: else ->
		answer = DONE;
		for (x : 0 .. REFS - 1) {
			if
			:: wanted(x) ->
				S4(!may_move(db[x].agent, x));
				if
				:: q.what[x] == DONE ->
					/* From the value that it was prepared for, by a move that was made. */
					S1(db[x].moved && db[x].value == db[x].old);
					step(db[x].owner, x, db[x].new, 1)
				:: else -> S2(!db[x].moved)
				fi;
				end_intent(x)
			:: else
			fi;
		}
		x = 0
	fi
}

/* DB.Intents().Resolve, by an operator: site s can't be asked. */
inline serve_resolve(r, take) {
	decided(db[r].owner, r).stands = 1;
	decided(db[r].owner, r).agent = db[r].agent;
	if
	:: db[r].agent < SLOTS -> push[db[r].agent].decided[r] = 1
	:: else
	fi;
	if
	:: take -> step(db[r].owner, r, db[r].new, db[r].moved)
	:: !take && db[r].moved -> copy[db[r].owner].current[r] = 0; copy[db[r].owner].astray[r] = 1
	:: else
	fi;
	end_intent(r)
}

/* A request that its daemon gave up on. */
inline late_arrives() {
	q.site = late.site;
	q.agent = late.agent;
	for (x : 0 .. REFS - 1) {
		q.old[x] = late.old[x];
		q.new[x] = late.new[x];
		q.ours[x] = late.ours[x];
		q.what[x] = late.what[x];
	}
	x = 0;
	if
	:: late.kind == PREPARING -> serve_prepare();
		if
		:: answer == DONE -> event(LATE_PREPARE)
		:: else
		fi
	:: else -> serve_finish();
		if
		:: answer == DONE -> event(LATE_FINISH)
		:: else
		fi
	fi;
	printf("database: a late request of site %d: %e\n", q.site, answer);
	served();
	drop_late()
}

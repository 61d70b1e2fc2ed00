/*
 * The rows of projects and names, and the commands that change them: each looks once,
 * and then acts in one transaction, if the row is still the one that it has read.
 */
inline changed(k) {
	for (x : 0 .. COMMANDS - 1) {
		if
		:: command[x].kind != NONE && command[x].key == k -> command[x].stands = 0
		:: else
		fi
	}
	for (x : 0 .. SITES - 1) {
		dir(x, k).stands = 0
	}
	x = 0
}

inline leave_name(k) {
	if
	:: db[k].shown != NO_NAME ->
		name[db[k].shown].former = k + 1;
		name[db[k].shown].recent = 1
	:: else
	fi
}

/* A name is nobody's, was this project's last, or was left long enough ago. */
#ifdef TAKEN_AT_ONCE
#define long_ago(n) true
#else
#define long_ago(n) (!name[n].recent)
#endif
#ifdef NAME_UNCHECKED
#define is_nobodys(n) true
#else
#define is_nobodys(n) (owner_of(n) == KEYS)
#endif
#define may_take(k, n) (is_nobodys(n) && (name[n].former == 0 || name[n].former == (k) + 1 || long_ago(n)))

inline take_name(k, n) {
	printf("database: project %d is %d, not %d any more\n", k, n, db[k].shown);
	F6(owner_of(n) == KEYS);
	if
	:: name[n].former != 0 && name[n].former != k + 1 -> event(TAKEN_AGAIN)
	:: else
	fi;
	leave_name(k);
	name[n].former = 0;
	name[n].recent = 0;
	db[k].shown = n;
	db[k].last = n;
	changed(k)
}

inline remove_project(k) {
	printf("database: project %d is removed\n", k);
	leave_name(k);
	db[k].shown = NO_NAME;
	changed(k)
}

/* No site accepts a push under that name any more, by what the name was. */
#define believes(s, n) (site[s].valid && !site[s].down && name[n].former != 0 && dir(s, name[n].former - 1).shown == (n))
#if SITES == 2
#define none_believes(n) (!believes(0, n) && !believes(1, n))
#define none_goes(k) (!goes(0, k) && !goes(1, k))
#else
#define none_believes(n) (!believes(0, n))
#define none_goes(k) (!goes(0, k))
#endif
/* A site has read that the project is removed, and is about to act. */
#define goes(s, k) (site[s].doing == CHECKED && site[s].key == (k))

inline end_command(c) {
	command[c].kind = NONE;
	command[c].key = 0;
	command[c].name = 0;
	command[c].asked = 0;
	command[c].stands = 0
}

inline begin_command(c, what, k, n) {
	command[c].kind = what;
	command[c].key = k;
	command[c].name = n;
	command[c].asked = db[k].shown;
	command[c].stands = 1
}

#ifdef ROW_UNCOMPARED
#define may_act(c) true
#else
#define may_act(c) command[c].stands
#endif
#ifdef RESOLVED_AGAIN
/* By the name that it was given: it may be another project's by now. */
#define meant(c) (command[c].kind == RESTORE || owner_of(command[c].asked) == KEYS -> command[c].key : owner_of(command[c].asked))
#else
#define meant(c) (command[c].key)
#endif

#define strays_to(k, n) (dir(0, k).at == (n) && dir(0, k).recorded != (n))

inline act(c) {
	y = meant(c);
	z = command[c].name;
	if
	:: may_act(c) || y != command[c].key ->
		F6(command[c].stands && y == command[c].key);
		if
		:: command[c].kind == REMOVE -> remove_project(y)
		:: command[c].kind != REMOVE && may_take(y, z) ->
			if
			:: command[c].kind == RESTORE -> event(RESTORED)
			:: else
			fi;
			if
			:: command[c].kind == RENAME && strays_to(y, z) -> event(CONFIRMED)
			:: else
			fi;
			take_name(y, z)
		:: else ->
			if
			:: owner_of(z) == KEYS -> event(TOO_SOON)
			:: else
			fi
		fi
	:: else -> event(OVERTAKEN)
	fi;
	y = 0;
	z = 0;
	end_command(c)
}

#ifdef RENAMES
#define may_begin (trouble && renames < RENAMES)
#define count_rename() renames++
#else
#define may_begin trouble
#define count_rename() skip
#endif

#define renames_to(k, n) (db[k].shown != NO_NAME && db[k].shown != (n))
#define begin_rename(c, k, n) count_rename(); begin_command(c, RENAME, k, n)
/* Brought back with its latest name or another one, before it is forgotten; while no site is about to act on the removal. */
#define restores(k) (db[k].shown == NO_NAME && none_goes(k))

#define me _pid
#define idle (may_begin && command[me].kind == NONE)
active [COMMANDS] proctype Operator() provided (begun) {
end:	do
	:: d_step { idle && renames_to(0, 0); begin_rename(me, 0, 0) }
	:: d_step { idle && renames_to(0, 1); begin_rename(me, 0, 1) }
	:: d_step { idle && NAMES > 2 && renames_to(0, NAMES - 1); begin_rename(me, 0, NAMES - 1) }
#if KEYS == 2
	:: d_step { idle && renames_to(1, 0); begin_rename(me, 1, 0) }
	:: d_step { idle && renames_to(1, 1); begin_rename(me, 1, 1) }
	:: d_step { idle && NAMES > 2 && renames_to(1, NAMES - 1); begin_rename(me, 1, NAMES - 1) }
#endif
#ifdef REMOVES
	:: d_step { idle && db[0].shown != NO_NAME; count_rename(); begin_command(me, REMOVE, 0, 0) }
	:: d_step { idle && restores(0); count_rename(); begin_command(me, RESTORE, 0, db[0].last) }
#endif
	:: d_step { command[me].kind != NONE && (command[me].kind != RESTORE || none_goes(command[me].key)); act(me) }
	:: d_step { command[me].kind != NONE && trouble; end_command(me) } /* it dies */
	od
}

/* Time passes: no site goes by what the name was any more; what it was is forgotten. */
#define settles(n) (name[n].recent && none_believes(n))
#define forgets(n) (name[n].former != 0 && !name[n].recent && trouble)
active proctype Time() provided (begun) {
end:	do
	:: d_step { settles(0); name[0].recent = 0 }
	:: d_step { settles(1); name[1].recent = 0 }
	:: d_step { forgets(0); name[0].former = 0 }
	:: d_step { forgets(1); name[1].former = 0 }
#if NAMES == 3
	:: d_step { settles(NAMES - 1); name[NAMES - 1].recent = 0 }
	:: d_step { forgets(NAMES - 1); name[NAMES - 1].former = 0 }
#endif
#ifdef CALM
	:: d_step { !calm; calm = 1 }
	:: d_step { timeout; event(RESTED); F2(rested) }
#endif
	od
}

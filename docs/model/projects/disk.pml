/*
 * What persons and other programs do on a site's disk: they move directories, delete them, put
 * them back, put something in the way, and unmount the disk; and what the daemon makes of that.
 */
#define is_placed(s, k) (dir(s, k).at < NAMES && !site[s].away)
/* Not over the path of a running git: see the README. */
#if KEYS == 2
#define no_git_at(s, p, k) (git(s, other(k)).phase == NONE || git(s, other(k)).path != (p))
#else
#define no_git_at(s, p, k) true
#endif
#define may_put(s, k, p) (is_free(s, p) && no_git_at(s, p, k) && site[s].doing == NONE)
#ifdef HANDS
#define has_hands (trouble && hands < HANDS)
#else
#define has_hands false
#endif

#define stands_at(s, k) (dir(s, k).shown == dir(s, k).recorded)
inline move_by_hand(s, k, p) {
	printf("site %d: a person moves project %d from %d to %d\n", s, k, dir(s, k).at, p);
	event(ASTRAY);
	hands++;
	dir(s, k).at = p;
	dir(s, k).astray = (p != dir(s, k).recorded)
#ifdef FOLLOWS
	;
	if
	:: !site[s].down && site[s].seen == 0 && p < NAMES && stands_at(s, k) -> site[s].seen = k + 1
	:: else
	fi
#endif
}

/* Both halves of a rename were seen: the project is renamed, if it still has the name that the directory had. */
inline follow_rename(s, k) {
	if
	:: dir(s, k).at < NAMES && dir(s, k).at != db[k].shown && db[k].shown == dir(s, k).recorded && may_take(k, dir(s, k).at) ->
		event(FOLLOWED);
		y = dir(s, k).at;
		take_name(k, y);
		y = 0
	:: else -> event(LOST_FOLLOW)
	fi;
	site[s].seen = 0
}

/* onDelete: nothing below the root records the project, and the root is there. */
#ifdef AWAY_UNSEEN
#define sees_root(s) true
#else
#define sees_root(s) (!site[s].away)
#endif
#ifdef LOOKS_AT_NAME
#define is_missing(s, k) (site[s].away || dir(s, k).at != wanted(s, k))
#else
#define is_missing(s, k) (site[s].away || !in_root(s, k))
#endif
#define misses(s, k) (!site[s].down && site[s].valid && sees_root(s) && dir(s, k).known && wanted(s, k) != NO_NAME && is_missing(s, k))
#ifdef LOST_UNCOMPARED
#define as_it_was(s, k) (db[k].shown != NO_NAME)
#else
#define as_it_was(s, k) (dir(s, k).stands && db[k].shown != NO_NAME)
#endif
inline remove_lost(s, k) {
	F3(!in_root(s, k));
	F6(dir(s, k).stands);
	event(GONE);
	remove_project(k);
	dir(s, k).lost = 0;
	dir(s, k).stands = 0;
	dir(s, k).known = 0
}

#undef me
#define me (_pid - COMMANDS - 1 - SITES * KEYS - SITES)
#define hand(s) (has_hands && (HANDY & (1 << (s))))
active [SITES] proctype Disk() provided (begun) {
end:	do
	:: d_step { hand(me) && is_placed(me, 0) && may_put(me, 0, 0); move_by_hand(me, 0, 0) }
	:: d_step { hand(me) && is_placed(me, 0) && may_put(me, 0, 1); move_by_hand(me, 0, 1) }
	:: d_step { hand(me) && is_placed(me, 0) && NAMES > 2 && may_put(me, 0, NAMES - 1); move_by_hand(me, 0, NAMES - 1) }
#if KEYS == 2
	:: d_step { hand(me) && is_placed(me, 1) && may_put(me, 1, 0); move_by_hand(me, 1, 0) }
	:: d_step { hand(me) && is_placed(me, 1) && may_put(me, 1, 1); move_by_hand(me, 1, 1) }
	:: d_step { hand(me) && is_placed(me, 1) && NAMES > 2 && may_put(me, 1, NAMES - 1); move_by_hand(me, 1, NAMES - 1) }
#endif
#ifdef FOLLOWS
	:: d_step { site[me].seen == 1; follow_rename(me, 0) }
#if KEYS == 2
	:: d_step { site[me].seen == 2; follow_rename(me, 1) }
#endif
#endif
#ifdef JUNK
	:: d_step { trouble && !site[me].junk && is_free(me, NAMES - 1); site[me].junk = 1; site[me].junk_at = NAMES - 1 }
	:: d_step { site[me].junk;
		if
		:: wanted(me, 0) == site[me].junk_at -> event(OBSTRUCTED)
		:: else
		fi;
		site[me].junk = 0; site[me].junk_at = 0 }
#endif
#ifdef UNMOUNTS
	:: d_step { may_trouble(me) && !site[me].away && site[me].doing == NONE; site[me].away = 1 }
	:: d_step { site[me].away; site[me].away = 0 }
#endif
#ifdef ON_DELETE
	:: d_step { hand(me) && is_placed(me, 0) && git(me, 0).phase == NONE; say("a directory is deleted", me); hands++; dir(me, 0).at = NOWHERE }
	:: d_step { trouble && dir(me, 0).at == NOWHERE && dir(me, 0).known && is_free(me, dir(me, 0).recorded); say("it is back", me);
		if
		:: dir(me, 0).lost -> event(BACK)
		:: else
		fi;
		dir(me, 0).at = dir(me, 0).recorded }
	:: d_step { misses(me, 0) && !dir(me, 0).lost; dir(me, 0).lost = 1; dir(me, 0).stands = (db[0].shown == wanted(me, 0)) }
	:: d_step { dir(me, 0).lost && !site[me].down && !misses(me, 0); dir(me, 0).lost = 0; dir(me, 0).stands = 0 }
	:: d_step { dir(me, 0).lost && misses(me, 0) && as_it_was(me, 0); remove_lost(me, 0) }
	:: d_step { dir(me, 0).lost && !as_it_was(me, 0); dir(me, 0).lost = 0; dir(me, 0).stands = 0 }
#endif
	od
}

/* Project 0 has name 0, and project 1 name 1; each site has a directory of both. */
active proctype Beginning() {
	d_step {
		for (x : 0 .. KEYS - 1) {
			db[x].shown = x;
			db[x].last = x
		}
		for (x : 0 .. SITES * KEYS - 1) {
			directory[x].at = x % KEYS;
			directory[x].recorded = x % KEYS;
			directory[x].shown = x % KEYS;
			directory[x].known = 1
		}
		for (x : 0 .. SITES - 1) {
			site[x].valid = 1
		}
		x = 0;
		begun = 1
	}
}

/*
 * The database: each inline is one atomic transaction. The effects of late requests are in the model
 * of pushes. What an #ifdef changes is a seeded mistake.
 */
inline end_intent(r) {
	db[r].pending = 0;
	db[r].decided = 0;
	db[r].agent = 0;
	db[r].old = 0;
	db[r].new = 0;
	db[r].moved = 0
}

inline step_to(r, v, so) {
	db[r].value = v;
	current[r] = so;
	if
	:: follower_ref == r -> latest = 0
	:: else
	fi
}

inline record(i, r, a, b) {
	J5(!db[r].pending && !db[r].decided);
	db[r].pending = 1;
	db[r].agent = i;
	db[r].old = a;
	db[r].new = b;
	db[r].moved = 0
}

/* According to the repository. */
inline finish(r) {
	if
	:: here[r] == db[r].new -> J5(db[r].moved && db[r].value == db[r].old); step_to(r, db[r].new, 1)
	:: here[r] != db[r].new && here[r] == db[r].old -> J5(!db[r].moved)
	:: else -> printf("an alarm: ref %d has %d, neither %d nor %d\n", r, here[r], db[r].old, db[r].new); J5(false)
	fi;
	end_intent(r)
}

/* An operator: the site can't be asked. */
inline resolve(r, take) {
	if
	:: take -> step_to(r, db[r].new, db[r].moved)
	:: else -> current[r] = 0
	fi;
	db[r].pending = 0;
	db[r].decided = 1
}

/* The environment of the sites, and the end of all trouble. */
#define say_foreign(what) printf("database: a foreign transaction "); printf(what); printf("\n")
#ifdef FOREIGN
bit foreign_was; /* 2: it never ends */
#endif

active proctype Surroundings() {
end:	do
#if DAYS > 0
	:: d_step { trouble && days < DAYS; pass_days() }
#endif
#ifdef FOREIGN
	:: d_step { trouble && foreign == 0 && !foreign_was; say_foreign("begins"); foreign = next; foreign_was = 1 }
#if FOREIGN == 1
	:: d_step { foreign != 0; say_foreign("ends"); foreign = 0; unstick() }
#endif
#endif
#ifdef CALM
	:: d_step { !calm; calm = 1; unstick() }
	:: d_step { timeout;
		if
		:: value[0] != 1 && value[1] != 1 && next > 2 -> event(RESTED)
		:: else
		fi;
		for (x : 0 .. SITES - 1) {
			C4(at_rest(x))
		}
		x = 0 }
#endif
	od
}

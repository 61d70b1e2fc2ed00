/*
 * The network and the database behind it. A request takes effect at some time
 * after it was sent, or never; its answer arrives at some time after that, or
 * never: its sender may give up on either at any time. A request that was
 * given up on may be lost, or take effect later still.
 */
#define note(i, what, a) printf("database, to site %d: ", i); printf(what); printf(": %e\n", a)

/* The sender of a call gives up, and does not know whether it took effect. */
inline give_up(i) {
	if
	:: site[i].phase == ASKING -> site[i].token = 0
	:: else
	fi;
	site[i].call = NONE;
	site[i].doubt = 1
}

/* A request that its sender gives up on stays in flight. */
inline postpone(k, i) {
	late.kind = k;
	late.site = i;
	if
	:: k == ACQUIRE || k == ABANDON -> late.nonce = site[i].nonce
	:: k == UPDATE -> late.token = site[i].token; late.op = site[i].op; late.current = site[i].current
	:: k == PUT -> late.op = site[i].op; late.current = site[i].current
	:: else -> late.token = site[i].token
	fi
}

inline drop_late() {
	if
	:: late.op != 0 && late.op != writer && site[late.site].op != late.op -> applied[late.op] = 0
	:: else
	fi;
	late.kind = NONE;
	late.site = 0;
	late.token = 0;
	late.nonce = 0;
	late.op = 0;
	late.current = 0;
	tidy()
}

inline receive(i) {
	r.site = i;
	r.token = site[i].token;
	r.nonce = site[i].nonce;
	r.op = site[i].op;
	r.current = site[i].current;
	r.seen = (site[i].call == CHECKED)
}

inline served() {
	r.site = 0;
	r.token = 0;
	r.nonce = 0;
	r.op = 0;
	r.current = 0;
	r.seen = 0;
	answer = 0;
	unused = 0
}

inline call_arrives(i) {
	receive(i);
	if
	:: site[i].phase == ASKING ->
		serve_acquire();
		note(i, "acquire", answer);
		if
		:: answer == DONE -> site[i].token = r.token; site[i].current = 1
		:: else
		fi
	:: site[i].phase == RELEASING -> serve_release(); note(i, "release", answer)
	:: site[i].phase == PUTTING   -> serve_put();     note(i, "unfenced update", answer)
	:: else /* HOLDING */         -> serve_update();  note(i, "fenced update", answer);
		if
		:: answer == GONE && site[i].running != RUNNING -> event(REFUSED_WRITE)
		:: else
		fi
	fi;
	site[i].call = answer;
	served();
	/* A request without effect is not answered late: that equals a late request. */
	if
	:: site[i].call == LOCKED && site[i].phase == ASKING -> forget(i)
	:: site[i].call == GONE && site[i].phase == RELEASING -> judge(i)
	:: else -> tidy()
	fi
}

inline beat_arrives(i) {
	receive(i);
	serve_beat();
	note(i, "beat", answer);
	site[i].beat = answer;
	served();
	if
	:: site[i].beat == GONE -> event(LOST_BY_BEAT); lose(i)
	:: else
	fi
}

inline late_arrives() {
	r.site = late.site;
	r.token = late.token;
	r.nonce = late.nonce;
	r.op = late.op;
	r.current = late.current;
	r.seen = 0;
	if
	:: late.kind == ACQUIRE -> serve_acquire()
	:: late.kind == BEAT    -> serve_beat()
	:: late.kind == RELEASE -> serve_release()
	:: late.kind == ABANDON -> serve_abandon(); answer = GONE
	:: late.kind == UPDATE  -> serve_update()
	:: late.kind == PUT     -> serve_put()
	fi;
	printf("database, to site %d: late %e: %e\n", late.site, late.kind, answer);
	if
	:: answer == DONE -> event(LATE_REQUEST)
	:: answer == GONE && late.kind == BEAT && lock.token != 0 -> event(REFUSED_BEAT)
	:: else
	fi;
	served();
	drop_late()
}

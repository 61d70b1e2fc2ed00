#include <stddef.h>

// How far the hook came before Go's runtime started.
struct shortcut {
	const char *stdin_text; // what was read of standard input, maybe not all
	size_t stdin_len;
	const char *answer; // the daemon's whole answer, if there is one
	size_t answer_len;
	long long took_ns;
};

struct shortcut shortcut_taken(void);

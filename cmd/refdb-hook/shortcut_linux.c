// The shortcut: nearly every call of the hook is a plain one, and the daemon agrees.
// To start Go's runtime for those would take longer than all that is to do, so this asks
// before it starts.
//
// It ends the process only with status 0, and only if the daemon's whole answer is
// "ok", or there is nothing to ask for. Whatever else happens, it does nothing about it: the
// Go program, which knows all cases, goes on with what was read and answered so far.

#include "shortcut.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

enum { MAX_HEADER = 8 << 10, MAX_BODY = 256 << 10, MAX_ANSWER = 64 << 10 };

// The body of a request stands after the room for its header, so that both are sent at once.
static char request[MAX_HEADER + MAX_BODY];
static char *const body = request + MAX_HEADER;
static char answer[MAX_ANSWER];

static struct shortcut taken;
static struct timespec began;

struct shortcut shortcut_taken(void)
{
	return taken;
}

static long long elapsed_ns(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (now.tv_sec - began.tv_sec) * 1000000000LL + now.tv_nsec - began.tv_nsec;
}

// limit_ms returns how long the hook may take, or 0 if it isn't said plainly.
static long limit_ms(void)
{
	const char *text = getenv("REFDB_HOOK_TIMEOUT");
	if (!text)
		return 5000;
	char *unit;
	long n = strtol(text, &unit, 10);
	if (n <= 0 || n > 3600000 || *text < '0' || *text > '9')
		return 0;
	return !strcmp(unit, "ms") ? n : !strcmp(unit, "s") ? n * 1000 : 0;
}

// state_of returns what the daemon is asked about, or NULL if this call is no plain one.
static const char *state_of(int argc, char **argv)
{
	const char *name = argc > 0 ? strrchr(argv[0], '/') : NULL;
	if (!name)
		return NULL;
	if (argc == 4 && !strcmp(name, "/update"))
		return "update";
	if (argc != 2 || strcmp(name, "/reference-transaction"))
		return NULL;
	for (const char *const *s = (const char *const[]){"prepared", "committed", "aborted", NULL}; *s; s++)
		if (!strcmp(argv[1], *s))
			return *s;
	return NULL;
}

// usual_place reports whether git runs the hook as it does for a push, in the
// repository's directory, and there is no other hook to be run before it. That the
// directory is one that the daemon serves is for the daemon to find out.
static int usual_place(const char *self)
{
	const char *dir = getenv("GIT_DIR");
	char chained[4096];
	return dir && !strcmp(dir, ".") && !getenv("GIT_COMMON_DIR") && !getenv("REFDB_REPLICA") &&
	       snprintf(chained, sizeof chained, "%s.chained", self) < (int)sizeof chained &&
	       access(chained, X_OK) != 0 && errno == ENOENT;
}

// read_body reads standard input to its end. It reports whether all went well.
static int read_body(void)
{
	taken.stdin_text = body;
	while (taken.stdin_len < MAX_BODY) {
		ssize_t n = read(STDIN_FILENO, body + taken.stdin_len, MAX_BODY - taken.stdin_len);
		if (n == 0)
			return 1;
		if (n > 0)
			taken.stdin_len += n;
		else if (errno != EINTR)
			return 0;
	}
	return 0;
}

static size_t hex_digits(const char *text, const char *end)
{
	const char *p = text;
	while (p < end && ((*p >= '0' && *p <= '9') || (*p >= 'a' && *p <= 'f')))
		p++;
	return p - text;
}

// plain_lines reports whether all lines are OLD NEW REF, with IDs of objects.
static int plain_lines(const char *p, const char *end)
{
	while (p < end) {
		const char *eol = memchr(p, '\n', end - p);
		if (!eol)
			return 0;
		size_t id = hex_digits(p, eol);
		if ((id != 40 && id != 64) || p[id] != ' ' || hex_digits(p + id + 1, eol) != id || p[2 * id + 1] != ' ')
			return 0;
		p += 2 * id + 2;
		if (p == eol)
			return 0;
		for (; p < eol; p++)
			if ((unsigned char)*p <= ' ' || *p == 0x7f)
				return 0;
		p++;
	}
	return 1;
}

// wait_at_most bounds what is sent or received next.
static int wait_at_most(int fd, int option, long ms)
{
	struct timeval t = {ms / 1000, ms % 1000 * 1000};
	return ms > 0 && setsockopt(fd, SOL_SOCKET, option, &t, sizeof t) == 0;
}

// exchange sends a request and receives the whole answer. It reports whether all went well.
static int exchange(int fd, const char *text, size_t len, long limit)
{
	const struct sockaddr_un address = {.sun_family = AF_UNIX, .sun_path = "refdb/socket"};
	if (!wait_at_most(fd, SO_SNDTIMEO, limit - elapsed_ns() / 1000000) ||
	    connect(fd, (const struct sockaddr *)&address, sizeof address) != 0 ||
	    send(fd, text, len, 0) != (ssize_t)len || shutdown(fd, SHUT_WR) != 0)
		return 0;
	while (taken.answer_len < MAX_ANSWER) {
		if (!wait_at_most(fd, SO_RCVTIMEO, limit - elapsed_ns() / 1000000))
			return 0;
		ssize_t n = recv(fd, answer + taken.answer_len, MAX_ANSWER - taken.answer_len, 0);
		if (n == 0)
			return taken.answer_len > 0;
		if (n > 0)
			taken.answer_len += n;
		else if (errno != EINTR)
			return 0;
	}
	return 0;
}

// ask sends the daemon the body as package wire does it, and returns whether it has answered.
static int ask(const char *state, size_t body_len, long limit)
{
	char dir[4096], header[MAX_HEADER];
	if (!getcwd(dir, sizeof dir) || dir[0] != '/' || strchr(dir, '\n'))
		return 0;
	int len = snprintf(header, sizeof header, "refdb-hook 1\nstate %s\ndir %s\nlimit %lld\n\n", state, dir,
			   limit - elapsed_ns() / 1000000);
	if (len >= (int)sizeof header)
		return 0;
	memcpy(body - len, header, len);
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return 0;
	int answered = exchange(fd, body - len, len + body_len, limit);
	close(fd);
	return answered;
}

static void ignore(int signal)
{
	(void)signal;
}

static void take(int argc, char **argv)
{
	const char *state = state_of(argc, argv);
	long limit = limit_ms();
	size_t len;
	if (!state || !limit || !usual_place(argv[0]))
		return;
	// As the Go program does, for the same reason.
	const struct sigaction heedless = {.sa_handler = ignore, .sa_flags = SA_RESTART};
	for (const int *s = (const int[]){SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGPIPE, 0}; *s; s++)
		sigaction(*s, &heedless, NULL);
	if (!strcmp(state, "update")) {
		int n = snprintf(body, MAX_BODY, "%s %s %s\n", argv[2], argv[3], argv[1]);
		if (n < 0 || n >= MAX_BODY)
			return;
		len = n;
	} else {
		if (!read_body())
			return;
		len = taken.stdin_len;
		if (len == 0)
			_exit(0);
	}
	if (!plain_lines(body, body + len) || !ask(state, len, limit))
		return;
	if (taken.answer_len == 3 && !memcmp(answer, "ok\n", 3))
		_exit(0);
	taken.answer = answer;
}

#ifdef __GLIBC__ // others don't pass arguments to constructors
__attribute__((constructor))
#endif
__attribute__((unused)) static void
shortcut(int argc, char **argv)
{
	clock_gettime(CLOCK_MONOTONIC, &began);
	take(argc, argv);
	taken.took_ns = elapsed_ns();
}

// The shortcut: nearly every call of the hook is a plain one, and the daemon agrees.
// To start Go's runtime for those would take longer than all that is to do; and on a
// virtual machine even the C library's start, which asks what the processor can do, takes longer.
// So this is where the process begins, before either, with nothing but system calls.
//
// It ends the process only with status 0, and only if the daemon's whole answer is
// "ok", or there is nothing to ask for. Whatever else happens, it does nothing about it: the
// Go program, which knows all cases, starts and goes on with what was read and answered so far.
//
// No function of the C library may be called here, nor by the compiler on its own.
#pragma GCC optimize("no-tree-loop-distribute-patterns")

#include "shortcut.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

// The program's entry: it calls take with the initial stack, and then starts
// everything else as if nothing had been.
__asm__(".text\n"
	".globl shortcut\n"
	".type shortcut, @function\n"
	"shortcut:\n"
	"	movq %rsp, %rbx\n"
	"	movq %rdx, %r12\n" // the dynamic linker's, for _start
	"	movq %rsp, %rdi\n"
	"	andq $-16, %rsp\n"
	"	call shortcut_take\n"
	"	movq %rbx, %rsp\n"
	"	movq %r12, %rdx\n"
	"	jmp _start\n");

enum { MAX_HEADER = 8 << 10, MAX_BODY = 256 << 10, MAX_ANSWER = 64 << 10, MAX_PATH = 4 << 10 };

// The body of a request stands after the room for its header, so that both are sent at once.
static char request[MAX_HEADER + MAX_BODY];
static char *const body = request + MAX_HEADER;
static char answer[MAX_ANSWER], path[MAX_PATH];
static struct sockaddr_un address = {.sun_family = AF_UNIX, .sun_path = "refdb/socket"};

static struct shortcut taken;
static struct timespec began;

struct shortcut shortcut_taken(void)
{
	return taken;
}

static long sys(long number, long a, const void *b, long c, const void *d, long e)
{
	long result;
	register const void *r10 __asm__("r10") = d;
	register long r8 __asm__("r8") = e;
	register long r9 __asm__("r9") = 0;
	__asm__ volatile("syscall"
			 : "=a"(result)
			 : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
			 : "rcx", "r11", "memory");
	return result; // below 0: a negative errno
}

static size_t length(const char *s)
{
	size_t n = 0;
	while (s[n])
		n++;
	return n;
}

static int equal(const char *s, const char *t)
{
	while (*s && *s == *t)
		s++, t++;
	return *s == *t;
}

// A text is put together in a buffer; one that doesn't fit becomes whole = 0.
struct text {
	char *at, *end;
	int whole;
};

static void append(struct text *t, const char *s)
{
	while (*s && t->at < t->end)
		*t->at++ = *s++;
	t->whole = t->whole && !*s;
}

static void append_number(struct text *t, long n)
{
	char digits[24];
	char *p = digits + sizeof digits - 1;
	*p = 0;
	do
		*--p = '0' + n % 10;
	while (n /= 10);
	append(t, p);
}

// lookup returns a variable of the environment, or NULL.
static const char *lookup(char **env, const char *name)
{
	size_t n = length(name);
	for (; *env; env++) {
		size_t i = 0;
		while (i < n && (*env)[i] == name[i])
			i++;
		if (i == n && (*env)[n] == '=')
			return *env + n + 1;
	}
	return NULL;
}

static long long elapsed_ns(void)
{
	struct timespec now;
	sys(SYS_clock_gettime, CLOCK_MONOTONIC, &now, 0, NULL, 0);
	return (now.tv_sec - began.tv_sec) * 1000000000LL + now.tv_nsec - began.tv_nsec;
}

// limit_ms returns how long the hook may take, or 0 if it isn't said plainly.
static long limit_ms(char **env)
{
	const char *s = lookup(env, "REFDB_HOOK_TIMEOUT");
	if (!s)
		return 5000;
	long n = 0;
	for (; *s >= '0' && *s <= '9' && n < 1000000; s++)
		n = n * 10 + *s - '0';
	return equal(s, "ms") ? n : equal(s, "s") ? n * 1000 : 0;
}

// state_of returns what the daemon is asked about, or NULL if this call is no plain one.
static const char *state_of(int argc, char **argv)
{
	const char *name = NULL;
	for (const char *s = argc > 0 ? argv[0] : ""; *s; s++)
		if (*s == '/')
			name = s;
	if (!name)
		return NULL;
	if (argc == 4 && equal(name, "/update"))
		return "update";
	if (argc != 2 || !equal(name, "/reference-transaction"))
		return NULL;
	if (equal(argv[1], "prepared") || equal(argv[1], "committed") || equal(argv[1], "aborted"))
		return argv[1];
	return NULL;
}

// usual_place reports whether git runs the hook as it does for a push, in the
// repository's directory, and there is no other hook to be run before it. That the
// directory is one that the daemon serves is for the daemon to find out.
static int usual_place(char **env, const char *self)
{
	const char *dir = lookup(env, "GIT_DIR");
	if (!dir || !equal(dir, ".") || lookup(env, "GIT_COMMON_DIR") || lookup(env, "REFDB_REPLICA"))
		return 0;
	struct text chained = {path, path + sizeof path - 1, 1};
	append(&chained, self);
	append(&chained, ".chained");
	*chained.at = 0;
	return chained.whole && sys(SYS_faccessat, AT_FDCWD, path, X_OK, NULL, 0) == -ENOENT;
}

// read_body reads standard input to its end. It reports whether all went well.
static int read_body(void)
{
	taken.stdin_text = body;
	while (taken.stdin_len < MAX_BODY) {
		long n = sys(SYS_read, STDIN_FILENO, body + taken.stdin_len, MAX_BODY - taken.stdin_len, NULL, 0);
		if (n == 0)
			return 1;
		if (n > 0)
			taken.stdin_len += n;
		else if (n != -EINTR)
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
		size_t id = hex_digits(p, end);
		if ((id != 40 && id != 64) || (size_t)(end - p) < 2 * id + 4 || p[id] != ' ')
			return 0;
		if (hex_digits(p + id + 1, end) != id || p[2 * id + 1] != ' ')
			return 0;
		const char *ref = p + 2 * id + 2;
		for (p = ref; p < end && (unsigned char)*p > ' ' && *p != 0x7f; p++)
			;
		if (p == ref || p == end || *p != '\n')
			return 0;
		p++;
	}
	return 1;
}

// wait_at_most bounds what is sent or received next.
static int wait_at_most(int fd, int option, long ms)
{
	struct timeval t = {ms / 1000, ms % 1000 * 1000};
	return ms > 0 && sys(SYS_setsockopt, fd, (void *)SOL_SOCKET, option, &t, sizeof t) == 0;
}

// exchange sends a request and receives the whole answer. It reports whether all went well.
static int exchange(int fd, const char *text, long len, long limit)
{
	if (!wait_at_most(fd, SO_SNDTIMEO, limit - elapsed_ns() / 1000000) ||
	    sys(SYS_connect, fd, &address, sizeof address, NULL, 0) != 0 ||
	    sys(SYS_write, fd, text, len, NULL, 0) != len || sys(SYS_shutdown, fd, (void *)SHUT_WR, 0, NULL, 0) != 0)
		return 0;
	while (taken.answer_len < MAX_ANSWER) {
		if (!wait_at_most(fd, SO_RCVTIMEO, limit - elapsed_ns() / 1000000))
			return 0;
		long n = sys(SYS_read, fd, answer + taken.answer_len, MAX_ANSWER - taken.answer_len, NULL, 0);
		if (n == 0)
			return taken.answer_len > 0;
		if (n > 0)
			taken.answer_len += n;
		else if (n != -EINTR)
			return 0;
	}
	return 0;
}

// ask sends the daemon the body as package wire does it, and returns whether it has answered.
static int ask(const char *state, size_t body_len, long limit)
{
	static char header[MAX_HEADER];
	struct text h = {header, header + sizeof header, 1};
	if (sys(SYS_getcwd, (long)path, (void *)sizeof path, 0, NULL, 0) <= 0 || path[0] != '/')
		return 0;
	for (const char *p = path; *p; p++)
		if (*p == '\n')
			return 0;
	append(&h, "refdb-hook 1\nstate ");
	append(&h, state);
	append(&h, "\ndir ");
	append(&h, path);
	append(&h, "\nlimit ");
	append_number(&h, limit - elapsed_ns() / 1000000);
	append(&h, "\n\n");
	size_t len = h.at - header;
	if (!h.whole)
		return 0;
	for (size_t i = 0; i < len; i++)
		body[(long)i - (long)len] = header[i];
	int fd = sys(SYS_socket, AF_UNIX, (void *)(SOCK_STREAM | SOCK_CLOEXEC), 0, NULL, 0);
	if (fd < 0)
		return 0;
	int answered = exchange(fd, body - len, len + body_len, limit);
	sys(SYS_close, fd, NULL, 0, NULL, 0);
	return answered;
}

static void agreed(void)
{
	for (;;)
		sys(SYS_exit_group, 0, NULL, 0, NULL, 0);
}

// What the kernel calls a sigaction.
struct action {
	void (*handler)(int);
	unsigned long flags;
	void (*restorer)(void);
	unsigned long mask;
};

enum { SIGNALS = 5 };
static const int signals[SIGNALS] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGPIPE};

static void attempt(int argc, char **argv, char **env)
{
	const char *state = state_of(argc, argv);
	long limit = limit_ms(env);
	size_t len;
	if (!state || limit <= 0 || !usual_place(env, argv[0]))
		return;
	if (equal(state, "update")) {
		struct text b = {body, body + MAX_BODY, 1};
		append(&b, argv[2]);
		append(&b, " ");
		append(&b, argv[3]);
		append(&b, " ");
		append(&b, argv[1]);
		append(&b, "\n");
		if (!b.whole)
			return;
		len = b.at - body;
	} else {
		if (!read_body())
			return;
		len = taken.stdin_len;
		if (len == 0)
			agreed();
	}
	if (!plain_lines(body, body + len) || !ask(state, len, limit))
		return;
	if (taken.answer_len == 3 && answer[0] == 'o' && answer[1] == 'k' && answer[2] == '\n')
		agreed();
	taken.answer = answer;
}

__attribute__((used)) void shortcut_take(long *stack)
{
	int argc = *stack;
	char **argv = (char **)(stack + 1);
	static const struct action ignore = {.handler = SIG_IGN};
	sys(SYS_clock_gettime, CLOCK_MONOTONIC, &began, 0, NULL, 0);
	// Whoever interrupts git interrupts the hook as well, which is to get its answer all
	// the same. The Go program sets these signals anew.
	for (int i = 0; i < SIGNALS; i++)
		sys(SYS_rt_sigaction, signals[i], &ignore, 0, (void *)sizeof ignore.mask, 0);
	attempt(argc, argv, argv + argc + 1);
	taken.took_ns = elapsed_ns();
}

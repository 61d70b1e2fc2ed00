// A server that is started with this library in LD_PRELOAD, as PostgreSQL is,
// reads a wall clock that is off by as many seconds as the file named by
// CHAOS_CLOCK_STEP says, at any time, in 8 bytes.
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static volatile int64_t *step;

__attribute__((constructor)) static void map_step(void)
{
	const char *path = getenv("CHAOS_CLOCK_STEP");
	int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
	void *page = fd < 0 ? MAP_FAILED : mmap(NULL, sizeof *step, PROT_READ, MAP_SHARED, fd, 0);
	// A clock that can't be stepped would make the fault a fraud.
	if (page == MAP_FAILED)
		_exit(127);
	step = page;
	close(fd);
}

int clock_gettime(clockid_t clock, struct timespec *now)
{
	int failed = syscall(SYS_clock_gettime, clock, now);
	// Other libraries' constructors may come before ours.
	if (!failed && step && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
		now->tv_sec += *step;
	return failed;
}

struct microseconds {
	int64_t seconds, rest;
};

int gettimeofday(struct microseconds *now, void *zone)
{
	struct timespec precise;
	int failed = clock_gettime(CLOCK_REALTIME, &precise);
	(void)zone;
	if (!failed) {
		now->seconds = precise.tv_sec;
		now->rest = precise.tv_nsec / 1000;
	}
	return failed;
}

time_t time(time_t *into)
{
	struct timespec now = {0, 0};
	clock_gettime(CLOCK_REALTIME, &now);
	if (into)
		*into = now.tv_sec;
	return now.tv_sec;
}

/* A disk that is slow to flush: fdatasync and fsync take one millisecond longer.
 *
 *   gcc -shared -fPIC -O2 -o slowsync.so slowsync.c
 *   LD_PRELOAD=/path/to/slowsync.so postgres ...
 *
 * It goes to the kernel by itself, so that it needs no dlsym. */
#define _GNU_SOURCE
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static void slow(void)
{
	const struct timespec ms = {0, 1000000};
	nanosleep(&ms, NULL);
}

int fdatasync(int fd)
{
	slow();
	return (int)syscall(SYS_fdatasync, fd);
}

int fsync(int fd)
{
	slow();
	return (int)syscall(SYS_fsync, fd);
}

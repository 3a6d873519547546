#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

/* Preloaded, this sets the clock of one process: gettimeofday adds the seconds that the file
   $SHIFT holds as a 64-bit number. */
int gettimeofday(struct timeval *tv, void *tz) {
	static volatile long *shift;
	struct timespec now;
	if (!shift) {
		int fd = open(getenv("SHIFT"), O_RDONLY);
		shift = mmap(0, sizeof *shift, PROT_READ, MAP_SHARED, fd, 0);
		close(fd);
	}
	syscall(SYS_clock_gettime, CLOCK_REALTIME, &now);
	tv->tv_sec = now.tv_sec + *shift;
	tv->tv_usec = now.tv_nsec / 1000;
	return 0;
}
